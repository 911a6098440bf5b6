"""Whether the tests that need Julia can run here."""

from __future__ import annotations

import contextlib
import functools
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from filelock import FileLock
from quick import LONG

# Julia packages that tests alone use: Aqua looks PyBridge over, JLArrays stands in for a GPU.
TOOLS = ("Aqua", "JLArrays")
# What says which Julia is used: pybridge's, juliapkg's and juliacall's own.
SETTINGS = (
    "PYBRIDGE_JULIA",
    "PYTHON_JULIAPKG_EXE",
    "PYTHON_JULIACALL_EXE",
    "PYTHON_JULIACALL_PROJECT",
)


@functools.cache
def why_not() -> str | None:
    """Say why Julia cannot be used; None where it can, and then it has started.

    A Julia counts as found where it is on PATH or named by a setting. Nothing is downloaded for
    a test run: with neither, the tests are skipped.
    """
    from pybridge import BridgeError
    from pybridge.julia._locate import choose_julia

    try:
        choice = choose_julia()
        if choice.executable is None:
            return f"{choice.origin}; PYBRIDGE_JULIA and PYTHON_JULIAPKG_EXE are not set"
        with _one_after_the_other():
            _begin()
    except BridgeError as error:
        return f"Julia did not start: {error}"
    return None


@functools.cache
def make_ready() -> None:
    """Load all that a test may want. One that starts a Julia of its own does without."""
    with _one_after_the_other():
        start(packages(), with_tools=True)


def _one_after_the_other() -> FileLock:
    """Hold back the other workers: the first compiles packages, where that is still to be done."""
    return FileLock(Path(tempfile.gettempdir()) / f"pybridge-tests-{os.getuid()}.lock")


def is_started() -> bool:
    """Tell whether this process has started Julia; imports nothing."""
    module = sys.modules.get("pybridge.julia._session")
    return module is not None and module.is_started()


@functools.cache
def _begin() -> None:
    """Start Julia so that it can be made to interpret by day; see interpreted.jl."""
    from pybridge.julia import _libjulia, _session

    if LONG not in os.environ:
        if is_started():
            raise RuntimeError("a test that is not marked `julia` started a Julia that compiles")
        prepared = f'Base.include(Main, raw"{Path(__file__).with_name("interpreted.jl")}")'
        _libjulia.BEFORE_PYTHONCALL.insert(0, prepared)
    _session.session()


def start(packages: Iterable[str] = (), *, with_tools: bool = False) -> None:
    """Start Julia as tests want it: by day it interprets from then on.

    It loads nothing afterwards, so by day it needs to be told what is loaded on demand.

    Args:
        packages: AD systems and others that are installed on demand, as far as they can be had.
        with_tools: load what tests alone use, and make ready for many tests.
    """
    from pybridge import BridgeError
    from pybridge.julia import _libjulia
    from pybridge.julia._session import session

    _begin()
    if LONG in os.environ:
        return
    for package in packages:
        with contextlib.suppress(BridgeError):  # the tests that need it tell why
            session().require(package)
    steps = ["interpret()"]
    if with_tools:
        load = f'begin push!(LOAD_PATH, raw"{tools()}"); try @eval using JLArrays catch end end'
        steps = [load, "pop!(LOAD_PATH)", "interpret(derivatives=true)"]
    for step in steps:
        session().call(lambda _, step=step: _libjulia.evaluate(step))


def packages() -> list[str]:
    """List the packages that are installed on demand and run by tests: AD systems and Flux."""
    from pybridge._backends import TABLE
    from pybridge.julia._environments import entries

    not_yet_run = [system.package for system in TABLE if system.experimental]
    return [package for package in entries() if package not in not_yet_run]


def is_required() -> bool:
    """Tell whether skipping for want of Julia is a failure."""
    from pybridge._config import setting

    return bool(setting("PYBRIDGE_REQUIRE_JULIA").value)


@functools.cache
def tools() -> Path:
    """Make a Julia environment with what tests alone use, as far as it can be had."""
    from pybridge.julia._session import session

    place = Path(session().project) / "pybridge" / "test-tools"
    project = place / "Project.toml"
    missing = [name for name in TOOLS if not project.exists() or name not in project.read_text()]
    if missing:
        place.mkdir(parents=True, exist_ok=True)
        code = f"using Pkg; for name in {missing} try Pkg.add(name) catch end end"
        command = [session().executable, f"--project={place}", "--startup-file=no", "-e", code]
        subprocess.run([part.replace("'", '"') for part in command], capture_output=True)
    return place
