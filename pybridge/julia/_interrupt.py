"""Ctrl-C: it stays Python's, and is passed on to the Julia call that is running.

The kernel gives a Ctrl-C to a thread that does not block SIGINT, which is Python's main
thread. Julia throws an InterruptException into its first thread, the worker, when its own
signal listener gets SIGINT; so it has to be sent on to the listener, by thread number. On
Linux the listener can be found: it is the thread that waits inside `sigwaitinfo`. Elsewhere a
call that was interrupted goes on until its end.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import signal
import sys
import time
from collections.abc import Iterator

# The numbers of rt_sigtimedwait, which is sigwaitinfo's, and of tgkill, by machine.
_SYSCALLS = {"x86_64": (128, 234), "aarch64": (137, 131)}

# How long Julia's listener may take to look at a signal, in seconds.
_HANDOVER = 0.05

_julia_handler: int | None = None


def _get_handler() -> int | None:
    ctypes.pythonapi.PyOS_getsig.restype = ctypes.c_void_p
    return ctypes.pythonapi.PyOS_getsig(signal.SIGINT)


def _set_handler(handler: int | None) -> None:
    # The C function, because `signal.signal` works on the main thread only, and Julia may be
    # started and interrupted from any.
    ctypes.pythonapi.PyOS_setsig.argtypes = [ctypes.c_int, ctypes.c_void_p]
    ctypes.pythonapi.PyOS_setsig(signal.SIGINT, handler)


@contextlib.contextmanager
def keep_sigint_handler() -> Iterator[None]:
    """Put back Python's C handler for SIGINT, which Julia's start replaces by its own."""
    global _julia_handler
    python_handler = _get_handler()
    try:
        yield
    finally:
        _julia_handler = _get_handler()
        _set_handler(python_handler)


def interrupt_julia() -> bool:
    """Make Julia throw an InterruptException in the call that is running.

    Returns:
        Whether the listener was found. The exception comes when the call next reaches a
        safepoint: an allocation, a call, a wait.
    """
    numbers = _SYSCALLS.get(platform.machine())
    if sys.platform != "linux" or numbers is None or _julia_handler is None:
        return False
    sigwaitinfo, tgkill = numbers
    listeners = [t for t in os.listdir("/proc/self/task") if _waits_in(t, sigwaitinfo)]
    # Before it acts, the listener raises the signal once more, to see whether Julia's own
    # handler is there.
    python_handler = _get_handler()
    _set_handler(_julia_handler)
    try:
        for thread in listeners:
            ctypes.CDLL(None).syscall(
                ctypes.c_long(tgkill),
                ctypes.c_long(os.getpid()),
                ctypes.c_long(int(thread)),
                ctypes.c_long(signal.SIGINT),
            )
        time.sleep(_HANDOVER)
    finally:
        _set_handler(python_handler)
    return bool(listeners)


def _waits_in(thread: str, number: int) -> bool:
    try:
        with open(f"/proc/self/task/{thread}/syscall") as file:
            return file.read().split()[0] == str(number)
    except (OSError, IndexError):
        return False  # the thread has ended, or the kernel does not tell
