"""`differentiation_order`: how many derivatives a value carries."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cond_helpers import equal

import pybridge as pb


def scaled(x):
    """Return x**3 times 10**order: every derivative shows the order at which it was taken."""
    return x**3 * 10.0 ** jnp.asarray(pb.differentiation_order(x), float)


def test_outside_it_is_zero(maybe_jit):
    for x in (2.0, 3, np.ones(3), jnp.ones(3), jax.random.key(0), {"a": [1.0, "b"]}, None):
        assert pb.differentiation_order(x) == 0
    equal(maybe_jit(scaled)(2.0), 8)
    equal(maybe_jit(jax.vmap(scaled))(jnp.array([1.0, 2.0])), [1, 8])
    assert maybe_jit(lambda x: pb.differentiation_order(x))(2.0).dtype == jnp.int32


@pytest.mark.parametrize("wrap", [lambda f: f, jax.jit, jax.checkpoint, jax.vmap])
def test_each_derivative_counts(wrap, maybe_jit):
    f = wrap(scaled)
    x = jnp.array([2.0])
    g = f if wrap is jax.vmap else lambda x: f(x[0])[None]

    def total(x):
        return g(x).sum()

    equal(maybe_jit(jax.grad(total))(x), [120])
    equal(maybe_jit(jax.jacfwd(g))(x), [[120]])
    equal(maybe_jit(jax.hessian(total))(x), [[1200]])
    third = jax.jacfwd(jax.jacrev(jax.jacfwd(total)))
    equal(maybe_jit(third)(x), [[[6000]]])
    equal(maybe_jit(jax.linearize(g, x)[1])(x), [240])


def test_it_is_exact_for_each_value(maybe_jit):
    def f(w, x):
        orders = [jnp.asarray(pb.differentiation_order(v), float) for v in (w, x, (w, x))]
        return w * w * x, jnp.stack(orders)

    _, orders = maybe_jit(jax.grad(f, has_aux=True))(2.0, 3.0)
    equal(orders, [1, 0, 1])

    def by_w(w, x):
        slope, orders = jax.grad(f, has_aux=True)(w, x)
        return slope, orders

    _, orders = maybe_jit(jax.grad(by_w, 1, has_aux=True))(2.0, 3.0)
    equal(orders, [1, 1, 1])
    _, orders = maybe_jit(jax.grad(by_w, (0, 1), has_aux=True))(2.0, 3.0)
    equal(orders, [2, 1, 2])


def test_what_stops_a_derivative_stops_the_count(maybe_jit):
    stopped = lambda x: x * (1 + pb.differentiation_order(jax.lax.stop_gradient(x)))  # noqa: E731
    with jax.numpy_dtype_promotion("standard"):
        equal(maybe_jit(jax.grad(stopped))(2.0), 1)

    @jax.custom_jvp
    def f(x):
        return x

    seen = []
    f.defjvp(lambda p, t: (seen.append(pb.differentiation_order(p[0])) or p[0], t[0]))
    jax.grad(f)(2.0)
    assert seen == [0]


def test_in_loops_and_branches(maybe_jit):
    def f(x):
        y, _ = jax.lax.scan(lambda c, _: (scaled(c), None), x, length=2)
        return pb.cond(x > 0, scaled, lambda x: 0 * x, y)

    equal(maybe_jit(f)(1.0), 1)
    equal(maybe_jit(jax.grad(f))(1.0), 27 * 10.0 ** (1 + 3 + 9))


def test_it_agrees_with_within_gradient(maybe_jit):
    def f(x):
        agree = (pb.differentiation_order(x) > 0) == pb.within_gradient(x)
        return jnp.where(agree, x, jnp.nan)

    equal(maybe_jit(f)(2.0), 2)
    equal(maybe_jit(jax.grad(f))(2.0), 1)
    equal(maybe_jit(jax.grad(jax.grad(f)))(2.0), 0)


def test_it_costs_nothing():
    text = jax.jit(jax.grad(scaled)).lower(2.0).compile().as_text()
    assert "conditional" not in text


def test_what_cannot_be_seen_into_is_an_error():
    class Foreign:
        __module__ = "elsewhere"

    with pytest.raises(pb.DetectionError, match=r"pb\.differentiation_order: .*elsewhere"):
        pb.differentiation_order(Foreign())
    with pytest.raises(pb.DetectionError, match="object"):
        pb.differentiation_order(np.array([object()]))
