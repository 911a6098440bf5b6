"""Where Julia, PyBridge's source and the AD systems' environments are."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from .._config import setting
from .._errors import ConfigError, explain

# What julia_src/Project.toml asks for.
_OLDEST_JULIA = (1, 10, 0)


@dataclass(frozen=True)
class JuliaChoice:
    """The Julia that will be used.

    Attributes:
        executable: its path; None where juliapkg finds or installs one.
        origin: who chose it.
    """

    executable: str | None
    origin: str


def julia_source() -> Path:
    """Find the folder of the Julia package PyBridge: in the wheel, or beside it in a checkout."""
    package = Path(__file__).resolve().parent.parent
    for folder in (package / "julia_src", package.parent / "julia_src"):
        if (folder / "Project.toml").is_file():
            return folder
    raise ConfigError(
        explain(
            "pybridge",
            expected=f"its Julia sources in {package / 'julia_src'}",
            got="no such folder",
            fix="The installation is incomplete: install pybridge again.",
        )
    )


def choose_julia() -> JuliaChoice:
    """Decide which Julia is used, without starting it.

    In this order: what juliacall or juliapkg were told, `PYBRIDGE_JULIA`, the `julia` on PATH if
    it is new enough, and else what juliapkg finds or installs.

    Raises:
        ConfigError: `PYBRIDGE_JULIA` names no executable.
    """
    for name in ("PYTHON_JULIACALL_EXE", "PYTHON_JULIAPKG_EXE"):
        if os.environ.get(name):
            return JuliaChoice(os.environ[name], f"environment variable {name}")
    chosen = setting("PYBRIDGE_JULIA")
    if isinstance(chosen.value, str):
        path = shutil.which(chosen.value)
        if path is None:
            raise ConfigError(
                explain(
                    "PYBRIDGE_JULIA",
                    expected="the path of a julia executable",
                    got=f"{chosen.value!r}, where there is none ({chosen.origin})",
                    fix="Correct it, or unset it to use the julia on PATH.",
                )
            )
        return JuliaChoice(path, chosen.origin)
    path = shutil.which("julia")
    if path is not None and (julia_version(path) or (0, 0, 0)) >= _OLDEST_JULIA:
        return JuliaChoice(path, "julia on PATH")
    return JuliaChoice(None, "juliapkg finds or installs one")


def julia_version(executable: str) -> tuple[int, int, int] | None:
    """Ask a julia for its version; None if it does not answer."""
    try:
        reply = subprocess.run(
            [executable, "--version"], capture_output=True, text=True, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r"julia version (\d+)\.(\d+)\.(\d+)", reply.stdout)
    return (int(match[1]), int(match[2]), int(match[3])) if match else None


def for_juliapkg(choice: JuliaChoice) -> dict[str, str]:
    """Say by which environment variables juliapkg, when it is first imported, uses the choice."""
    if choice.executable is None or os.environ.get("PYTHON_JULIACALL_EXE"):
        return {}
    state = sys.modules.get("juliapkg.state")
    if state is not None and not state.STATE["resolved"]:
        state.STATE["override_executable"] = choice.executable  # it has read them already
    return {"PYTHON_JULIAPKG_EXE": choice.executable}
