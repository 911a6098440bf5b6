"""`cond` on random elements equals a Python loop over them, in every derivative."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cond_helpers import total
from hypothesis import given, settings
from hypothesis import strategies as st
from quick import examples

import pybridge as pb

# Functions with poles or edges, and where each of them is smooth.
POLES = {
    "log": (jnp.log, lambda x: x > 0),
    "sqrt": (jnp.sqrt, lambda x: x > 0),
    "reciprocal": (lambda x: 1 / x, lambda x: x != 0),
    "power": (lambda x: jnp.abs(x) ** -1.5, lambda x: x < 0),
    "arcsin": (jnp.arcsin, lambda x: abs(x) < 1),
    "arccosh": (jnp.arccosh, lambda x: x > 1),
    "log of log": (lambda x: jnp.log(jnp.log(x)), lambda x: x > 1),
    "sinc": (lambda x: jnp.sin(x) / x, lambda x: x != 0),
    "norm": (lambda x: jnp.sqrt(x * x), lambda x: x != 0),
}
ELSE = {
    "zero": lambda x: 0 * x,
    "cube": lambda x: x**3,
    "exp": lambda x: jnp.exp(-x),
}
NUMBERS = st.sampled_from([-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 3.0])


@functools.cache
def chosen(name, other, mapped):
    branch, smooth = POLES[name]

    def f(x):
        return pb.cond(smooth(x), branch, ELSE[other], x)

    return jax.vmap(f) if mapped else f


def directional(f):
    return lambda x: jax.jvp(f, (x,), (jnp.ones_like(x),))[1]


# How to get the first or second derivative of each element.
DERIVATIVES = {
    "value": (0, lambda f: f),
    "grad": (1, lambda f: jax.grad(total(f))),
    "jvp": (1, directional),
    "grad of grad": (2, lambda f: jax.grad(total(jax.grad(total(f))))),
    "jvp of grad": (2, lambda f: directional(jax.grad(total(f)))),
    "hessian": (2, lambda f: lambda x: jax.hessian(total(f))(x).diagonal()),
    "jacfwd of jacrev": (
        2,
        lambda f: lambda x: jnp.einsum("iii->i", jax.jacfwd(jax.jacrev(f))(x)),
    ),
}


@functools.cache
def compiled(name, other, mapped, derivative):
    return jax.jit(DERIVATIVES[derivative][1](chosen(name, other, mapped)))


@functools.cache
def alone(function, order):
    for _ in range(order):
        function = jax.grad(function)
    return jax.jit(function)


@pytest.mark.parametrize("derivative", DERIVATIVES)
@pytest.mark.parametrize("mapped", [True, False], ids=["vmap", "array"])
@settings(max_examples=examples(8), deadline=None, derandomize=True)
@given(
    name=st.sampled_from(sorted(POLES)),
    other=st.sampled_from(sorted(ELSE)),
    numbers=st.lists(NUMBERS, min_size=4, max_size=4),
)
def test_equals_a_python_loop_over_elements(derivative, mapped, name, other, numbers):
    order, _ = DERIVATIVES[derivative]
    branch, smooth = POLES[name]
    expected = [float(alone(branch if smooth(x) else ELSE[other], order)(x)) for x in numbers]
    assert np.isfinite(expected).all()
    result = compiled(name, other, mapped, derivative)(jnp.array(numbers))
    np.testing.assert_allclose(result, expected, rtol=2e-5, atol=1e-5)
