"""Julia, started once, on first use."""

from __future__ import annotations

import atexit
import ctypes
import faulthandler
import gc
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from .._config import setting
from .._errors import BridgeError, JuliaForkError, JuliaUnavailableError
from . import _environments
from ._host import HostThread, julia_is_host
from ._interrupt import keep_sigint_handler
from ._libjulia import evaluate, include, keep_values, leave_julia, zygote_first
from ._library import Library, directly
from ._locate import choose_julia, for_juliapkg, julia_source
from ._malloc import keep_freed_memory
from ._sysimage import chosen
from ._worker import Worker, gc_safe_region

T = TypeVar("T")

# What juliacall has to be told before it starts Julia. With signals handled, a collection can
# stop threads that run Julia code; without, it crashes as soon as there are two. A second thread
# of Julia's own runs the tasks that a function called by XLA spawns or waits for.
_JULIACALL = {
    "PYTHON_JULIACALL_HANDLE_SIGNALS": "yes",
    "PYTHON_JULIACALL_THREADS": "2",
    "PYTHON_JULIACALL_AUTOLOAD_IPYTHON_EXTENSION": "no",
}

_WAYS_OUT = """\
What helps:
  - Julia absent: install it from https://julialang.org/downloads, so that `julia` is on PATH, or
    set PYBRIDGE_JULIA to its path. With a network, juliapkg installs one by itself.
  - No network: see "Offline use" in pybridge's documentation.
  - A package failed: `pybridge doctor` shows versions, paths and settings.
Without Julia, backend="jax" and backend="finite" work."""


class Session:
    """Julia with PyBridge loaded.

    Attributes:
        project: the main Julia environment.
        executable: the julia that belongs to it.
        ffi_handlers: the addresses of XLA's handlers, by JAX's names of platforms.
        is_host: whether this Python was started by a Julia program.
        julia_version: for example `"1.10.2"`.
    """

    def __init__(self) -> None:
        """Start Julia; `session()` is how everybody gets the one that there is."""
        self.is_host = julia_is_host()
        self._worker = HostThread() if self.is_host else Worker()
        self._packages: dict[str, str | BridgeError] = {}
        self._closed = False
        self._libjulia: Any = None
        self._own_threads = 0
        keep_freed_memory()
        if not self.is_host:
            _free_starting_thread()
        self._worker.call(self._start if self.is_host else self._start_and_leave)
        # After juliacall's own hook, so that it runs before: that one ends Julia.
        atexit.register(self._close)

    @property
    def julia(self) -> Any:
        """The module PyBridge as juliacall has it, for work on Julia's thread alone.

        PythonCall compiles for seconds when it is first used.
        """
        return sys.modules["juliacall"].Main.PyBridge

    def call(self, work: Callable[[Library], T]) -> T:
        """Run `work` on Julia's thread.

        Raises:
            JuliaForkError: this process was forked from one where Julia runs.
            KeyboardInterrupt: on Ctrl-C, at once.
        """
        if _forked:
            raise JuliaForkError(_FORKED)
        return self._worker.call(lambda: self._at_work(work))

    def _at_work(self, work: Callable[[Library], T]) -> T:
        # Not the library of a call further out, if Julia called the Python code that calls here:
        # what this call writes to the output would look like what that one expects.
        library = self._libraries.pop() if self._libraries else Library(self._functions, directly)
        try:
            return work(library)
        finally:
            self._libraries.append(library)

    def run(self, work: Callable[[Library], T]) -> T:
        """Do what `call` does, sooner; `work` may run on the caller's thread.

        Args:
            work: uses the library and nothing else of Julia's.

        Returns:
            What it returned.

        Raises:
            JuliaForkError: this process was forked from one where Julia runs.
            KeyboardInterrupt: on Ctrl-C, at once.
        """
        worker = self._worker
        if isinstance(worker, Worker) and not _forked and worker.sending.acquire(blocking=False):
            try:
                if worker.is_ready():
                    return work(self._distant)
            finally:
                worker.sending.release()
        return self.call(work)

    def post(self, work: Callable[[Library], None]) -> None:
        """Run `work` on Julia's thread some time later. Safe in finalizers."""
        if not (_forked or self._closed):
            self._worker.post(lambda: self._at_work(work))

    def require(self, package: str) -> str:
        """Load a Julia package, installing it where it has an environment of its own.

        Args:
            package: for example `"Zygote"`.

        Returns:
            The version that is loaded.

        Raises:
            BackendNotLoadedError: it cannot be installed or loaded; the reason is remembered.
        """
        known = self._packages.get(package)
        if known is None:
            try:
                known = _environments.load(self, package)
            except BridgeError as error:
                known = error
            self._packages[package] = known
        if isinstance(known, BridgeError):
            raise type(known)(*known.args)
        return known

    def _close(self) -> None:
        """Let the worker finish what it has, and give it nothing more."""
        self._closed = True
        if not _forked:
            try:
                self._worker.call(self._worker.close)
            except JuliaUnavailableError:
                # A call that does not stop must not keep Python from ending. Julia would wait for
                # it, so juliacall's hook, which ends Julia, gets a function that does nothing.
                self._libjulia.jl_atexit_hook = ctypes.CFUNCTYPE(None, ctypes.c_int)(lambda _: None)
            if self._libjulia is not None:
                keep_values(sys.modules["juliacall"])
            if hasattr(self._libjulia, "jl_safepoint_resume_thread"):
                # Python's last collection comes after all hooks, juliacall's among them, and frees
                # XLA's client, which waits for its threads.
                gc.callbacks.append(self._let_adopted_threads_end)

    def _let_adopted_threads_end(self, *_: object) -> None:
        """Resume the threads that Julia did not start.

        Newer Julias, 1.12 among them, suspend every thread when they end
        (`jl_safepoint_suspend_all_threads` in src/init.c), and a thread that has been in Julia
        has to come by there once more to end.
        """
        threads = ctypes.c_int.in_dll(self._libjulia, "jl_n_threads").value
        for thread in range(self._own_threads, threads):
            self._libjulia.jl_safepoint_resume_thread(thread)

    def _start_and_leave(self) -> None:
        """Start Julia on this thread, and take it out of Julia until it is called."""
        try:
            self._start()
        finally:
            leave_julia()

    def _start(self) -> None:
        """Start Julia on this thread, unless it is the host, and load PyBridge."""
        if self.is_host:
            juliacall = sys.modules["juliacall"]
        else:
            with keep_sigint_handler():
                juliacall = _import_juliacall()
        try:
            addresses = map(int, include(julia_source() / "start.jl").split())
        except RuntimeError as error:
            raise JuliaUnavailableError(
                f"Julia runs, but PyBridge did not load:\n{error}\n{_WAYS_OUT}"
            ) from None
        *self._functions, cpu, cuda, serve, sigatomic_begin, enter, leave, task = addresses
        self.ffi_handlers = {"cpu": cpu, "cuda": cuda}
        library = Library(self._functions, directly)
        self._libraries = [library]
        if isinstance(self._worker, HostThread):
            evaluate("PyBridge.be_host()")
            self.project = evaluate("dirname(Base.active_project())")
            self.executable = evaluate('joinpath(Sys.BINDIR, "julia")')
        else:
            evaluate("PyBridge.be_guest()")
            # An interrupt waits for a call that can catch it; see boundary.jl.
            ctypes.CFUNCTYPE(None)(sigatomic_begin)()
            self._distant = Library(self._functions, self._worker.send)
            self.project = str(juliacall.CONFIG["project"])
            self.executable = str(juliacall.CONFIG["exepath"])
            self._libjulia = juliacall.CONFIG["lib"]
            self._own_threads = int(evaluate("Base.Threads.maxthreadid()"))
        self.julia_version = library.request("version")
        limit = setting("PYBRIDGE_PULLBACK_BYTES").value
        if limit is not None:
            library.request("limit_pullbacks", limit)
        if isinstance(self._worker, Worker):
            self._worker.open_mailbox(serve, gc_safe_region(enter, leave, task))


def _free_starting_thread() -> None:
    """Where juliacall was imported before, take the thread that did it out of Julia.

    That is Python's main thread, as a rule. It is in Julia's list of threads and would keep every
    collection on the worker waiting.

    Raises:
        JuliaUnavailableError: this is another thread, and only that one can do it.
    """
    started = sys.modules.get("juliacall")
    if started is None or not started.CONFIG.get("inited"):
        return
    if threading.current_thread() is not threading.main_thread():
        raise JuliaUnavailableError(
            "juliacall was imported before pybridge started Julia, and pybridge was first used "
            "on another thread than the main one. Use pybridge once on the main thread, for "
            "example pb.backends(), or use it before juliacall is imported."
        )
    # Julia's start took Ctrl-C away from this thread, too.
    signal.signal(signal.SIGINT, signal.getsignal(signal.SIGINT))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    leave_julia()


def _import_juliacall() -> Any:
    """Import juliacall the way pybridge needs it.

    Raises:
        JuliaUnavailableError: it was imported before with other settings, or fails.
    """
    started = sys.modules.get("juliacall")
    if started is not None and started.CONFIG.get("inited"):
        if started.CONFIG.get("opt_handle_signals") != "yes":
            raise JuliaUnavailableError(
                "juliacall was imported before pybridge started Julia, without "
                "PYTHON_JULIACALL_HANDLE_SIGNALS=yes. With that setting missing, a garbage "
                "collection in Julia crashes or hangs as soon as two threads are in Julia. "
                "Use pybridge before juliacall is imported, or set "
                "PYTHON_JULIACALL_HANDLE_SIGNALS=yes before Python starts."
            )
        return started
    choice = choose_julia()
    wanted = {**_JULIACALL, **for_juliapkg(choice)}
    if os.environ.get("PYTHON_JULIACALL_HANDLE_SIGNALS", "yes") != "yes":
        raise JuliaUnavailableError(
            "PYTHON_JULIACALL_HANDLE_SIGNALS has to be yes for pybridge, got "
            f"{os.environ['PYTHON_JULIACALL_HANDLE_SIGNALS']!r}. Unset it, or set it to yes."
        )
    missing = {name: value for name, value in wanted.items() if name not in os.environ}
    os.environ.update(missing)
    try:
        image = chosen(os.environ).path
        if image is not None:
            missing["PYTHON_JULIACALL_SYSIMAGE"] = str(image)
            os.environ.update(missing)
        # Whoever disables it after Julia's start, as pytest does when it ends, puts back the
        # handlers from before. Julia's collections stop threads by SIGSEGV; they would crash.
        faulthandler.disable()
        with zygote_first():
            import juliacall
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        # A module that failed halfway must not look like one that is there.
        sys.modules.pop("juliacall", None)
        raise JuliaUnavailableError(
            f"Julia could not be started ({choice.origin}).\n"
            f"What happened: {type(error).__name__}: {error}\n{_WAYS_OUT}"
        ) from error
    finally:
        # Meant for juliacall alone, not for the processes that this one starts.
        for name in missing:
            os.environ.pop(name, None)
    return juliacall


_lock = threading.Lock()
_session: Session | None = None
_failure: JuliaUnavailableError | None = None
_forked = False

_FORKED = (
    "Julia was started before this process was forked, and a fork does not carry Julia's "
    "threads. Start processes with multiprocessing.get_context('spawn'), or fork before the "
    "first use of Julia."
)


def session() -> Session:
    """Get the running Julia; start it the first time.

    Raises:
        JuliaUnavailableError: Julia cannot be started. The reason is remembered: the next call
            fails at once.
        JuliaForkError: this process was forked from one where Julia runs.
    """
    global _session, _failure
    if _forked:
        raise JuliaForkError(_FORKED)
    if _session is not None:
        return _session
    with _lock:
        if _failure is not None:
            raise type(_failure)(*_failure.args)
        if _session is None:
            try:
                _session = Session()
            except BridgeError as error:
                _failure = (
                    error
                    if isinstance(error, JuliaUnavailableError)
                    else JuliaUnavailableError(str(error))
                )
                raise _failure from error.__cause__
        return _session


def is_started() -> bool:
    """Tell whether Julia runs in this process."""
    return _session is not None and not _forked


def _after_fork() -> None:
    global _forked, _lock
    _forked = _session is not None
    _lock = threading.Lock()  # a thread that is gone may have held it


os.register_at_fork(after_in_child=_after_fork)
