"""Julia's library, for what comes before PyBridge can be called: Zygote, and PyBridge itself.

juliacall's `Main` would evaluate it, too, but PythonCall compiles for seconds when it is first
used, and most programs never use it.

Zygote is loaded before PythonCall. PythonCall adds methods to comparisons such as `>`, and Julia
drops what the images of packages that come after it have compiled without them. Zygote loses most:
it writes pullbacks in generated functions. Those run in the world in which Zygote was loaded, so
the images of PyBridge's extensions cannot have their code, and the first gradient would compile it
for seconds. Where Zygote comes first, there is no PythonCall in that world, and its own image
holds. juliacall has no setting for that.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# What is evaluated when Julia has started and PythonCall is not loaded. Where the project has no
# Zygote, or it does not load, whoever needs it is told so then.
BEFORE_PYTHONCALL = [
    'let zygote = Base.identify_package("Zygote"); isnothing(zygote) || Base.require(zygote) end'
]


class _LibJulia(ctypes.PyDLL):
    def __getattr__(self, name: str) -> Any:
        function = super().__getattr__(name)
        # juliacall takes this function once, for loading PythonCall. ctypes keeps it for later.
        if name == "jl_eval_string" and self.jl_is_initialized():
            for source in BEFORE_PYTHONCALL:
                function(f"try {source} catch end".encode())
        return function


@contextlib.contextmanager
def zygote_first() -> Iterator[None]:
    """Within this, a Julia that juliacall starts loads Zygote before PythonCall."""
    original = ctypes.PyDLL
    ctypes.PyDLL = _LibJulia  # type: ignore[misc]
    try:
        yield
    finally:
        ctypes.PyDLL = original  # type: ignore[misc]


def _loaded() -> ctypes.PyDLL | None:
    """Return Julia's library, if it is loaded."""
    julia = ctypes.PyDLL(None)  # of all that was loaded for everybody, as juliacall loads Julia
    if not hasattr(julia, "jl_eval_string"):
        return None
    julia.jl_eval_string.restype = julia.jl_get_current_task.restype = ctypes.c_void_p
    julia.jl_string_ptr.argtypes = [ctypes.c_void_p]
    julia.jl_string_ptr.restype = ctypes.c_char_p
    return julia


# What a text begins with that says what Julia threw: "negative acknowledge".
_NAK = "\x15"


def evaluate(source: str) -> str:
    """Evaluate Julia source on this thread; Julia gets to know it, where it does not yet.

    Returns:
        What `string` makes of its value.

    Raises:
        RuntimeError: Julia threw; the message has the backtrace.
    """
    julia = _loaded()
    assert julia is not None, "Julia is evaluated before it is loaded"
    if not julia.jl_get_current_task():
        julia.jl_adopt_thread()
    value = julia.jl_eval_string(
        f"""try
            string({source})
        catch error
            "{_NAK}" * sprint(showerror, error, catch_backtrace())
        end""".encode()
    )
    if value is None:
        raise RuntimeError("InterruptException, before or after Julia could catch it")
    text = julia.jl_string_ptr(value).decode()
    if text.startswith(_NAK):
        raise RuntimeError(text.removeprefix(_NAK))
    return text


def include(path: Path) -> str:
    """Do what `evaluate` does with the source in a file."""
    name = ctypes.create_string_buffer(os.fsencode(path))
    return evaluate(f"include(unsafe_string(Ptr{{UInt8}}({ctypes.addressof(name)})))")


def leave_julia() -> None:
    """Let Julia, if it runs and knows this thread, do without it until it is called.

    Collections on other threads do not wait for it; calls into Julia leave that state and come
    back to it by themselves. And whichever thread waits runs Julia's event loop, as it does in a
    threaded region. Outside of one it is Julia's first thread alone, which waits for Python:
    `sleep` in a function that XLA calls would never end, nor would Julia when Python ends.
    """
    julia = _loaded()
    if julia is not None and julia.jl_get_current_task():
        julia.jl_enter_threaded_region()
        julia.jl_gc_safe_enter()


def keep_values(juliacall: Any) -> None:
    """Let Python free no value of juliacall's any more, for Julia is about to end.

    To free one, PythonCall calls Julia. Newer Julias, 1.12 among them, suspend their threads when
    they end (`jl_safepoint_suspend_all_threads` in src/init.c), wherever these are: one may hold a
    lock that the call needs, and Python, which frees juliacall's values last, would never end.
    """
    # Of this one all classes of values are made; its `tp_dealloc` is the fifth pointer of a type,
    # behind what each object has: `PyTypeObject` in CPython's cpython/object.h.
    base = type(juliacall.Main).__mro__[-2]
    place = id(base) + object.__basicsize__ + 4 * ctypes.sizeof(ctypes.c_void_p)
    # What nothing refers to any more gets a reference, and so stays.
    keep = ctypes.cast(ctypes.pythonapi.Py_IncRef, ctypes.c_void_p)
    ctypes.c_void_p.from_address(place).value = keep.value
