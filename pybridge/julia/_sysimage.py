"""A system image: Julia with PyBridge and the main environment already loaded and compiled.

`pybridge provision --sysimage` builds one, with Julia's PackageCompiler. Later processes start from
it where it fits: an image made for another Julia, other packages or another processor would crash
or answer with old code, so each of these is compared before Julia starts.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from .._config import setting
from .._errors import BackendNotLoadedError
from ._environments import Running, root
from ._locate import julia_source, julia_version

_IMAGE = {"darwin": "image.dylib", "win32": "image.dll"}.get(sys.platform, "image.so")
_MADE_OF = "made-of.json"

# What README does first; what Julia compiles for it goes into the image.
_CALLS = """
import jax, jax.numpy as jnp, numpy as np, pybridge as pb
jax.config.update("jax_enable_x64", True)
for dtype in (np.float32, np.float64):
    x = np.arange(1, 4, dtype=dtype)
    for backend in ("zygote", "forwarddiff"):
        f = pb.from_julia("x -> sum(abs2, x)", ad=backend)
        pb.value_and_grad(f)(x)
        jax.jit(jax.value_and_grad(f))(x)
        jax.jit(jax.grad(lambda x: jnp.sum(f(x) * x)))(x)
"""


class Image(NamedTuple):
    """Whether there is a system image to start from.

    Attributes:
        path: where it is; None where there is none that fits.
        note: what doctor says of it.
    """

    path: Path | None
    note: str


def find(executable: str, project: str) -> Image:
    """Look for a system image that fits. Julia is not started.

    Args:
        executable: the julia that will run.
        project: the main environment.
    """
    if not setting("PYBRIDGE_SYSIMAGE").value:
        return Image(None, "turned off by PYBRIDGE_SYSIMAGE")
    folder = _folder(project)
    try:
        made_of = json.loads((folder / _MADE_OF).read_text())
    except (OSError, ValueError):
        return Image(None, "none; `pybridge provision --sysimage` builds one, for a quicker start")
    now = _ingredients(executable, project)
    changed = [what for what in now if made_of.get(what) != now[what]]
    if changed:
        return Image(
            None,
            f"made for another {' and '.join(changed)}; `pybridge provision --sysimage` builds it "
            "anew",
        )
    return Image(folder / _IMAGE, "made by `pybridge provision --sysimage`")


def chosen(environment: Mapping[str, str]) -> Image:
    """Look for an image for the Julia that juliacall is about to start.

    Args:
        environment: the environment variables that it will read.
    """
    executable = environment.get("PYTHON_JULIACALL_EXE")
    project = environment.get("PYTHON_JULIACALL_PROJECT")
    if environment.get("PYTHON_JULIACALL_SYSIMAGE"):
        return Image(None, "PYTHON_JULIACALL_SYSIMAGE names one")
    if not (executable and project):
        import juliapkg

        executable, project = juliapkg.executable(), juliapkg.project()
    return find(executable, project)


def build(running: Running) -> Path:
    """Build the image for the Julia and the packages that this process uses.

    It takes minutes. Progress goes to the terminal.

    Args:
        running: the running Julia.

    Returns:
        Where the image is.

    Raises:
        BackendNotLoadedError: PackageCompiler cannot be installed, or there is no C compiler.
    """
    folder = _folder(running.project)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / _MADE_OF).unlink(missing_ok=True)
    made_of = _ingredients(running.executable, running.project)
    with tempfile.TemporaryDirectory() as temporary:
        statements = Path(temporary, "statements.jl")
        traced = {"PYTHON_JULIACALL_TRACE_COMPILE": str(statements), "PYBRIDGE_SYSIMAGE": "0"}
        subprocess.run([sys.executable, "-c", _CALLS], env={**os.environ, **traced}, check=True)
        command = [
            *(running.executable, f"--project={running.project}", "--startup-file=no"),
            *(str(julia_source() / "sysimage.jl"), str(folder), str(folder / _IMAGE)),
            *(str(statements), "true" if setting("PYBRIDGE_OFFLINE").value else "false"),
        ]
        done = subprocess.run(command, stdout=sys.stderr)
    if done.returncode:
        raise BackendNotLoadedError(
            f"The system image could not be built (Julia's output is above; exit status "
            f"{done.returncode}). It takes Julia's package PackageCompiler, which needs a network "
            "once, and a C compiler. Without an image everything works, and starts more slowly."
        )
    (folder / _MADE_OF).write_text(json.dumps(made_of, indent=1))
    # What other environments have compiled is not for this image.
    subprocess.run([sys.executable, "-c", "import pybridge as pb; pb.backends()"], check=True)
    return folder / _IMAGE


def _folder(project: str) -> Path:
    return root(project) / "sysimage"


def _ingredients(executable: str, project: str) -> dict[str, str]:
    """Say what an image depends on, in words that an error can use."""
    manifests = sorted(Path(project).glob("*.toml"))
    sources = sorted(path for path in julia_source().rglob("*") if path.suffix in (".jl", ".toml"))
    return {
        "Julia": ".".join(map(str, julia_version(executable) or ())),
        "set of packages": _digest(manifests),
        "version of pybridge": _digest(sources),
        "processor": _processor(),
    }


def _digest(paths: list[Path]) -> str:
    text = b"\0".join(path.read_bytes() for path in paths)
    return hashlib.sha256(text).hexdigest()


def _processor() -> str:
    """Name the processor and what it can do; code for one need not run on another."""
    try:
        lines = Path("/proc/cpuinfo").read_text().partition("\n\n")[0].splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    said = [line for line in lines if line.startswith(("model name", "flags", "Features", "CPU"))]
    return hashlib.sha256("\n".join(said).encode()).hexdigest()
