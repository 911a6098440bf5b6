"""How often `pb.check` is right: false alarms on right programs, planted faults that it finds.

Run as `python benchmarks/finite_faults.py`; `--count 100` is a shorter run, `--start 500` begins
with the programs of that number. All sets advance together, a line from time to time says how far
they are, and a run that is interrupted prints the figures of what it has seen. A number that is
printed as a false alarm or a miss leads back to its program: `--show smooth:17` prints it with
the report. `--family precision` runs one family alone: `rules` (`fault_programs.py`), `precision`
(`precision_programs.py`) or `solvers` (`solver_programs.py`).
"""

from __future__ import annotations

import argparse
import importlib
import multiprocessing
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

# Nearly all of the time is compiling: tiny programs, each of which runs once or a few times.
# Without optimisation they are compiled in half of the time.
FLAGS = "--xla_backend_optimization_level=0"

# JAX keeps all that it compiled until it is told not to. The single operations are of use again,
# the programs are not.
BATCH = 150
SHARE = 20  # What a process is given at once.
LINES = 50  # Programs between two lines that say how far it is.

# The sets of each family, right programs first, and the module that makes them.
FAMILIES = {
    "rules": ("smooth", "planted"),
    "precision": ("stable", "lossy"),
    "solvers": ("solvers", "broken_solvers"),
}
MODULES = {"rules": "fault_programs", "precision": "precision_programs",
           "solvers": "solver_programs"}  # fmt: skip
SETS = tuple(which for sets in FAMILIES.values() for which in sets)
RIGHT = frozenset(right for right, _ in FAMILIES.values())

# A fault is found where an error says that numbers are wrong. Not where a mode is missing: a
# custom_vjp has no forward mode, right or wrong.
WRONG = ("precision", "value", "reverse-forward", "minority", "finite", "second-order",
         "mode-dependent")  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    """What the check said about one program."""

    which: str
    number: int
    kind: str
    severities: dict[str, int]
    kinds: tuple[str, ...]
    make_seconds: float
    check_seconds: float


def one(which: str, seed: int, number: int):
    """Make a program and check it."""
    from pybridge.consistency import check
    from pybridge.finite import double_precision

    start = time.perf_counter()
    with double_precision():
        program = getattr(module_of(which), which)(seed, number)
        middle = time.perf_counter()
        report = check(program, *program.args, backends=("jax", "finite"), seed=number)
    return program, report, middle - start, time.perf_counter() - middle


def family_of(which: str) -> str:
    """Find the family that a set belongs to."""
    return next(name for name, sets in FAMILIES.items() if which in sets)


def module_of(which: str):
    """Import the module that makes the programs of a set."""
    return importlib.import_module(MODULES[family_of(which)])


def checks(which: str, seed: int, numbers: range) -> Iterator[Outcome]:
    """Check some programs of a set."""
    for number in numbers:
        program, report, made, checked = one(which, seed, number)
        kinds = tuple(f.kind for f in report.findings if f.severity == "error")
        counts = dict(report.counts())
        yield Outcome(which, number, program.kind, counts, kinds, made, checked)
        clear()


def clear() -> None:
    """Let JAX forget what it compiled, once in a while."""
    import jax

    global _checked
    _checked += 1
    if _checked % BATCH == 0:
        jax.clear_caches()


_checked = 0


def batch(which: str, seed: int, numbers: range) -> list[Outcome]:
    """Check some programs of a set, in a process of a pool."""
    return list(checks(which, seed, numbers))


def run(
    start: int, count: int, seed: int, processes: int, sets: tuple[str, ...] = SETS
) -> Iterator[Outcome]:
    """Check some sets in turn, by as many processes."""
    stop = start + count
    parts = [range(i, min(i + SHARE, stop)) for i in range(start, stop, SHARE)]
    tasks = [(which, part) for part in parts for which in sets]
    if processes == 1:
        for which, part in tasks:
            yield from checks(which, seed, part)
        return
    # Not forked: JAX runs here already.
    pool = ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"), ignore_interrupts)
    futures = [pool.submit(batch, which, seed, part) for which, part in tasks]
    try:
        for future in futures:
            yield from future.result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def ignore_interrupts() -> None:
    """Leave an interrupt to the process that prints."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def watched(outcomes: Iterator[Outcome], count: int) -> list[Outcome]:
    """Collect, naming what went wrong at once; return what there is when interrupted."""
    found: list[Outcome] = []
    start = time.perf_counter()
    try:
        for outcome in outcomes:
            found.append(outcome)
            if bad := complaint(outcome):
                print(f"{bad}  --show {outcome.which}:{outcome.number}", flush=True)
            if len(found) % LINES == 0:
                seconds = (time.perf_counter() - start) / len(found)
                print(f"{progress(found, count)}; {seconds:.2f} s each", flush=True)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    return found


def progress(found: list[Outcome], count: int) -> str:
    """Say how far the sets are and what was seen."""
    said = []
    for which in dict.fromkeys(outcome.which for outcome in found):
        part = [outcome for outcome in found if outcome.which == which]
        what = "false alarms" if which in RIGHT else "missed"
        said.append(f"{which} {len(part)}/{count}: {sum(map(bool, map(complaint, part)))} {what}")
    return ", ".join(said)


def complaint(outcome: Outcome) -> str:
    """Say what the check got wrong about a program; empty where nothing."""
    if outcome.which in RIGHT:
        return f"false alarm: {', '.join(outcome.kinds)}" if outcome.kinds else ""
    return "" if is_found(outcome) else f"missed: {outcome.kind}"


def is_found(outcome: Outcome) -> bool:
    """Tell whether a planted fault was seen."""
    return any(kind in WRONG for kind in outcome.kinds)


def main() -> None:
    """Print the two figures and what belongs to them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=1000, help="programs of each set")
    parser.add_argument("--start", type=int, default=0, help="the number of the first program")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--family", choices=FAMILIES, help="these programs alone")
    parser.add_argument("--show", metavar="SET:NUMBER", help="one program and its report")
    options = parser.parse_args()
    if options.show:
        which, _, number = options.show.partition(":")
        program, report, *_ = one(which, options.seed, int(number))
        print(program, "", *report.findings, sep="\n")
        return
    os.environ["XLA_FLAGS"] = f"{FLAGS} {os.environ.get('XLA_FLAGS', '')}".strip()
    # A run that is ended from outside says what it saw as well.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    start = time.perf_counter()
    sets = FAMILIES[options.family] if options.family else SETS
    outcomes = run(options.start, options.count, options.seed, options.processes, sets)
    found = watched(outcomes, options.count)
    print(f"seed {options.seed}, JAX's modes and finite differences")
    print(*figures(found), sep="\n")
    print(
        f"time: {time.perf_counter() - start:.0f} s with {options.processes} of "
        f"{os.cpu_count()} cores; {cost(found)}"
    )
    sys.stdout.flush()


def figures(outcomes: list[Outcome]) -> Iterator[str]:
    """Write the figures, and how the faults of each kind were found."""
    for family, (right, wrong) in FAMILIES.items():
        those = [outcome for outcome in outcomes if outcome.which == right]
        faulty = [outcome for outcome in outcomes if outcome.which == wrong]
        if not those and not faulty:
            continue
        alarms = [outcome for outcome in those if complaint(outcome)]
        warned = [outcome for outcome in those if outcome.severities.get("warning")]
        found = [outcome for outcome in faulty if is_found(outcome)]
        yield f"{family}: false alarms: {len(alarms)} of {len(those):,} right programs"
        yield f"  with a warning: {len(warned)}"
        share = f" ({len(found) / len(faulty):.1%})" if faulty else ""
        yield f"{family}: faults found: {len(found):,} of {len(faulty):,}{share}"
        for kind in module_of(right).FAULTS:
            group = [outcome for outcome in faulty if outcome.kind == kind]
            hits = [outcome for outcome in group if is_found(outcome)]
            said = Counter(next(k for k in outcome.kinds if k in WRONG) for outcome in hits)
            words = ", ".join(f"{name} {n}" for name, n in said.most_common())
            yield f"  {kind:<18}{len(hits):>4} of {len(group)}  ({words})"


def cost(outcomes: list[Outcome]) -> str:
    """Write how long a program takes on average."""
    number = max(len(outcomes), 1)
    made, checked = (sum(o.make_seconds for o in outcomes), sum(o.check_seconds for o in outcomes))
    return f"{checked / number:.2f} s a check, {made / number:.2f} s to make a program"


if __name__ == "__main__":
    main()
