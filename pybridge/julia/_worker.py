"""The one thread that enters Julia.

Julia starts on this thread and every call runs on it. The caller waits on a lock, which
Python can interrupt, so Ctrl-C reaches the main thread at once even while Julia works. While
the thread has nothing to do it is in Julia's GC-safe state, so that other threads that are in
Julia (XLA's, say) can collect garbage without it.

Work comes to the thread in two ways. Any Python function goes through a queue. To wake a thread
and to hand over the interpreter lock takes longer than most gradients, though. So after each
job the thread stays awake inside Julia for a moment and watches a mailbox (`c_serve` in
boundary.jl), and a caller that finds it awake puts a C function and its arguments there, and
watches for the answer, awake too. Whoever has watched for long enough goes to sleep, and the
queue takes over: a job in it has the request answered, if it still is not.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import queue
import threading
import time
from array import array
from collections.abc import Callable, Iterator
from typing import Any

from .._errors import JuliaUnavailableError
from ._interrupt import interrupt_julia

# Julia's compiler recurses deeply; the default for threads may be as low as 512 KiB.
_STACK_BYTES = 64 * 1024 * 1024

# How long an interrupted call may take to stop before it counts as stuck, in seconds.
_PATIENCE = 2.0

# How long an interrupted call may take to end before Julia is told to stop, in seconds.
_SHORT = 0.02

# How long the worker stays awake for the next request, in nanoseconds.
_SERVES = 200_000

# How long a caller watches for the answer: at first with the interpreter lock, which costs other
# Python threads that much, then giving way between looks. In nanoseconds.
_HOLDS, _WATCHES = 10_000, 2_000_000

# Where things are in the mailbox, as in boundary.jl, where the first place is 1.
_REQUESTED, _FUNCTION, _LEAVE, _ANSWERED, _STATUS, _SERVING = 0, 1, 5, 8, 9, 10

_KEEPS_ORDER = platform.machine().lower() in ("x86_64", "amd64")
_give_way = getattr(os, "sched_yield", lambda: time.sleep(0))


def _order_memory() -> None:
    """Keep the processor from moving what is before this behind what comes after.

    x86 does not move stores among themselves nor loads among themselves. ARM does, but not across
    the mutex of the interpreter lock, which is given up and taken again here.
    """
    if not _KEEPS_ORDER:
        _give_way()


class Job:
    """A call that waits for its turn on the worker."""

    __slots__ = ("done", "ended", "error", "result", "work")

    def __init__(self, work: Callable[[], Any]):
        """Keep the work; `done` is a lock that the worker releases."""
        self.work = work
        self.done = threading.Lock()
        self.done.acquire()
        self.result: Any = None
        self.error: BaseException | None = None
        self.ended = False

    def ends_within(self, seconds: float) -> bool:
        """Wait for the end. An interrupt may have struck just when the lock was acquired."""
        return self.ended or self.done.acquire(timeout=seconds)


class Worker:
    """Run functions on one thread, in the order in which they arrive.

    Attributes:
        sending: the lock that a thread holds while the mailbox is its own.
    """

    def __init__(self) -> None:
        """Start the thread."""
        self._jobs: queue.SimpleQueue[Job] = queue.SimpleQueue()
        self._stuck: Job | None = None
        self._mailbox = array("q", bytes(8 * 16))
        self._serve: Callable[[int], int]
        self._outside_julia: Callable[[], Any] = contextlib.nullcontext
        self._stays_awake = False
        self._sent: Any = None
        self.sending = threading.Lock()
        previous = threading.stack_size(_STACK_BYTES)
        try:
            # A daemon: interpreter exit must not wait for a Julia call that never ends.
            self._thread = threading.Thread(target=self._loop, name="julia", daemon=True)
            self._thread.start()
        finally:
            threading.stack_size(previous)

    def _loop(self) -> None:
        while True:
            self._mailbox[_LEAVE] = 0
            if self._stays_awake and self._jobs.empty():
                self._serve(_SERVES)
            job = self._jobs.get()
            try:
                job.result = job.work()
            except BaseException as error:
                job.error = error
            finally:
                job.ended = True
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
        job = self._put(work)
        try:
            with self._outside_julia():
                job.done.acquire()
        except BaseException:
            self._stop(job)
            raise
        if job.error is not None:
            try:
                raise job.error
            finally:
                del job  # the traceback would keep the job, and the job the traceback
        return job.result

    def post(self, work: Callable[[], Any]) -> None:
        """Run `work` some time later, and wait for nothing. Safe in finalizers."""
        self._put(work)

    def open_mailbox(self, serve: int, outside_julia: Callable[[], Any]) -> None:
        """From now on stay awake after each job. Called on the worker.

        Args:
            serve: the address of `c_serve`.
            outside_julia: makes the context in which a caller goes to sleep.
        """
        function = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)(serve)
        address = self._mailbox.buffer_info()[0]
        self._serve = lambda patience: function(address, patience)
        self._outside_julia = outside_julia
        # On a single processor, who watches keeps the other from working.
        self._stays_awake = _cpus() > 1

    def close(self) -> None:
        """Do not stay awake any more. Called on the worker."""
        self._stays_awake = False

    def is_ready(self) -> bool:
        """Tell whether the worker watches the mailbox, so that `send` is the quick way."""
        mailbox = self._mailbox
        return bool(
            mailbox[_SERVING]
            and mailbox[_ANSWERED] == mailbox[_REQUESTED]  # else one was interrupted and runs
            and threading.get_ident() != self._thread.ident
        )

    def send(self, function: int, first: int, second: int, third: int, keep: Any) -> int:
        """Have the worker call a C function, and wait for it; this thread holds `sending`.

        Args:
            function: its address.
            first: its first argument.
            second: its second argument.
            third: its third argument.
            keep: what has to stay in memory until it has ended.

        Returns:
            What it returned.

        Raises:
            KeyboardInterrupt: at once on Ctrl-C; Julia is told to stop.
        """
        mailbox = self._mailbox
        number = mailbox[_REQUESTED] + 1
        self._sent = keep
        mailbox[_FUNCTION] = function
        mailbox[_FUNCTION + 1] = first
        mailbox[_FUNCTION + 2] = second
        mailbox[_FUNCTION + 3] = third
        _order_memory()
        try:
            mailbox[_REQUESTED] = number
            self._watch(number)
            if mailbox[_ANSWERED] != number:
                with self._outside_julia():
                    self._put(self._answer).done.acquire()
        except BaseException:
            # It may be over, or not have reached Julia: the end of a job behind it tells.
            self._stop(self._put(self._answer))
            raise
        _order_memory()
        self._sent = None
        return mailbox[_STATUS]

    def _watch(self, number: int) -> None:
        mailbox = self._mailbox
        start = time.perf_counter_ns()
        while mailbox[_ANSWERED] != number and mailbox[_SERVING]:
            watched = time.perf_counter_ns() - start
            if watched > _WATCHES:
                return
            if watched > _HOLDS:
                _give_way()

    def _answer(self) -> None:
        """Answer the request in the mailbox unless that has been done."""
        self._serve(0)

    def _put(self, work: Callable[[], Any]) -> Job:
        job = Job(work)
        self._jobs.put(job)
        self._mailbox[_LEAVE] = 1  # Julia lets the worker go back to the queue
        return job

    def _stop(self, job: Job) -> None:
        """Stop what the worker does up to the end of a job that nobody waits for any more."""
        if job.ends_within(_SHORT):
            return
        interrupt_julia()
        if not job.ends_within(_PATIENCE):
            self._stuck = job
        self.post(self._answer)  # takes an interrupt that came too late

    def _check_free(self) -> None:
        stuck = self._stuck
        if stuck is None:
            return
        if not stuck.ends_within(_PATIENCE):
            raise JuliaUnavailableError(
                "Julia is still running a call that was interrupted and does not stop (a loop "
                "without allocations cannot be stopped). Wait for it, or restart Python."
            )
        self._stuck = None


def gc_safe_region(
    enter: int, leave: int, current_task: int
) -> Callable[[], contextlib.AbstractContextManager[None]]:
    """Make contexts in which collections do not wait for this thread, if it is in Julia.

    That is where juliacall called Julia, and Julia this Python code. A collection that the worker
    starts would wait for the thread, and the thread waits for the worker.

    Args:
        enter: the address of Julia's `jl_gc_safe_enter`.
        leave: that of `jl_gc_safe_leave`.
        current_task: that of `jl_get_current_task`: null on a thread that Julia does not know.
    """
    # These keep the interpreter lock: waiting for it inside Julia would keep collections waiting.
    is_known = ctypes.PYFUNCTYPE(ctypes.c_void_p)(current_task)
    go_out = ctypes.PYFUNCTYPE(ctypes.c_int8)(enter)
    come_back = ctypes.PYFUNCTYPE(None, ctypes.c_int8)(leave)

    @contextlib.contextmanager
    def region() -> Iterator[None]:
        if not is_known():
            yield
            return
        state = go_out()
        try:
            yield
        finally:
            come_back(state)

    return region


def _cpus() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
