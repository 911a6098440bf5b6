"""`switch`: many branches, an index, and the guarantees of `cond`."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import pybridge as pb

BRANCHES = [
    lambda x: jnp.log(x),
    lambda x: jnp.sqrt(-x),
    lambda x: 1 / x,
    lambda x: 0 * x,
]
# For each branch a point where it is smooth and another one fails; value and derivatives.
POINTS = [2.0, -4.0, -0.5, 0.0]
VALUES = [np.log(2.0), 2.0, -2.0, 0.0]
SLOPES = [0.5, -0.25, -4.0, 0.0]
SECOND = [-0.25, -1 / 32, -16.0, 0.0]


def f(index, x):
    return pb.switch(index, BRANCHES, x)


def equal(result, expected):
    np.testing.assert_allclose(result, expected, rtol=2e-6, atol=1e-6)


def total(f):
    return lambda *args: f(*args).sum()


@pytest.mark.parametrize("index", range(4))
def test_each_branch(index, maybe_jit):
    x = POINTS[index]
    equal(maybe_jit(f)(index, x), VALUES[index])
    equal(maybe_jit(jax.grad(f, 1))(index, x), SLOPES[index])
    equal(maybe_jit(jax.jacfwd(f, 1))(index, x), SLOPES[index])
    equal(maybe_jit(jax.hessian(f, 1))(index, x), SECOND[index])


@pytest.mark.parametrize("mapped", [True, False], ids=["vmap", "array"])
@pytest.mark.parametrize("order", [[0, 1, 2, 3], [2, 2, 0, 3], [3, 3, 3, 3]])
def test_an_index_for_each_element(order, mapped, maybe_jit):
    index = jnp.array(order)
    x = jnp.array([POINTS[i] for i in order])
    g = jax.vmap(f) if mapped else f
    equal(maybe_jit(g)(index, x), [VALUES[i] for i in order])
    slopes = [SLOPES[i] for i in order]
    second = np.diag([SECOND[i] for i in order])
    equal(maybe_jit(jax.grad(total(g), 1))(index, x), slopes)
    equal(maybe_jit(jax.jacfwd(g, 1))(index, x), np.diag(slopes))
    equal(maybe_jit(jax.jacfwd(jax.jacrev(total(g), 1), 1))(index, x), second)
    equal(jax.jacrev(jax.jacfwd(total(g), 1), 1)(index, x), second)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.uint32, np.int64])
def test_the_index_is_clamped(dtype, maybe_jit, x64):
    branches = [lambda: 0, lambda: 1, lambda: 2]
    info = np.iinfo(dtype)
    for index, expected in ((0, 0), (2, 2), (3, 2), (info.max, 2), (info.min, 0)):
        index = np.asarray(index, dtype)
        assert maybe_jit(lambda i: pb.switch(i, branches))(index) == expected
        assert maybe_jit(jax.vmap(lambda i: pb.switch(i, branches)))(index[None]) == expected


def test_zero_size(maybe_jit):
    empty = jnp.zeros((0,), jnp.int32)
    assert maybe_jit(f)(empty, 1.0).shape == (0,)
    assert maybe_jit(jax.vmap(f, (0, None)))(empty, 1.0).shape == (0,)
    assert maybe_jit(jax.grad(total(f), 1))(empty, 1.0) == 0.0


def test_agrees_with_jax_on_an_unbatched_index(maybe_jit):
    for index in (-5, 0, 1, 3, 9):
        theirs = lax.switch(index, BRANCHES, 2.0)
        np.testing.assert_equal(maybe_jit(f)(index, 2.0), theirs)


def test_one_branch_and_python_integers(maybe_jit):
    assert maybe_jit(lambda i: pb.switch(i, [lambda x: x], 2.0))(5) == 2.0
    assert maybe_jit(lambda x: pb.switch(1, [jnp.sin, lambda x: x], x))(2.0) == 2.0
    assert maybe_jit(jax.vmap(lambda i: pb.switch(i, [lambda: 1.0])))(jnp.arange(3)).sum() == 3


def test_more_branches_than_a_small_dtype_counts(maybe_jit):
    branches = [lambda i=i: i for i in range(130)]
    index = jnp.array([0, 127, -128], jnp.int8)
    assert maybe_jit(jax.vmap(lambda i: pb.switch(i, branches)))(index).tolist() == [
        0,
        127,
        0,
    ]


def test_an_unbatched_index_stays_one_conditional():
    def program(function, *args):
        return jax.jit(function).lower(*args).compile().as_text().count(" conditional(")

    x = jnp.linspace(1.0, 2.0, 5)
    assert program(f, 1, 2.0) == 1
    assert program(jax.vmap(f, (None, 0)), 1, x) == 1


def test_a_branch_that_nobody_takes_is_not_evaluated(maybe_jit):
    seen = []

    def branch(name):
        def run(x):
            jax.debug.callback(lambda: seen.append(name))
            return x

        return run

    branches = [branch(name) for name in "abc"]
    mapped = maybe_jit(jax.vmap(lambda i, x: pb.switch(i, branches, x)))
    mapped(jnp.array([0, 2, 2]), jnp.ones(3)).block_until_ready()
    jax.effects_barrier()
    assert set(seen) == {"a", "c"}


def test_nested_in_itself_and_in_cond(maybe_jit):
    def g(i, j, x):
        def inner(x):
            return pb.switch(j, [jnp.log, lambda x: 1 / x], x)

        return pb.cond(i > 0, inner, lambda x: pb.switch(j, [jnp.sqrt, inner], -x), x)

    def python(i, j, x):
        x, branch = (x, j) if i > 0 else (-x, 2 * (1 - j) + j)
        return [np.log, lambda x: 1 / x, np.sqrt][branch](x)

    i = jnp.array([1, 1, -1, -1])
    j = jnp.array([0, 1, 0, 1])
    x = jnp.array([2.0, -3.0, -4.0, -5.0])
    expected = [python(*(float(v) if k == 2 else int(v) for k, v in enumerate(t)))
                for t in zip(i, j, x, strict=True)]  # fmt: skip
    slopes = [1 / 2, -1 / 9, -1 / 4, 1 / 25]
    equal(maybe_jit(jax.vmap(g))(i, j, x), expected)
    equal(maybe_jit(jax.grad(total(jax.vmap(g)), 2))(i, j, x), slopes)
    equal(maybe_jit(jax.vmap(jax.grad(g, 2)))(i, j, x), slopes)


@pytest.mark.parametrize(
    "index, got",
    [
        (True, "bool of shape"),
        (1.0, "float32 of shape"),
        (jnp.ones(2), r"float32 of shape \(2,\)"),
        (None, "builtins.NoneType"),
        ([0, 1], "builtins.list"),
    ],
)
def test_an_index_that_is_no_integer(index, got):
    with pytest.raises(pb.ArgumentTypeError, match=rf"pb\.switch: expected an int.*{got}"):
        pb.switch(index, BRANCHES, 1.0)


def test_branches_that_cannot_be_used():
    with pytest.raises(pb.ArgumentValueError, match="at least one branch"):
        pb.switch(0, [], 1.0)
    with pytest.raises(pb.ArgumentTypeError, match=r"branches\[1\]"):
        pb.switch(0, [jnp.sin, 2.0], 1.0)
    with pytest.raises(pb.BranchMismatchError, match=r"branches\[2\]: float32\[1\]"):
        pb.switch(0, [jnp.sin, jnp.cos, lambda x: x[None]], 1.0)
    with pytest.raises(pb.BranchMismatchError, match=r"branches\[1\].*\['b'\]"):
        pb.switch(0, [lambda: {"a": 1}, lambda: {"a": 1, "b": 2}])
