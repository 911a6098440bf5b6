"""Dropout against its definition, JAX's own generator, and the edge cases."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from layer_helpers import close, ignore_mode_warnings, random
from quick import examples

import pybridge as pb
from pybridge import nn

pytestmark = ignore_mode_warnings
KEY = jax.random.key(3)
ALPHA = -1.7580993408473766


def run(layer, x, key=KEY, training=True):
    return layer.apply({}, {}, x, key=key, training=training)[0]


@given(
    seed=st.integers(0, 2**32 - 1),
    shape=st.lists(st.integers(0, 5), max_size=4).map(tuple),
    p=st.floats(0, 1),
    dtype=st.sampled_from([np.float16, jnp.bfloat16, np.float32]),
)
@settings(max_examples=examples(50), deadline=None)
def test_the_mask_is_jaxs_bernoulli(seed, shape, p, dtype):
    key = jax.random.key(seed)
    x = jnp.ones(shape, dtype)
    kept = jax.random.bernoulli(key, np.float32(1 - p), shape)
    largest = float(jnp.finfo(dtype).max)
    scale = jnp.asarray(0 if p == 1 else min(1 / (1 - p), largest), dtype)
    y = run(nn.Dropout(p), x, key)
    assert y.dtype == dtype and y.shape == shape
    want = x if p == 0 else jnp.where(kept, scale, jnp.zeros((), dtype))
    np.testing.assert_array_equal(np.asarray(y, np.float32), np.asarray(want, np.float32))


@pytest.mark.parametrize("layer", [nn.Dropout, nn.AlphaDropout])
def test_a_scale_beyond_half_precision_gives_no_nan(layer):
    layer, x = layer(1 - 2**-40), jnp.arange(8, dtype=np.float16)
    y, slopes = jax.value_and_grad(lambda x: run(layer, x).sum())(x)
    assert np.isfinite(y)
    np.testing.assert_array_equal(slopes, np.zeros(8))


def test_the_mask_does_not_depend_on_x64_or_the_dtype(x64):
    mask = [run(nn.Dropout(0.3), jnp.ones(1000, d)) != 0 for d in (np.float16, np.float64)]
    assert (mask[0] == mask[1]).all()
    assert (mask[0] == jax.random.bernoulli(KEY, np.float32(0.7), (1000,))).all()


def test_the_mask_is_the_same_with_old_counters():
    want = run(nn.Dropout(0.5), jnp.ones(999))
    with jax.threefry_partitionable(False):
        assert (run(nn.Dropout(0.5), jnp.ones(999)) == want).all()


def test_raw_keys_are_keys():
    x = jnp.ones(100)
    assert (run(nn.Dropout(0.5), x, jax.random.key_data(KEY)) == run(nn.Dropout(0.5), x)).all()


@pytest.mark.parametrize("dims", [0, 1, (0, 1), (-1,), (0, 3), ()])
def test_dims(dims):
    x = jnp.ones((3, 4, 5, 6))
    axes = {a % 4 for a in (dims if isinstance(dims, tuple) else (dims,))}
    shape = tuple(n if a in axes else 1 for a, n in enumerate(x.shape))
    want = 2.0 * np.broadcast_to(jax.random.bernoulli(KEY, 0.5, shape), x.shape)
    np.testing.assert_array_equal(run(nn.Dropout(0.5, dims=dims), x), want)


@pytest.mark.parametrize("layer", [nn.Dropout(0.4), nn.AlphaDropout(0.4)], ids=repr)
def test_the_same_mask_forwards_backwards_and_recomputed(layer, maybe_jit):
    x = random(jax.random.key(5), (50,))
    kept = jax.random.bernoulli(KEY, np.float32(0.6), x.shape)

    def loss(x):
        return run(layer, x).sum()

    for f in (loss, jax.checkpoint(loss)):
        assert ((maybe_jit(jax.grad(f))(x) != 0) == kept).all()
    slope = jax.grad(loss)(x)
    close(maybe_jit(lambda x: jax.jvp(loss, (x,), (x,))[1])(x), slope @ x)


@pytest.mark.parametrize("layer", [nn.Dropout(1), nn.AlphaDropout(1.0)], ids=repr)
def test_p_one_gives_zeros_with_zero_gradient(layer, maybe_jit):
    x = jnp.array([1.0, -2.0, jnp.inf])
    value, slope = maybe_jit(jax.value_and_grad(lambda x: run(layer, x).sum()))(x)
    assert float(value) == 0 and (slope == 0).all()


@pytest.mark.parametrize("layer", [nn.Dropout(0), nn.AlphaDropout(0.0)], ids=repr)
def test_p_zero_is_the_identity_and_needs_no_key(layer, maybe_jit):
    x = jnp.array([1.0, -2.0, jnp.nan])
    np.testing.assert_array_equal(maybe_jit(lambda x: run(layer, x, None))(x), x)
    assert (jax.grad(lambda x: run(layer, x, None).sum())(x) == 1).all()


@pytest.mark.parametrize("kind", [nn.Dropout, nn.AlphaDropout])
@pytest.mark.parametrize("p", [2, -0.1, 1.0001, np.nan, np.inf])
def test_other_probabilities_are_refused(kind, p):
    with pytest.raises(pb.ArgumentValueError, match="0 <= p <= 1"):
        kind(p)


@pytest.mark.parametrize("kind", [nn.Dropout, nn.AlphaDropout])
@pytest.mark.parametrize("p", ["0.5", None, [0.5], True, np.True_, np.array([0.5])])
def test_what_is_no_number_is_refused(kind, p):
    with pytest.raises(pb.ArgumentTypeError, match="a Python number as p"):
        kind(p)


def test_a_traced_probability_is_refused():
    with pytest.raises(pb.ArgumentTypeError, match="a Python number as p"):
        jax.jit(lambda p: run(nn.Dropout(p), jnp.ones(3)))(0.5)


@pytest.mark.parametrize("kind", [nn.Dropout, nn.AlphaDropout])
def test_integers_are_refused(kind):
    with pytest.raises(pb.ArgumentTypeError, match="floating-point input"):
        run(kind(0.5), jnp.arange(3))


def test_dims_that_the_input_lacks_are_refused():
    with pytest.raises(pb.ArgumentValueError, match=r"axes \(2,\) of dims"):
        run(nn.Dropout(0.5, dims=2), jnp.ones((3, 4)))


@pytest.mark.parametrize("dims", ["a", 1.5, True, (0, None)])
def test_dims_that_are_no_integers_are_refused(dims):
    with pytest.raises(pb.ArgumentTypeError, match="integers as dims"):
        nn.Dropout(0.5, dims=dims)


def test_dims_that_name_an_axis_twice_are_refused():
    with pytest.raises(pb.ArgumentValueError, match="each axis once"):
        run(nn.Dropout(0.5, dims=(0, -3)), jnp.ones((3, 4, 5)))


@pytest.mark.parametrize("kind", [nn.Dropout, nn.AlphaDropout])
@pytest.mark.parametrize("key", [5, "a", jnp.ones(2), jnp.uint32(3), jax.random.split(KEY)])
def test_what_is_not_one_key_is_refused(kind, key):
    with pytest.raises(pb.ArgumentTypeError, match=f"{kind.__name__}.apply.*one key"):
        run(kind(0.5), jnp.ones(3), key)


def test_nan_and_inf_pass_where_kept_and_vanish_where_dropped():
    x = jnp.array([jnp.nan, jnp.inf] * 50)
    kept = jax.random.bernoulli(KEY, 0.5, x.shape)
    y, vjp = jax.vjp(lambda x: run(nn.Dropout(0.5), x), x)
    (slope,) = vjp(jnp.ones_like(x))
    np.testing.assert_array_equal(y, jnp.where(kept, x, 0.0))
    np.testing.assert_array_equal(slope, jnp.where(kept, 2.0, 0.0))


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_alpha_dropout_is_fluxs_formula(p, x64):
    x = random(KEY, (1000,), np.float64)
    kept = jax.random.bernoulli(KEY, np.float32(1 - p), x.shape)
    a = 1 / np.sqrt((1 - p) * (1 + p * ALPHA**2))
    want = a * np.where(kept, x, ALPHA) - a * ALPHA * p
    close(run(nn.AlphaDropout(p), x), want, rtol=1e-14)


def test_alpha_dropout_keeps_mean_and_variance():
    x = random(KEY, (200_000,))
    y = run(nn.AlphaDropout(0.3), x, jax.random.key(4))
    assert abs(float(y.mean())) < 0.01 and abs(float(y.var()) - 1) < 0.02


def test_under_vmap_every_lane_may_have_its_own_key():
    keys = jax.random.split(KEY, 3)
    x = jnp.ones((3, 10))
    got = jax.vmap(lambda x, key: run(nn.Dropout(0.5), x, key))(x, keys)
    want = jnp.stack([run(nn.Dropout(0.5), row, key) for row, key in zip(x, keys, strict=True)])
    np.testing.assert_array_equal(got, want)


def test_sharding_does_not_change_the_mask(mesh):
    x = jnp.ones((8, 16))
    want = run(nn.Dropout(0.5), x)
    spread = jax.device_put(x, jax.NamedSharding(mesh, jax.P("i")))
    got = jax.jit(lambda x: run(nn.Dropout(0.5), x))(spread)
    np.testing.assert_array_equal(got, want)
