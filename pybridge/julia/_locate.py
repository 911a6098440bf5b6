"""Where Julia, PyBridge's source and the AD systems' environments are."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from .._config import setting
from .._errors import ConfigError, explain


@dataclass(frozen=True)
class JuliaChoice:
    """The Julia that will be used.

    Attributes:
        executable: its path; None where juliapkg finds or installs one.
        origin: who chose it, and which one was passed over.
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
    juliacall accepts its version, and else what juliapkg finds or installs.

    Raises:
        ConfigError: `PYBRIDGE_JULIA` names no executable, or one that juliacall does not accept.
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
        refused = why_refused(path)
        if refused is not None:
            raise ConfigError(
                explain(
                    "PYBRIDGE_JULIA",
                    expected=f"a Julia {wanted_by_juliacall()}, as {_juliacall()} wants it",
                    got=f"{path}, which {refused}",
                    fix="Name another, or unset it to let juliapkg find or install one.",
                )
            )
        return JuliaChoice(path, chosen.origin)
    path = shutil.which("julia")
    if path is None:
        return JuliaChoice(None, "no julia on PATH: juliapkg finds or installs one")
    refused = why_refused(path)
    if refused is None:
        return JuliaChoice(path, "julia on PATH")
    wanted = f"{_juliacall()} wants {wanted_by_juliacall()}"
    return JuliaChoice(None, f"{path} {refused}, and {wanted}: juliapkg finds or installs another")


def wanted_by_juliacall() -> str:
    """Read which versions of Julia the installed juliacall accepts, for example `"^1.10.3"`."""
    found = find_spec("juliacall")
    assert found is not None and found.submodule_search_locations
    requirements = Path(found.submodule_search_locations[0], "juliapkg.json")
    return json.loads(requirements.read_text())["julia"]


def why_refused(executable: str) -> str | None:
    """Say why juliacall does not accept a julia; None where it does.

    Returns:
        For example `"is Julia 1.9.4"`.
    """
    from juliapkg.compat import Compat, Version

    found = julia_version(executable)
    if found is None:
        return "does not answer to --version"
    if Version(*found) in Compat.parse(wanted_by_juliacall()):
        return None
    return f"is Julia {'.'.join(map(str, found))}"


def _juliacall() -> str:
    return f"juliacall {version('juliacall')}"


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
