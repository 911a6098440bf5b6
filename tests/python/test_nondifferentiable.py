"""`NonDifferentiable`: a value in the computation, nothing in the gradient."""

import dataclasses
import math
import operator
from typing import Any

import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
import pytest
from nondifferentiable_helpers import ND, Pair, Plain, bits, is_own

import pybridge as pb

ANSWER = 2 * math.exp(4.0) / 100  # d/dp exp(p)^2 / n at p = 2, n = 100


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Record:
    p: Any
    n: Any


TREES = {
    "named tuple": Pair,
    "dataclass": Record,
    "dict": lambda p, n: {"p": p, "n": n},
    "tuple": lambda p, n: (p, n),
    "nested": lambda p, n: {"a": [Pair(p, (n,))]},
}

PAYLOADS = {
    "int": 100,
    "float": 100.0,
    "numpy scalar": np.float32(100),
    "int array": jnp.array(100),
    "float array": jnp.array(100.0),
    "numpy array": np.array(100.0, np.float32),
    "uint8 array": jnp.array(100, jnp.uint8),
}


def parts(tree):
    """Return p and n of any of TREES."""
    leaves = jax.tree.leaves(tree, is_leaf=is_own)
    (n,) = [leaf for leaf in leaves if is_own(leaf)]
    (p,) = [leaf for leaf in leaves if not is_own(leaf)]
    return p, n


def program(tree):
    p, n = parts(tree)
    with jax.numpy_dtype_promotion("standard"):
        return jnp.exp(p) ** 2 / n


DERIVATIVES = {
    "grad": lambda f: jax.grad(f),
    "value_and_grad": lambda f: lambda s: jax.value_and_grad(f)(s)[1],
    "grad of jit": lambda f: jax.grad(jax.jit(f)),
    "grad of checkpoint": lambda f: jax.grad(jax.checkpoint(f)),
    "jacrev": lambda f: jax.jacrev(f),
    "jacfwd": lambda f: jax.jacfwd(f),
    "vjp": lambda f: lambda s: jax.vjp(f, s)[1](jnp.ones(()))[0],
    "pb.grad": lambda f: pb.grad(f),
    "pb.value_and_grad": lambda f: lambda s: pb.value_and_grad(f)(s)[1],
    "pb.jacobian": lambda f: pb.jacobian(f),
    "pb.vjp": lambda f: lambda s: pb.vjp(f, s)[1](jnp.ones(()))[0],
}


@pytest.mark.parametrize("kind", TREES)
@pytest.mark.parametrize("name", ["grad", "jacrev", "pb.grad"])
def test_the_gradient_has_the_same_tree_with_a_marker_in_it(name, kind, maybe_jit):
    s = TREES[kind](jnp.array(2.0), ND(100))
    gradient = maybe_jit(DERIVATIVES[name](program))(s)
    assert jax.tree.structure(gradient) == jax.tree.structure(s)
    slope, marker = parts(gradient)
    np.testing.assert_allclose(slope, ANSWER, rtol=1e-6)
    assert isinstance(marker, ND)
    assert jax.tree.leaves(marker) == []


@pytest.mark.parametrize("payload", [100, *list(PAYLOADS.values())[3:6]], ids=repr)
@pytest.mark.parametrize("name", DERIVATIVES)
def test_a_payload_of_any_kind_has_no_gradient(name, payload, maybe_jit):
    s = Pair(jnp.array(2.0), ND(payload))
    gradient = maybe_jit(DERIVATIVES[name](program))(s)
    np.testing.assert_allclose(gradient.p, ANSWER, rtol=1e-6)
    assert isinstance(gradient.n, ND)
    assert len(jax.tree.leaves(gradient)) == 1


def test_finite_differences_leave_it_alone():
    for payload in (100, jnp.array(100), np.array(100.0)):
        s = Pair(2.0, ND(payload))
        gradient = pb.grad(program, backend="finite")(s)
        np.testing.assert_allclose(gradient.p, ANSWER, rtol=1e-6)
        assert gradient.n is s.n
        jacobian = pb.jacobian(program, backend="finite")(s)
        np.testing.assert_allclose(jacobian.p, ANSWER, rtol=1e-6)
        hessian = pb.hessian(program, backend="finite")(s)
        np.testing.assert_allclose(hessian.p.p, 2 * ANSWER, rtol=1e-4)


def test_second_order_and_forward_mode(maybe_jit):
    for payload in (100, jnp.array(100), jnp.array(100.0)):
        s = Pair(jnp.array(2.0), ND(payload))
        hessian = maybe_jit(jax.hessian(program))(s)
        np.testing.assert_allclose(hessian.p.p, 2 * ANSWER, rtol=1e-5)
        assert len(jax.tree.leaves(hessian)) == 1
        twice = maybe_jit(jax.grad(lambda s: jax.grad(program)(s).p))(s)
        np.testing.assert_allclose(twice.p, 2 * ANSWER, rtol=1e-5)
        tangent = jax.tree.map(jnp.ones_like, s)
        for jvp in (jax.jvp, pb.jvp):
            _, slope = maybe_jit(lambda s, t, jvp=jvp: jvp(program, (s,), (t,)))(s, tangent)
            np.testing.assert_allclose(slope, ANSWER, rtol=1e-6)


def test_aux_and_several_arguments(maybe_jit):
    def f(x, s):
        return x * program(s), (s.n, x)

    s = Pair(jnp.array(2.0), ND(jnp.array(100.0)))
    grads, (n, x) = maybe_jit(jax.grad(f, argnums=(0, 1), has_aux=True))(jnp.array(3.0), s)
    np.testing.assert_allclose(grads[1].p, 3 * ANSWER, rtol=1e-6)
    assert float(n) == 100.0
    assert float(x) == 3.0


def test_a_differentiated_value_loses_its_derivative():
    gradient = jax.grad(lambda x: x * ND(x))(jnp.array(3.0))
    assert float(gradient) == 3.0
    # It also does on its way through a boundary of tracing.
    through = jax.jit(lambda n, x: n * x)
    assert float(jax.grad(lambda x: through(ND(x), x))(jnp.array(3.0))) == 3.0


def test_the_payload_under_differentiation_is_not_differentiated(maybe_jit):
    def f(s):
        inside = pb.cond(pb.within_gradient(s.n), lambda: 1000.0, lambda: 0.0)
        outside = pb.cond(pb.within_gradient(s.p), lambda: 10.0, lambda: 0.0)
        value = pb.cond(pb.within_gradient(s.n.value), lambda: 5000.0, lambda: 0.0)
        return inside + outside + value + s.p * 0.0

    for payload in (100, jnp.array(100.0), "text", Plain(), jax.random.key(0)):
        s = Pair(jnp.array(2.0), ND(payload))
        assert not pb.within_gradient(s.n)
        if isinstance(payload, str | Plain):
            continue
        assert float(maybe_jit(jax.value_and_grad(f))(s)[0]) == 10.0


def test_the_gradient_of_a_kernel_keeps_the_tree(maybe_jit):
    x = jnp.array([0.5, -1.0, 2.0], jnp.float32)
    y = jnp.array([1.5, 0.3, -0.7], jnp.float32)

    def total(kernel):
        return jnp.sum(kernel(x, y))

    kernel = (Gauss(jnp.float32(0.7), ND(2)) + Gauss(jnp.float32(1.3), ND(jnp.int32(3)))) * Gauss(
        jnp.float32(0.2), ND(1.0)
    )
    gradient = maybe_jit(jax.grad(total))(kernel)
    assert jax.tree.structure(jax.tree.map(jnp.sin, gradient)) == jax.tree.structure(gradient)
    assert isinstance(gradient, Both)
    assert isinstance(gradient.left, Both)
    slopes = pb.grad(total, backend="finite")(kernel)
    for found, want in zip(jax.tree.leaves(gradient), jax.tree.leaves(slopes), strict=True):
        np.testing.assert_allclose(found, want, rtol=1e-4)
    assert len(jax.tree.leaves(gradient)) == 3
    assert isinstance(gradient.left.right.n, ND)


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Gauss:
    p: Any
    n: Any

    def __call__(self, x, y):
        with jax.numpy_dtype_promotion("standard"):
            return jnp.exp(-self.p * jnp.abs(x - y) ** self.n)

    def __add__(self, other):
        return Both(self, other, ND("sum"))

    def __mul__(self, other):
        return Both(self, other, ND("product"))


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Both:
    left: Any
    right: Any
    how: Any

    __add__, __mul__ = Gauss.__add__, Gauss.__mul__

    def __call__(self, x, y):
        one, two = self.left(x, y), self.right(x, y)
        return one + two if self.how == "sum" else one * two


def test_there_is_no_nan_where_the_value_has_no_derivative(maybe_jit):
    n = ND(jnp.array([0.0, 4.0]))
    gradient = maybe_jit(jax.grad(lambda s: jnp.sum(s.p * jnp.sqrt(s.n) * s.n**0.5)))(
        Pair(jnp.ones(2), n)
    )
    assert gradient.p.tolist() == [0.0, 4.0]
    nan = ND(jnp.array(jnp.nan))
    gradient = maybe_jit(jax.grad(lambda s: jnp.sum(s.p * jnp.where(s.n > 0, s.n, 2.0))))(
        Pair(jnp.ones(2), nan)
    )
    assert gradient.p.tolist() == [2.0, 2.0]


def test_an_optimiser_written_by_hand_leaves_it_alone(maybe_jit):
    s = Pair(jnp.array(2.0), ND(jnp.array([1.0, 2.0])))

    def step(s, momentum):
        gradient = jax.grad(lambda s: jnp.sum(s.p * s.n) ** 2)(s)
        momentum = jax.tree.map(lambda m, g: 0.9 * m + g, momentum, gradient)
        return jax.tree.map(lambda p, m: p * 0.9 - 0.01 * m, s, momentum), momentum

    step = maybe_jit(step)
    after, momentum = s, jax.tree.map(jnp.zeros_like, s)
    for _ in range(20):
        after, momentum = step(after, momentum)
    assert bits(after.n.value) == bits(s.n.value)
    assert float(after.p) != 2.0


def test_trees_of_other_values_can_be_combined():
    one, two = Pair(1.0, ND(jnp.ones(2))), Pair(2.0, ND(jnp.zeros(2)))
    both = jax.tree.map(operator.add, one, two)
    assert both.p == 3.0
    assert both.n is one.n
    assert jax.tree.structure(one) != jax.tree.structure(two)
    assert jax.tree.structure(one) == jax.tree.structure(Pair(5.0, ND(jnp.ones(2))))


def test_ravelling_leaves_it_out():
    flat, back = jax.flatten_util.ravel_pytree(Pair(jnp.arange(2.0), ND(jnp.ones(3))))
    assert flat.shape == (2,)
    assert back(flat).n.shape == (3,)
