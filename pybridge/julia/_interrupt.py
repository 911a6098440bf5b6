"""Stop the Julia call that is running, from another thread.

Julia throws an InterruptException into its first thread when its own signal listener gets
SIGINT. The kernel gives a Ctrl-C to any thread that does not block SIGINT, which is Python's
main thread; so the signal has to be sent on to the listener, by thread number. On Linux the
listener can be found: it is the one thread that waits inside `sigtimedwait` or `sigwaitinfo`.
Elsewhere the running call goes on until its end.
"""

from __future__ import annotations

import ctypes
import os
import platform
import signal
import sys

# The numbers of rt_sigtimedwait and tgkill, by machine.
_SYSCALLS = {"x86_64": (128, 234), "aarch64": (137, 131)}


def interrupt_julia() -> bool:
    """Send SIGINT to Julia's signal listener.

    Returns:
        Whether the listener was found. The exception arrives when the running call next
        reaches a safepoint.
    """
    numbers = _SYSCALLS.get(platform.machine())
    if sys.platform != "linux" or numbers is None:
        return False
    sigtimedwait, tgkill = numbers
    syscall = ctypes.CDLL(None).syscall
    found = False
    for task in os.listdir("/proc/self/task"):
        if _waits_in(task, sigtimedwait):
            syscall(
                ctypes.c_long(tgkill),
                ctypes.c_long(os.getpid()),
                ctypes.c_long(int(task)),
                ctypes.c_long(signal.SIGINT),
            )
            found = True
    return found


def _waits_in(task: str, number: int) -> bool:
    try:
        with open(f"/proc/self/task/{task}/syscall") as file:
            return file.read().split()[0] == str(number)
    except (OSError, IndexError):
        return False  # the thread has ended, or the kernel does not tell
