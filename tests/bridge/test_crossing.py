"""What crosses besides arrays: keyword arguments, dataclasses and other pytrees."""

from __future__ import annotations

import dataclasses
import functools
from collections import OrderedDict
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from bridge_helpers import julia, same
from precision import enable_x64

import pybridge as pb


@pytest.fixture
def x64():
    with enable_x64(True):
        yield


def matrix():
    return jnp.asarray(np.random.default_rng(0).normal(size=(2, 3)))


SUMS = "(x; dims=1, scale=1) -> sum(abs2, sum(scale .* x .* x; dims))"


def sums(x, dims=1, scale=1):
    return jnp.sum(jnp.sum(scale * x * x, axis=dims - 1) ** 2)


@pytest.mark.parametrize("dims", [1, 2])
def test_keyword_arguments(dims, system, x64):
    f, x = julia(SUMS, system), matrix()
    options = {"dims": dims, "scale": 2}
    bound, twin = functools.partial(f, **options), functools.partial(sums, **options)
    same(bound(x), twin(x))
    same(jax.jit(f, static_argnames=("dims", "scale"))(x, **options), twin(x))
    same(jax.grad(f)(x, **options), jax.grad(twin)(x))
    same(jax.jit(jax.grad(bound))(x), jax.grad(twin)(x))
    batch = jnp.stack([x, 2 * x])
    same(jax.jit(jax.vmap(jax.grad(bound)))(batch), jax.vmap(jax.grad(twin))(batch))
    same(jax.jit(jax.jvp, static_argnums=0)(bound, (x,), (x,)), jax.jvp(twin, (x,), (x,)))
    same(jax.hessian(bound)(x), jax.hessian(twin)(x), rtol=1e-8)
    same(pb.grad(f, backend=system)(x, **options), jax.grad(twin)(x))


VALUES = {
    "Int64": (2, "Int64"),
    "Float64": (-0.25, "Float64"),
    "Bool": (True, "Bool"),
    "String": ('a "quoted" $x \\ line\n é', "String"),
    "Nothing": (None, "Nothing"),
    "Colon": (slice(None), "Colon"),
    "Tuple": ((1, (2.0, "b"), ()), "Tuple{Int64, Tuple{Float64, String}, Tuple{}}"),
    "Float32": (np.float32(0.1), "Float32"),
    "UInt64": (np.uint64(2**64 - 1), "UInt64"),
    "ComplexF32": (np.complex64(1 + 2j), "ComplexF32"),
    "least Int64": (-(2**63), "Int64"),
    "Inf": (float("-inf"), "Float64"),
}


@pytest.mark.parametrize("kind", VALUES)
def test_types_of_keyword_values(kind):
    value, name = VALUES[kind]
    f = julia(f"(x; v) -> x * (typeof(v) === {name})")
    assert float(f(1.0, v=value)) == 1


def test_numbers_and_strings_arrive_unchanged():
    f = julia("(x; v) -> x * v")
    for v in (-(2**63), 2**63 - 1, 0.1, float("inf"), np.float32(0.1), np.uint64(2**64 - 1)):
        assert f(np.asarray(v).dtype.type(1), v=v) == v
    text = 'a "quoted" $x \\ \n é'
    codes = julia("(x; v) -> Int.(collect(v))")(1.0, v=text)
    np.testing.assert_array_equal(codes, [ord(c) for c in text])


def test_rules_and_declared_values_get_the_keywords(x64):
    f = pb.from_julia(
        "(x; n) -> x .^ n",
        vjp="(x; n) -> (x .^ n, y -> (10n .* y,))",  # not the derivative: it is seen to be used
        out=lambda x, n: jax.ShapeDtypeStruct(x.shape, x.dtype),
    )
    x = jnp.array([1.0, 2.0])
    same(jax.grad(lambda x: f(x, n=3).sum())(x), np.array([30.0, 30.0]))
    same(f(x, n=3), x**3)


def test_an_rrule_with_keywords_is_used(system, x64):
    f = julia(
        "begin\nruled(x; n) = sum(x) * n\n"
        "ChainRulesCore.rrule(::typeof(ruled), x; n) = "
        "(ruled(x; n), y -> (ChainRulesCore.NoTangent(), fill(100.0 * n * y, size(x))))\n"
        "ruled\nend",
        system,
    )
    same(jax.grad(f)(jnp.ones(2), n=2), np.full(2, 200.0))


@pytest.mark.parametrize(
    ("value", "words"),
    [([1], "a tuple"), ({"a": 1}, "a dict"), (np.ones(2), "by position"), (2**63, "64 bits")],
    ids=str,
)
def test_keywords_that_are_not_static(value, words):
    with pytest.raises((pb.ArgumentTypeError, pb.ArgumentValueError), match=words):
        julia(SUMS)(np.ones((2, 2)), dims=value)


def test_a_traced_keyword_is_named():
    with pytest.raises(pb.ArgumentTypeError, match='static_argnames="dims"'):
        jax.jit(julia(SUMS))(jnp.ones((2, 2)), dims=2)


@pytest.mark.parametrize("wrap", [lambda f: f, jax.jit, jax.grad])
def test_an_unknown_keyword_is_julias_error(wrap):
    f = functools.partial(julia(SUMS), dmis=2)
    with pytest.raises(pb.JuliaError, match="dmis"):
        wrap(f)(jnp.ones((2, 2)))


@functools.partial(
    jax.tree_util.register_dataclass, data_fields=["weight", "bias"], meta_fields=["name"]
)
@dataclasses.dataclass
class Affine:
    weight: Any
    bias: Any
    name: str = "affine"


@jax.tree_util.register_pytree_node_class
class Unnamed:
    def __init__(self, a, b):
        self.a, self.b = a, b

    def tree_flatten(self):
        return (self.a, self.b), None

    @classmethod
    def tree_unflatten(cls, _, children):
        return cls(*children)


def check_gradients(source, twin, tree, system):
    f, x = julia(source, system), matrix()[0]
    for wrap in (lambda f: f, jax.jit):
        same(wrap(f)(tree, x), twin(tree, x))
        same(wrap(jax.grad(f, argnums=(0, 1)))(tree, x), jax.grad(twin, argnums=(0, 1))(tree, x))
    batch = jnp.stack([x, 2 * x])
    same(
        jax.vmap(jax.grad(f), (None, 0))(tree, batch),
        jax.vmap(jax.grad(twin), (None, 0))(tree, batch),
    )
    same(pb.grad(f, backend=system)(tree, x), jax.grad(twin)(tree, x))


LOSS = "(l, x) -> sum(abs2, l.weight * x .+ l.bias)"


def loss(layer, x):
    return jnp.sum((layer.weight @ x + layer.bias) ** 2)


def test_dataclasses(system, x64):
    check_gradients(LOSS, loss, Affine(matrix(), jnp.ones(2)), system)


@pytest.mark.peers("equinox")
def test_equinox_modules(system, x64):
    equinox = pytest.importorskip("equinox")
    layer = equinox.nn.Linear(3, 2, key=jax.random.key(0), dtype=jnp.float64)
    check_gradients(LOSS, loss, layer, system)


def test_nodes_without_names_are_tuples(system, x64):
    check_gradients(
        "((w, b), x) -> sum(abs2, w * x .+ b)",
        lambda t, x: loss(Affine(t.a, t.b), x),
        Unnamed(matrix(), jnp.ones(2)),
        system,
    )


def test_ordered_dicts_keep_their_values():
    f = julia("d -> d.a - 2 * d.b")
    tree = OrderedDict(b=np.float64(1), a=np.float64(10))
    for wrap in (lambda f: f, jax.jit):
        assert float(wrap(f)(tree)) == 8
