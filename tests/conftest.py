"""What all tests share: the `julia` marker, and a loud word about what it skipped."""

from __future__ import annotations

import os
import sys
from pathlib import Path

# Before anything imports JAX: eight devices, for the sharding tests.
_DEVICES = "--xla_force_host_platform_device_count=8"
if _DEVICES not in os.environ.get("XLA_FLAGS", ""):
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {_DEVICES}".strip()
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import julia_state

_skipped: list[str] = []


def pytest_collection_modifyitems(items):
    for item in items:
        if any(folder in item.path.parts for folder in ("bridge", "julia")):
            item.add_marker("julia")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    if item.get_closest_marker("julia") is None:
        return
    reason = julia_state.why_not()
    if reason is None:
        return
    if julia_state.is_required():
        pytest.fail(f"PYBRIDGE_REQUIRE_JULIA is set, but: {reason}", pytrace=False)
    _skipped.append(item.nodeid)
    pytest.skip(f"Julia not found: {reason}")


def pytest_terminal_summary(terminalreporter):
    for note in julia_state.notes:
        terminalreporter.write_line(note)
    if _skipped:
        terminalreporter.section("Julia not found", sep="!", red=True, bold=True)
        terminalreporter.write_line(
            f"{len(_skipped)} tests that need Julia were skipped: {julia_state.why_not()}."
        )
        terminalreporter.write_line("PYBRIDGE_REQUIRE_JULIA=1 turns these skips into failures.")
