"""Several suites: those without Julia run in a process of their own, where there is Julia."""

import types

import pytest

from pybridge._backends import Backend
from pybridge._errors import BridgeError
from pybridge.consistency import prepare
from pybridge.consistency.suites import SUITES, Suite, run_suites, suite

PYTHON = [prepare("jax"), prepare("finite")]
JULIA = Backend("zygote", "julia", "reverse", "Zygote", "0.7.0", True)


@pytest.fixture
def asked(monkeypatch):
    """Register a suite of Julia, and one that the other process does not know."""
    calls = []

    def run(cases, systems, progress):
        calls.append([case.name for case in cases])
        return "answer"

    def select(names):
        return [types.SimpleNamespace(name=name) for name in names]

    monkeypatch.setitem(SUITES, "here", Suite("here", select, run))
    monkeypatch.setitem(SUITES, "unknown there", Suite("there", select, run, julia=False))
    return calls


def test_each_process_has_its_suites(asked):
    cases = {"jax.nn": suite("jax.nn").select(["gelu"]), "here": suite("here").select(["a", "b"])}
    lines = []
    results = run_suites(cases, [*PYTHON, JULIA], lines.append)
    assert list(results) == ["jax.nn", "here"]
    assert list(results["jax.nn"].reports) == ["jax.nn.gelu"]
    assert results["jax.nn"].ok
    assert results["here"] == "answer"
    assert asked == [["a", "b"]]
    assert lines and set(lines) <= {"jax.nn: 0/1", "jax.nn: 1/1"}
    assert lines == sorted(lines)


def test_without_julia_there_is_one_process(asked):
    cases = {name: suite(name).select([name]) for name in ("unknown there", "here")}
    assert run_suites(cases, PYTHON, print) == {"unknown there": "answer", "here": "answer"}
    assert asked == [["unknown there"], ["here"]]


def test_a_suite_alone_needs_no_other_process(asked):
    cases = {"unknown there": suite("unknown there").select(["a"])}
    assert run_suites(cases, [*PYTHON, JULIA], print) == {"unknown there": "answer"}


def test_a_process_that_ends_is_an_error(asked):
    cases = {name: suite(name).select(["a"]) for name in ("unknown there", "here")}
    with pytest.raises(BridgeError, match=r"unknown there ended with exit code 1\. Run"):
        run_suites(cases, [*PYTHON, JULIA], print)
