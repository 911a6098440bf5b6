"""`NonDifferentiable` behaves as its value."""

import collections
import copy
import math
import operator
import pickle

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from nondifferentiable_helpers import ND, Pair, Plain
from quick import examples

import pybridge as pb

BINARY = [
    operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod,
    operator.pow, divmod, operator.eq, operator.ne, operator.lt, operator.le, operator.gt,
    operator.ge,
]  # fmt: skip
numbers = st.one_of(
    st.integers(1, 20),
    st.floats(0.5, 20),
    st.lists(st.floats(0.5, 20, width=32), min_size=3, max_size=3).map(
        lambda x: jnp.array(x, jnp.float32)
    ),
    st.lists(st.floats(0.5, 20, width=32), min_size=3, max_size=3).map(
        lambda x: np.array(x, np.float32)
    ),
)


def agree(found, want):
    assert type(found) is type(want)
    np.testing.assert_array_equal(np.asarray(found), np.asarray(want))
    assert getattr(found, "dtype", None) == getattr(want, "dtype", None)


@settings(max_examples=examples(60), deadline=None)
@given(numbers, numbers, st.sampled_from(BINARY))
def test_operators_act_on_the_value(a, b, op):
    want = op(a, b)
    for found in (op(ND(a), b), op(a, ND(b)), op(ND(a), ND(b))):
        agree(found, want)


def test_operators_of_integers_and_matrices():
    for op in (operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift):
        for a, b in ((6, 3), (jnp.array([6, 5]), 1), (np.array([6, 5]), np.array([1, 2]))):
            agree(op(ND(a), b), op(a, b))
            agree(op(a, ND(b)), op(a, b))
    for kind in (jnp, np):
        a, b = kind.arange(6.0).reshape(2, 3), kind.arange(3.0)
        agree(ND(a) @ b, a @ b)
        agree(a @ ND(b), a @ b)
        agree(abs(-ND(a)), a)
        agree(+ND(a), a)
        agree(ND(a)[1, ::-1], a[1, ::-1])
        agree(ND(a)[ND(1)], a[1])
    # JAX's arrays ask nobody when they are indexed; NumPy's and lists ask `__index__`.
    agree(np.arange(3.0)[ND(1)], np.arange(3.0)[1])
    agree(~ND(5), -6)


def test_conversions():
    n = ND(3)
    assert (int(n), float(n), complex(n), bool(n), hash(n)) == (3, 3.0, 3 + 0j, True, hash(3))
    assert [1, 2, 3, 4][n] == 4
    assert list(range(n)) == [0, 1, 2]
    assert f"{n:03d} {n}" == "003 3"
    assert str(ND("text")) == "text"
    assert (math.floor(ND(2.5)), math.ceil(ND(2.5)), math.trunc(ND(2.5))) == (2, 3, 2)
    assert (round(ND(2.567), 2), round(ND(2.4))) == (2.57, 2)
    assert len(ND([1, 2])) == 2
    assert list(reversed(ND([1, 2]))) == [2, 1]
    assert 2 in ND([1, 2])
    assert sum(ND((1, 2, 3))) == 6
    assert {n: "found"}[3] == "found"
    assert not ND(0)
    with pytest.raises(TypeError):
        len(n)
    with pytest.raises(ValueError):
        int(ND("text"))


def test_attributes_are_those_of_the_value():
    n = ND(jnp.arange(6.0).reshape(2, 3))
    assert (n.shape, n.dtype, n.ndim, n.size) == ((2, 3), jnp.float32, 2, 6)
    assert n.T.shape == (3, 2)
    assert float(n.sum()) == 15.0
    assert n.at[0, 0].set(9.0)[0, 0] == 9.0
    assert ND("text").upper() == "TEXT"
    assert not hasattr(ND(3), "shape")
    with pytest.raises(AttributeError, match="nothing"):
        _ = n.nothing
    with pytest.raises(AttributeError, match="_private"):
        _ = n._private


FUNCTIONS = [
    lambda xp, n: xp.sin(n),
    lambda xp, n: xp.add(n, n),
    lambda xp, n: xp.sum(n),
    lambda xp, n: xp.dot(n, n),
    lambda xp, n: xp.where(n > 1, n, 0.0),
    lambda xp, n: xp.maximum(n, 1.0),
    lambda xp, n: xp.stack([n, n]),
    lambda xp, n: xp.concatenate([n, n]),
    lambda xp, n: xp.mean(n, axis=0),
    lambda xp, n: xp.linalg.norm(n),
    lambda xp, n: xp.shape(n),
    lambda xp, n: xp.clip(n, 0.5, 1.5),
    lambda xp, n: xp.outer(n, n),
    lambda xp, n: xp.einsum("i,i->", n, n),
]


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("xp", [np, jnp], ids=["np", "jnp"])
def test_functions_of_arrays_take_it(xp, function):
    x = xp.arange(3, dtype=np.float32)
    want, found = function(xp, x), function(xp, ND(x))
    assert type(found) is type(want)
    np.testing.assert_allclose(found, want, rtol=1e-6)
    if xp is jnp:
        np.testing.assert_allclose(jax.jit(lambda n: function(jnp, n))(ND(x)), want, rtol=1e-6)


def test_numbers_keep_their_weak_types():
    x = jnp.ones(2, jnp.bfloat16)
    assert (x * ND(2.0)).dtype == (jnp.multiply(x, ND(2.0))).dtype == jnp.bfloat16
    assert jnp.power(jnp.float32(2), ND(3)).dtype == jnp.float32


def test_numpy_functions_meet_jax_arrays():
    n = ND(jnp.arange(3.0))
    assert isinstance(np.ones(3, np.float32) + n, jax.Array)
    assert isinstance(np.multiply(np.ones(3, np.float32), n), jax.Array)
    traced = jax.jit(lambda n: np.ones(3, np.float32) * n)(n)
    assert traced.tolist() == [0.0, 1.0, 2.0]
    out = np.zeros(3)
    np.add(ND(np.ones(3)), 1.0, out=out)
    assert out.tolist() == [2.0, 2.0, 2.0]
    assert np.add.reduce(ND(np.ones(3))) == 3.0
    assert np.asarray(ND([1, 2]), np.float32).dtype == np.float32
    original = np.ones(2)
    copied = np.array(ND(original))
    copied[0] = 5.0
    assert original[0] == 1.0


def test_a_value_that_is_no_array_is_refused_where_one_is_needed():
    for function in (jnp.asarray, lambda n: jnp.ones(2) + n):
        with pytest.raises(TypeError, match=r"pb.NonDifferentiable: expected a number or an array"):
            function(ND("text"))
    assert issubclass(pb.ArgumentTypeError, TypeError)


def test_it_cannot_be_changed():
    n = ND(3)
    with pytest.raises(AttributeError, match="make a new one"):
        n.value = 4
    with pytest.raises(AttributeError, match="make a new one"):
        n.other = 4
    with pytest.raises(AttributeError, match="make a new one"):
        del n._arrays


def test_nesting_is_undone():
    assert ND(ND(3)).value == 3
    assert ND([ND(3), ND(jnp.ones(2))]).value[0] == 3
    assert type(ND([ND(3)]).value[0]) is int
    payload = Plain()
    assert ND(payload).value is payload


@pytest.mark.parametrize(
    "payload",
    [3, "text", 2.5, None, (1, 2), {"a": np.arange(3)}, np.arange(3.0), jnp.arange(3)],
    ids=repr,
)
def test_copies_and_pickles(payload):
    s = Pair(jnp.ones(2), ND(payload))
    for other in (copy.copy(s.n), copy.deepcopy(s).n, pickle.loads(pickle.dumps(s)).n):
        assert isinstance(other, ND)
        assert jax.tree.structure(other) == jax.tree.structure(s.n)
    assert repr(ND(payload)) == f"NonDifferentiable({payload!r})"


def test_paths_name_it():
    counts = collections.Counter(
        jax.tree_util.keystr(path)
        for path, _ in jax.tree_util.tree_leaves_with_path(
            jax.eval_shape(lambda s: s, {"a": ND(jnp.ones(2))})
        )
    )
    assert counts == {"['a'].value": 1}
