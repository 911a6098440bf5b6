"""The rules of bridged functions, tested without Julia on a cubic form."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fake_bridge import cubic
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from quick import by_day, examples

import pybridge as pb
from pybridge.interop._julia_program import ArrayType, Program, bind

KINDS = {
    "scalar": (((),), ((),)),
    "gradient": (((3,),), ((),)),
    "vector": (((3,),), ((2,),)),
    "two": (((2,), (2, 2)), ((3,),)),
    "tree": (((2,), ()), ((2,), ())),
}


def _total(f):
    """Make one scalar of a function's value."""

    def total(*args: Any) -> Any:
        return sum(jnp.sum(jnp.sin(y)) for y in jax.tree_util.tree_leaves(f(*args)))

    return total


def _all(f, args):
    return tuple(range(len(args)))


TRANSFORMS = {
    "value": lambda f, xs, ts: f(*xs),
    "jvp": lambda f, xs, ts: jax.jvp(f, xs, ts),
    "grad": lambda f, xs, ts: jax.grad(_total(f), _all(f, xs))(*xs),
    "jacfwd": lambda f, xs, ts: jax.jacfwd(f, _all(f, xs))(*xs),
    "jacrev": lambda f, xs, ts: jax.jacrev(f, _all(f, xs))(*xs),
    "one argument": lambda f, xs, ts: jax.jacrev(f, len(xs) - 1)(*xs),
    "hessian": lambda f, xs, ts: jax.hessian(_total(f), _all(f, xs))(*xs),
    "reverse over reverse": lambda f, xs, ts: jax.jacrev(jax.jacrev(f))(*xs),
    "reverse over forward": lambda f, xs, ts: jax.jacrev(jax.jacfwd(f))(*xs),
    "grad of jvp": lambda f, xs, ts: jax.grad(
        lambda *ts: _total(lambda *xs: jax.jvp(f, xs, ts)[1])(*xs), _all(f, xs)
    )(*ts),
    "grad of jvp of jvp": lambda f, xs, ts: jax.grad(
        lambda *us: _total(lambda *xs: jax.jvp(lambda *xs: jax.jvp(f, xs, us)[1], xs, ts)[1])(*xs),
        _all(f, xs),
    )(*(2 * t for t in ts)),
    "third order": lambda f, xs, ts: jax.jacfwd(jax.jacrev(jax.jacfwd(f)))(*xs),
    "third order, reverse": lambda f, xs, ts: jax.jacrev(jax.jacrev(jax.jacrev(f)))(*xs),
    "linearize": lambda f, xs, ts: jax.linearize(f, *xs)[1](*ts),
    "transposed": lambda f, xs, ts: jax.vjp(lambda *ts: jax.linearize(f, *xs)[1](*ts), *ts)[1](
        f(*xs)
    ),
    "pullback transposed": lambda f, xs, ts: jax.vjp(jax.vjp(f, *xs)[1], f(*xs))[1](ts),
    "jvp of a pullback": lambda f, xs, ts: jax.jvp(
        lambda xs, cts: jax.vjp(f, *xs)[1](cts), (xs, f(*xs)), (ts, f(*ts))
    ),
    "checkpoint": lambda f, xs, ts: jax.grad(jax.checkpoint(_total(f)))(*xs),
    "scan": lambda f, xs, ts: jax.grad(_scanned(f, xs))(jnp.ones_like(xs[0].ravel()[0])),
    "fori_loop": lambda f, xs, ts: jax.jvp(
        lambda s: lax.fori_loop(0, 3, lambda i, c: _total(f)(*_scaled(xs, c)), s),
        (jnp.asarray(0.3, xs[0].dtype),),
        (jnp.asarray(1.0, xs[0].dtype),),
    ),
    "cond": lambda f, xs, ts: jax.grad(
        lambda *xs: pb.cond(xs[0].sum() > 0, _total(f), lambda *xs: 0 * xs[0].sum(), *xs)
    )(*xs),
}


def _scanned(f, xs):
    def run(s):
        def step(c, t):
            return c + _total(f)(*_scaled(xs, c * t)), None

        return lax.scan(step, s, jnp.asarray([0.1, 0.2], s.dtype))[0]

    return run


def _scaled(xs, s):
    return tuple(s * x for x in xs)


def _points(shapes, seed: int = 0):
    rng = np.random.default_rng(seed)
    xs = tuple(jnp.asarray(rng.normal(size=shape)) for shape in shapes)
    ts = tuple(jnp.asarray(rng.normal(size=shape)) for shape in shapes)
    return xs, ts


def _assert_same(found, expected) -> None:
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)


@pytest.fixture(autouse=True)
def _double(x64):
    """Derivatives of third order need the digits."""


@pytest.mark.parametrize("jit", [False, True], ids=["eager", "jit"])
@pytest.mark.parametrize("name", TRANSFORMS)
@pytest.mark.parametrize("kind", KINDS)
def test_transforms(kind: str, name: str, jit: bool) -> None:
    """Every transformation of a bridged function equals that of its JAX twin."""
    bridged, reference, _ = cubic(*KINDS[kind])
    xs, ts = _points(KINDS[kind][0])
    run = TRANSFORMS[name]
    found, expected = (functools.partial(run, f) for f in (bridged, reference))
    if jit:
        found = jax.jit(found)
    _assert_same(found(xs, ts), jax.jit(expected)(xs, ts))


AXES = {
    "first": (0, 0),
    "shared": (None, 0),
    "last": (-1, None),
}


@pytest.mark.parametrize("axes", AXES)
@pytest.mark.parametrize("name", ["value", "jvp", "grad", "jacrev", "hessian", "third order"])
def test_vmap_of(name: str, axes: str) -> None:
    """Vmap of each transformation equals that of the JAX twin."""
    bridged, reference, _ = cubic(*KINDS["two"])
    xs, ts = _points(KINDS["two"][0])

    def lanes(x, axis):
        return x if axis is None else np.stack([x, 2 * x, -x], axis)

    batched = tuple(lanes(x, axis) for x, axis in zip(xs, AXES[axes], strict=True))

    def mapped(f):
        return jax.vmap(lambda *xs: TRANSFORMS[name](f, xs, ts), AXES[axes])

    _assert_same(mapped(bridged)(*batched), jax.jit(mapped(reference))(*batched))


NESTED = ["grad", "jacrev", "jacfwd", "hessian", "reverse over forward"]


@pytest.mark.parametrize("name", by_day(NESTED, ["grad", "hessian"]))
def test_transforms_of_nested_vmap(name: str) -> None:
    """Each transformation of a nested vmap, with a shared argument, equals the JAX twin's."""
    bridged, reference, _ = cubic(*KINDS["two"])
    (a, b), (ta, tb) = _points(KINDS["two"][0])
    xs, ts = (a, np.stack([np.stack([b, 2 * b]), np.stack([-b, b + 1])])), (ta, tb)

    def run(f, xs, ts):
        nested = jax.vmap(jax.vmap(f, (None, 0)), (None, 1))
        return TRANSFORMS[name](nested, xs, ts)

    _assert_same(run(bridged, xs, ts), jax.jit(functools.partial(run, reference))(xs, ts))


def test_shared_gradients_are_summed_in_the_call() -> None:
    """The gradient of an argument that all lanes share has no axis for the lanes."""
    bridged, _, function = cubic(*KINDS["two"])
    (a, b), _ = _points(KINDS["two"][0])
    jax.grad(lambda a: _total(jax.vmap(bridged, (None, 0)))(a, jnp.stack([b, b])))(a)
    backward = [p for p in function.calls if p.kind == "cotangents"]
    assert [p.shape(0, result=True) for p in backward] == [a.shape]


def test_scalar_functions_run_once() -> None:
    """Value and gradient of a scalar function come from one call."""
    bridged, _, function = cubic(*KINDS["gradient"])
    jax.value_and_grad(bridged)(jnp.ones(3))
    assert [p.kind for p in function.calls] == ["value_and_grad"]


def test_an_integer_among_the_values_has_no_derivative() -> None:
    """Its tangent is of JAX's type for that, and nothing is computed for it."""
    bridged, reference, function = cubic(((3,),), ((2,), ()), integers=(1,))
    xs, ts = _points(((3,),))
    found, none = jax.jvp(bridged, xs, ts)[1]
    expected = jax.jit(lambda xs, ts: jax.jvp(reference, xs, ts)[1][0])(xs, ts)
    assert none.dtype == jax.dtypes.float0
    _assert_same(found, expected)
    assert [p.kept for p in function.calls if p.kind == "tangents"] == [(0,)]
    expected = jax.jit(functools.partial(TRANSFORMS["hessian"], reference))(xs, ts)
    _assert_same(TRANSFORMS["hessian"](bridged, xs, ts), expected)


def test_a_function_of_integers_alone_is_told_what_it_is_differentiated_by() -> None:
    """It may ask, as by `within_gradient`, though its value has no derivative."""
    bridged, reference, function = cubic(((3,),), ((2,),), integers=(0,))
    xs, ts = _points(((3,),))
    value, tangent = jax.jvp(bridged, xs, ts)
    _assert_same(value, reference(*xs))
    assert tangent.dtype == jax.dtypes.float0
    assert [(p.kind, p.wrt) for p in function.calls] == [("call", (0,))]


def test_symbolic_zeros_are_not_asked_for() -> None:
    """Only the differentiated argument appears in a derivative."""
    bridged, _, function = cubic(*KINDS["two"])
    (a, b), _ = _points(KINDS["two"][0])
    jax.jacfwd(bridged, 1)(a, b)
    jax.jacrev(bridged, 0)(a, b)
    asked = {(p.kind, p.wrt, p.directions) for p in function.calls}
    assert asked == {
        ("call", (1,), ()),
        ("tangents", (), ((1,),)),
        ("call", (0,), ()),
        ("cotangents", (0,), ()),
    }


def test_derivatives_by_one_argument_after_another_ask_for_both() -> None:
    """What a call is told to be differentiated by grows from one derivative to the next."""
    bridged, reference, function = cubic(*KINDS["two"])
    (a, b), (ta, _) = _points(KINDS["two"][0])

    def mixed(f):
        return lambda a, b: jax.jvp(lambda a: jax.grad(_total(f), 1)(a, b), (a,), (ta,))

    _assert_same(mixed(bridged)(a, b), jax.jit(mixed(reference))(a, b))
    assert {p.wrt for p in function.calls if p.kind == "call"} == {(0, 1)}


def test_a_gradient_by_one_argument_is_differentiated_by_another() -> None:
    bridged, reference, _ = cubic(((2,), (3,)), ((),))
    (a, b), _ = _points(((2,), (3,)))
    found, expected = (jax.jacfwd(jax.grad(f), 1) for f in (bridged, reference))
    _assert_same(found(a, b), jax.jit(expected)(a, b))


@pytest.mark.parametrize("jacobian", [jax.jacfwd, jax.jacrev])
@pytest.mark.parametrize("by", [0, 1], ids=["by the lanes", "by what they share"])
def test_gradients_of_lanes_have_derivatives(jacobian: Any, by: int) -> None:
    bridged, reference, _ = cubic(((2,), (3,)), ((),))
    (x, shared), _ = _points(((2,), (3,)))
    lanes = np.stack([x, 2 * x, -x])

    def derived(f):
        return jacobian(jax.vmap(jax.grad(f), in_axes=(0, None)), by)

    _assert_same(derived(bridged)(lanes, shared), jax.jit(derived(reference))(lanes, shared))


def test_results_are_as_strong_as_their_dtype() -> None:
    bridged, _, _ = cubic(*KINDS["scalar"])
    assert not jax.eval_shape(bridged, 2.0).weak_type


def test_an_operand_that_is_sharded_over_an_explicit_axis_is_refused() -> None:
    _, _, function = cubic(((4,),), ((4,),))
    mesh = jax.make_mesh((2,), ("i",), axis_types=(AxisType.Explicit,))
    x = jax.device_put(jnp.ones(4), NamedSharding(mesh, PartitionSpec("i")))
    program = Program(
        function, "call", None, (ArrayType((4,), x.dtype),), None, (ArrayType((4,), x.dtype),)
    )
    with pytest.raises(pb.UnsupportedModeError, match=r"not sharded .*jax\.shard_map"):
        jax.eval_shape(lambda x: bind(program, (x,)), x)


def _steps(f):
    return lambda xs: lax.scan(lambda c, x: (c + _total(f)(x), None), 0.0, xs)[0]


# Name: what is differentiated, the shape of its argument, and how often the function runs forward.
PASSES = {
    "once": (_total, (3,), 1),
    "scan": (_steps, (4, 3), 4),
    "vmap": (lambda f: lambda x: _total(jax.vmap(f))(x), (4, 3), 4),
    "checkpoint": (lambda f: jax.checkpoint(_total(f)), (3,), 1),
    "checkpointed scan": (lambda f: _steps(jax.checkpoint(f)), (4, 3), 4),
}


@pytest.mark.parametrize("jit", [False, True], ids=["eager", "jit"])
@pytest.mark.parametrize("name", PASSES)
def test_a_forward_pass_leaves_its_pullback_to_the_backward_pass(name: str, jit: bool) -> None:
    bridged, reference, function = cubic(*KINDS["vector"])
    make, shape, count = PASSES[name]
    x = jnp.ones(shape)
    gradient = jax.grad(make(bridged))
    expected = jax.jit(jax.grad(make(reference)))(x)
    _assert_same((jax.jit(gradient) if jit else gradient)(x), expected)
    assert (function.hits, function.left) == (count, {})


def test_a_pullback_is_used_once_and_then_made_again() -> None:
    bridged, reference, function = cubic(*KINDS["vector"])
    _, pull = jax.vjp(bridged, jnp.ones(3))
    _, expected = jax.vjp(reference, jnp.ones(3))
    for ct in np.eye(2):
        _assert_same(pull(ct), expected(ct))
    assert function.hits == 1


def test_a_pullback_that_is_gone_is_made_again() -> None:
    bridged, reference, function = cubic(*KINDS["vector"])
    _, pull = jax.vjp(bridged, jnp.ones(3))
    function.left.clear()
    _assert_same(pull(jnp.ones(2)), jax.vjp(reference, jnp.ones(3))[1](jnp.ones(2)))
    assert function.hits == 0


def test_what_has_no_backward_pass_leaves_nothing() -> None:
    bridged, _, function = cubic(*KINDS["vector"])
    jax.jit(lambda x: jax.vjp(bridged, x)[0])(jnp.ones(3))
    jax.jit(lambda x: jax.jvp(bridged, (x,), (x,)))(jnp.ones(3))
    jax.vmap(lambda x: jax.jacfwd(bridged)(x))(jnp.ones((2, 3)))
    assert not function.left
    assert not function.calls[0].ticket


def test_cond_keeps_lanes_apart() -> None:
    """A call in a branch sees no operand of a lane that took the other branch."""
    _, _, function = cubic(*KINDS["gradient"])
    seen: list[np.ndarray] = []
    bridged, _, function = cubic(*KINDS["gradient"])
    make = function.executable

    def spy(program):
        executable = make(program)
        call = executable.call
        executable.call = lambda xs: (seen.extend(np.reshape(xs[0], (-1, 3))), call(xs))[1]
        return executable

    function.executable = spy
    x = jnp.array([[1.0, 2, 3], [-1, 5, 6], [2, 0, 1]])
    f = jax.vmap(lambda x: pb.cond(x[0] > 0, bridged, lambda x: 0 * x[0], x))
    jax.grad(lambda x: f(x).sum())(x)
    assert seen and all(row[0] > 0 for row in seen)


@settings(max_examples=examples(15), deadline=None)
@given(st.integers(0, 3), st.integers(0, 2), st.integers(0, 10_000))
def test_any_batch(size: int, axis: int, seed: int) -> None:
    """Any size and axis of a batch, the empty one too, equals a Python loop."""
    bridged, reference, _ = cubic(((2, 2),), ((2,),))
    x = jnp.asarray(np.random.default_rng(seed).normal(size=(size, 2, 2)))
    found = jax.vmap(bridged, axis)(jnp.moveaxis(x, 0, axis))
    expected = [reference(row) for row in x]
    assert found.shape == (size, 2)
    if size:
        np.testing.assert_allclose(found, jnp.stack(expected), rtol=1e-9)


@pytest.mark.parametrize(
    "wrap", [lambda f: f, jax.jit, lambda f: lambda x: jax.vmap(f)(x[None])[0]]
)
def test_the_transpose_of_a_value_names_the_way_out(wrap):
    f, reference, _ = cubic(*KINDS["vector"])
    x, ct = jnp.arange(3.0), jnp.array([1.0, 10.0])
    with pytest.raises(pb.UnsupportedModeError, match=r"jax\.jvp\(f, .*jax\.vjp\(f, x\)"):
        jax.linear_transpose(wrap(f), x)(ct)

    def along(f):
        return lambda v: jax.jvp(wrap(f), (x,), (v,))[1]

    found, wanted = (jax.linear_transpose(along(g), x)(ct)[0] for g in (f, reference))
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_the_transpose_of_a_gradient_names_the_way_out():
    f, _, _ = cubic(*KINDS["gradient"])
    with pytest.raises(pb.UnsupportedModeError, match="known to be linear"):
        jax.linear_transpose(jax.grad(f), jnp.ones(3))(jnp.ones(3))
