"""All suites at once: those that need no Julia run in a process of their own, beside the others."""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from .._backends import Backend
from .._errors import BridgeError
from ._suites import Progress, SuiteResult, suite


def run_suites(
    cases: dict[str, Sequence[Any]], systems: Sequence[Backend], progress: Progress
) -> dict[str, SuiteResult]:
    """Run suites.

    Args:
        cases: some cases of each suite, by its name.
        systems: AD systems as `prepare` returns them.
        progress: gets a line of text before each case.

    Returns:
        The results, in the order of `cases`.

    Raises:
        BridgeError: the other process has ended without an answer.
    """
    julia = any(system.available and system.language == "julia" for system in systems)
    plain = [name for name in cases if not suite(name).julia]
    beside = plain if julia and len(plain) < len(cases) else []
    here = [name for name in cases if name not in beside]
    wanted = {name: [case.name for case in cases[name]] for name in beside}
    with _started(wanted, systems) as answers:
        results = {name: suite(name).run(cases[name], systems, progress) for name in here}
        if beside:
            progress(f"waiting for {', '.join(beside)}")
            results |= answers()
    return {name: results[name] for name in cases}


@contextlib.contextmanager
def _started(
    wanted: dict[str, list[str]], systems: Sequence[Backend]
) -> Iterator[Callable[[], dict[str, SuiteResult]]]:
    """Start another process, and stop it at the end whatever happened."""
    # Not forked: threads of JAX and Julia would be lost in the copy.
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_answer, args=(theirs, wanted, systems), daemon=True)
    if wanted:
        process.start()
    theirs.close()

    def answers() -> dict[str, SuiteResult]:
        try:
            return ours.recv()
        except EOFError:
            process.join()
            raise BridgeError(
                f"pybridge check: the process of {', '.join(wanted)} ended with exit code "
                f"{process.exitcode}. Run these suites one by one: --suite {next(iter(wanted))}."
            ) from None

    try:
        yield answers
    finally:
        ours.close()
        if wanted:
            process.terminate()
            process.join()


def _answer(where: Any, wanted: dict[str, list[str]], systems: Sequence[Backend]) -> None:
    # Ctrl-C reaches both processes; the first one stops this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    results = {}
    for name, cases in wanted.items():
        one = suite(name)
        results[name] = one.run(one.select(cases), systems, lambda text: None)
    where.send(results)
