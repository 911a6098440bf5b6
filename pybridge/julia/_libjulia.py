"""Julia's library as juliacall opens it: Zygote is loaded before PythonCall.

PythonCall adds methods to comparisons such as `>`, and Julia drops what the images of packages that
come after it have compiled without them. Zygote loses most: it writes pullbacks in generated
functions. Those run in the world in which Zygote was loaded, so the images of PyBridge's extensions
cannot have their code, and the first gradient would compile it for seconds. Where Zygote comes
first, there is no PythonCall in that world, and its own image holds. juliacall has no setting for
that.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator
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
