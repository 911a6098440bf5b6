"""AD systems made ready: their packages loaded, and installed where they are not."""

from __future__ import annotations

from dataclasses import replace
from importlib.metadata import version

from .._backends import INTERFACE, NAMES, Backend, row
from .._errors import BackendNotLoadedError, BridgeError, UnknownBackendError
from ._environments import is_installed
from ._session import session


def load(name: str) -> Backend:
    """Make an AD system ready, starting Julia and installing the package where needed.

    Returns:
        Its row, with the version that is loaded.

    Raises:
        UnknownBackendError: there is no such system.
        JuliaUnavailableError: Julia cannot be started.
        BackendNotLoadedError: the system's package cannot be installed or loaded.
    """
    found = row(name)
    if found.language == "python":
        return replace(found, version=version(found.package), available=True)
    return replace(found, version=require(found), available=True)


def require(system: Backend) -> str:
    """Load the packages of a Julia system, and return the version of its own.

    Raises:
        JuliaUnavailableError: Julia cannot be started.
        UnknownBackendError: ADTypes has no such constructor.
        BackendNotLoadedError: a package cannot be installed or loaded.
    """
    running = session()
    for package in system.needs:
        running.require(package)
    if system.name.startswith(INTERFACE):
        # A typing error must not end in a search for a package of that name.
        running.call(lambda library: library.request("check_backend", system.name))
    return running.require(system.package)


def backends() -> list[Backend]:
    """List all AD systems with what is known about each.

    Starts Julia and installs what is missing, as the first use of each system would, but for a
    system that pybridge's own tests have not run. A system that cannot be had is listed with the
    reason; the others are not affected.

    Returns:
        One `Backend` a system, in a fixed order: jax, finite, then those of Julia.

    Example:
        >>> import pybridge as pb
        >>> [b.name for b in pb.backends() if b.language == "python"]
        ['jax', 'finite']

    The twin in Julia is `PyBridge.BACKENDS` with `PyBridge.check_available`.
    """
    return [prepare(name, asked=False) for name in NAMES]


def prepare(name: str, *, asked: bool = True) -> Backend:
    """Make an AD system ready, or say why it cannot be had.

    Args:
        name: its name.
        asked: whether somebody named it. One that pybridge's own tests have not run is installed
            only then.

    Raises:
        UnknownBackendError: there is no such system.
    """
    found = row(name)
    try:
        if found.experimental and not asked and not is_installed(session(), found.package):
            raise BackendNotLoadedError(
                f"{found.package} is not installed, and is not unless it is asked for, by "
                f'backend="{name}": pybridge\'s own tests have not run it yet.'
            )
        return load(name)
    except UnknownBackendError:
        raise
    except BridgeError as error:
        return replace(found, reason=str(error))
