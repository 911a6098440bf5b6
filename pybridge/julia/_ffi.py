"""The handlers through which XLA calls Julia."""

from __future__ import annotations

import contextlib
import ctypes
import re
import threading

import jax

from .._config import setting
from .._errors import BridgeError
from ._library import exception_of
from ._session import session

TARGET = "pybridge_julia"

# XLA puts its own words before Julia's.
_THROWN = re.compile(r"Julia threw (\w+): (.*?)((?:\n  \S+ at \S+:\d+)*)\s*$", re.DOTALL)


def as_julia_error(error: BaseException) -> BaseException:
    """Turn XLA's error back into what Julia threw; return others as they are."""
    found = _THROWN.search(str(error))
    if found is None:
        return error
    kind, message, lines = found.groups()
    return exception_of(kind, message, lines.strip("\n"))


# XLA's names of the platforms that have a handler, by JAX's.
_PLATFORMS = {"cpu": "cpu", "cuda": "CUDA"}

_lock = threading.Lock()
_refusals: dict[str, str | None] = {}


def xla_calls_julia(platform: str) -> str | None:
    """Register a platform's handler with XLA, once. For `"cuda"`, load CUDA.jl.

    Args:
        platform: JAX's name for it, for example `"cpu"`.

    Returns:
        None where XLA calls Julia; else why it does not, and calls go through Python.
    """
    if not setting("PYBRIDGE_FFI").value:
        return "switched off by PYBRIDGE_FFI"
    if session().is_host:
        return "Julia is the host: a collection on XLA's threads would wait for the main one"
    if platform not in _PLATFORMS:
        return f"there is a way for CPUs and for NVIDIA's GPUs, and none for {platform}"
    if platform not in _refusals:
        # Not under the lock: Julia's thread may be waiting for it.
        refusal = _cuda_refusal() if platform == "cuda" else None
        with _lock:
            if platform not in _refusals:
                _refusals[platform] = refusal or _register(platform)
    return _refusals[platform]


def _register(platform: str) -> str | None:
    address = session().ffi_handlers[platform]
    handler = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(address)
    try:
        jax.ffi.register_ffi_target(
            TARGET, jax.ffi.pycapsule(handler), platform=_PLATFORMS[platform]
        )
    except Exception as error:  # whatever XLA has against it, Python can call Julia
        return f"XLA did not accept the handler: {error}"
    return None


def _cuda_refusal() -> str | None:
    """Load CUDA.jl; tell why it cannot be used."""
    try:
        session().require("CUDA")
        available = session().call(lambda library: library.request("device", "cuda"))
    except BridgeError as error:
        return str(error)
    if available == "true":
        # NNlib's convolutions on a GPU need it; what else runs there does not.
        with contextlib.suppress(BridgeError):
            session().require("cuDNN")
        return None
    return (
        "CUDA.jl is installed, and cannot use the GPU. In Julia, `using CUDA; "
        "CUDA.functional(true)` says why"
    )
