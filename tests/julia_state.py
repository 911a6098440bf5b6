"""Whether the tests that need Julia can run here."""

from __future__ import annotations

import functools

# What the summary of the run says about Julia.
notes: list[str] = []


@functools.cache
def why_not() -> str | None:
    """Say why Julia cannot be used; None where it can.

    A Julia counts as found where it is on PATH or named by a setting. Nothing is downloaded for
    a test run: with neither, the tests are skipped.
    """
    from pybridge import BridgeError
    from pybridge.julia._locate import choose_julia
    from pybridge.julia._session import session

    if choose_julia().executable is None:
        return "no julia on PATH, and none of PYBRIDGE_JULIA, PYTHON_JULIAPKG_EXE is set"
    try:
        session()
    except BridgeError as error:
        return f"Julia did not start: {error}"
    return None


def is_required() -> bool:
    """Tell whether skipping for want of Julia is a failure."""
    from pybridge._config import setting

    return bool(setting("PYBRIDGE_REQUIRE_JULIA").value)
