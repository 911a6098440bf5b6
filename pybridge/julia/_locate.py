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


# juliacall uses both or neither: a Julia, and an environment that has PythonCall.
_TOGETHER = ("PYTHON_JULIACALL_EXE", "PYTHON_JULIACALL_PROJECT")


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
        ConfigError: `PYBRIDGE_JULIA` names no executable, or one that juliacall does not accept, or
            juliacall was told half of what it wants.
    """
    told = [name for name in _TOGETHER if os.environ.get(name)]
    if len(told) == 1:
        raise ConfigError(
            explain(
                "Julia's start",
                expected=" and ".join(_TOGETHER) + " together",
                got=f"{told[0]} alone",
                fix="Set the other as well, or unset it to let juliapkg find or install a Julia.",
            )
        )
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
                    expected="a Julia that juliacall accepts",
                    got=refused,
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
    return JuliaChoice(None, f"{refused}: juliapkg finds or installs another")


def requirements() -> dict[str, str]:
    """Say which versions of Julia juliapkg will accept, by who wants them.

    Returns:
        Compat specifiers of Julia's: for example `{"pybridge": "1.10", "juliacall 0.9.37":
        "^1.10.3"}`, and beside them what Python's OpenSSL admits, if that is not every Julia.
        Julia has one of its own, and a process can hold only one.
    """
    import ssl

    from juliapkg.deps import openssl_compat

    found = find_spec("juliacall")
    assert found is not None and found.submodule_search_locations
    folders = {
        "pybridge": Path(__file__).parents[1],
        f"juliacall {version('juliacall')}": Path(found.submodule_search_locations[0]),
    }
    wanted = {
        who: json.loads((folder / "juliapkg.json").read_text())["julia"]
        for who, folder in folders.items()
    }
    _, admitted = openssl_compat()
    if admitted is not None:
        wanted[f"Python's {' '.join(ssl.OPENSSL_VERSION.split()[:2])}"] = admitted
    return wanted


def why_refused(executable: str) -> str | None:
    """Say why juliapkg would not accept a julia; None where it would.

    Returns:
        For example `"/usr/bin/julia is Julia 1.9.4, and juliacall 0.9.37 wants ^1.10.3"`.
    """
    from juliapkg.compat import Compat, Version

    found = julia_version(executable)
    if found is None:
        return f"{executable} does not answer to --version as a Julia does"
    for who, wanted in requirements().items():
        if Version(*found) not in Compat.parse(wanted):
            return f"{executable} is Julia {'.'.join(map(str, found))}, and {who} wants {wanted}"
    return None


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
