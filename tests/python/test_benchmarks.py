"""Benchmarks that need no Julia still run, on small numbers; what they measure is not looked at."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

from pybridge.finite import double_precision

FOLDER = Path(__file__).parents[2] / "benchmarks"


def test_the_cost_of_a_check(monkeypatch, capsys):
    spec = importlib.util.spec_from_file_location("check_benchmark", FOLDER / "check.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "INPUTS", 5)
    monkeypatch.setattr(module.jax.config, "update", lambda *_: None)
    monkeypatch.setattr(sys, "argv", ["check.py", "--repeat", "1"])
    with double_precision(), module.jax.numpy_dtype_promotion("standard"):
        module.main()
    assert len(capsys.readouterr().out.splitlines()) == 1 + len(module.functions())
