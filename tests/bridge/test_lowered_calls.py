"""Primitives of calls, of placement and of pybridge's own operations, lowered, against JAX."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.ad_checkpoint import checkpoint_name
from jax.experimental.layout import Layout, with_layout_constraint
from jax.sharding import NamedSharding, PartitionSpec
from lowering_cases import POSITIVE, X, Y, ints
from test_lowered_primitives import arrays, compare, gradients_agree, lowered_cases, together

import pybridge as pb
from pybridge.lowering import lower


def _everywhere():
    mesh = jax.make_mesh((1,), ("i",), axis_types=(jax.sharding.AxisType.Auto,))
    return NamedSharding(mesh, PartitionSpec())


CASES = {
    "a sum of cotangents": (lambda x: jax.grad(lambda t: jnp.sum(jnp.sin(t) * t))(x), X),
    "a gradient through checkpoint": (
        lambda x: jax.grad(lambda t: jnp.sum(jax.checkpoint(lambda u: jnp.sin(u) * u)(t)))(x),
        X,
    ),
    "checkpoint_name": (lambda x: checkpoint_name(x, "h") * x, X),
    "device_put": (lambda x: jax.device_put(x) * x, X),
    "optimization_barrier": (lambda x, y: lax.optimization_barrier((x * y, y))[0], X, Y),
    "reshard": (lambda x: jax.sharding.reshard(x, _everywhere()) * x, X),
    "sharding_constraint": (lambda x: lax.with_sharding_constraint(x, _everywhere()) * x, X),
    "layout_constraint": (
        lambda x: with_layout_constraint(x, Layout(major_to_minor=(1, 0))) * x,
        X,
    ),
    "reduce_precision": (lambda x: lax.reduce_precision(x, 8, 20), X),
    "subtract at indices": (
        lambda x, y, i: x.at[:, i].subtract(y[:, :2], unique_indices=True),
        X,
        Y,
        np.array([2, 0], np.int32),
    ),
    "igamma_grad_a": (lambda a, x: lax.igamma_grad_a(*map(lax.stop_gradient, (a, x))), POSITIVE, X),
    "pb.cond": (lambda x: pb.cond(x[0, 0] > 0, jnp.sin, jnp.cos, x), X),
    "pb.cond of elements": (lambda x: pb.cond(x > 0, jnp.log, jnp.cos, x), X),
    "pb.switch": (lambda x, i: pb.switch(i[0], [jnp.sin, jnp.cos, jnp.tanh], x), X, ints(1)),
    "pb.take": (lambda x, i: pb.take(x, i, axis=1), X, np.array([0, 2, -1], np.int32)),
    "pb.at": (lambda x, i: pb.at(x)[1, i].get(), X, np.array([0, 2, -1], np.int32)),
    "pb.take that fills": (lambda x: pb.take(x, jnp.array([1, 0, 5]), axis=1, mode="fill"), X),
    "pb.within_gradient": (lambda x: pb.cond(pb.within_gradient(x), jnp.sin, jnp.cos, x), X),
    "pb.differentiation_order": (lambda x: jnp.sin(x) * (2.0 + pb.differentiation_order(x)), X),
}
ORDERED = {"eq_to": (lax.eq_to_p.bind, X, X[::-1]), "lt_to": (lax.lt_to_p.bind, X, Y)}


def test_the_values_are_jaxs(saw):
    saw("value", lowered_cases(CASES, CASES))
    f, args = together(CASES, CASES)
    args = arrays(args)
    compare(lower(f, *args)(*args), f(*args), rtol=2e-6, atol=1e-6)


def test_results_are_jax_arrays_whatever_the_arguments_are():
    results = lower(lambda x, n: (x * n, x > 0, n), X, ints(1))(np.asarray(X), np.int32([3]))
    assert all(isinstance(result, jax.Array) for result in results)


def test_the_values_of_comparisons_in_an_order_are_jaxs(saw):
    saw("value", lowered_cases(ORDERED, ORDERED))
    f, args = together(ORDERED, ORDERED)
    args = arrays(args)
    compare(lower(f, *args)(*args), jax.jit(f)(*args), rtol=0)


def test_the_gradients_are_jaxs(saw):
    saw("zygote", lowered_cases(CASES, CASES))
    gradients_agree(*together(CASES, CASES), "zygote")


@pytest.mark.nightly
@pytest.mark.parametrize("name", CASES)
def test_the_gradient_is_jaxs(name, system, saw):
    saw(system, lowered_cases([name], CASES))
    f, *args = CASES[name]
    gradients_agree(f, args, system)


@pytest.mark.parametrize("wrong", [4, -5])
def test_an_index_out_of_bounds_raises_as_in_jax(system, wrong):
    def f(x, i):
        pb.take(x, i)  # nobody uses it
        return jnp.sum(x)

    x, i = jnp.arange(4.0), jnp.array([1, wrong, 7])
    text = rf"expected indices from -4 to 3 on the flattened array, got index {wrong}\."
    for run in (jax.jit(f), lower(f, x, i), pb.value_and_grad(f, backend=system)):
        with pytest.raises(Exception, match=text):
            run(x, i)
    with pytest.raises(pb.IndexOutOfBoundsError, match=text):
        pb.grad(f, backend=system)(x, i)
    np.testing.assert_array_equal(pb.grad(f, backend=system)(x, jnp.array([0, 3, -4])), jnp.ones(4))
