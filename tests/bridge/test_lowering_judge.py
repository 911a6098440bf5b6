"""What the judge of the random programs lets pass, and what it does not."""

from __future__ import annotations

import hypothesis.extra.numpy as hnp
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from jax import lax
from lowering_checks import Disagreement, Judge, check_slope, gradients, values
from lowering_programs import Program
from precision import enable_x64
from random_rounding import rounded, run_rounded

EPS = float(np.finfo(np.float32).eps)


def program(*lines: str, result: str) -> Program:
    x = np.array([5.3095026, -4.765114], np.float32)
    return Program(("x",), (x,), lines, (result,), frozenset())


# Two terms of size 9 cancel to 0.001. The tangents are saturated: a change of `x` shows nothing.
CANCELLING = program(
    "t = 3.0 * jnp.tanh(x)", "u = jnp.minimum(t, t[::-1])", "v = jnp.matmul(t, u)", result="v"
)
STABLE = program("t = jnp.tanh(x)", "v = jnp.sum(t * t)", result="v")


@pytest.mark.parametrize(
    ("p", "terms"), [(CANCELLING, 9), (STABLE, 1)], ids=["cancelling", "stable"]
)
def test_errors_of_rounding_pass_and_larger_ones_do_not(p, terms):
    judge = Judge()
    (want,) = values(p, "float32", p.arguments)
    judge.compare(p, (want + terms * EPS,), (want,), values, "the value")
    assert judge.counts["undecided"] == 0
    with pytest.raises(Disagreement, match="rounding makes"):
        judge.compare(p, (want + 32 * terms * EPS,), (want,), values, "the value")


def test_a_gradient_of_cancelling_terms_is_judged_by_the_rounding_of_cotangents():
    judge = Judge()
    p = program("t = lax.sin(x)", "v = (t * 3.0 - t * 2.99) - t * 0.01 + x * 0.001", result="v")
    want = gradients(p, "float32", p.arguments)
    shift = jax.tree.map(lambda leaf: leaf + 2 * EPS, want)
    judge.compare(p, shift, want, gradients, "the gradient")
    assert judge.counts["rounded"] == 1
    with pytest.raises(Disagreement):
        shift = jax.tree.map(lambda leaf: leaf + 64 * EPS, want)
        judge.compare(p, shift, want, gradients, "the gradient")


def of_equals(line: str) -> Program:
    return Program(("x",), (np.ones(2, np.float32),), (f"v = {line}",), ("v",), frozenset())


def test_at_a_kink_a_gradient_is_nobodys():
    judge = Judge()
    p = of_equals("jnp.where(x[0] < x[1], x[1], x[0])")
    value, (slopes,) = gradients(p, "float32", p.arguments)
    judge.compare(p, (value, (slopes[::-1],)), (value, (slopes,)), gradients, "the gradient")
    assert judge.counts["undecided"] == 1


@pytest.mark.parametrize(
    ("line", "count"),
    [
        ("x[0] + 0.01 * jnp.where(x[0] < x[1], x[1], x[0])", "not smooth"),
        ("x[0] + 0.003 * jnp.where(x[0] < x[1], x[1], x[0])", "not smooth"),
        ("x[0] + 0.001 * jnp.where(x[0] < x[1], x[1], x[0])", "smooth"),
        ("jnp.maximum(x[0], jnp.minimum(x[0], x[1]))", "not smooth"),
    ],
    ids=["large", "small", "tiny", "cancelled"],
)
def test_a_kink_makes_no_gradient_look_wrong(line, count):
    judge = Judge()
    p = of_equals(line)
    check_slope(p, gradients(p, "float32", p.arguments)[1], "jax", judge)
    assert judge.counts[count] == 1


def test_a_gradient_that_differences_contradict_is_wrong():
    judge = Judge()
    p = of_equals("x[0] * x[1]")
    check_slope(p, gradients(p, "float32", p.arguments)[1], "jax", judge)
    assert judge.counts["smooth"] == 1
    with pytest.raises(Disagreement, match="by differences"):
        check_slope(p, [np.array([1.01, 1.0])], "jax", judge)


def test_a_result_that_rounding_decides_is_nobodys():
    judge = Judge()
    p = program("t = (x * 0.1) * 10 - x", "v = jnp.where(t > 0, 1.0, -1.0)", result="v")
    (want,) = values(p, "float32", p.arguments)
    judge.compare(p, (-want,), (want,), values, "the value")
    assert judge.counts["undecided"] == 1


# No numbers that are subnormal in float32: XLA on the CPU makes them zero, in JAX's results too.
magnitudes = st.just(0.0) | st.floats(1e-30, 1e30)
floats = magnitudes | magnitudes.map(lambda x: -x)


@given(hnp.arrays(np.float64, 5, elements=floats), st.integers(0, 2**64 - 1))
def test_random_rounding_gives_a_neighbour_in_float32(x, seed):
    with enable_x64(True):
        got = np.asarray(rounded(jnp.asarray(x), seed=jnp.uint64(seed)))
    near = x.astype(np.float32)
    toward = np.where(near > x, -np.inf, np.inf).astype(np.float32)
    other = np.where(near == x, near, np.nextafter(near, toward))
    assert np.all((got == near) | (got == other))


def test_random_rounding_goes_up_and_down_and_leaves_what_float32_has():
    seeds = np.arange(64, dtype=np.uint64)

    def f(x):
        return x / 3.0, jnp.sort(-x), lax.fori_loop(0, 9, lambda i, y: y + 0.1, x)

    with enable_x64(True):
        x = jnp.arange(1.0, 4.0)
        program = jax.make_jaxpr(f)(x)
        thirds, sorts, sums = jax.vmap(lambda seed: run_rounded(program, [x], seed))(seeds)
        want = f(x)
    assert 0.25 < np.mean(np.asarray(thirds[:, 0]) > 1 / 3) < 0.75
    np.testing.assert_array_equal(sorts, np.broadcast_to(want[1], sorts.shape))
    errors = np.asarray(sums - want[2])
    # Each of nine additions errs by at most a unit in the last place.
    assert np.all(np.abs(errors) <= 9 * EPS * np.asarray(want[2]))
    assert np.all(np.std(errors, axis=0) > EPS / 4)


def test_what_a_composite_operation_rounds_inside_counts():
    # The numbers are equal: their variance is 0, or what the rounding of the mean leaves.
    p = program("t = jnp.full((3,), jnp.tanh(x[1] - x[0]))", "v = jnp.var(t)", result="v")
    judge = Judge()
    judge.compare(p, (np.float32(EPS**2),), (np.float32(0),), values, "the value")
    assert judge.counts["undecided"] == 1
