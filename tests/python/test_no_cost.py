"""Asking costs nothing: the compiled programs are those without the question.

The optimised HLO of a gradient through `cond(within_gradient(x), f, g, x)` is compared
with that of `f`, and the plain program with that of `g`.
"""

import collections
import re

import jax
import jax.numpy as jnp
import pytest
from jax import lax

import pybridge as pb

pytestmark = pytest.mark.usefixtures("optimised")


def chain(x):
    return jnp.sum(jnp.tanh(x) * jnp.sin(x) + jnp.exp(-x * x))


def matmul(x):
    return jnp.sum(jax.nn.relu(x @ x.T) ** 2)


def mlp(x):
    w1 = jnp.linspace(-1.0, 1.0, x.shape[-1] * 16).reshape(x.shape[-1], 16)
    w2 = jnp.linspace(-1.0, 1.0, 16 * 4).reshape(16, 4)
    return -jnp.mean(jax.nn.log_softmax(jnp.tanh(x @ w1) @ w2)[..., 0])


def loop(x):
    return jnp.sum(lax.scan(lambda c, _: (jnp.sin(c) * x, None), x, length=3)[0])


def normalised(x):
    mean, var = jnp.mean(x, 0), jnp.var(x, 0)
    return jnp.sum(jnp.cos((x - mean) * lax.rsqrt(var + 1e-5)))


def other(x):
    return jnp.sum(jnp.cosh(x) / (1 + x**2))


FUNCTIONS = [chain, matmul, mlp, loop, normalised]


def asking(f, g):
    return lambda x: pb.cond(pb.within_gradient(x), f, g, x)


def operations(f, x):
    """Count the operations of the optimised HLO of a function, by name."""
    text = jax.jit(f).lower(x).compile().as_text()
    return collections.Counter(re.findall(r"[\])}] ([a-z][a-z0-9-]*)\(", text))


def second(f):
    return jax.grad(lambda x: jnp.sum(jax.grad(f)(x) ** 2))


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
@pytest.mark.parametrize(
    "wrap",
    [
        jax.grad,
        lambda f: jax.grad(jax.jit(f)),
        lambda f: jax.grad(jax.checkpoint(f)),
        lambda f: lambda x: jax.jvp(f, (x,), (x,)),
        lambda f: jax.vmap(jax.grad(lambda row: f(row[None]))),
        lambda f: jax.grad(lambda x: jax.vmap(lambda row: f(row[None]))(x).sum()),
        second,
    ],
    ids=["grad", "grad of jit", "grad of checkpoint", "jvp", "vmap of grad",
         "grad of vmap", "second order"],
)  # fmt: skip
def test_a_gradient_is_that_of_the_taken_branch(function, wrap):
    x = jnp.linspace(0.1, 1.0, 24).reshape(4, 6)
    asked = operations(wrap(asking(function, other)), x)
    alone = operations(wrap(function), x)
    assert asked["conditional"] == 0
    assert asked["fusion"] == alone["fusion"]
    assert asked == alone


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("wrap", [lambda f: f, jax.vmap], ids=["plain", "vmap"])
def test_a_plain_program_is_that_of_the_other_branch(function, wrap):
    x = jnp.linspace(0.1, 1.0, 24).reshape(4, 6)
    asked = operations(wrap(asking(other, function)), x)
    alone = operations(wrap(function), x)
    assert asked["conditional"] == 0
    assert asked == alone


def test_no_conditional_before_the_compiler_either():
    # What is decided while tracing costs no compile time, and no memory between the two
    # halves of a gradient that is not jitted as a whole.
    f = asking(chain, other)
    x = jnp.ones((4, 6))
    rows = jax.vmap(f)
    for function in (f, jax.jit(f), jax.checkpoint(f), lambda x: rows(x).sum()):
        text = str(jax.make_jaxpr(jax.grad(function))(x))
        assert "cond[" not in text
        assert "cosh" not in text


def test_the_measure_sees_a_conditional():
    # The control: a choice that depends on data leaves a conditional.
    f = jax.grad(lambda x: pb.cond(x.sum() > 0, chain, other, x))
    counted = operations(f, jnp.ones((4, 6)))
    assert counted["conditional"] > 0
    assert counted["fusion"] > 0
