"""Which AD systems a test run can have, and why it cannot have the others."""

from __future__ import annotations

import functools
import shutil
import sys
from pathlib import Path

from ..._backends import row
from ...julia import choose_julia, prepare


@functools.cache
def why_absent(name: str) -> str | None:
    """Say why an AD system cannot be used in this process; None where it can.

    For one of Julia's systems this starts Julia, unless there is none: then nothing is downloaded,
    as it would be by the first use outside a test run.

    Args:
        name: an AD system's name, as `pb.backends()` lists it.

    Raises:
        UnknownBackendError: there is no such system.
        ConfigError: `PYBRIDGE_JULIA` names no executable.

    Example:
        >>> from pybridge.consistency.subject import why_absent
        >>> why_absent("jax") is None
        True
    """
    if row(name).language == "julia" and not has_julia():
        return (
            f"Julia not found: {choose_julia().origin}; "
            "PYBRIDGE_JULIA and PYTHON_JULIAPKG_EXE are not set"
        )
    found = prepare(name)
    return None if found.available else found.reason


def has_julia() -> bool:
    """Look for a Julia without downloading one."""
    if "juliacall" in sys.modules or choose_julia().executable is not None:
        return True
    from juliapkg.state import STATE

    # An earlier use may have let juliapkg install one.
    return shutil.which(str(Path(STATE["install"], "bin", "julia"))) is not None
