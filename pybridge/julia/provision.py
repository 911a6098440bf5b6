"""Install Julia's side ahead of its first use: what `pybridge provision` does."""

from __future__ import annotations

from pathlib import Path

from .._backends import Backend
from .._errors import BackendNotLoadedError
from ._environments import entries
from ._session import session
from ._sysimage import build
from ._systems import backends


def provision_image() -> Path:
    """Build a system image, from which later processes start Julia; see `_sysimage.py`.

    Raises:
        JuliaUnavailableError: Julia cannot be started.
        BackendNotLoadedError: PackageCompiler cannot be installed, or there is no C compiler.
    """
    return build(session())


def provision_all() -> tuple[list[Backend], dict[str, str]]:
    """Start Julia and install every package that is otherwise installed on first use.

    Progress goes to the terminal. Afterwards everything works without a network.

    Returns:
        The AD systems with their states, and for each other package its version or the reason
        why it is not there.

    Raises:
        JuliaUnavailableError: Julia cannot be started.
    """
    started = session()
    systems = backends()
    others = {}
    for package in entries():
        if any(package in system.packages for system in systems):
            continue
        try:
            others[package] = started.require(package)
        except BackendNotLoadedError as error:
            others[package] = str(error)
    return systems, others
