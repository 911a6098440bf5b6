"""What the tests of `NonDifferentiable` share."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import pybridge as pb

ND = pb.NonDifferentiable


class Pair(NamedTuple):
    p: Any
    n: Any


class Plain:
    """An object that compares and hashes by identity."""


class Traces:
    """A function that counts how often it is traced."""

    def __init__(self, f=lambda n, x: n * x):
        self.count = 0
        self.f = f

    def __call__(self, *args):
        self.count += 1
        return self.f(*args)


def is_own(x):
    return isinstance(x, ND)


def bits(x):
    """Return what tells numbers apart, keys and strings included."""
    if isinstance(x, jax.Array) and jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
        x = jax.random.key_data(x)
    return x if isinstance(x, str | int) else np.asarray(x).tobytes()
