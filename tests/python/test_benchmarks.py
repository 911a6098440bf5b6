"""Benchmarks that need no Julia still run, on small numbers; what they measure is not looked at."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from pybridge.finite import double_precision

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def benchmark(monkeypatch):
    """Load benchmarks/check.py, to be run on small numbers."""
    monkeypatch.syspath_prepend(FOLDER)
    spec = importlib.util.spec_from_file_location("check_benchmark", FOLDER / "check.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "INPUTS", 5)
    monkeypatch.setattr(module.jax.config, "update", lambda *_: None)
    return module


def lines_of(benchmark, monkeypatch, capsys, *options):
    monkeypatch.setattr(sys, "argv", ["check.py", *options])
    with double_precision(), benchmark.jax.numpy_dtype_promotion("standard"):
        benchmark.main()
    return capsys.readouterr().out.splitlines()


def test_the_cost_of_a_check(benchmark, monkeypatch, capsys):
    lines = lines_of(benchmark, monkeypatch, capsys, "--repeat", "1")
    assert len(lines) == 1 + len(benchmark.functions())


def test_the_cost_of_a_check_of_small_programs(benchmark, monkeypatch, capsys):
    lines = lines_of(benchmark, monkeypatch, capsys, "--programs", "1")
    assert [line.split()[0] for line in lines[1:]] == ["smooth", "solvers", "stable", "all"]
