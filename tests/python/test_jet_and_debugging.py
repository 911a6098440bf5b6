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


def test_what_taylor_mode_cannot_do_names_the_way_out():
    x = jnp.array([1.0, -1.0])
    with pytest.raises(pb.UnsupportedModeError, match=r"jet.*nest jax\.jvp"):
        jet(sqrt_or_zero, (x,), ((x, 0 * x),))
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
