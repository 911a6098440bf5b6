"""Julia as the process that Python was started in, by PythonCall.

Julia and Python then share the main thread already. Nothing is started, no signal changes hands,
and calls run where they are made; the thread is inside Julia, so it never goes into the GC-safe
state.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from .._errors import JuliaUnavailableError


def julia_is_host() -> bool:
    """Tell whether this Python was started by a Julia program."""
    juliacall = sys.modules.get("juliacall")
    return juliacall is not None and juliacall.CONFIG.get("init") is False


class HostThread:
    """Run functions at once, on the thread of Julia's that Python was first used on.

    It stands in for `Worker`.
    """

    def __init__(self) -> None:
        """Remember the thread."""
        self._thread = threading.get_ident()
        self._later: deque[Callable[[], Any]] = deque()

    def call(self, work: Callable[[], Any]) -> Any:
        """Run `work` and return what it returns.

        Raises:
            JuliaUnavailableError: this is another thread. A collection that it starts would wait
                for the first one, which may be waiting for it in Python.
        """
        if threading.get_ident() != self._thread:
            raise JuliaUnavailableError(
                "In a Julia program, pybridge enters Julia only from the thread on which it was "
                "first used. Call the function there, or run Python as the main program."
            )
        while self._later:
            self._later.popleft()()
        return work()

    def post(self, work: Callable[[], Any]) -> None:
        """Run `work` before the next call. Safe in finalizers."""
        self._later.append(work)

    def close(self) -> None:
        """Nothing has to be ended: the thread is Julia's own."""
