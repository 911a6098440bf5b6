"""Have malloc keep memory that is freed for the arrays to come, and not give it back at once.

XLA calls Julia on threads of its own. glibc's malloc gives such a thread heaps of 64 MB each, and
returns those that have become empty: after a collection of Julia's garbage, most of them. The next
step of a training loop then gets them back from the system page by page. How to measure what that
takes is in docs/explanation/bridge.md.
"""

from __future__ import annotations

import ctypes
import os
import platform
import sys

from .._config import setting

_MB = 1 << 20

# The parameters of mallopt(3) by the variables that set them, with their numbers in <malloc.h>.
# malloc adjusts the thresholds of blocks that get a mapping of their own, and of free memory at a
# heap's end that it returns, until somebody sets one. These are the largest values that it comes to
# by itself (DEFAULT_MMAP_THRESHOLD_MAX, and twice that). An empty heap is returned where the one
# before it has more than the padding free at its end, which no heap of 64 MB has (HEAP_MAX_SIZE).
_PARAMETERS = {
    "MALLOC_MMAP_THRESHOLD_": (-3, 32 * _MB),
    "MALLOC_TRIM_THRESHOLD_": (-1, 64 * _MB),
    "MALLOC_TOP_PAD_": (-2, 64 * _MB),
}


def keep_freed_memory() -> None:
    """Tell malloc, for the whole process, unless there is a reason not to."""
    if why_not_kept() is None:
        libc = ctypes.CDLL(None)
        for number, value in _PARAMETERS.values():
            libc.mallopt(number, value)


def why_not_kept() -> str | None:
    """Tell why malloc is left as it is; None where it is told to keep what is freed."""
    if not setting("PYBRIDGE_KEEP_MEMORY").value:
        return "PYBRIDGE_KEEP_MEMORY is off"
    for name, value in os.environ.items():
        if name in _PARAMETERS or (name == "GLIBC_TUNABLES" and "glibc.malloc." in value):
            return f"somebody has tuned malloc: {name}={value}"
    if platform.libc_ver()[0] != "glibc" or sys.maxsize < 1 << 32:
        return "malloc is not that of glibc on 64 bits"
    return None
