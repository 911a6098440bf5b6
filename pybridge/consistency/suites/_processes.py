"""Run all suites; those that need no Julia run in a second process at the same time."""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ..._backends import Backend
from ..._errors import BridgeError
from .._rendering import Rendered
from ._suites import Progress, suite

# How often the first process looks how far the other one is, in seconds.
_LOOK = 0.5


def run_suites(
    cases: dict[str, Sequence[Any]], systems: Sequence[Backend], progress: Progress
) -> dict[str, Rendered]:
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
            results |= answers(progress)
    return {name: results[name] for name in cases}


@contextlib.contextmanager
def _started(
    wanted: dict[str, list[str]], systems: Sequence[Backend]
) -> Iterator[Callable[[Progress], dict[str, Rendered]]]:
    """Start another process, and stop it at the end whatever happened."""
    # Not forked: threads of JAX and Julia would be lost in the copy.
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    begun = context.Value("i", 0)
    arguments = (theirs, begun, wanted, systems)
    process = context.Process(target=_answer, args=arguments, daemon=True)
    if wanted:
        process.start()
    theirs.close()

    def answers(progress: Progress) -> dict[str, Rendered]:
        total = sum(map(len, wanted.values()))
        waiting = True
        while waiting:
            progress(f"{', '.join(wanted)}: {begun.value}/{total}")
            waiting = not ours.poll(_LOOK)
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


def _answer(
    where: Any, begun: Any, wanted: dict[str, list[str]], systems: Sequence[Backend]
) -> None:
    # Ctrl-C reaches both processes; the first one stops this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def count(_: str) -> None:
        begun.value += 1

    results = {}
    for name, cases in wanted.items():
        one = suite(name)
        results[name] = one.run(one.select(cases), systems, count)
    where.send(results)
