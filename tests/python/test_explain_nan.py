"""`explain_nan` names the line, the operation, the elements, what drops them, and a cure."""

from __future__ import annotations

import importlib.util
import inspect
import re
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax
from quick import examples

from pybridge import primitives
from pybridge._errors import ArgumentTypeError, ArgumentValueError
from pybridge.consistency import check
from pybridge.consistency.nan import _tape, explain_nan


def line_of(function, text):
    """Return the number of the one line of a function that holds a text."""
    lines, first = inspect.getsourcelines(function)
    numbers = [first + i for i, line in enumerate(lines) if text in line]
    assert len(numbers) == 1, numbers
    return numbers[0]


def check_cures(why, expected, rtol=1e-5):
    """Every proposal was run, and gives the true derivative."""
    assert why.cures
    for cure in why.cures:
        assert cure.verified
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, rtol=rtol), cure.derivative, expected
        )


# The public programs, as they stand in the threads (with jnp for np).


def jax_19089(x, pre_filter=False):
    delta = jnp.array((0, 1)) * x
    if pre_filter:
        return jnp.sum(delta[delta > 0] ** 0.5)
    else:
        return jnp.sum((delta**0.5)[delta > 0])  # leaks


def test_jax_19089_a_boolean_mask_after_a_power():
    with jax.numpy_dtype_promotion("standard"):
        why = explain_nan(jax_19089, 1.0)
    assert not why.ok
    assert why.modes == ("reverse",)
    assert why.origin.operation.primitive == "pow"
    assert why.origin.operation.text == "delta ** 0.5"
    assert why.origin.operation.location.line == line_of(jax_19089, "# leaks")
    assert why.origin.elements == ((0,),)
    assert why.origin.operands[0] == 0.0
    assert why.origin.partial == np.inf
    assert why.dropped_by.primitive == "gather"
    assert why.dropped_by.text == "(delta ** 0.5)[delta > 0]"
    assert "`jnp.where(delta > 0, delta, 1.0)` for `delta`" in str(why)
    check_cures(why, 0.5)


def test_jax_19089_filtered_before_the_power_is_fine():
    with jax.numpy_dtype_promotion("standard"):
        assert explain_nan(lambda x: jax_19089(x, pre_filter=True), 1.0).ok


def jax_347(x):
    x = jnp.sqrt(jnp.sum(x**2, axis=1))
    ones = jnp.ones_like(x)
    x = jnp.where(x > 0.5, x, ones)
    return jnp.sum(x)


def test_jax_347_a_norm_before_the_where(maybe_jit):
    why = explain_nan(maybe_jit(jax_347), jnp.array([[1.0, 2], [3, 4], [0, 0]]))
    assert why.origin.operation.primitive == "sqrt"
    assert why.origin.operation.location.line == line_of(jax_347, "jnp.sqrt")
    assert why.origin.elements == ((2,),)
    assert why.dropped_by.primitive == "select_n"
    assert why.dropped_by.location.line == line_of(jax_347, "jnp.where")
    root5 = np.sqrt(5.0)
    check_cures(why, np.array([[1 / root5, 2 / root5], [0.6, 0.8], [0, 0]]))
    # The condition of that line is about another x: it must not be copied to this one.
    assert "jnp.where(used," in str(why)


def jax_1052(a):
    b = jnp.arctan2(a, a)
    temp = jnp.array([0.0, 1.0, 0.0])
    c = jnp.where(temp > 0.5, 0.0, b)
    return jnp.sum(c)


def test_jax_1052_arctan2_of_two_zeros(maybe_jit):
    why = explain_nan(maybe_jit(jax_1052), jnp.array([3.0, 0.0, -5.0]))
    assert why.origin.operation.text == "jnp.arctan2(a, a)"
    assert why.origin.elements == ((1,),)
    assert why.origin.operands == (0.0, 0.0)
    assert why.dropped_by.text == "jnp.where(temp > 0.5, 0.0, b)"
    check_cures(why, np.zeros(3))


def softplus(x):
    return jnp.where(x > 20, x, jnp.log(1 + jnp.exp(x))).sum()


def test_a_later_operation_without_slope_does_not_hide_an_infinite_value():
    why = explain_nan(softplus, jnp.array([0.0, 100.0]))
    assert why.origin.operation.text == "jnp.exp(x)"
    assert why.dropped_by.primitive == "select_n"
    assert "pb.cond(x > 20, lambda x: x, " in why.cures[0].text
    check_cures(why, np.array([0.5, 1.0]))


def test_a_dtype_among_the_arguments_is_no_number():
    why = explain_nan(lambda x, dtype: logarithm(x).astype(dtype), jnp.zeros(2), jnp.float32)
    assert why.origin.operation.primitive == "log"


def jax_20601(beta, x):
    # when x is nan, beta * x will be nan
    return lax.select(False, beta * x, 1.0)


def test_jax_20601_a_nan_argument_that_is_not_selected():
    why = explain_nan(jax_20601, jnp.array(2.3), jnp.nan, argnums=0)
    assert why.origin.operation.text == "beta * x"
    assert np.isnan(why.origin.operands[1])
    assert why.dropped_by.primitive == "select_n"
    assert why.notes == ("Not finite already: args[1].",)
    check_cures(why, 0.0)


def test_jax_20601_with_numbers_is_fine():
    assert explain_nan(jax_20601, jnp.array(2.3), -2.0, argnums=0).ok


def zygote_1153(x):
    return jnp.where(x == 0, jnp.ones_like(x), jnp.sin(x) / x)


def test_zygote_1153_sine_over_x():
    why = explain_nan(zygote_1153, 0.0)
    assert why.origin.operation.text == "jnp.sin(x) / x"
    assert why.origin.operands == (0.0, 0.0)
    assert "`pb.cond(x == 0, jnp.ones_like, lambda x: jnp.sin(x) / x, x)`" in why.cures[0].text
    assert "`jnp.where(x != 0, x, 1.0)` for `x`" in str(why)
    check_cures(why, 0.0)


# The cure in the user's own words, and that it was run.


def logarithm(x):
    return jnp.sum(jnp.where(x > 0, jnp.log(x), 0.0))


def test_the_first_cure_is_one_expression_for_another():
    why = explain_nan(logarithm, jnp.array([0.0, 1.0, 2.0]))
    first, second = why.cures[:2]
    old, new = "jnp.where(x > 0, jnp.log(x), 0.0)", "pb.cond(x > 0, jnp.log, jnp.zeros_like, x)"
    assert first.text.startswith(f"Replace `{old}` at test_explain_nan.py:")
    assert first.text.endswith(f"by `{new}`")
    assert "In `jnp.log(x)`" in second.text
    assert "`jnp.where(x > 0, x, 1.0)` for `x`" in second.text
    check_cures(why, np.array([0.0, 1.0, 0.5]))


def test_a_branch_that_is_not_elementwise_is_not_proposed_for_cond():
    def g(x):
        n = jnp.sum(x * x, axis=1)
        return jnp.sum(jnp.where(n > 0, jnp.sqrt(jnp.sum(x * x, axis=1)), 0.0))

    why = explain_nan(g, jnp.array([[3.0, 4.0], [0.0, 0.0]]))
    assert not any("pb.cond" in cure.text for cure in why.cures)
    check_cures(why, np.array([[0.6, 0.8], [0.0, 0.0]]))


def helper(x):
    return jnp.where(x > 0, jnp.log(x), 0.0)


def test_the_line_may_be_in_another_function():
    why = explain_nan(lambda x: jnp.sum(helper(x) * 3.0), jnp.array([0.0, 1.0]))
    assert why.origin.operation.location.function == "helper"
    check_cures(why, np.array([0.0, 3.0]))


def test_two_leaks_are_cured_together():
    def f(x):
        a = jnp.where(x > 0, jnp.log(x), 0.0)
        b = jnp.where(x > 0, jnp.sqrt(x), 0.0)
        return jnp.sum(a + b)

    why = explain_nan(f, jnp.array([0.0, 4.0]))
    both = {why.origin.operation.primitive, *(o.operation.primitive for o, _ in why.further)}
    assert both == {"log", "sqrt"}
    assert "jnp.log(x)" in why.cures[0].text
    assert "jnp.sqrt(x)" in why.cures[0].text
    check_cures(why, np.array([0.0, 0.5]))


def test_strong_zeros_are_proposed_once_they_were_run(monkeypatch):
    replaced = []

    def strong_zero(f):
        replaced.append(f)
        return lambda x: [jnp.sum(jnp.where(x > 0, jnp.log(jnp.where(x > 0, x, 1.0)), 0.0))]

    monkeypatch.setattr(primitives, "strong_zero", strong_zero)
    why = explain_nan(logarithm, jnp.array([0.0, 1.0]))
    assert len(replaced) == 1
    assert why.cures[-1].text == "Use `pb.strong_zero(logarithm)` for the function"
    check_cures(why, np.array([0.0, 1.0]))


def test_strong_zeros_that_change_the_value_are_not_proposed(monkeypatch):
    monkeypatch.setattr(primitives, "strong_zero", lambda f: lambda x: [jnp.sum(x)])
    why = explain_nan(logarithm, jnp.array([0.0, 1.0]))
    assert not any("strong_zero" in cure.text for cure in why.cures)


# Through JAX's transformations.


def test_scan_says_which_iteration(maybe_jit):
    def f(xs):
        def body(total, x):
            return total + jnp.where(x > 0, jnp.log(x), 0.0), x

        return lax.scan(body, 0.0, xs)[0]

    why = explain_nan(maybe_jit(f), jnp.array([1.0, 2.0, 0.0, 4.0]))
    (path,) = why.origin.operation.path
    assert path.startswith("iteration 2 of the scan at test_explain_nan.py:")
    assert why.origin.operation.location.function.endswith("f.<locals>.body")
    check_cures(why, np.array([1.0, 0.5, 0.0, 0.25]))


def test_a_reverse_scan_counts_as_its_input_does():
    def f(xs):
        return lax.scan(
            lambda total, x: (total + jnp.where(x > 0, jnp.log(x), 0.0), x), 0.0, xs, reverse=True
        )[0]

    why = explain_nan(f, jnp.array([1.0, 2.0, 0.0, 4.0]))
    assert why.origin.operation.path[0].startswith("iteration 2 of")
    check_cures(why, np.array([1.0, 0.5, 0.0, 0.25]))


def test_a_scan_that_leaks_in_every_iteration_is_one_origin():
    def f(x):
        def body(total, _):
            return total + jnp.where(x > 0, jnp.sqrt(x), 0.0), None

        return lax.scan(body, 0.0, None, length=50)[0]

    why = explain_nan(f, 0.0)
    assert why.further == ()
    check_cures(why, 0.0)


def test_while_loop_in_forward_mode():
    def f(x, mask):
        def body(state):
            i, total = state
            return i + 1, total + mask * jnp.sqrt(x)

        return lax.while_loop(lambda state: state[0] < 3, body, (0, 0.0 * x))[1]

    why = explain_nan(f, 0.0, jnp.float32(0.0), argnums=0)
    assert why.mode == "forward"
    assert why.origin.operation.primitive == "sqrt"
    assert why.origin.operation.path[0].startswith("iteration 0 of the while loop")
    assert why.notes[0].startswith("Reverse mode is not possible")
    check_cures(why, 0.0)


def test_forward_mode_of_what_a_scan_stacks():
    def f(x):
        start = lax.while_loop(lambda c: c[0] < 2, lambda c: (c[0] + 1, c[1] * 1.0), (0, x))[1]
        return lax.scan(lambda c, t: (c, jnp.sqrt(c * t)), start, jnp.arange(1.0, 3.0))[1]

    why = explain_nan(f, 0.0)
    assert why.mode == "forward"
    assert why.origin.kind == "infinite"
    assert why.origin.operation.path[0].startswith("iteration 0 of the scan")


def test_a_long_scan_is_opened():
    def f(xs):
        def body(total, x):
            return 0.5 * total + jnp.where(x > 0, jnp.log(x), 0.0), total

        last, totals = lax.scan(body, 0.0, xs)
        return last + totals[-1]

    why = explain_nan(f, jnp.ones(400).at[396].set(0.0))
    assert why.origin.operation.path[0].startswith("iteration 396 of the scan")
    expected = np.cumprod(np.full(400, 0.5))[::-1] * 2 + np.cumprod(np.full(400, 0.5))[::-1] * 4
    expected[399], expected[396] = 1.0, 0.0
    for cure in why.cures:
        np.testing.assert_allclose(cure.derivative, expected, rtol=1e-5, atol=1e-30)


def test_cond_names_the_branch():
    def f(x):
        return lax.cond(x < 1, lambda x: jnp.where(x > 0, jnp.log(x), 0.0), lambda x: x * 2.0, x)

    why = explain_nan(f, 0.0)
    assert why.origin.operation.path[0].startswith("branch 1 of the cond")
    check_cures(why, 0.0)


def test_vmap_is_seen_as_the_select_that_it_makes():
    def one(x):
        return jnp.where(x > 0, jnp.log(x), 0.0)

    why = explain_nan(lambda xs: jnp.sum(jax.vmap(one)(xs)), jnp.array([1.0, 0.0]))
    assert why.origin.operation.location.line == line_of(one, "jnp.log")
    assert why.origin.elements == ((1,),)
    assert why.dropped_by.primitive == "select_n"
    check_cures(why, np.array([1.0, 0.0]))


def test_what_an_earlier_choice_stops_is_no_origin():
    def f(x):
        y = jax.nn.relu(x)  # its rule chooses 0 at 0, whatever comes back
        stopped = jnp.where(y > 0, jnp.log(y), 0.0)
        leaking = jnp.where(x > 0, jnp.sqrt(x), 0.0)
        return jnp.sum(stopped + leaking)

    assert explain_nan(lambda x: f(x) - jnp.sum(jnp.where(x > 0, x, 0.0)), jnp.ones(1)).ok
    why = explain_nan(f, jnp.array([0.0, 1.0]))
    assert why.origin.operation.primitive == "sqrt"
    assert why.further == ()
    check_cures(why, np.array([0.0, 1.5]))


@pytest.mark.parametrize("wrap", [jax.jit, jax.checkpoint, lambda f: jax.jit(jax.checkpoint(f))])
def test_calls_are_opened(wrap):
    why = explain_nan(lambda x: wrap(logarithm)(x) * 2.0, jnp.array([0.0, 1.0]))
    assert why.origin.operation.location.line == line_of(logarithm, "jnp.log")
    check_cures(why, np.array([0.0, 2.0]))


def test_the_line_of_a_library_function_is_that_of_its_last_call():
    def first(x):
        return jnp.where(x > 0, x, 0.0)

    def second(x):
        y = jnp.log(x)
        return jnp.where(x > 0, y, 0.0)

    first(jnp.zeros(()))
    why = explain_nan(second, 0.0)
    assert why.dropped_by.location.line == line_of(second, "jnp.where")


def test_second_derivatives():
    def f(x):
        return jnp.where(x > 1.0, x, x**1.5)

    why = explain_nan(jax.grad(f), 0.0)
    assert why.origin.partial == np.inf
    assert why.origin.operation.location.line == line_of(f, "x**1.5")


def test_within_gradient_is_true_inside():
    import pybridge as pb

    def f(x):
        risky = pb.cond(pb.within_gradient(x), lambda x: jnp.sqrt(x), lambda x: x, x)
        return jnp.where(x > 0, risky, 0.0)

    why = explain_nan(f, 0.0)
    assert why.origin.operation.primitive == "sqrt"
    check_cures(why, 0.0)


def test_python_if_on_a_value():
    def f(x):
        y = jax.nn.softplus(x) - jax.nn.softplus(0.0 * x)
        if x[1] > 0:
            y = jnp.where(y > 0, jnp.log(y), 0.0)
        return jnp.sum(y)

    why = explain_nan(f, jnp.array([0.0, 1.0]))
    assert why.origin.operation.location.line == line_of(f, "jnp.where")
    assert why.dropped_by.location.line == why.origin.operation.location.line
    assert all(cure.verified for cure in why.cures)


# Custom rules.


@jax.custom_jvp
def jvp_with_nan(x):
    return 2.0 * x


jvp_with_nan.defjvp(lambda primals, dots: (2.0 * primals[0], dots[0] * jnp.nan))


@jax.custom_vjp
def vjp_with_nan(x):
    return 2.0 * x


vjp_with_nan.defvjp(lambda x: (2.0 * x, x), lambda x, ct: (ct * jnp.inf * 0.0,))


@jax.custom_vjp
def length(x):
    return jnp.sqrt(jnp.sum(x * x))


length.defvjp(lambda x: (length(x), (x, length(x))), lambda r, ct: (ct * r[0] / r[1],))


@pytest.mark.parametrize(
    "rule, x", [(jvp_with_nan, 1.0), (vjp_with_nan, 1.0), (length, jnp.zeros(2))]
)
def test_a_rule_that_gives_nan_is_named(rule, x):
    why = explain_nan(lambda x: 3.0 * rule(x), x)
    assert why.origin.kind == "rule"
    assert why.origin.operation.rule.startswith(rule.__name__)
    assert why.dropped_by is None
    assert why.cures == ()
    assert "The rule is at fault" in str(why)


def test_eager_functions_may_have_custom_rules():
    def f(x):
        return vjp_with_nan(x) + jvp_with_nan(x) if x > 0 else x

    rules = {explain_nan(f, 1.0).origin.operation.rule}
    assert rules <= {"vjp_with_nan", "jvp_with_nan"}
    assert explain_nan(f, -1.0).ok


# Where no where is at fault.


@pytest.mark.parametrize(
    ("f", "x", "primitive"),
    [
        (lambda x: jnp.sqrt(x), 0.0, "sqrt"),
        (lambda x: jnp.arccos(x), 1.0, "acos"),
        (lambda x: jnp.arcsin(x), -1.0, "asin"),
        (lambda x: x**0.5, 0.0, "pow"),
        (lambda x: jnp.cbrt(x), 0.0, "cbrt"),
    ],
)
def test_a_truly_infinite_derivative_has_no_cure(f, x, primitive):
    why = explain_nan(f, x)
    assert why.modes == ("reverse", "forward")
    assert why.origin.kind == "infinite"
    assert why.origin.operation.primitive == primitive
    assert why.dropped_by is None
    assert why.cures == ()
    assert "no rewriting keeps the meaning" in " ".join(str(why).split())


def test_a_norm_at_zero_has_a_choice():
    why = explain_nan(lambda x: jnp.linalg.norm(x), jnp.zeros(3))
    assert why.origin.kind == "infinite"
    assert why.origin.operation.primitive == "sqrt"
    (cure,) = why.cures
    assert cure.verified
    assert cure.text.startswith("Choose 0 as the derivative there")
    assert cure.derivative.tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("f", [lambda x: x * jnp.sqrt(x), lambda x: jnp.sqrt(x) ** 2])
def test_zero_times_infinity_of_moving_factors_is_not_cured_by_a_zero(f):
    # The true derivatives are 0 and 1: no rule about zeros gives both.
    why = explain_nan(f, 0.0)
    assert why.origin.kind == "product"
    assert why.cures == ()


def test_a_product_that_overflows():
    def f(x):
        return jnp.tanh(x * 1e30 * 1e30)

    why = explain_nan(f, 0.0)
    assert why.origin.kind == "overflow"
    assert why.origin.operation.primitive == "mul"
    assert why.origin.partial == np.float32(1e30)
    assert "rescale" in str(why)


# Values that are not finite.


def test_a_value_of_nan_is_traced_to_its_operation():
    def f(x):
        a = jnp.log(x)
        b = a - a
        return jnp.sum(b * 2.0)

    why = explain_nan(f, jnp.array([1.0, 0.0]))
    assert why.mode == "value"
    assert why.origin.kind == "value"
    assert why.origin.operation.text == "a - a"
    assert why.origin.elements == ((1,),)
    assert why.origin.operands == (-np.inf, -np.inf)
    assert np.isnan(why.origin.value)


@pytest.mark.parametrize(
    ("f", "x", "primitive"),
    [
        (lambda x: x / x, 0.0, "div"),
        (lambda x: jnp.log(x - 1.0), 0.5, "log"),
        (lambda x: jnp.exp(1000.0 * x), 1.0, "exp"),
        (lambda x: jax.nn.logsumexp(jnp.stack([-jnp.inf, x - jnp.inf])), 1.0, "log"),
        (lambda x: jax.nn.softmax(x - jnp.array([jnp.inf, jnp.inf]))[0], 1.0, "sub"),
        (lambda x: jnp.where(x > 0, jnp.sqrt(x), jnp.log(x)), -1.0, "log"),
        (lambda x: jnp.where(x > 0, x, -jnp.inf), -1.0, "select_n"),
    ],
)
def test_values_that_are_not_finite(f, x, primitive):
    why = explain_nan(f, x)
    assert why.mode == "value"
    assert why.origin.operation.primitive == primitive
    assert not np.isfinite(why.origin.value)


def test_a_nan_argument_is_said_so():
    why = explain_nan(lambda p: jnp.sum(p["w"] * 2.0), {"w": jnp.array([1.0, jnp.nan])})
    assert why.mode == "value"
    assert why.origin is None
    assert why.notes[0] == "Not finite already: args[0]['w']."


# Where all is well, and what is refused.


@pytest.mark.parametrize(
    ("f", "x"),
    [
        (jnp.sinc, 0.0),
        (jax.nn.softplus, 0.0),
        (lambda x: jnp.sum(jax.nn.softmax(jnp.where(x > 0, x, -jnp.inf))[0]), jnp.arange(3.0)),
        (lambda x: x**2, 0.0),
        (lambda x: jnp.sum(jnp.sqrt(jnp.where(x > 0, x, 1.0))), jnp.arange(3.0)),
        (lambda x: jax.nn.logsumexp(jnp.stack([-jnp.inf, x])), 1.0),
    ],
)
def test_nothing_is_said_where_all_is_finite(f, x):
    why = explain_nan(f, x)
    assert why.ok
    assert why.origin is None
    assert str(why).startswith("No NaN")


def test_arguments_are_refused_before_anything_runs():
    def never(*args):
        raise AssertionError

    with pytest.raises(ArgumentTypeError, match="expected a function, got a int"):
        explain_nan(3, 1.0)
    with pytest.raises(ArgumentTypeError, match=r"pb.explain_nan: expected an argument of flo"):
        explain_nan(never, 1, "a")
    with pytest.raises(ArgumentTypeError, match=r"Pass 2.0 instead of 2"):
        explain_nan(never, 1, 2.0, argnums=0)
    with pytest.raises(ArgumentValueError, match=r"between 0 and 0, got 3"):
        explain_nan(never, 1.0, argnums=3)


def test_an_error_of_the_function_is_the_users_to_see():
    def f(x):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        explain_nan(f, 1.0)


def test_trees_and_argnums():
    def f(n, params, x):
        return jnp.sum(jnp.where(x > 0, jnp.log(x) * params["w"], 0.0)) * n

    x, params = jnp.array([0.0, 1.0]), {"name": 3, "w": jnp.array(2.0)}
    why = explain_nan(f, 2, params, x)
    assert why.derivative[0]["name"] is None
    check_cures(why, ({"name": None, "w": np.array(0.0)}, np.array([0.0, 4.0])))
    only_x = explain_nan(f, 2, params, x, argnums=2)
    check_cures(only_x, np.array([0.0, 4.0]))
    assert explain_nan(f, 2, params, x + 1.0, argnums=(1,)).ok


# Operations that mix elements.


def test_a_matrix_product_with_nan_in_unused_rows():
    def f(w, x):
        y = x @ w
        return jnp.sum(jnp.where(jnp.arange(3) < 2, y, 0.0))

    x = jnp.array([[1.0, 2.0], [3.0, 4.0], [jnp.nan, jnp.nan]])
    why = explain_nan(f, jnp.ones(2), x, argnums=0)
    assert why.origin.operation.primitive == "dot_general"
    assert why.dropped_by.primitive == "select_n"
    check_cures(why, np.array([4.0, 6.0]))


@pytest.mark.parametrize("point", [(0.0, 0.0), (5.0, 0.0), (0.0, -2.0)])
def test_a_derivative_of_zero_is_proposed_for_one_point_only(point):
    def f(x, y):
        return jnp.arctan2(y, x)

    (cure,) = explain_nan(f, 0.0, 0.0).cures
    call, name, condition = re.search(r"write `(.*?)` with `(\w+) = (.*?)`", cure.text).groups()
    assert name != "ok"  # this file has one of its own

    def cured(x, y):
        chosen = eval(condition, {"x": x, "y": y})
        return eval(call, {"jnp": jnp, "x": x, "y": y, name: chosen})

    want = jax.grad(f, (0, 1))(*point) if any(point) else (0.0, 0.0)
    np.testing.assert_allclose(jax.grad(cured, (0, 1))(*point), want)


def test_equal_eigenvalues():
    why = explain_nan(lambda a: jnp.linalg.eigh(a)[1][0, 1], jnp.eye(2))
    assert why.origin is not None
    assert why.cures == ()
    assert "differences of the eigenvalues" in " ".join(str(why).split())
    assert np.isfinite(jax.grad(lambda a: jnp.linalg.eigh(a)[0].sum())(jnp.eye(2))).all()


@pytest.mark.parametrize("power", [2, 4])
def test_equal_eigenvalues_are_no_product_of_two_factors(power):
    why = explain_nan(lambda a: jnp.linalg.eigh(a)[1][0] ** power @ jnp.arange(3.0), jnp.eye(3))
    assert "differences of the eigenvalues" in " ".join(why.notes)
    assert "x ** 1.5" not in str(why)


def test_equal_eigenvalues_alone_have_derivatives():
    def f(x):
        values = jnp.linalg.eigvalsh(jnp.eye(2) * jnp.sum(x))
        return jnp.sum(values) + jnp.sum(jnp.where(x > 0, jnp.log(x), 0.0))

    why = explain_nan(f, jnp.array([0.0, 4.0]))
    assert why.origin.operation.primitive == "log"
    assert why.further == ()
    check_cures(why, np.array([2.0, 2.25]))


# What is made of a bad value has bad derivatives; the place to mend is where the value arises.


def chosen(part):
    return lambda x: jnp.where(x[0] > 0, part(x), 0.0)


def root_of_softmax(x):
    return jnp.sum(jax.nn.softmax(jnp.log(x)) * x)


def direction(x):
    y = jnp.log(x)
    return jnp.sum((y / jnp.linalg.norm(y)) ** 2)


def share(x):
    return jax.nn.softmax((x - x) / (x[0] + x[1] - 1.0))[1]


def log_of_sum(x):
    return jax.nn.logsumexp(jnp.log(x))


def angle(x):
    y = jnp.log(x[0] - 1.0)
    return jnp.arctan2(y, y) ** 2


@pytest.mark.parametrize(
    "part, x, primitive",
    [
        (root_of_softmax, [-1.0, 2.0], "log"),
        (direction, [-1.0, 2.0], "log"),
        (share, [-1.0, 2.0], "div"),
        (log_of_sum, [-1.0, 2.0], "log"),
        (angle, [-1.0, 2.0], "log"),
    ],
)
def test_a_bad_value_is_mended_where_it_arises(part, x, primitive):
    why = explain_nan(chosen(part), jnp.array(x))
    assert (why.origin.operation.primitive, why.origin.kind) == (primitive, "leak")
    assert why.origin.operation.location.function == part.__name__
    assert why.dropped_by.primitive == "select_n"
    assert why.further == ()
    check_cures(why, np.zeros(2))


def test_loops_that_are_too_long_stay_closed(monkeypatch):
    def f(xs):
        def body(total, x):
            return total + jnp.where(x > 0, jnp.log(x), 0.0), None

        return lax.scan(body, 0.0, xs)[0]

    monkeypatch.setattr(_tape, "MOST_STEPS", 10)
    why = explain_nan(f, jnp.zeros(20))
    assert why.origin.operation.primitive == "scan"
    assert "runs too often: the scan at test_explain_nan.py" in " ".join(str(why).split())


# The text.


def test_the_text_in_full():
    why = explain_nan(logarithm, jnp.array([0.0, 1.0]))
    line = line_of(logarithm, "jnp.log")
    where = f"test_explain_nan.py:{line} (logarithm)"
    expected = f"""\
The gradient of logarithm is not finite: [nan, 1], while the value is 0.

Where it arises, and why
  {where}:  return jnp.sum(jnp.where(x > 0, jnp.log(x), 0.0))
  `jnp.log(x)` at [0]: operands 0; value -inf; derivative inf
  Nothing uses this result. Its derivative is multiplied with 0 all the same, and 0 times that
  is nan.

Why the value is finite
  `jnp.where(x > 0, jnp.log(x), 0.0)` (select_n) chooses the other value in these elements.

What to do (any one of these)
  1. Replace `jnp.where(x > 0, jnp.log(x), 0.0)` at {where} by `pb.cond(x > 0, jnp.log, \
jnp.zeros_like, x)`
     Verified: same value, gradient [0, 1]
  2. In `jnp.log(x)` at {where} put `jnp.where(x > 0, x, 1.0)` for `x`; keep what chooses as it is
     Verified: same value, gradient [0, 1]"""
    assert str(why).startswith(expected)


def test_the_text_is_the_same_again():
    x = jnp.array([0.0, 1.0])
    assert str(explain_nan(logarithm, x)) == str(explain_nan(logarithm, x))


def test_a_notebook_gets_markdown():
    text = explain_nan(logarithm, jnp.array([0.0, 1.0]))._repr_markdown_()
    assert text.startswith("**The gradient of logarithm is not finite")
    assert text.endswith("```")


def test_long_lists_of_elements_are_cut():
    text = str(explain_nan(logarithm, jnp.zeros(1000)))
    assert "at [0], [1], [2], [3] and" in text
    assert len(text) < 2500


def test_the_page_shows_what_is_printed(tmp_path, monkeypatch):
    page = Path(__file__).parents[2] / "docs/how-to/why-is-my-gradient-nan.md"
    program, shown = re.findall(r"```text\n(.*?)```", page.read_text(encoding="utf-8"), re.S)
    (tmp_path / "train.py").write_text(program, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    loss = importlib.import_module("train").loss
    monkeypatch.delitem(sys.modules, "train")
    assert f"{explain_nan(loss, jnp.array([0.0, 1.0]))}\n" == shown


# A rule for all inputs: whatever is guarded, the cure has the derivative of the guarded part.

_RISKY = {
    "log": (jnp.log, lambda x: 1 / x),
    "sqrt": (jnp.sqrt, lambda x: 0.5 / np.sqrt(x)),
    "reciprocal": (lambda x: 1.0 / x, lambda x: -1 / x**2),
    "power": (lambda x: x**0.3, lambda x: 0.3 * x**-0.7),
    "xlogx": (lambda x: x * jnp.log(x), lambda x: np.log(x) + 1),
    "arctan2": (lambda x: jnp.arctan2(x, 2.0 * x), lambda x: 0 * x),
}


@settings(deadline=None, max_examples=examples(12))
@given(
    st.sampled_from(sorted(_RISKY)),
    st.lists(st.sampled_from([0.0, 0.5, 1.0, 2.0]), min_size=3, max_size=3),
)
def test_any_guarded_operation_is_cured(name, xs):
    risky, slope = _RISKY[name]
    x = np.array(xs, np.float32)
    why = explain_nan(lambda x: jnp.sum(jnp.where(x > 0, risky(x), 1.0)), jnp.array(x))
    expected = np.where(x > 0, slope(np.where(x > 0, x, 1.0)), 0.0)
    if (x > 0).all():
        assert why.ok
        return
    assert not why.ok
    assert set(why.origin.elements) == {(int(i),) for i in np.flatnonzero(x == 0)}
    assert why.dropped_by.primitive == "select_n"
    assert why.cures
    for cure in why.cures:
        np.testing.assert_allclose(cure.derivative, expected, rtol=1e-5, atol=1e-6)


def test_one_number_that_is_both_operands_is_asked_for_once():
    why = explain_nan(lambda x: x**x, 0.0)
    assert "= x != 0.0`" in why.cures[0].text


def two_calls(x):
    return jnp.log(x[1]) + jnp.where(x[0] > 0, jnp.log(x[0]), 0.0)


def two_logarithms_of_one_choice(p):
    return jnp.where(p == 0, 0.0, p * (jnp.log(p) - jnp.log(HALVES))).sum()


HALVES = jnp.array([0.5, 0.5])


def one_of_several(x):
    return jnp.select([x > 0, x < 0], [jnp.log(x), jnp.log(-x)], 0.0).sum()


def condition_of_its_own(x):
    n = jnp.linalg.norm(x); return jnp.where(n > 0, x / n, 0.0).sum()  # fmt: skip # noqa: E702


OPERANDS = {
    two_calls: ([0.0, 1.0], "In `jnp.log(x[0])` at ", "put `jnp.where(x[0] > 0, x[0], 1.0)`"),
    two_logarithms_of_one_choice: (
        [0.0, 1.0],
        "In `jnp.log(p)` at ",
        "`jnp.where(p != 0, p, 1.0)`",
    ),
    one_of_several: ([0.0, -1, 2], "In `jnp.log(-x)` at ", "`jnp.where(used, -x, 1.0)` for `-x`"),
    condition_of_its_own: ([0.0, 0.0], "Give `jnp.linalg.norm(x)` at ", "found before this line"),
}


@pytest.mark.parametrize("f", OPERANDS, ids=lambda f: f.__name__)
def test_a_cure_says_which_call_of_the_line_it_is_about(f):
    x, call, text = OPERANDS[f]
    first = explain_nan(f, jnp.array(x)).cures[0]
    assert first.verified
    assert call in first.text and text in first.text


def chosen_by_what_is_guarded(x):
    y = jnp.log(x)
    return jnp.sum(jnp.where(y > -10, y, -10.0))


def chosen_otherwise_by_what_is_guarded(x):
    y = jnp.log(x)
    return jnp.sum(jnp.where(y <= -10, -10.0, y))


def used_twice(x):
    r = jnp.sqrt(jnp.sum(x**2, -1))
    return jnp.sum(jnp.where(r > 0, jnp.sin(r) / r, 1.0))


def test_a_cure_that_changes_what_chooses_says_so_and_keeps_the_value():
    x, flipped = jnp.array([0.0, 1.0]), "let `~used` choose in `jnp.where(y <= -10, -10.0, y)`"
    first = explain_nan(chosen_by_what_is_guarded, x).cures[0]
    assert first.text.endswith("; let `used` choose in `jnp.where(y > -10, y, -10.0)`")
    assert explain_nan(chosen_otherwise_by_what_is_guarded, x).cures[0].text.endswith(flipped)

    def cured(x):
        used = x > np.exp(-10)
        y = jnp.log(jnp.where(used, x, 1.0))
        return jnp.sum(jnp.where(used, y, -10.0))

    assert cured(x) == chosen_by_what_is_guarded(x)
    np.testing.assert_array_equal(jax.grad(cured)(x), first.derivative)

    first = explain_nan(used_twice, jnp.array([[0.0, 0.0], [1.0, 2.0]])).cures[0]
    assert "jnp.where(r > 0, r" not in first.text
    assert first.text.endswith("; let `used` choose in `jnp.where(r > 0, jnp.sin(r) / r, 1.0)`")


def times_mask(x):
    return jnp.sum(jnp.log(x) * (x > 0))


def mean_of_some(x):
    mask = x > 0
    return jnp.sum(mask * (1 / x)) / mask.sum()


@jax.jit
def times_numbers(x):
    return jnp.sum((x > 0).astype(x.dtype) * jnp.log(x))


@pytest.mark.parametrize("f", [times_mask, mean_of_some, times_numbers])
def test_a_mask_that_is_multiplied_drops_what_is_infinite(f):
    # XLA makes a select of such a product: the value is finite, but not operation by operation.
    x = jnp.array([1.0, 2.0, 0.0])
    with jax.numpy_dtype_promotion("standard"):
        assert np.isfinite(f(x))
        why = explain_nan(f, x)
        want = np.append(jax.grad(f)(x[:2]), 0.0)
    assert why.dropped_by.primitive == "mul"
    check_cures(why, want)
    assert any("strong_zero" in cure.text for cure in why.cures)


@pytest.mark.parametrize("setting", [jax.debug_nans, jax.debug_infs])
def test_the_settings_that_raise_at_the_first_nan_change_nothing(setting):
    def loss(x):
        return jnp.sum(jnp.where(x > 0, jnp.log(x), 0.0))

    x = jnp.array([0.0, 1.0])
    want = explain_nan(loss, x)
    with setting(True):
        assert explain_nan(loss, x).cures[0].text == want.cures[0].text
        (finding,) = check(loss, x, backends=["jax"]).findings
    assert (finding.kind, finding.primitive) == ("non-finite", "log")


def test_a_cure_of_one_of_two_calls_is_right_as_it_stands():
    def cured(x):
        return jnp.log(x[1]) + jnp.where(x[0] > 0, jnp.log(jnp.where(x[0] > 0, x[0], 1.0)), 0.0)

    x = jnp.array([0.0, 1.0])
    assert cured(x) == two_calls(x)
    np.testing.assert_array_equal(jax.grad(cured)(x), [0, 1])


@pytest.mark.parametrize(("function", "name"), [(jnp.log, "xlogy"), (jnp.log1p, "xlog1py")])
def test_a_product_of_0_and_the_logarithm_of_0_has_a_form_of_its_own(function, name):
    def entropy(p):
        return -jnp.sum(p * function(p - float(name == "xlog1py")))

    why = explain_nan(entropy, np.array([0.0, 0.5], np.float32))
    assert why.mode == "value" and not why.ok
    assert f"jax.scipy.special.{name}(x, y)" in why.cures[0].text
    (finding,) = check(entropy, np.array([0.0, 0.5], np.float32)).of_kind("non-finite")
    assert name in finding.advice
    other = explain_nan(lambda x: x * jnp.tan(x) / x, np.float32(0.0))
    assert not other.cures
