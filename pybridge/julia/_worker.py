"""The one thread that enters Julia.

Julia starts on this thread and every call runs on it. The caller waits on a lock, which
Python can interrupt, so Ctrl-C reaches the main thread at once even while Julia works. While
the thread has nothing to do it is in Julia's GC-safe state, so that other threads that are in
Julia (XLA's, say) can collect garbage without it.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any

from .._errors import JuliaUnavailableError
from ._interrupt import interrupt_julia

# Julia's compiler recurses deeply; the default for threads may be as low as 512 KiB.
_STACK_BYTES = 64 * 1024 * 1024

# How long an interrupted call may take to stop before it counts as stuck, in seconds.
_PATIENCE = 2.0


class Job:
    """A call that waits for its turn on the worker."""

    __slots__ = ("done", "error", "result", "work")

    def __init__(self, work: Callable[[], Any]):
        """Keep the work; `done` is a lock that the worker releases."""
        self.work = work
        self.done = threading.Lock()
        self.done.acquire()
        self.result: Any = None
        self.error: BaseException | None = None


class Worker:
    """Run functions on one thread, in the order in which they arrive."""

    def __init__(self) -> None:
        """Start the thread."""
        self._jobs: queue.SimpleQueue[Job] = queue.SimpleQueue()
        self._stuck: Job | None = None
        previous = threading.stack_size(_STACK_BYTES)
        try:
            # A daemon: interpreter exit must not wait for a Julia call that never ends.
            self._thread = threading.Thread(target=self._loop, name="julia", daemon=True)
            self._thread.start()
        finally:
            threading.stack_size(previous)

    def _loop(self) -> None:
        while True:
            job = self._jobs.get()
            try:
                job.result = job.work()
            except BaseException as error:
                job.error = error
            finally:
                job.done.release()
                del job

    def call(self, work: Callable[[], Any]) -> Any:
        """Run `work` on the worker and wait for it.

        Args:
            work: a function without arguments.

        Returns:
            What it returned; what it raised is raised here.

        Raises:
            KeyboardInterrupt: at once on Ctrl-C; Julia is told to stop.
            JuliaUnavailableError: a call that was interrupted before is still running.
        """
        if threading.current_thread() is self._thread:
            return work()  # Julia called Python, and Python calls Julia again
        self._check_free()
        job = Job(work)
        self._jobs.put(job)
        try:
            job.done.acquire()
        except BaseException:
            interrupt_julia()
            if not job.done.acquire(timeout=_PATIENCE):
                self._stuck = job
            raise
        if job.error is not None:
            try:
                raise job.error
            finally:
                del job  # the traceback would keep the job, and the job the traceback
        return job.result

    def post(self, work: Callable[[], Any]) -> None:
        """Run `work` some time later, and wait for nothing. Safe in finalizers."""
        self._jobs.put(Job(work))

    def _check_free(self) -> None:
        stuck = self._stuck
        if stuck is None:
            return
        if not stuck.done.acquire(timeout=_PATIENCE):
            raise JuliaUnavailableError(
                "Julia is still running a call that was interrupted and does not stop (a loop "
                "without allocations cannot be stopped). Wait for it, or restart Python."
            )
        self._stuck = None
