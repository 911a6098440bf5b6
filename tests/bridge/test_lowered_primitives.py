"""Each primitive in Julia against JAX: values, and gradients by each of Julia's AD systems.

Compiling is what these tests spend their time on, so the gradients of the elementwise primitives
are taken of a few at once.
"""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from bridge_helpers import SYSTEMS
from jax import lax
from lowering_cases import (
    DISCRETE,
    ELEMENTWISE,
    HOLED,
    OTHER_POOLS,
    POOLS,
    SMOOTH,
    VALUES_ONLY,
    pool,
)
from precision import enable_x64
from quick import by_day

import pybridge as pb
from pybridge.lowering import lower

TOLERANCE = {"rtol": 2e-5, "atol": 2e-5}

# Gaps of a system, each with its reason; an entry that works again is an error.
GAPS = {
    ("custom_vjp", "forwarddiff"): "a custom_vjp has no rule for forward mode, in JAX neither",
}

GROUP = 14


def arrays(args):
    return [jax.tree.map(jnp.asarray, arg) for arg in args]


def compare(got, want, rtol, atol=0.0):
    """Compare trees; `atol` is relative to the largest number of an array."""
    for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
        other = np.asarray(other)
        largest = np.abs(other[np.isfinite(other)]).max(initial=1) if atol else 0
        np.testing.assert_allclose(np.asarray(one), other, rtol=rtol, atol=atol * largest)


def weighted(f):
    """Make a number of all inexact results, each element with a weight of its own."""

    def number(*args):
        total = jnp.float32(0)
        for out in jax.tree.leaves(f(*args)):
            if jnp.issubdtype(out.dtype, np.inexact):
                weight = jnp.cos(jnp.arange(out.size, dtype=np.float32) + 1)
                total += jnp.sum(weight.reshape(out.shape) * out)
        return total

    return number


def together(names, cases=SMOOTH):
    """One function of several cases."""

    def f(*args):
        queue = list(args)
        return [cases[n][0](*(queue.pop(0) for _ in cases[n][1:])) for n in names]

    return f, [arg for n in names for arg in cases[n][1:]]


def lowered_cases(names, cases=SMOOTH):
    """How to lower each case by itself, for the table in the documentation."""
    return {n: lambda n=n: lower(cases[n][0], *arrays(cases[n][1:])) for n in names}


def gradients_agree(f, args, system):
    args = arrays(args)
    numbers = tuple(i for i, a in enumerate(args) if jnp.issubdtype(a.dtype, np.inexact))
    want = jax.value_and_grad(weighted(f), numbers)(*args)
    got = pb.value_and_grad(weighted(f), numbers, backend=system)(*args)
    compare(got, want, **TOLERANCE)


SMOOTH_NAMES = list(SMOOTH)
OTHERS = [n for n in SMOOTH if n not in (*ELEMENTWISE, *VALUES_ONLY)]


@pytest.mark.parametrize("start", range(0, len(SMOOTH), GROUP))
def test_the_values_are_jaxs(start, saw):
    saw("value", lowered_cases(SMOOTH_NAMES[start : start + GROUP]))
    f, args = together(SMOOTH_NAMES[start : start + GROUP])
    args = arrays(args)
    compare(lower(f, *args)(*args), f(*args), rtol=2e-6, atol=1e-6)


# XLA's older emitters, which the quick run has, make a NaN without mantissa bits an infinity.
BY_DAY = [name for name in DISCRETE if name != "reduced precision"]


@pytest.mark.parametrize("name", by_day(DISCRETE, BY_DAY))
def test_the_value_is_jaxs_to_the_bit(name, saw):
    saw("value", lowered_cases([name], DISCRETE))
    f, *args = DISCRETE[name]
    args = arrays(args)
    exact = name not in ("pow of special values", "sqrt and log outside", "normal")
    compare(lower(f, *args)(*args), f(*args), rtol=0 if exact else 2e-6)


# A group is compiled faster than its members, which the night has one by one under every system.
@pytest.mark.parametrize("start", range(0, len(OTHERS), GROUP))
def test_the_gradients_are_jaxs(start, saw):
    saw("zygote", lowered_cases(OTHERS[start : start + GROUP]))
    gradients_agree(*together(OTHERS[start : start + GROUP]), "zygote")


@pytest.mark.nightly
@pytest.mark.parametrize("name", OTHERS)
def test_the_gradient_is_jaxs(name, system, saw):
    saw(system, lowered_cases([name]), gap=GAPS.get((name, system), ""))
    if (name, system) in GAPS:
        with pytest.raises(pb.BridgeError):
            gradients_agree(*together([name]), system)
        return
    gradients_agree(*together([name]), system)


@pytest.mark.parametrize("start", range(0, len(ELEMENTWISE), GROUP))
@pytest.mark.parametrize(
    "column",
    ["zygote", *(pytest.param(name, marks=pytest.mark.nightly) for name in SYSTEMS[1:])],
)
def test_the_gradients_of_elementwise_primitives_are_jaxs(start, column, saw):
    saw(column, lowered_cases(ELEMENTWISE[start : start + GROUP]))
    gradients_agree(*together(ELEMENTWISE[start : start + GROUP]), column)


def test_rounding_on_the_way(system):
    # JAX's reverse mode rounds the cotangent, forward mode the tangent.
    def f(x):
        return x.astype(jnp.float16).astype(jnp.float32) * lax.reduce_precision(x, 8, 10)

    args = arrays(SMOOTH["add"][1:2])
    want = jax.value_and_grad(weighted(f))(*args)
    compare(pb.value_and_grad(weighted(f), backend=system)(*args), want, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("cases", [POOLS, OTHER_POOLS])
def test_pooling_has_jaxs_values_to_the_bit(cases):
    f, args = together(cases, cases)
    args = arrays(args)
    compare(lower(f, *args)(*args), f(*args), rtol=0)


@pytest.mark.parametrize("name", POOLS)
def test_the_gradient_of_pooling_is_jaxs(name, compiling_system):
    f, *args = POOLS[name]
    gradients_agree(f, args, compiling_system)


def test_a_nan_in_a_window_gives_its_derivative_to_the_element_that_jax_chooses():
    f = pool(-np.inf, jax.lax.max, (1, 1, 3, 2), (1, 1, 2, 2), "VALID")
    x = jnp.asarray(HOLED)
    (want,) = jax.vjp(f, x)[1](jnp.ones_like(f(x)))
    (got,) = pb.vjp(f, x, backend="zygote")[1](jnp.ones_like(f(x)))
    np.testing.assert_array_equal(np.asarray(got), np.asarray(want))


@pytest.mark.parametrize(
    ("f", "args", "error", "text"),
    [
        (lambda x: x, (2**40,), pb.ArgumentValueError, "fits int32 for argument leaf 0"),
        (lambda x: (x, "a"), (1.0,), pb.LoweringError, "a builtins.str among its results"),
        (
            lambda key: jax.random.uniform(key, (3,)),
            (jax.random.key(0, impl="rbg"),),
            pb.LoweringError,
            'impl="threefry2x32"',
        ),
    ],
)
def test_what_julia_does_not_have_is_refused_with_a_remedy(f, args, error, text):
    with pytest.raises(error, match=text):
        lower(f, *args)


PRODUCTS = {
    "multiply": lambda x, u: x.at[jnp.array([1, 0, 1, 1, 7])].multiply(u, mode="drop"),
    "divide": lambda x, u: x.at[jnp.array([1, 0, 1, 1, 7])].divide(u + 2, mode="drop"),
    "segment_prod": lambda x, u: jax.ops.segment_prod(u, jnp.array([1, 0, 1, 1, 2]), 3),
    "windows": lambda x, u: jnp.stack([x, x]).at[:, jnp.array([0, 0, 2, 2, 2])].multiply(u),
}


# Each by one system, and each system by one of them; windows take minutes where tapes are long.
PAIRS = list(zip(PRODUCTS, ("forwarddiff", "tracker", "yota", "zygote"), strict=True))


@pytest.mark.parametrize(("name", "system"), by_day(itertools.product(PRODUCTS, SYSTEMS), PAIRS))
def test_factors_at_one_place(name, system):
    """JAX refuses these derivatives, so the truth is that of finite differences."""

    def f(x, u):
        return jnp.sum(jnp.sin(PRODUCTS[name](x, u)))

    with enable_x64(True):
        x, u = jnp.array([0.5, -1.0, 2.0]), jnp.array([0.4, 1.5, 0.0, -0.7, 3.0])
        got = pb.grad(f, (0, 1), backend=system)(x, u)
        want = pb.grad(f, (0, 1), backend="finite")(x, u)
    for one, other in zip(got, want, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-7)
