"""The errors of `cond`: what was expected, what was got, and where."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cond_helpers import zero

import pybridge as pb


@pytest.mark.parametrize(
    "pred, got",
    [
        (1j, "complex64 of shape"),
        (jnp.ones(3), r"float32 of shape \(3,\)"),
        (np.arange(2), "int"),
        ([True, False], "a builtins.list"),
        (None, "a builtins.NoneType"),
        ("yes", "a builtins.str"),
    ],
)
def test_a_predicate_that_is_not_bool(pred, got):
    with pytest.raises(pb.ArgumentTypeError, match=rf"pb\.cond: expected a bool.*{got}"):
        pb.cond(pred, zero, zero, 1.0)


@pytest.mark.parametrize("pred", [1, 0, 0.5, -0.0, np.int8(3), jnp.float16(0)])
def test_a_scalar_number_holds_where_it_is_not_0(pred, maybe_jit):
    def choose(pred):
        return pb.cond(pred, lambda: 1, lambda: 2)

    assert choose(pred) == maybe_jit(choose)(pred) == (1 if pred else 2)
    assert maybe_jit(jax.vmap(choose))(jnp.stack([pred, pred + 1])).tolist()[0] == choose(pred)


@pytest.mark.parametrize("pred", [True, np.array(False), np.array([True, False])])
@pytest.mark.parametrize(
    "one, other, message",
    [
        (lambda x: {"a": x, "b": x}, lambda x: {"a": x}, r"\['b'\]"),
        (lambda x: (x, x), lambda x: [x, x], "PyTreeDef"),
        (lambda x: (x, None), lambda x: (x, x), r"\[1\]"),
        (
            lambda x: {"a": [x, x]},
            lambda x: {"a": [x, x[None]]},
            r"\['a'\]\[1\].*false_fun: float32\[1,?2?\].*true_fun: float32\[2?\]",
        ),
        (
            lambda x: (x,),
            lambda x: (jax.random.split(jax.random.key(0), x.shape),),
            r"\[0\].*common one.*key<fry>",
        ),
    ],
)
def test_branches_that_do_not_match(pred, one, other, message, maybe_jit):
    with pytest.raises(pb.BranchMismatchError, match=message):
        maybe_jit(lambda x: pb.cond(pred, one, other, x))(jnp.ones(jnp.shape(pred)))
    with pytest.raises(TypeError):
        pb.cond(pred, other, one, jnp.ones(jnp.shape(pred)))


def test_an_elementwise_branch_of_another_shape():
    x = jnp.ones(3)
    with pytest.raises(pb.BranchMismatchError, match=r"shape \(3,\).*float32\[\] at \['y'\]"):
        pb.cond(x > 0, lambda x: {"y": x.sum()}, lambda x: {"y": x[0]}, x)


@pytest.mark.parametrize(
    "branch, operation",
    [
        (jax.nn.softmax, "reduce_"),
        (jnp.cumsum, "cumsum"),
        (jnp.sort, "sort"),
        (lambda x: x @ jnp.eye(3), "dot_general"),
        (jax.jit(lambda x: x - x.mean()), "reduce_sum"),
        (lambda x: x[::-1], "rev"),
    ],
)
def test_a_branch_that_mixes_elements(branch, operation):
    x = jnp.ones(3)
    with pytest.raises(pb.ArgumentValueError, match=f"true_fun.*elementwise.*{operation}"):
        pb.cond(x > 0, branch, zero, x)


def test_operands_that_do_not_broadcast():
    with pytest.raises(pb.ArgumentValueError, match=r"operands\[1\]\['w'\] of shape \(2,\)"):
        pb.cond(jnp.ones(3) > 0, lambda x, t: x, lambda x, t: x, 1.0, {"w": jnp.ones(2)})


@pytest.mark.parametrize("operand", ["text", object(), lambda x: x])
def test_leaves_that_are_not_arrays(operand):
    with pytest.raises(pb.ArgumentTypeError, match=r"operands\[0\]\[1\]"):
        pb.cond(True, lambda x: 1.0, lambda x: 1.0, (1.0, operand))
    with pytest.raises(pb.ArgumentTypeError, match=r"output of false_fun at \['a'\]"):
        pb.cond(True, lambda: {"a": 1.0}, lambda: {"a": operand})


def test_branches_that_are_not_functions():
    with pytest.raises(pb.ArgumentTypeError, match="true_fun"):
        pb.cond(True, 1.0, zero, 1.0)
    with pytest.raises(pb.ArgumentTypeError, match="false_fun"):
        pb.cond(True, zero, jnp.ones(2))


def test_an_exception_in_a_branch_is_the_users_own():
    def fails(x):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        pb.cond(True, zero, fails, 1.0)
