"""`pb.check` on random programs: no false alarm, and planted faults are found."""

import importlib.util
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

from pybridge.finite import double_precision, finite_gradient

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
COUNTS = [pytest.param(20, marks=pytest.mark.nightly)]
sys.path.append(str(BENCHMARKS))  # its modules import each other


def load(name):
    """Import a module of the benchmarks, which are no package."""
    spec = importlib.util.spec_from_file_location(name, BENCHMARKS / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


programs = load("fault_programs")
faults = load("finite_faults")


@pytest.fixture(autouse=True)
def plain_jax():
    """Compute as the benchmark does."""
    with double_precision():
        yield


def test_the_same_number_is_the_same_program():
    for make in (programs.smooth, programs.planted):
        assert str(make(3, 4)) == str(make(3, 4))
        assert str(make(3, 4)) != str(make(4, 4))
        assert str(make(3, 4)) != str(make(3, 9))


def difference(program, seed):
    """Compare reverse mode with finite differences, in the derivative of a weighted sum."""
    with jax.disable_jit():
        weights = np.random.default_rng(seed).normal(size=np.shape(program(*program.args)))
        total = lambda *args: (program(*args) * weights).sum()  # noqa: E731
        numbers = tuple(range(len(program.args)))
        found = finite_gradient(total, program.args, numbers)
        expected = np.concatenate([np.ravel(part) for part in found.derivative])
        plain = np.asarray(program(*program.args))
        value, gradient = map(np.asarray, programs.gradient(program, weights, program.args))
    largest = max(np.abs(expected).max(), 1e-3)
    return np.abs(value - plain).max(), np.abs(gradient - expected).max() / largest


# The generators themselves, against differences; by day only what the checker makes of them.
@pytest.mark.nightly
@pytest.mark.parametrize("number", range(6))
def test_a_smooth_program_is_right_by_finite_differences(number):
    value, slope = difference(programs.smooth(0, number), number)
    assert value <= 1e-12
    assert slope < 1e-7


@pytest.mark.nightly
@pytest.mark.parametrize("number", range(len(programs.FAULTS)))
def test_a_planted_fault_is_wrong_by_finite_differences(number):
    program = programs.planted(0, number)
    assert program.kind == programs.FAULTS[number]
    value, slope = difference(program, number)
    if program.kind == "wrong value":
        assert value > 0
    else:
        assert value <= 1e-12
        assert slope > 1e-7


@pytest.mark.parametrize("count", [6, *COUNTS])
def test_no_false_alarm_on_smooth_functions(count):
    outcomes = list(faults.checks("smooth", 0, range(count)))
    assert [faults.complaint(outcome) for outcome in outcomes] == [""] * count


@pytest.mark.parametrize("count", [len(programs.FAULTS), *COUNTS])
def test_planted_faults_are_found(count):
    outcomes = list(faults.checks("planted", 0, range(count)))
    assert {outcome.kind for outcome in outcomes} == set(programs.FAULTS)
    assert [faults.complaint(outcome) for outcome in outcomes] == [""] * count


# A few of each in the quick suite; nightly all kinds of formulas, and of solvers with each fault.
FAMILIES = [("lossy", 3), ("stable", 3), ("solvers", 3), ("broken_solvers", 3)]
WHOLE = [("lossy", 40), ("stable", 40), ("solvers", 36), ("broken_solvers", 36)]


@pytest.mark.parametrize(
    ("which", "count"),
    FAMILIES + [pytest.param(*pair, marks=pytest.mark.nightly) for pair in WHOLE],
)
def test_what_precision_loses_and_faulty_solvers_are_found_and_right_ones_are_none(which, count):
    outcomes = list(faults.checks(which, 0, range(count)))
    kinds = set(faults.module_of(which).FAULTS[:count])
    assert {outcome.kind for outcome in outcomes} == ({""} if which in faults.RIGHT else kinds)
    assert [faults.complaint(outcome) for outcome in outcomes] == [""] * count


def test_the_figures_have_every_family():
    outcomes = [
        faults.Outcome("smooth", 0, "", {}, (), 0.0, 0.0),
        faults.Outcome("lossy", 0, "norm", {"error": 1}, ("precision",), 0.0, 0.0),
        faults.Outcome("solvers", 0, "", {"error": 1}, ("finite",), 0.0, 0.0),
    ]
    text = "\n".join(faults.figures(outcomes))
    assert "rules: false alarms: 0 of 1 right programs" in text
    assert "precision: faults found: 1 of 1 (100.0%)" in text
    assert "solvers: false alarms: 1 of 1 right programs" in text


def test_a_missing_mode_is_no_finding():
    outcome = faults.Outcome("planted", 0, "wrong sign", {"error": 1}, ("exception",), 0.0, 0.0)
    assert faults.complaint(outcome) == "missed: wrong sign"
