"""Wait for what JAX has begun to compute.

JAX returns before a compiled program has run, and the program's Python object may be gone by
then. What the run needs of Julia has to stay: until the arrays that existed when the object died
have their values. (A run whose results nobody holds any more may fail; nobody sees it.)

The thread that waits looks at the arrays from time to time. Inside `block_until_ready` it would be
in C++ without the interpreter lock, and when Python ends meanwhile, taking the lock again there
aborts the process.
"""

from __future__ import annotations

import atexit
import queue
import threading
from collections.abc import Callable
from typing import Any

import jax

# How long the thread waits between two looks, in seconds: at first, and at most.
_FIRST, _LONGEST = 0.001, 0.05

_waiting: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
_lock = threading.Lock()
_thread: threading.Thread | None = None
_ending = threading.Event()


def when_computed(work: Callable[[], None]) -> None:
    """Run `work` on a thread of its own when all arrays that exist now are computed.

    Safe in finalizers: what has to wait for locks is done on the thread. While Python ends, when
    there is nothing left to release, `work` is dropped.
    """
    if _ending.is_set():
        return
    _waiting.put(work)
    if _thread is None and _lock.acquire(blocking=False):
        try:
            _start()
        finally:
            _lock.release()


def _start() -> None:
    global _thread
    if _thread is None:
        _thread = threading.Thread(target=_loop, name="pybridge-release", daemon=True)
        _thread.start()


@atexit.register
def _end() -> None:
    """Let the thread come to its end before the interpreter does."""
    _ending.set()
    with _lock:
        thread = _thread
    if thread is not None:
        _waiting.put(lambda: None)  # wakes it
        thread.join()


def _loop() -> None:
    while not _ending.is_set():
        work = _waiting.get()
        if _all_are_computed():
            work()
        del work


def _all_are_computed() -> bool:
    """Wait for the arrays that exist now; False where Python ends before they are there."""
    pending = jax.live_arrays()
    pause = _FIRST
    while pending := [x for x in pending if not _is_done(x)]:
        if _ending.wait(pause):
            return False
        pause = min(2 * pause, _LONGEST)
    return True


def _is_done(x: Any) -> bool:
    try:
        return x.is_ready()
    except RuntimeError:  # deleted meanwhile
        return True
