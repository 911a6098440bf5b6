"""Fixtures of the tests that need Julia; `tests/conftest.py` skips them where there is none."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest
from bridge_helpers import SYSTEMS


@pytest.fixture(params=SYSTEMS)
def system(request) -> str:
    """Run the test once for each of Julia's AD systems."""
    return request.param


@pytest.fixture
def run_python():
    """Run a program in a fresh Python and return what it printed."""

    def run(program: str, *, expect: int = 0, timeout: float = 60, env=None) -> str:
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(program)],
            capture_output=True,
            text=True,
            timeout=timeout,
            env=env,
        )
        assert done.returncode == expect, done.stdout + done.stderr
        return done.stdout + done.stderr

    return run
