"""The examples run and print what they promise."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def test_one_question():
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "one_question.py")], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line for line in done.stdout.splitlines() if "gradient" in line]
    assert len(lines) == 6, done.stdout
    for line in lines:
        # Finite differences call the function as it is: outside a gradient.
        expected = "value 6.0" if line.startswith("finite") else "value 12.0"
        assert expected in line, line
