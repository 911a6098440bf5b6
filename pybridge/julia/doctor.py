"""What `pybridge doctor` shows: versions, paths, settings and each AD system's state."""

from __future__ import annotations

import os
import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from typing import NamedTuple

import jax

from .._config import settings
from .._errors import BridgeError
from ._environments import entries, folder
from ._ffi import xla_calls_julia
from ._locate import choose_julia, julia_source, julia_version, requirements
from ._malloc import why_not_kept
from ._session import is_started, session
from ._sysimage import find
from ._systems import backends


class Row(NamedTuple):
    """A line of the report: what, its value, and where it comes from or what to do."""

    label: str
    value: str
    note: str = ""


_FOREIGN_SETTINGS = (
    "PYTHON_JULIACALL_EXE",
    "PYTHON_JULIACALL_PROJECT",
    "PYTHON_JULIACALL_HANDLE_SIGNALS",
    "PYTHON_JULIACALL_THREADS",
    "PYTHON_JULIAPKG_EXE",
    "PYTHON_JULIAPKG_PROJECT",
    "PYTHON_JULIAPKG_OFFLINE",
    "JULIA_DEPOT_PATH",
    "JULIA_NUM_THREADS",
)


def collect() -> dict[str, list[Row]]:
    """Collect the report, starting Julia and trying every AD system.

    Returns:
        Sections by their titles, in the order in which they read well. Nothing raises: what
        fails is a row that says so.
    """
    return {
        "Python": _python(),
        "Julia": _julia(),
        "AD systems": _systems(),
        "Settings": _settings(),
    }


def _python() -> list[Row]:
    rows = [
        Row("Python", platform.python_version(), sys.executable),
        Row("platform", f"{platform.system()} {platform.machine()}"),
    ]
    for package in ("pybridge", "jax", "jaxlib", "numpy", "juliacall", "juliapkg"):
        try:
            rows.append(Row(package, version(package)))
        except PackageNotFoundError:
            rows.append(Row(package, "not installed", f"pip install {package}"))
    devices = ", ".join(sorted({d.platform for d in jax.devices()}))
    x64 = "on" if jax.config.read("jax_enable_x64") else "off"
    return [*rows, Row("JAX devices", devices, f"x64 is {x64}")]


def _julia() -> list[Row]:
    try:
        choice = choose_julia()
        rows = [Row("executable", choice.executable or "none yet", choice.origin)]
        if choice.executable is not None:
            found = julia_version(choice.executable)
            number = ".".join(map(str, found)) if found else "no answer"
            wanted = [f"{who} wants {versions}" for who, versions in requirements().items()]
            rows.append(Row("version", number, "; ".join(wanted)))
        rows.append(Row("PyBridge sources", str(julia_source())))
        started = session()
    except BridgeError as error:
        return [Row("state", "not available", str(error))]
    image = find(started.executable, started.project)
    rows += [
        Row("state", "running" if is_started() else "stopped"),
        Row("main environment", started.project),
        Row("system image", str(image.path or "none"), image.note),
        *_ways_of_calls(),
        _freed_memory(),
    ]
    for package in entries():
        place = folder(package, started.project, started.julia_version)
        state = "installed" if place.exists() else "not installed; made on first use"
        rows.append(Row(f"{package}'s environment", str(place), state))
    return rows


def _ways_of_calls() -> list[Row]:
    rows = [_way_of_calls("CPUs", "cpu")]
    if _has_cuda():
        rows.append(_way_of_calls("NVIDIA GPUs", "cuda"))
    return rows


def _way_of_calls(name: str, platform: str) -> Row:
    refusal = xla_calls_julia(platform)
    way = "call Julia directly" if refusal is None else "call Julia through Python"
    return Row(f"compiled programs on {name}", way, refusal or "")


def _freed_memory() -> Row:
    reason = why_not_kept()
    return Row("freed memory", "kept" if reason is None else "left to malloc", reason or "")


def _has_cuda() -> bool:
    try:
        return bool(jax.devices("cuda"))
    except RuntimeError:
        return False


def _systems() -> list[Row]:
    rows = []
    for backend in backends():
        if backend.available:
            rows.append(Row(backend.name, f"{backend.package} {backend.version}", backend.mode))
        else:
            # Why Julia does not start is told once, under "Julia".
            reason = (backend.reason or "").partition("\n")[0]
            rows.append(Row(backend.name, "not available", reason))
    return rows


def _settings() -> list[Row]:
    rows = [
        Row(s.name, "unset" if s.value is None else str(s.value), f"{s.origin}; {s.meaning}")
        for s in settings()
    ]
    rows += [
        Row(name, os.environ[name], "environment variable")
        for name in _FOREIGN_SETTINGS
        if name in os.environ
    ]
    return rows
