"""What fills the lanes that do not take a branch: where it is found, and what that costs."""

import collections

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cond_helpers import equal, log_or_zero, total, zero

import pybridge as pb
from pybridge.jaxprs import inner_jaxprs

LONG = np.full(5000, -1.0, np.float32)


def primitives(f, *args):
    """Count the equations of a program by name, those of inner programs too."""
    counts = collections.Counter()

    def walk(jaxpr):
        for eqn in jaxpr.eqns:
            counts[eqn.primitive.name] += 1
            for inner in inner_jaxprs(eqn):
                walk(inner.jaxpr)

    walk(jax.make_jaxpr(f)(*args).jaxpr)
    return counts


def shared(x, y, z):
    return pb.cond(x > 0, lambda x, y, z: x**y + jnp.log(x) * z, lambda x, y, z: 0.0, x, y, z)


@pytest.mark.parametrize("wrap", [lambda f: f, jax.vmap])
def test_one_place_for_all_operands_and_none_for_a_constant(wrap):
    counts = primitives(wrap(shared), LONG, LONG, LONG)
    assert counts["pybridge_first_place"] == 1
    assert counts["pybridge_switch"] == 1


@pytest.mark.parametrize("wrap", [lambda f: f, jax.vmap])
def test_branches_that_only_move_operands_need_no_conditional(wrap):
    def f(x, y):
        return pb.cond(x > 0, lambda x, y: (x, 1.0), lambda x, y: (y, 0.0), x, y)

    x, y = np.arange(-2.0, 2, dtype=np.float32), np.arange(4, dtype=np.float32)
    counts = primitives(wrap(f), x, y)
    assert counts["pybridge_first_place"] == counts["pybridge_switch"] == counts["cond"] == 0
    equal(wrap(f)(x, y), np.array([[0, 1, 2, 1], [0, 0, 0, 1]]))
    slopes = jax.grad(lambda x, y: (wrap(f)(x, y)[0] ** 2).sum(), (0, 1))(x, y)
    equal(slopes, np.array([[0, 0, 0, 2], [0, 2, 4, 0]]))


@pytest.mark.parametrize("first", [1023, 1024, 4999, None])
@pytest.mark.parametrize("shape", [(5000,), (1000, 5), (1, 2, 2500)])
def test_the_first_lane_wherever_it_is(first, shape, maybe_jit):
    x = LONG.copy()
    if first is not None:
        x[first] = 2.0
    seen = []

    def branch(x):
        jax.debug.callback(lambda x: seen.append(np.unique(x).tolist()), x)
        return jnp.log(x)

    y = maybe_jit(lambda x: pb.cond(x > 0, branch, zero, x))(x.reshape(shape))
    jax.effects_barrier()
    assert seen == ([] if first is None else [[2.0]])
    equal(y, np.where(x > 0, np.log(2.0), 0.0).reshape(shape))


@pytest.mark.parametrize("by_elements", [False, True])
def test_rows_whose_first_lanes_differ(by_elements, maybe_jit):
    x = np.full((3, 3000), -1.0, np.float32)
    x[0, 5] = x[1, 2999] = 2.0
    rows = jax.vmap(log_or_zero if by_elements else jax.vmap(log_or_zero))
    slope = jax.grad(total(rows))
    curvature = jax.grad(lambda x: slope(x).sum())
    for f, expected in ((rows, np.log(2.0)), (slope, 0.5), (curvature, -0.25)):
        equal(maybe_jit(f)(x), np.where(x > 0, expected, 0.0))


def test_keys_and_counts_far_from_the_start(maybe_jit):
    keys = jax.random.split(jax.random.key(0), 3000)
    taken = np.arange(3000) > 2000

    def f(taken, key, n):
        def draw(key, n):
            return key, jax.random.uniform(key) * n.astype(np.float32)

        return pb.cond(taken, draw, lambda key, n: (key, 0.0), key, n)

    n = (np.arange(3000) % 100).astype(np.int8)
    out, drawn = maybe_jit(jax.vmap(f))(taken, keys, n)
    assert (out == keys).all()
    equal(drawn, np.where(taken, jax.vmap(jax.random.uniform)(keys) * n.astype(np.float32), 0))
