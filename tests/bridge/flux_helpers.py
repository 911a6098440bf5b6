"""What the tests of Flux models share: Flux itself, called without the bridge of `from_julia`."""

from __future__ import annotations

import functools
import sys

import jax
import numpy as np
from bridge_helpers import julia

import pybridge as pb
from pybridge.julia._session import session


@functools.cache
def model(source, ad="zygote"):
    """Make a model once: Julia compiles for every new one."""
    return pb.flux(source, ad=ad)


def flux(source):
    """Bridge a function that uses Flux; its arrays have the axes reversed."""
    return julia(source, using="Flux", layout="reversed")


def in_julia(source, *values):
    """Call a Julia function with juliacall values and NumPy arrays, on Julia's thread.

    In the source, `R(x)` is an array with its axes reversed. The result, an array or a tuple of
    arrays, comes back with its axes reversed.
    """

    def work(_):
        main = sys.modules["juliacall"].Main
        main.seval("import Flux; R(x) = permutedims(Array(x), ndims(x):-1:1)")
        result = main.seval(source)(*[np.asarray(v) if hasattr(v, "dtype") else v for v in values])
        many = isinstance(result, tuple) or "Tuple" in str(main.typeof(result))
        arrays = [np.array(one).T for one in (result if many else (result,))]
        return arrays if many else arrays[0]

    return session().call(work)


def close(got, want, rtol):
    """Compare trees of arrays, relative to the largest element of each."""
    got, want = jax.tree.leaves(got), jax.tree.leaves(want)
    assert len(got) == len(want)
    for one, other in zip(got, want, strict=True):
        one, other = np.asarray(one), np.asarray(other)
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
        scale = max(1e-3, np.abs(other).max(initial=0))
        np.testing.assert_allclose(one, other, rtol=0, atol=rtol * scale)


def inputs(shape, dtype=np.float32, seed=1):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)
