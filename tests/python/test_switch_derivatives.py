"""A switch that is differentiated stays one conditional forward and one back, as JAX's own."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cond_helpers import equal
from jax import lax

import pybridge as pb
from pybridge.jaxprs import inner_jaxprs

ONE_RESIDUAL = [jnp.sin, jnp.cos, jnp.sinh]
TWO_RESIDUALS = [*ONE_RESIDUAL, lambda x: jnp.sin(x) + jnp.cos(x)]
ASKING = [lambda x: 2 * x, lambda x: pb.cond(pb.within_gradient(x), lambda x: 3 * x, jnp.exp, x)]


def conditionals(function, *args):
    """Return the conditionals of a program: for each how many outputs it has."""
    equations = jax.make_jaxpr(function)(*args).jaxpr.eqns
    return [len(e.outvars) for e in equations if e.primitive.name in ("cond", "pybridge_switch")]


@pytest.mark.parametrize("branches", [ONE_RESIDUAL, TWO_RESIDUALS, ASKING])
@pytest.mark.parametrize("wrap", [lambda f: f, jax.grad, lambda f: jax.grad(jax.grad(f))])
def test_no_more_conditionals_and_residuals_than_jax(branches, wrap):
    ours, theirs = (
        conditionals(wrap(lambda x, i, switch=switch: switch(i, branches, x)), 0.5, 1)
        for switch in (pb.switch, lax.switch)
    )
    assert len(ours) <= len(theirs)
    assert sum(ours) <= sum(theirs)


@pytest.mark.parametrize(("wrap", "ours", "theirs"), [(jax.jacfwd, 2, 1), (jax.hessian, 4, 2)])
def test_forward_mode_makes_the_conditionals_that_the_page_says(wrap, ours, theirs):
    """docs/how-to/choose-between-branches.md: the derivative is a switch of its own there."""
    for switch, count in ((pb.switch, ours), (lax.switch, theirs)):
        f = wrap(lambda x, i, switch=switch: switch(i, ONE_RESIDUAL, x))
        assert _count_everywhere(jax.make_jaxpr(f)(0.5, 1)) == count


def _count_everywhere(program):
    own = sum(eqn.primitive.name in ("cond", "pybridge_switch") for eqn in program.eqns)
    inner = (part for eqn in program.eqns for part in inner_jaxprs(eqn))
    return own + sum(map(_count_everywhere, inner))


# Residuals of several shapes and dtypes, operands among them, whole numbers and keys.
def dot(x, n, key):
    return x @ x * jnp.float32(n), {"n": n + 1, "key": key}


def powers(x, n, key):
    return (x**3).sum() + jnp.exp(x[0] * n.astype(x.dtype)), {"n": n, "key": key}


@jax.checkpoint
def noise(x, key):
    return x * jax.random.normal(key, x.shape)


def noisy(x, n, key):
    key = jax.random.fold_in(key, n)
    return noise(jnp.sin(x), key).sum(), {"n": 2 * n, "key": key}


BRANCHES = [dot, powers, noisy, lambda x, n, key: (jnp.float32(1), {"n": n, "key": key})]


@pytest.mark.parametrize("index", range(4))
@pytest.mark.parametrize(
    "derivative",
    [
        jax.value_and_grad,
        lambda f, has_aux: jax.jit(jax.value_and_grad(jax.checkpoint(f), has_aux=has_aux)),
        pytest.param(jax.hessian, marks=pytest.mark.nightly),
    ],
    ids=["grad", "checkpoint", "hessian"],
)
def test_branches_with_different_residuals(derivative, index):
    args = jnp.array([0.5, -1.0, 2.0]), jnp.int32(2), jax.random.key(3)

    def chosen(index, x, n, key):
        return pb.switch(index, BRANCHES, x, n, key)

    def plain(x, n, key):
        return BRANCHES[index](x, n, key)

    for each in (chosen, jax.jit(chosen)):
        got = derivative(lambda *args, each=each: each(jnp.int32(index), *args), has_aux=True)(
            *args
        )
        assert_same(got, derivative(plain, has_aux=True)(*args))


def assert_same(got, expected):
    pairs = zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True)
    for one, other in pairs:
        if jnp.issubdtype(other.dtype, jax.dtypes.prng_key):
            one, other = jax.random.key_data(one), jax.random.key_data(other)
        np.testing.assert_allclose(one, other, rtol=1e-5)


def test_lanes_take_their_own_residuals(maybe_jit):
    branches = [jnp.log, lambda x: 1 / x, lambda x: jnp.sqrt(-x), jnp.zeros_like]
    index, x = jnp.array([0, 1, 2, 3, 0]), jnp.array([2.0, -3.0, -4.0, 0.0, 0.5])
    slopes = [1 / 2, -1 / 9, -1 / 4, 0, 2]
    curvatures = [-1 / 4, -2 / 27, -1 / 32, 0, -4]

    def f(i, x):
        return pb.switch(i, branches, x)

    equal(maybe_jit(jax.vmap(jax.grad(f, 1)))(index, x), slopes)
    equal(maybe_jit(jax.vmap(jax.grad(jax.grad(f, 1), 1)))(index, x), curvatures)
    pushed = maybe_jit(jax.vmap(lambda i, x: jax.jvp(lambda x: f(i, x), (x,), (1.0,))[1]))
    equal(pushed(index, x), slopes)
    # The index is the same for all lanes, the operand is not.
    equal(maybe_jit(jax.vmap(jax.grad(f, 1), (None, 0)))(0, x[:1]), slopes[:1])


def test_what_every_branch_passes_on_is_in_no_conditional(maybe_jit):
    def f(x, y):
        return pb.cond(x > 0, lambda x, y: (jnp.log(x), y), lambda x, y: (x, y), x, y)

    x, y = jnp.array([1.0, -2.0]), jnp.array([3.0, 4.0])
    logs, same = maybe_jit(jax.vmap(f, (0, None), (0, None)))(x, y)
    equal(logs, [0, -2])
    equal(same, y)
    equal(jax.grad(lambda y: f(1.0, y)[1].sum())(y), [1, 1])
    assert conditionals(lambda x, y: pb.cond(x > 0, lambda y: y, lambda y: y, y), 1.0, y) == []


def test_an_output_that_no_lane_reaches_has_no_lanes(maybe_jit):
    def f(pred, x, w):
        return pb.cond(pred, lambda x, w: (x * w, w**2), lambda x, w: (x, w + 1), x, w)

    mapped = jax.vmap(f, (None, 0, None), (0, None))
    by_lane, shared = maybe_jit(mapped)(True, jnp.array([1.0, 2.0]), 3.0)
    equal(by_lane, [3, 6])
    equal(shared, 9)


def test_a_tangent_that_is_a_number():
    def f(x, i):
        return pb.switch(i, ONE_RESIDUAL, x)

    equal(jax.jit(lambda i: jax.jvp(lambda x: f(x, i), (0.5,), (1.0,))[1])(0), np.cos(0.5))


def test_numbers_come_back_as_arrays():
    for branch in (lambda x: x, lambda x: 2.0):
        f = jax.checkpoint(lambda x, i, g=branch: pb.switch(i, [g, lambda x: 3.0 * x], x))
        for result in jax.jvp(lambda x, f=f: f(x, 0), (0.5,), (1.0,)):
            assert result.reshape(-1).shape == (1,)
