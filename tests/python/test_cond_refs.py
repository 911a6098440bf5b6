"""Branches that read, write or make refs (`jax.new_ref`)."""

import jax
import jax.numpy as jnp
import pytest
from cond_helpers import equal

import pybridge as pb

if not hasattr(jax, "new_ref"):
    pytest.skip("this JAX has no refs", allow_module_level=True)


def read(x):
    ref = jax.new_ref(x)
    return pb.cond(x.sum() > 0, lambda: ref[...] * 2, lambda: ref[...] * 3)


def read_operand(x):
    ref = jax.new_ref(x)
    return pb.cond(x.sum() > 0, lambda ref: ref[...] * 2, lambda ref: ref[...] * 3, ref)


def write(x):
    ref = jax.new_ref(x)

    def scale(factor):
        ref[...] *= factor

    pb.switch((x.sum() > 0).astype(int), [lambda: scale(3), lambda: scale(2)])
    return ref[...]


def make(x):
    def scaled(x, factor):
        ref = jax.new_ref(x)
        ref[...] *= factor
        return ref[...]

    return pb.cond(x.sum() > 0, lambda x: scaled(x, 2), jax.jit(lambda x: scaled(x, 3)), x)


@pytest.mark.parametrize("f", [read, read_operand, write, make])
def test_a_branch_with_a_ref(f, maybe_jit):
    x = jnp.array([1.0, 2.0])
    for sign, factor in ((1, 2), (-1, 3)):
        equal(maybe_jit(f)(sign * x), sign * factor * x)
        equal(maybe_jit(jax.grad(lambda x: f(x).sum()))(sign * x), [factor, factor])


@pytest.mark.parametrize("f", [read, read_operand, write])
def test_lanes_that_differ_do_not_write_for_each_other(f):
    with pytest.raises(NotImplementedError, match="vmap"):
        jax.vmap(f)(jnp.array([[1.0], [-1.0]]))


def test_a_ref_of_the_branch_alone_under_vmap(maybe_jit):
    def root(x):
        ref = jax.new_ref(x)
        ref[...] = jnp.sqrt(ref[...])
        return ref[...]

    x = jnp.array([4.0, 0.0, -1.0])
    f = jax.vmap(lambda x: pb.cond(x > 0, root, jnp.zeros_like, x))
    equal(maybe_jit(f)(x), [2, 0, 0])
    equal(maybe_jit(jax.grad(lambda x: f(x).sum()))(x), [0.25, 0, 0])


def test_an_array_of_choices_refuses_refs(maybe_jit):
    def f(x, pass_it):
        ref = jax.new_ref(x)
        if pass_it:
            return pb.cond(x > 0, lambda ref: ref[...], lambda ref: x, ref)
        return pb.cond(x > 0, lambda: ref[...], lambda: x)

    for pass_it in (True, False):
        with pytest.raises(pb.ArgumentTypeError, match=r"jax\.new_ref\. Read it before"):
            maybe_jit(lambda x, pass_it=pass_it: f(x, pass_it))(jnp.ones(2))
