"""Two processes that are one JAX, each with a Julia; the truth is the same in one process."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import julia_in_processes
import numpy as np
import pytest
from julia_in_processes import CASES, LONG_CASES, results
from several_processes import run_together

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("cases", [CASES, pytest.param(LONG_CASES, marks=pytest.mark.nightly)])
def test_two_processes_give_the_numbers_of_one(cases, tmp_path):
    want = results(cases)
    program = [sys.executable, julia_in_processes.__file__, str(tmp_path / "{}.npz")]
    run_together([*program, ",".join(cases)], count=2, devices=2, limit=600)
    for number in range(2):
        with np.load(tmp_path / f"{number}.npz") as got:
            assert len(got) == len(want)
            for one, other in zip(got.values(), want, strict=True):
                np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-6)


@pytest.mark.nightly
def test_the_example_prints_what_it_prints_in_one_process():
    program = [sys.executable, str(ROOT / "examples" / "several_processes.py")]
    alone = subprocess.run(program, capture_output=True, text=True, check=True).stdout
    together = run_together(program, count=2, devices=2, limit=600)
    page = (ROOT / "docs" / "how-to" / "call-julia-from-jax.md").read_text(encoding="utf-8")
    losses = [
        re.findall(r"^step \d: loss \S+$", text, re.MULTILINE) for text in (alone, page, *together)
    ]
    assert len(losses[0]) == 4
    assert losses == [losses[0]] * 4
