"""The examples run and print what they promise."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def run(name: str) -> str:
    done = subprocess.run([sys.executable, str(EXAMPLES / name)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_one_question():
    printed = run("one_question.py")
    lines = [line for line in printed.splitlines() if "gradient" in line]
    assert len(lines) == 6, printed
    for line in lines:
        # Finite differences call the function as it is: outside a gradient.
        expected = "value 6.0" if line.startswith("finite") else "value 12.0"
        assert expected in line, line


@pytest.mark.skipif(
    not (find_spec("optax") and find_spec("sklearn")),
    reason='needs optax and scikit-learn: pip install -e ".[peers]"',
)
def test_train_flux_layer_in_jax():
    last = run("train_flux_layer_in_jax.py").splitlines()[-1]
    name, accuracy = last.split(": ")
    assert name == "test accuracy"
    assert float(accuracy) >= 0.95
