"""`take` gives the same numbers in JAX and in Julia, and the same derivatives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from bridge_helpers import julia
from hypothesis import given, settings
from hypothesis import strategies as st
from precision import enable_x64

import pybridge as pb

SHAPE = (2, 3, 4)


@pytest.fixture(autouse=True)
def x64():
    with enable_x64(True):
        yield


def source(mode, dims, fill):
    fill = f", fill={fill}" if fill else ""
    return f"(x, i) -> PyBridge.take(x, i; dims={dims}, mode=:{mode}{fill})"


def shifted(indices, size, mode):
    """Return the indices as Julia counts them, from 1 and none from the end."""
    i = np.asarray(indices)
    if mode in ("error", "fill"):
        i = np.where((i < 0) & (i >= -size), i + size, i)
    return jnp.asarray(i + 1)


CASES = st.tuples(
    st.sampled_from(["clip", "wrap", "fill"]),
    st.integers(0, 2),
    st.lists(st.lists(st.integers(-9, 9), min_size=2, max_size=2), min_size=1, max_size=2),
)


# By day tests/julia/take.jl has the values, and the next test each mode.
@pytest.mark.nightly
@settings(deadline=None, max_examples=25)
@given(CASES)
def test_values_and_gradients_are_those_of_jax(case):
    mode, axis, indices = case
    x = jnp.sin(jnp.arange(24.0)).reshape(SHAPE)
    options = {"fill_value": 5.0} if mode == "fill" else {}
    there = julia(source(mode, axis + 1, "5.0" if options else ""))
    theirs = shifted(indices, SHAPE[axis], mode)

    def ours(x):
        return pb.take(x, indices, axis, mode, **options)

    np.testing.assert_array_equal(there(x, theirs), ours(x))
    weights = jnp.cos(jnp.arange(ours(x).size, dtype=float)).reshape(ours(x).shape)
    slope = jax.grad(lambda x: (weights * there(x, theirs) ** 2).sum())(x)
    want = jax.grad(lambda x: (weights * ours(x) ** 2).sum())(x)
    np.testing.assert_allclose(slope, want, rtol=1e-12, atol=1e-12)


# Mode: indices, and how many of them mean the third element.
MODES = {
    "error": ([1, 3, 3], 2),
    "clip": ([1, 6, 3, 3], 3),
    "wrap": ([1, 6, 3, 3], 3),
    "fill": ([1, 6, 3, 3], 2),
}


@pytest.mark.parametrize("mode", MODES)
def test_every_system_and_mode(system, mode):
    indices, times = MODES[mode]
    x, i = jnp.array([1.0, 2.0, 3.0]), jnp.array(indices)
    fill = "5.0" if mode == "fill" else ""
    f = julia(f"(x, i) -> sum(({source(mode, 1, fill)})(x, i) .^ 2)", ad=system)
    want = [2.0, 0.0, 6.0 * times]
    np.testing.assert_allclose(jax.jit(jax.grad(f))(x, i), want)
    np.testing.assert_allclose(jax.jacfwd(f)(x, i), want)
    if mode == "clip":
        np.testing.assert_allclose(jax.hessian(f)(x, i), np.diag([2.0, 0.0, 2.0 * times]))


def test_an_error_in_julia_names_index_and_dimension():
    x = jnp.zeros(SHAPE)
    f = julia("(x, i) -> PyBridge.take(x, i; dims=2)")
    with pytest.raises(pb.JuliaError, match="from 1 to 3 on dimension 2, got index 4"):
        f(x, jnp.array([1, 4]))
    assert f(x, jnp.array([1, 3])).shape == (2, 2, 4)
