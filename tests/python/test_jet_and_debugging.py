"""JAX's Taylor mode, and its mode for debugging, `jax.disable_jit()`."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cond_helpers import equal, sqrt_or_zero
from fake_bridge import cubic
from jax.experimental.jet import jet

import pybridge as pb
from pybridge import nn

KEY = jax.random.key(0)


def derivatives(f, x, orders):
    value, terms = jet(f, (x,), ([1.0] + [0.0] * (orders - 1),))
    return [value, *terms]


@pytest.mark.parametrize("x", [0.5, -0.5])
@pytest.mark.parametrize(
    "f",
    [
        lambda x: pb.cond(x > 0, lambda x: jnp.sin(x) * x, jnp.exp, x),
        lambda x: pb.switch(jnp.asarray(x > 0).astype(int), [jnp.exp, lambda x: x**3 * 2.0], x),
        lambda x: pb.cond(pb.within_gradient(x), jnp.sin, jnp.cos, x),
        lambda x: x * jnp.where(pb.within_gradient(x), 2.0, 3.0),
    ],
)
def test_taylor_series(f, x, maybe_jit):
    expected, g = [f(x)], f
    for _ in range(3):
        g = jax.grad(g)
        expected.append(g(x))
    # The value is that under a derivative.
    expected[0] = jax.value_and_grad(f)(x)[0]
    for got, want in zip(maybe_jit(lambda x: derivatives(f, x, 3))(x), expected, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_taylor_series_through_layers():
    layer = nn.Chain(nn.Dense(3, 2, jnp.tanh), nn.Dense(2, 1))
    params, state = layer.init(jax.random.key(0))
    x, v = jnp.ones((1, 3)), jnp.array([[1.0, -1.0, 2.0]])

    def f(t):
        return layer.apply(params, state, x + t * v)[0][0, 0]

    _, (first, second) = jet(f, (0.0,), ((1.0, 0.0),))
    equal(first, jax.grad(f)(0.0))
    equal(second, jax.grad(jax.grad(f))(0.0))


@pytest.mark.filterwarnings("ignore::pybridge.nn.ModeWarning")
@pytest.mark.parametrize("training", ["auto", False])
@pytest.mark.parametrize(
    "layer",
    [
        nn.BatchNorm(3),
        nn.LayerNorm(3),
        nn.Chain(nn.Dense(3, 4, jax.nn.relu), nn.BatchNorm(4), nn.Dropout(0.5), nn.LayerNorm(4)),
        pytest.param(nn.GroupNorm(3, 3), marks=pytest.mark.nightly),
    ],
    ids=lambda layer: type(layer).__name__,
)
def test_taylor_series_of_layers_with_rules_of_their_own(layer, training, x64):
    key = jax.random.key(0)
    params, state = layer.init(key, jnp.float64)
    x, v = (jax.random.normal(jax.random.key(i), (4, 3)) for i in (1, 2))

    def f(t):
        y, _ = layer.apply(params, state, x + t * v, key=key, training=training)
        return jnp.sum(jnp.sin(y) ** 2)

    def slope(g):
        return lambda t: jax.jvp(g, (t,), (1.0,))[1]

    nested = [slope(f), slope(slope(f)), slope(slope(slope(f)))]
    expected = jax.jit(lambda t: [g(t) for g in nested])(0.0)
    np.testing.assert_allclose(
        jax.jit(lambda t: derivatives(f, t, 3))(0.0)[1:], expected, rtol=1e-8
    )


def test_taylor_series_of_branches_with_keys_and_rules():
    def f(x):
        return pb.cond(x > 0, lambda x, key: jax.nn.relu(x) ** 2, lambda x, key: x, x, KEY)

    for x in (1.5, -1.5):
        equal(jax.jit(lambda x: derivatives(f, x, 2))(x)[1:], [3, 2] if x > 0 else [1, 0])


def test_what_taylor_mode_cannot_do_names_the_way_out():
    x = jnp.array([1.0, -1.0])
    with pytest.raises(pb.UnsupportedModeError, match=r"jet.*nest jax\.jvp"):
        jet(sqrt_or_zero, (x,), ((x, 0 * x),))
    with jax.disable_jit(), pytest.raises(pb.UnsupportedModeError, match=r"jet.*nest jax\.jvp"):
        jet(sqrt_or_zero, (x,), ((x, 0 * x),))
    for f in (jnp.sin, lambda x: x * jnp.exp(x)):
        with pytest.raises(pb.UnsupportedModeError, match=r"strong_zero.*jet.*Nest jax\.jvp"):
            jet(pb.strong_zero(f), (x,), ((x, 0 * x),))
    with pytest.raises(pb.UnsupportedModeError, match=r"jet.*pb\.within_gradient"):
        jet(lambda x: x + pb.differentiation_order(x), (1.0,), ((1.0,),))


def test_a_bridged_function_without_jit():
    bridged, reference, _ = cubic(((3,),), ((),))
    x = jnp.array([1.0, -2.0, 0.5])
    rows = jnp.stack([x, 2 * x])
    expected = [
        (f(reference))(a)
        for f, a in ((jax.grad, x), (jax.vmap, rows), (jax.hessian, x), (jax.jacfwd, x))
    ]
    with jax.disable_jit():
        got = [
            (f(bridged))(a)
            for f, a in ((jax.grad, x), (jax.vmap, rows), (jax.hessian, x), (jax.jacfwd, x))
        ]
        twice = jax.jit(jax.vmap(jax.grad(bridged)))(rows)
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(twice, jax.vmap(jax.grad(reference))(rows), rtol=1e-4, atol=1e-4)
