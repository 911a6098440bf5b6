"""Whether the tests that need Julia can run here."""

from __future__ import annotations

import functools
import subprocess
from pathlib import Path

# Julia packages that tests alone use: Aqua looks PyBridge over, JLArrays stands in for a GPU.
TOOLS = ("Aqua", "JLArrays")


@functools.cache
def why_not() -> str | None:
    """Say why Julia cannot be used; None where it can.

    A Julia counts as found where it is on PATH or named by a setting. Nothing is downloaded for
    a test run: with neither, the tests are skipped.
    """
    from pybridge import BridgeError
    from pybridge.julia._locate import choose_julia
    from pybridge.julia._session import session

    try:
        choice = choose_julia()
        if choice.executable is None:
            return f"{choice.origin}; PYBRIDGE_JULIA and PYTHON_JULIAPKG_EXE are not set"
        session()
    except BridgeError as error:
        return f"Julia did not start: {error}"
    return None


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
