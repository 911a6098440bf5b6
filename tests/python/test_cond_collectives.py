"""Collectives in branches: over all lanes and devices that the axis has, or refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cond_helpers import equal, total, zero
from jax import lax
from jax.sharding import PartitionSpec as P

import pybridge as pb

X = np.array([1.0, 2.0, -5.0], np.float32)

COLLECTIVES = {
    "psum": lambda v: lax.psum(v, "i"),
    "pmean": lambda v: lax.pmean(v, "i"),
    "pmax": lambda v: lax.pmax(lax.stop_gradient(v), "i"),
    "all_gather": lambda v: lax.all_gather(v, "i").sum(0),
    "all_to_all": lambda v: lax.all_to_all(jnp.stack([v] * 3), "i", 0, 0).sum(0),
    "psum_scatter": lambda v: lax.psum_scatter(jnp.stack([v] * 3), "i"),
    "ppermute": lambda v: lax.ppermute(v, "i", [(0, 1), (1, 2), (2, 0)]),
    "in a program": lambda v: jax.jit(lambda v: 2 * lax.psum(v, ("i",)))(v),
    "in a loop": lambda v: lax.fori_loop(0, 2, lambda _, v: lax.pmean(v, "i"), v),
    "in a branch": lambda v: pb.cond(v.sum() < 9, lambda v: lax.psum(v, "i"), zero, v),
    "in a rule": jax.custom_jvp(lambda v: lax.psum(v, "i")),
}
COLLECTIVES["in a rule"].defjvp(lambda p, t: (lax.psum(p[0], "i"), lax.psum(t[0], "i")))


def lanes(f, **options):
    return jax.vmap(f, axis_name="i", **options)


@pytest.mark.parametrize("collective", COLLECTIVES.values(), ids=COLLECTIVES)
@pytest.mark.parametrize(
    "choose",
    [
        lambda f: lambda v: pb.cond(v > 0, f, zero, v),
        lambda f: lambda v: pb.cond(v > 0, zero, f, v),
        lambda f: lambda v: pb.switch(v.astype(int), [zero, f, zero], v),
        lambda f: lambda v: pb.cond(lax.axis_index("i") > 1, f, zero, v),
        lambda f: lambda v: pb.cond(jnp.stack([v, v]) > 0, f, zero, jnp.stack([v, v])),
        lambda f: jax.vmap(lambda v: pb.cond(v > 0, f, zero, v), in_axes=None, axis_size=2),
        lambda f: lambda v: jax.vmap(lambda c: pb.cond(c > 0, f, zero, v))(jnp.stack([v, -v])),
        lambda f: lambda v: jax.jvp(lambda v: pb.cond(v > 0, f, zero, v), (v,), (v,)),
        lambda f: jax.checkpoint(lambda v: pb.cond(v > 0, f, zero, v)),
    ],
)
def test_lanes_that_differ_are_refused(collective, choose, maybe_jit):
    with pytest.raises(pb.ArgumentValueError, match="same along the axis 'i'"):
        maybe_jit(lanes(choose(collective)))(X)


@pytest.mark.parametrize("derivative", [jax.grad, jax.jacfwd, jax.hessian])
def test_lanes_that_differ_are_refused_in_derivatives(derivative, maybe_jit):
    f = lanes(lambda v: pb.cond(v > 0, lambda v: lax.psum(v**2, "i"), zero, v))
    with pytest.raises(pb.ArgumentValueError, match="same along the axis 'i'"):
        maybe_jit(derivative(total(f)))(X)


def test_lanes_that_agree_are_combined(maybe_jit):
    def f(v):
        together = lax.psum(v, "i") < 0
        return pb.cond(together, lambda v: lax.psum(v**2, "i"), zero, v)

    equal(maybe_jit(lanes(f))(X), [30, 30, 30])
    equal(maybe_jit(jax.grad(total(lanes(f))))(X), 6 * X)
    equal(maybe_jit(lanes(f))(-X), [0, 0, 0])


def test_another_axis_may_differ(maybe_jit):
    pred = jnp.array([True, False, True])
    rows = jnp.stack([X, 2 * X])  # (2, 3): "i" runs along the first

    def f(pred, v):
        return pb.cond(pred, lambda v: lax.psum(v, "i"), zero, v)

    expected = [[3, 0, -15]] * 2
    outside = jax.vmap(lanes(f, in_axes=(None, 0)), in_axes=(0, 1), out_axes=1)
    inside = lanes(jax.vmap(f), in_axes=(None, 0))
    named = lanes(jax.vmap(f, axis_name="j"), in_axes=(None, 0))
    for mapped in (outside, inside, named):
        equal(maybe_jit(mapped)(pred, rows), expected)
        equal(maybe_jit(jax.grad(lambda v, m=mapped: m(pred, v).sum()))(rows), [[2, 0, 2]] * 2)


def test_an_array_of_choices_that_all_lanes_share(maybe_jit):
    def f(v):
        v = jnp.stack([v, 2 * v])
        return pb.cond(np.array([True, False]), lambda v: lax.psum(v, "i"), zero, v)

    equal(maybe_jit(lanes(f))(X), [[-2, 0]] * 3)


def test_the_way_out_that_the_message_names(maybe_jit):
    def of_those_that_take_it(v):
        return lax.psum(pb.cond(v > 0, lambda v: v, zero, v), "i")

    equal(maybe_jit(lanes(of_those_that_take_it))(X), [3, 3, 3])
    equal(maybe_jit(jax.grad(total(lanes(of_those_that_take_it))))(X), [3, 3, 0])


def number():
    return lax.axis_index("i").astype(float)


def rule_of_jvp(of):
    of = jax.custom_jvp(of)
    of.defjvp(lambda p, t: (of(*p), t[0] / (number() - 2)))
    return of


def rule_of_vjp(of):
    of = jax.custom_vjp(of)
    of.defvjp(lambda w, n: (w / (number() - 2), n), lambda n, ct: (ct / (number() - 2), None))
    return of


def once(of):
    return lambda w: lax.while_loop(lambda s: s[0] < 1, lambda s: (s[0] + 1, of(s[1])), (0, w))[1]


# Ways to a program inside of the branch's own.
PLACES = {
    "scan": lambda of: lambda w: lax.scan(lambda w, n: (of(w) * n, None), w, np.ones(1, "f"))[0],
    "loop": lambda of: lambda w: lax.fori_loop(0, 1, lambda _, w: of(w), w),
    "JAX's cond": lambda of: lambda w: lax.cond(w > 0, of, lambda w: w, w),
    "cond": lambda of: lambda w: pb.cond(w > 0, of, lambda w: w, w),
    "custom_jvp": rule_of_jvp,
    "custom_vjp": lambda of: lambda w: rule_of_vjp(lambda w, n: of(w))(w, 3),
    "checkpoint": jax.checkpoint,
    "vmap": lambda of: lambda w: jax.vmap(of)(w[None])[0],
}


@pytest.mark.parametrize("inside", PLACES.values(), ids=PLACES)
def test_the_number_of_a_lane_is_its_own_wherever_it_is_asked_for(inside, maybe_jit):
    f = inside(lambda w: w / (number() - 2))
    mapped = lanes(lambda v, w: pb.cond(v > 0, f, zero, w), in_axes=(0, None))
    equal(maybe_jit(mapped)(X, 10.0), [-5, -10, 0])
    equal(maybe_jit(jax.grad(lambda w: mapped(X, w).sum()))(10.0), -1.5)


def test_the_number_of_a_lane_in_a_loop_of_unknown_length(maybe_jit):
    f = once(lambda w: w / (number() - 2))
    mapped = lanes(lambda v, w: pb.cond(v > 0, f, zero, w), in_axes=(0, None))
    equal(maybe_jit(mapped)(X, 10.0), [-5, -10, 0])
    equal(maybe_jit(jax.jacfwd(lambda w: mapped(X, w)))(10.0), [-0.5, -1, 0])


@pytest.mark.parametrize("number", [number, jax.jit(number)])
def test_the_number_of_a_lane_is_its_own(number, maybe_jit):
    def f(v, w):
        return pb.cond(v > 0, lambda w: w / (number() - 2), zero, w)

    mapped = lanes(f, in_axes=(0, None))
    equal(maybe_jit(mapped)(X, 10.0), [-5, -10, 0])
    # The lane whose number is 2 divides by zero, if anything of it is left in the branch.
    equal(maybe_jit(jax.grad(lambda w: mapped(X, w).sum()))(10.0), -1.5)
    equal(maybe_jit(jax.jacfwd(lambda w: mapped(X, w)))(10.0), [-0.5, -1, 0])


@pytest.mark.parametrize("name", ["psum", "pmean", "pmax", "all_gather", "in a program"])
def test_devices_that_differ_are_refused(name, mesh, maybe_jit):
    collective = COLLECTIVES[name]
    vary = jax.jit(lambda x, y: x + 0 * y)

    def f(x):
        return pb.cond(x[0] > 0, lambda x: vary(collective(x), x), zero, x)

    mapped = jax.shard_map(f, mesh=mesh, in_specs=P("i"), out_specs=P("i"))
    with pytest.raises(pb.ArgumentValueError, match="same along the axis 'i'"):
        maybe_jit(mapped)(jnp.arange(-1.0, 3.0))
    with pytest.raises(pb.ArgumentValueError, match="same along the axis 'i'"):
        maybe_jit(jax.grad(total(mapped)))(jnp.arange(-1.0, 3.0))


def test_devices_that_agree_are_combined(mesh, maybe_jit):
    def g(x):
        total = lax.psum(x.sum(), "i")
        return pb.cond(total > 0, lambda x: x * lax.psum(x.sum(), "i"), zero, x)

    x = jnp.arange(-1.0, 3.0)
    mapped = jax.shard_map(g, mesh=mesh, in_specs=P("i"), out_specs=P("i"))
    equal(maybe_jit(mapped)(x), 2 * x)
    equal(maybe_jit(mapped)(-x), 0 * x)
    equal(maybe_jit(jax.grad(total(mapped)))(x), np.full(4, 4))
