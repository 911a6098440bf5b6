"""Array conds in the branches of array conds: the inner one's own operations mix nothing."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cond_helpers import equal, total, zero

import pybridge as pb

X = np.array([4.0, -1.0, 0.0, 0.25, 9.0, -3.0], np.float32)


def root(x):
    return pb.cond(x > 0, jnp.sqrt, zero, x)


def twice(x):
    return pb.cond(x > -2, lambda v: root(v) + 1, lambda v: v**2, x)


def thrice(x):
    return pb.cond(x < 5, lambda v: jnp.sin(twice(v)), lambda v: twice(2 * v) + jnp.log(v), x)


def switched(x):
    branches = [jnp.log, lambda v: jnp.log(root(v)), lambda v: v]
    inner = [lambda v: pb.switch((v > 1).astype(int), branches, v), lambda v: v**3]
    return pb.switch((x <= 0).astype(int), inner, x)


def by_hand(function):
    """Choose one element at a time, by Python's `if`."""

    def one(x):
        if function is root:
            return jnp.sqrt(x) if x > 0 else 0 * x
        if function is twice:
            return by_hand(root).one(x) + 1 if x > -2 else x**2
        if function is thrice:
            within = by_hand(twice).one
            return jnp.sin(within(x)) if x < 5 else within(2 * x) + jnp.log(x)
        if x <= 0:
            return x**3
        return jnp.log(jnp.sqrt(x)) if x > 1 else jnp.log(x)

    def whole(x):
        return jnp.stack([one(v) for v in x])

    whole.one = one
    return whole


# By day `thrice`, which is many programs, is one of those in `jit`.
@pytest.mark.parametrize("f", [thrice, twice, root, switched])
def test_values_and_derivatives(f, maybe_jit):
    expected = by_hand(f)
    equal(maybe_jit(f)(X), expected(X))
    slopes = jnp.stack([jax.grad(expected.one)(v) for v in X])
    curves = jnp.stack([jax.grad(jax.grad(expected.one))(v) for v in X])
    equal(maybe_jit(jax.grad(total(f)))(X), slopes)
    equal(maybe_jit(jax.jacfwd(f))(X), np.diag(slopes))
    equal(maybe_jit(jax.hessian(total(f)))(X), np.diag(curves))


@pytest.mark.parametrize("f", [thrice, twice, switched])
def test_under_vmap(f, maybe_jit):
    rows = X.reshape(2, 3)
    expected = by_hand(f)(X).reshape(2, 3)
    slopes = jax.jit(jax.grad(total(f)))(X).reshape(2, 3)
    equal(maybe_jit(jax.vmap(f))(rows), expected)
    equal(maybe_jit(jax.vmap(f, 1, 1))(rows), expected)
    equal(maybe_jit(jax.vmap(jax.vmap(f)))(rows), expected)
    equal(maybe_jit(jax.vmap(jax.grad(total(f))))(rows), slopes)
    equal(maybe_jit(jax.grad(total(jax.vmap(f))))(rows), slopes)


@pytest.mark.parametrize(
    "inner",
    [
        jax.vmap(lambda v: pb.cond(v > 1, jnp.sqrt, zero, v)),
        jax.vmap(jax.grad(lambda v: pb.cond(v > 1, lambda v: v**1.5 / 1.5, zero, v))),
        jax.jit(lambda v: pb.cond(v > 1, jnp.sqrt, zero, v)),
        jax.checkpoint(lambda v: pb.cond(v > 1, jnp.sqrt, zero, v)),
    ],
)
def test_other_ways_to_be_inside(inner, maybe_jit):
    def f(x):
        return pb.cond(x > 1, inner, lambda v: 2 * v, x)

    expected = np.where(X > 1, np.sqrt(np.maximum(X, 0)), 2 * X)
    equal(maybe_jit(f)(X), expected)
    slopes = np.where(X > 1, 0.5 / np.sqrt(np.maximum(X, 1)), 2)
    equal(maybe_jit(jax.grad(total(f)))(X), slopes)


def test_closed_over_arrays_go_with_their_elements(maybe_jit):
    scale = jnp.array([1.0, 0.0, 2.0, 0.0, 3.0, 4.0])

    def f(x, scale):
        def inner(v):
            return pb.cond(scale > 0, lambda v: v / scale, zero, v)

        return pb.cond(x > 0, lambda v: jnp.log(1 + inner(v)), zero, x)

    good = (X > 0) & (scale > 0)
    safe = np.where(good, scale, 1)
    equal(maybe_jit(f)(X, scale), np.log(1 + np.where(good, X / safe, 0)))
    by_x, by_scale = maybe_jit(jax.grad(total(f), (0, 1)))(X, scale)
    equal(by_x, np.where(good, 1 / (safe + abs(X)), 0))
    equal(by_scale, np.where(good, -X / safe / (safe + abs(X)), 0))


def test_what_mixes_elements_is_still_refused():
    def inner(v):
        return pb.cond(v > v.mean(), zero, lambda v: v, v)

    with pytest.raises(pb.ArgumentValueError, match="reduce_sum"):
        pb.cond(X > 0, inner, zero, X)
    with pytest.raises(pb.ArgumentValueError, match="cumsum"):
        pb.cond(X > 0, lambda v: pb.cond(v > 0, jnp.cumsum, zero, v), zero, X)


def test_branches_that_put_an_array_along_different_axes_use_it_whole(maybe_jit):
    square = jnp.array([[1.0, 2.0], [4.0, 8.0]])

    def f(flag, x):
        def crossed(v):
            return v / jax.lax.cond(flag, lambda s: s.T, lambda s: s, square)

        return pb.cond(x > 1, crossed, zero, x)

    x = jnp.array([[0.0, 6.0], [0.0, 0.0]])
    equal(maybe_jit(f)(True, x), [[0, 1.5], [0, 0]])
    equal(maybe_jit(f)(False, x), [[0, 3], [0, 0]])
