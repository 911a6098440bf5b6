"""Fixtures of the tests that need Julia; `tests/conftest.py` skips them where there is none."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import jax
import julia_state
import lowering_record
import pytest
from bridge_helpers import SYSTEMS


def pytest_addoption(parser):
    parser.addoption(
        "--lowering-table",
        metavar="PATH",
        help="write there what the tests of lowered programs saw; see docs/lowering_table.py",
    )


def pytest_configure(config):
    path = config.getoption(lowering_record.OPTION, None)
    if path and not hasattr(config, "workerinput"):
        config.pluginmanager.register(lowering_record.Recorder(path))


# Files, and one test, that every system takes minutes to compile for: these systems have the day.
BY_DAY = {
    "test_jacobian_and_hessian_have_jaxs_axes": tuple(s for s in SYSTEMS if s != "mooncake"),
    "test_flux_model.py": ("zygote", "forwarddiff"),
    "test_jax_arrays.py": ("zygote", "forwarddiff"),
    "test_jax_matrix.py": ("zygote", "forwarddiff"),
    "test_jax_rules.py": ("zygote",),
    "test_jax_threads.py": ("zygote", "forwarddiff"),
    "test_scenarios_julia.py": ("zygote", "forwarddiff", "tracker", "mooncake", "reversediff"),
}


def pytest_collection_modifyitems(items):
    for item in items:
        params = item.callspec.params.values() if hasattr(item, "callspec") else ()
        asked = {p for p in params if isinstance(p, str) and p in SYSTEMS}
        by_day = BY_DAY.get(item.originalname) or BY_DAY.get(item.path.name, SYSTEMS)
        if asked - set(by_day):
            item.add_marker("nightly")


@pytest.fixture
def saw(request, record_property):
    """Note the programs that a test runs, for the table in the documentation."""

    def note(column: str, programs: dict, *, table: str = "cases", gap: str = "") -> None:
        """Note lowered programs by name; `column` is a system or `value`."""
        if request.config.getoption(lowering_record.OPTION, None):
            found = {
                name: lowering_record.described(program()) for name, program in programs.items()
            }
            row = {"table": table, "column": column, "gap": gap, "programs": found}
            record_property(lowering_record.PROPERTY, row)

    return note


@pytest.fixture(params=SYSTEMS)
def system(request) -> str:
    """Run the test once for each of Julia's AD systems."""
    return request.param


@pytest.fixture(
    params=[
        *("zygote", "forwarddiff"),
        *(pytest.param(name, marks=pytest.mark.nightly) for name in SYSTEMS[2:]),
    ]
)
def compiling_system(request) -> str:
    """The same where compiling takes a minute: two of the systems by day, all by night."""
    return request.param


@pytest.fixture(params=[pytest.param("float32", marks=pytest.mark.nightly), "float64"])
def dtype(request):
    """Run the test in both precisions."""
    jax.config.update("jax_enable_x64", request.param == "float64")
    yield request.param
    jax.config.update("jax_enable_x64", False)


@pytest.fixture
def run_python():
    """Run a program in a fresh Python, which can import what tests share; return what it printed.

    Julia is started as users start it, by what the program does; or, with `packages`, before it and
    with these, as `julia_state.start` does.
    """
    prepare = f"import sys; sys.path.append({str(Path(julia_state.__file__).parent)!r})"

    def run(program, *arguments, packages=None, expect=0, timeout: float = 180, env=None) -> str:
        lines = [prepare, textwrap.dedent(program)]
        if packages is not None:
            lines.insert(1, f"import julia_state; julia_state.start({packages!r})")
        done = subprocess.run(
            [sys.executable, "-c", "\n".join(lines), *arguments],
            capture_output=True,
            text=True,
            timeout=timeout,
            env=env,
        )
        assert done.returncode == expect, done.stdout + done.stderr
        return done.stdout + done.stderr

    return run
