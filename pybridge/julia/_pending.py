"""Wait for what JAX has begun to compute.

JAX returns before a compiled program has run, and the program's Python object may be gone by
then. What the run needs of Julia has to stay: until the arrays that existed when the object died
have their values. (A run whose results nobody holds any more may fail; nobody sees it.)
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable
from typing import Any

import jax

_waiting: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
_lock = threading.Lock()
_thread: threading.Thread | None = None


def when_computed(work: Callable[[], None]) -> None:
    """Run `work` on a thread of its own when all arrays that exist now are computed.

    Safe in finalizers: what has to wait for locks is done on the thread.
    """
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


def _loop() -> None:
    while True:
        work = _waiting.get()
        _wait_for_arrays()
        work()
        del work


def _wait_for_arrays() -> None:
    pending: list[Any] = [x for x in jax.live_arrays() if not x.is_deleted()]
    while pending:
        x = pending.pop()
        # What failed, or was deleted meanwhile, is not pending any more.
        with contextlib.suppress(Exception):
            x.block_until_ready()
