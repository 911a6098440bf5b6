"""The scenario table: its truth, its checks, and what JAX and differences answer."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

from pybridge._backends import NAMES, Backend
from pybridge._errors import ArgumentValueError
from pybridge.consistency import (
    ModeAnswer,
    ask,
    judge,
    load_scenarios,
    parse_scenarios,
    prepare,
    run_scenarios,
    select_scenarios,
)
from pybridge.finite import as_given, finite_gradient, finite_jvp

SCENARIOS = {scenario.name: scenario for scenario in load_scenarios()}


def rounded(x):
    return np.where(np.abs(x) < 1e-12, 0.0, x)


def network(weights, readout, x, keep):
    return np.tanh(np.sum(readout * np.tanh(weights @ x) * keep))


# What each scenario computes while it is differentiated, written down again in NumPy: the
# branch that the truth takes, and nothing of the rest of the program.
TRUTH = {
    "detect-cond": lambda x: x**2,
    "detect-plain-if": lambda x: x**2,
    "detect-any": lambda x, y: x**2 * y,
    "detect-several": lambda x, y: x**2 * y,
    "detect-array": lambda x: np.sum(x**2),
    "detect-argument": lambda w, x: 10 * w * x,
    "detect-constant": lambda x: x,
    "detect-stopped": lambda x: x,
    "detect-loop": lambda x: 100 * x,
    "detect-closure": lambda x: x * 3 * x,
    "detect-custom-rule": lambda x: x,
    "where-sinc": lambda x: np.sinc(x / np.pi),
    "cond-sinc": lambda x: np.sinc(x / np.pi),
    "where-log": lambda x: 0 * x,
    "cond-log": lambda x: 0 * x,
    "cond-elementwise": lambda x: np.sqrt(x[0]) + 0 * x[1] + 0 * x[2],
    "cond-batched": lambda x: np.log(x[0]) + 0 * x[1] + 0 * x[2],
    "masked-root": lambda x: np.sqrt(x),
    "cond-root": lambda x: np.sqrt(x),
    "switch-bad-branches": np.sin,
    "early-exit-prod": np.prod,
    "special-point": lambda x: x**2,
    "exact-guard": lambda x: np.sinc(x / np.pi),
    "rule-other-value": lambda x: np.arctan2(rounded(x), 0.0),
    "index-out-of-bounds": lambda x: x[0] + x[2],
    "take-out-of-bounds": lambda x: x[0] + x[2],
    "take-fill": lambda x: 2 * x[2] ** 2 + 25,
    "kink-relu": lambda x: np.maximum(x, 0.0),
    "kink-abs": np.abs,
    "kink-max": np.maximum,
    "kink-maximum": np.max,
    "norm-zero": lambda x: np.sqrt(np.sum(x**2)),
    "sqrt-zero": np.sqrt,
    "square-zero": lambda x, p: x**2,
    "power-fraction": lambda x, p: np.power(x, 1.5),
    "power-zero": lambda x, p: np.power(x, 0.0),
    "power-exponent": lambda p, x: np.power(0.0, p),
    "prod-one-zero": np.prod,
    "prod-two-zeros": np.prod,
    "mlp-dropout": lambda w, r, x, keep: network(w, r, x, keep / 0.5),
}

# The same for a plain call, where that is another function.
PLAIN = {
    "detect-cond": lambda x: x,
    "detect-plain-if": lambda x: x,
    "detect-any": lambda x, y: x * y,
    "detect-several": lambda x, y: x * y,
    "detect-array": np.sum,
    "detect-argument": lambda w, x: w * x,
    "detect-loop": lambda x: x,
    "detect-closure": lambda x: x + 3 * x,
    "mlp-dropout": lambda w, r, x, keep: network(w, r, x, 1.0),
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_values_are_true(name):
    scenario = SCENARIOS[name]
    with np.errstate(all="ignore"):
        value = TRUTH[name](*scenario.args)
        plain = PLAIN.get(name, TRUTH[name])(*scenario.args)
    np.testing.assert_allclose(scenario.value, value, rtol=1e-12)
    np.testing.assert_allclose(scenario.plain_value, plain, rtol=1e-12)


@pytest.mark.parametrize("name", [s.name for s in SCENARIOS.values() if s.derivative is not None])
def test_derivatives_are_true(name):
    scenario = SCENARIOS[name]
    found = finite_gradient(TRUTH[name], scenario.args, convert=as_given)
    np.testing.assert_allclose(scenario.derivative, found.derivative, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", [s.name for s in SCENARIOS.values() if s.subdifferential])
def test_subdifferentials_are_true(name):
    scenario = SCENARIOS[name]
    first, *rest = scenario.args
    low, high = scenario.subdifferential
    for i in np.ndindex(np.shape(first)):
        unit = np.zeros(np.shape(first))
        unit[i] = 1.0
        tangents = (unit, *(np.zeros(np.shape(arg)) for arg in rest))
        _, middle, half = finite_jvp(TRUTH[name], scenario.args, tangents, convert=as_given)
        np.testing.assert_allclose([middle - half, middle + half], [low[i], high[i]], atol=1e-6)


@pytest.mark.parametrize("system", ["jax", "finite"])
@pytest.mark.parametrize("name", SCENARIOS)
def test_answers_are_as_the_table_says(name, system):
    answer = ask(SCENARIOS[name], prepare(system))
    assert answer.status in ("right", "convention", "known", "unsupported"), answer
    assert not answer.surprises


def test_jax_is_right_wherever_pybridge_decides():
    jax_system = prepare("jax")
    for scenario in select_scenarios(["detect", "cond", "switch", "take", "mlp"]):
        assert ask(scenario, jax_system).status == "right", scenario.name


def test_the_caller_s_precision_does_not_matter(both_precisions):
    answer = ask(SCENARIOS["mlp-dropout"], prepare("jax"))
    assert answer.status == "right"
    assert jnp.asarray(1.0).dtype == (jnp.float64 if both_precisions else jnp.float32)


def test_every_kind_of_case_of_the_issue_is_there():
    groups = {scenario.group for scenario in SCENARIOS.values()}
    assert len(SCENARIOS) >= 25
    assert len(groups) == 6
    assert all(s.shows.endswith(".") for s in SCENARIOS.values())
    assert all(k.reason.endswith(".") for s in SCENARIOS.values() for k in s.known)


# ------------------------------------------------------------------- the judge

TABLE = """
[[scenario]]
name = "square"
title = "x^2"
group = "Test"
shows = "A parabola."
python = "f = lambda x: x**2"
julia = "x -> x^2"
args = [3.0]
value = 9.0
derivative = 6.0

[[scenario.known]]
system = ["zygote", "yota"]
kind = "fails"
answer = { derivative = 5.0 }
reason = "It counts badly."

[[scenario.known]]
system = "tracker"
kind = "unsupported"
answer = { error = ["MethodError", "BoundsError"] }
reason = "It refuses."

[[scenario.known]]
system = "jax"
mode = "reverse"
kind = "convention"
answer = { value = 8.0, plain_value = 7.0 }
reason = "It likes even numbers."

[[scenario]]
name = "corner"
title = "|x|"
group = "Test"
shows = "A corner."
python = "f = abs"
julia = "abs"
args = [0.0]
value = 0.0
subdifferential = [-1.0, 1.0]
"""


def number(x):
    return np.asarray(float(x))


@pytest.mark.parametrize(
    ("system", "plain", "value", "derivative", "status", "surprise"),
    [
        ("finite", 9, 9, 6, "right", False),
        ("finite", 9, 9, 6.0000001, "right", False),
        ("forwarddiff", 9, 9, 6.0000001, "wrong", False),
        ("finite", 9, 9, 5, "wrong", False),
        ("finite", 9, 8, 6, "wrong", False),
        ("finite", 8, 9, 6, "wrong", False),
        ("finite", 9, 9, np.nan, "wrong", False),
        ("zygote", 9, 9, 5, "known", False),
        ("zygote", 9, 9, 6, "right", True),
        ("yota", 9, 9, 5, "known", False),
        ("yota", 9, 9, 4, "wrong", False),
        ("tracker", 9, 9, 6, "right", True),
        ("jax", 7, 8, 6, "convention", False),
        ("jax", 9, 8, 6, "wrong", False),
    ],
)
def test_judge(system, plain, value, derivative, status, surprise):
    square = parse_scenarios(TABLE)[0]
    answer = ModeAnswer("reverse", "error", number(value), number(derivative))
    judged = judge(square, system, number(plain), answer)
    assert judged.status == status
    assert bool(judged.surprise) == surprise


def test_judge_mode_error_and_shape():
    square = parse_scenarios(TABLE)[0]
    answer = ModeAnswer("forward", "error", number(8), number(6))
    assert judge(square, "jax", number(7), answer).status == "wrong"
    failed = ModeAnswer("reverse", "error", error="MethodError", message="no method")
    assert judge(square, "tracker", number(9), failed).status == "unsupported"
    otherwise = replace(failed, error="BoundsError")
    assert judge(square, "tracker", number(9), otherwise).status == "unsupported"
    assert judge(square, "finite", number(9), failed).status == "error"
    another = replace(failed, error="DomainError")
    assert judge(square, "tracker", number(9), another).status == "error"
    wide = ModeAnswer("reverse", "error", number(9), np.full(1, 6.0))
    assert judge(square, "finite", number(9), wide).status == "wrong"


@pytest.mark.parametrize(
    ("slope", "status"),
    [
        (-1, "convention"),
        (0.3, "convention"),
        (1, "convention"),
        (1.1, "wrong"),
        (np.nan, "wrong"),
    ],
)
def test_judge_at_a_kink(slope, status):
    corner = parse_scenarios(TABLE)[1]
    answer = ModeAnswer("reverse", "error", number(0), number(slope))
    assert judge(corner, "finite", number(0), answer).status == status


def test_a_failing_function_is_an_answer():
    broken = replace(parse_scenarios(TABLE)[0], python="f = lambda x: x.missing")
    answer = ask(broken, prepare("jax"))
    assert answer.status == "error"
    assert {mode.error for mode in answer.modes} == {"AttributeError"}
    run = run_scenarios([broken], [prepare("jax")])
    assert not run.ok
    assert run.counts("jax") == {"error": 1}


def test_a_system_that_is_not_there_is_absent():
    gone = Backend("zygote", "julia", "reverse", "Zygote", reason="Not today.")
    run = run_scenarios(parse_scenarios(TABLE), [gone])
    assert run.ok
    assert run.counts() == {"absent": 2}


# ------------------------------------------------------------------- the table


def test_select_scenarios():
    assert select_scenarios(None) == load_scenarios()
    assert {s.name for s in select_scenarios(["prod", "sqrt-zero"])} == {
        "prod-one-zero",
        "prod-two-zeros",
        "sqrt-zero",
    }
    with pytest.raises(ArgumentValueError, match=r"'nothing'.*detect-cond"):
        select_scenarios(["nothing"])


@pytest.mark.parametrize("table", ["scenarios", "conventions"])
def test_every_entry_can_mean_something(table):
    scenarios = load_scenarios(table)
    assert len({scenario.name for scenario in scenarios}) == len(scenarios)
    for scenario in scenarios:
        shape = np.shape(scenario.args[0])
        assert (scenario.derivative is None) != (scenario.subdifferential is None), scenario.name
        if scenario.subdifferential is None:
            assert scenario.derivative.shape == shape, scenario.name
        else:
            least, largest = scenario.subdifferential
            assert least.shape == largest.shape == shape, scenario.name
            assert np.all(least <= largest), scenario.name
        for known in scenario.known:
            answer = known.value, known.plain_value, known.derivative, known.errors or None
            assert known.system in NAMES, scenario.name
            assert known.kind in ("fails", "convention", "unsupported"), scenario.name
            assert known.mode in (None, "forward", "reverse"), scenario.name
            assert known.reason and any(part is not None for part in answer), scenario.name
            assert known.derivative is None or known.derivative.shape == shape, scenario.name


def test_a_misspelt_field_is_refused():
    with pytest.raises(TypeError, match="titel"):
        parse_scenarios(TABLE.replace("title", "titel", 1))
