"""Julia packages that are installed on demand, each in an environment of its own."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from .._config import setting
from .._errors import BackendNotLoadedError, JuliaError, explain
from ._library import Library
from ._locate import julia_source

_DONE = "pybridge-installed"  # written by provision.jl


class Running(Protocol):
    """What is needed of the running Julia; see `Session`."""

    project: str
    executable: str
    julia_version: str

    def call(self, work: Callable[[Library], str]) -> str:
        """Run `work` on Julia's thread."""
        ...


def entries() -> dict[str, Any]:
    """Read environments.toml: package name to entry."""
    return tomllib.loads((julia_source() / "environments.toml").read_text())


def root(project: str) -> Path:
    """Tell where all that is installed on demand is."""
    base = setting("PYBRIDGE_ENVIRONMENTS").value
    chosen = Path(base).expanduser() if isinstance(base, str) else Path(project) / "pybridge"
    return chosen.resolve()


def folder(package: str, project: str, julia_version: str) -> Path:
    """Tell where the environment of a package is.

    The name holds Julia's minor version and a digest of the entry: a new Julia or a new entry
    makes a new environment.
    """
    text = repr(sorted(entries()[package].items())) + Path(project).as_posix()
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    minor = ".".join(julia_version.split(".")[:2])
    return root(project) / f"{package.lower()}-julia{minor}-{digest}"


def is_installed(session: Running, package: str) -> bool:
    """Tell whether the environment of a package is there."""
    return (folder(package, session.project, session.julia_version) / _DONE).exists()


def load(session: Running, package: str) -> str:
    """Load a package into the running Julia, installing it first where that is needed.

    Args:
        session: the running Julia.
        package: the package's name.

    Returns:
        The version that is loaded.

    Raises:
        BackendNotLoadedError: it could not be installed or loaded, with the reason.
    """
    if package in entries():
        _check_julia(package, session.julia_version)
        place = folder(package, session.project, session.julia_version)
        if not is_installed(session, package):
            _install(session, package, place)
        session.call(lambda library: library.request("environment", place))
    try:
        return session.call(lambda library: library.request("load", package))
    except JuliaError as error:
        if error.julia_type == "NotLoadedError":
            raise BackendNotLoadedError(
                f"{package} does not load in Julia {session.julia_version}: {error.julia_message}"
            ) from error
        raise BackendNotLoadedError(
            f"{package} did not load: {error.julia_message}\n"
            f"The main Julia environment is {session.project}. To add the package there, type\n"
            f"    julia --project={session.project} -e 'using Pkg; Pkg.add(\"{package}\")'"
        ) from error


def _check_julia(package: str, running: str) -> None:
    """Refuse a package that needs a newer Julia, before anything is downloaded.

    Its entry lists the first patch of each minor release that it runs on. A minor release that is
    newer than all of these is new enough.
    """
    first = [_release(text) for text in entries()[package].get("julia", ())]
    release = _release(running)
    of_minor = [patch for patch in first if patch[:2] == release[:2]]
    if first and release < (of_minor or [max(first)])[0]:
        needed = ", ".join(entries()[package]["julia"])
        raise BackendNotLoadedError(
            explain(
                package,
                expected=f"Julia {needed}, or later patches of these, or a later release",
                got=f"Julia {running}",
                fix="Choose another Julia with PYBRIDGE_JULIA. The other AD systems are not "
                "affected.",
            )
        )


def _release(text: str) -> tuple[int, ...]:
    """Take "1.12.5" apart, or "1.13.0-beta1", or "1.10.8+vendor"."""
    return tuple(int(part) for part in re.split("[-+]", text)[0].split("."))


def _install(session: Running, package: str, place: Path) -> None:
    """Make an environment, showing Pkg's progress on the terminal."""
    offline = bool(setting("PYBRIDGE_OFFLINE").value)
    _make_writable(package, place.parent)
    print(
        f"pybridge: installing {package} for Julia into {place}",
        file=sys.stderr,
        flush=True,
    )
    command = [
        session.executable,
        f"--project={session.project}",
        "--startup-file=no",
        str(julia_source() / "provision.jl"),
        package,
        str(place),
        "true" if offline else "false",
    ]
    # Pkg writes to stderr; stdout belongs to the caller's own output.
    done = subprocess.run(command, stdout=sys.stderr.fileno() if _has_fileno() else None)
    if done.returncode:
        raise BackendNotLoadedError(
            f"{package} could not be installed (Julia's output is above; exit status "
            f'{done.returncode}). With a network, try again; without one, see "Offline use" in '
            f"pybridge's documentation. The other AD systems are not affected."
        )


def _make_writable(package: str, place: Path) -> None:
    """Make the folder of all environments before Julia starts, and refuse one that cannot be."""
    try:
        place.mkdir(parents=True, exist_ok=True)
        if not os.access(place, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(place))
    except OSError as error:
        raise BackendNotLoadedError(
            explain(
                f"{package} could not be installed",
                expected="a folder for Julia's environments that can be written",
                got=f"{place} ({error.strerror})",
                fix="Choose another one with PYBRIDGE_ENVIRONMENTS. The other AD systems are not "
                "affected.",
            )
        ) from error


def _has_fileno() -> bool:
    try:
        sys.stderr.fileno()
    except (AttributeError, OSError, ValueError):
        return False  # pytest and notebooks replace stderr
    return True
