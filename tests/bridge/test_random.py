"""Masks and dropout in Julia are JAX's, for any key, shape, probability and dtype."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from bridge_helpers import julia
from hypothesis import given, settings
from hypothesis import strategies as st
from precision import enable_x64
from quick import examples

WORDS = st.integers(0, 2**32 - 1)
KEYS = st.tuples(WORDS, WORDS).map(lambda pair: np.array(pair, "uint32"))
SHAPES = st.lists(st.integers(0, 6), max_size=4).map(tuple)
# Also where float32's rounding of 1 - p matters.
PROBABILITIES = st.one_of(
    st.floats(0, 1),
    st.sampled_from([0.0, 0.1, 0.5, 1.0, 2.0**-24, 2.0**-25, 1 - 2.0**-23, 5e-324]),
)
DTYPES = ("float16", "float32", "float64")


def reverse(source, ad="zygote"):
    return julia(source, ad=ad, layout="reversed")


def mask_of(key, p, shape):
    return jax.random.bernoulli(jax.random.wrap_key_data(key), np.float32(1 - p), shape)


@pytest.fixture(autouse=True)
def x64():
    with enable_x64(True):
        yield


@settings(deadline=None, max_examples=examples(200))
@given(key=KEYS, shape=SHAPES, p=PROBABILITIES, dtype=st.sampled_from(DTYPES))
def test_masks_are_jaxs(key, shape, p, dtype):
    mask = reverse("(key, p, x) -> PyBridge.keep_mask(key, p[], size(x))")
    got = mask(key, np.array(p), jnp.zeros(shape, dtype))
    assert (got.dtype, got.shape) == (np.dtype(bool), shape)
    np.testing.assert_array_equal(got, mask_of(key, p, shape))


@settings(deadline=None, max_examples=examples(50))
@given(key=KEYS, shape=SHAPES, dtype=st.sampled_from(DTYPES))
def test_numbers_are_jaxs(key, shape, dtype):
    typed = jax.random.wrap_key_data(key)
    x = jnp.zeros(shape, dtype)
    uniform = reverse("(key, x) -> PyBridge.uniform(key, eltype(x), size(x))")
    np.testing.assert_array_equal(uniform(key, x), jax.random.uniform(typed, shape, dtype))
    normal = reverse("(key, x) -> PyBridge.normal(key, eltype(x), size(x))")
    accuracy = 16 * float(jnp.finfo(dtype).eps)
    np.testing.assert_allclose(
        normal(key, x), jax.random.normal(typed, shape, dtype), rtol=accuracy
    )


@settings(deadline=None, max_examples=examples(50))
@given(key=KEYS, data=WORDS)
def test_keys_from_keys_are_jaxs(key, data):
    typed = jax.random.wrap_key_data(key)
    fold_in = julia("(key, n) -> collect(PyBridge.fold_in(key, n[]))")
    want = jax.random.key_data(jax.random.fold_in(typed, data))
    np.testing.assert_array_equal(fold_in(key, np.array(data)), want)
    split = reverse("key -> stack(PyBridge.split(key, 3))")
    np.testing.assert_array_equal(split(key), jax.random.key_data(jax.random.split(typed, 3)))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (300_000,), (3, 5, 7)], ids=str)
def test_dropout_equals_a_masked_array(dtype, shape, maybe_compiled):
    key, p = np.array([1, 2], "uint32"), 0.3
    x = jax.random.normal(jax.random.key(0), shape, dtype)
    source = f"(key, x) -> PyBridge.dropout(key, x isa Number ? fill(x) : x, {p}; training=true)"
    got = maybe_compiled(reverse(source))(key, x)
    scale = jnp.asarray(1 / (1 - p), dtype)
    want = jnp.where(mask_of(key, p, shape), x * scale, jnp.zeros((), dtype))
    assert (got.dtype, got.shape) == (x.dtype, shape)
    np.testing.assert_array_equal(got, want)


@pytest.fixture(params=[lambda f: f, jax.jit], ids=["eager", "jit"])
def maybe_compiled(request):
    return request.param


def test_the_gradient_has_the_forward_mask(system):
    key, p, shape = np.array([3, 4], "uint32"), 0.4, (4, 3, 2)
    f = reverse(f"(key, x) -> sum(abs2, PyBridge.dropout(key, x, {p}; dims=(1, 3)))", ad=system)
    x = jax.random.normal(jax.random.key(1), shape, "float64")
    # Julia's dimensions 1 and 3 of 3 are JAX's axes 2 and 0.
    keep = jnp.broadcast_to(mask_of(key, p, (4, 1, 2)), shape)
    value, gradient = jax.value_and_grad(f, argnums=1)(key, x)
    dropped = jnp.where(keep, x / (1 - p), 0.0)
    np.testing.assert_allclose(value, jnp.sum(dropped**2), rtol=1e-12)
    np.testing.assert_allclose(gradient, 2 * dropped / (1 - p), rtol=1e-12)
    # Outside of a gradient nothing is dropped.
    np.testing.assert_allclose(f(key, x), jnp.sum(x**2), rtol=1e-12)
