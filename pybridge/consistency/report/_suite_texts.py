"""What the suites answered in words, the same on every kind of report."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .._wording import count, numbers, reasons_of, sentence
from ..findings import SEVERITIES, Report
from ..suites import (
    BAD,
    STATUSES,
    Answer,
    LayerRow,
    LibraryResult,
    ModeAnswer,
    Run,
    Scenario,
)
from ._vocabulary import IN_CHECK, IN_SUITES

# For one and for several; the last two are counted only where there are any.
_COUNTED = {
    "right": ("right", "right"),
    "convention": ("convention", "conventions"),
    "known": ("known failure", "known failures"),
    "wrong": ("wrong", "wrong"),
    "absent": ("absent", "absent"),
    "unsupported": ("unsupported", "unsupported"),
    "error": ("error", "errors"),
}
_ONLY_IF_ANY = ("unsupported", "error")

# Where the numbers in `thread` lead.
_REPOSITORIES = {
    "ChainRulesCore": "JuliaDiff/ChainRulesCore.jl",
    "ForwardDiff": "JuliaDiff/ForwardDiff.jl",
    "JAX": "jax-ml/jax",
    "NNlib": "FluxML/NNlib.jl",
    "PennyLane": "PennyLaneAI/pennylane",
    "Zygote": "FluxML/Zygote.jl",
    "neural-tangents": "google/neural-tangents",
    "tesseract-jax": "pasteurlabs/tesseract-jax",
}


@dataclass(frozen=True)
class Note:
    """Why some answers are not simply right.

    Attributes:
        status: one of `STATUSES`.
        reason: one or two sentences.
        scenarios: the names of the scenarios that it is about.
        systems: the names of the systems, with the mode where the other mode differs.
    """

    status: str
    reason: str
    scenarios: tuple[str, ...]
    systems: tuple[str, ...]


def expected(scenario: Scenario) -> str:
    """Write the derivative that a scenario expects, or the derivatives at its kink."""
    if scenario.subdifferential is None:
        return numbers(scenario.derivative)
    low, high = scenario.subdifferential
    return f"any from {numbers(low)} to {numbers(high)}"


def differs(answer: Answer) -> bool:
    """Say whether the two modes of a system give answers of different status."""
    return len({mode.status for mode in answer.modes}) > 1


def special(scenario: Scenario, answer: Answer) -> str:
    """Write what is special about an answer: the error, the value or the derivative."""
    if answer.status in ("right", "absent"):
        return ""
    mode = next(mode for mode in answer.modes if mode.status == answer.status)
    if mode.error is not None:
        detail = mode.error
    elif _same(mode.derivative, scenario.derivative):
        detail = f"f={numbers(mode.value)}"
    else:
        detail = numbers(mode.derivative)
    return f"{detail} {mode.mode[:3]}" if differs(answer) else detail


def describe(scenario: Scenario, mode: ModeAnswer) -> str:
    """Write an answer in full: value and derivative, and what they should be."""
    if mode.error is not None:
        return f"{mode.error}: {mode.message.splitlines()[0] if mode.message else ''}"
    value = f"value {numbers(mode.value)}"
    if not _same(mode.value, scenario.value):
        value += f" (expected {numbers(scenario.value)})"
    derivative = f"derivative {numbers(mode.derivative)}"
    if not _same(mode.derivative, scenario.derivative):
        derivative += f" (expected {expected(scenario)})"
    return f"{value}, {derivative}"


def notes(run: Run) -> list[Note]:
    """Collect why answers are not simply right, the worst first, each reason once."""
    found: dict[tuple[str, str], tuple[dict[str, None], dict[str, None]]] = {}
    for scenario in run.scenarios:
        for answer in run.row(scenario):
            for mode in answer.modes:
                if mode.status == "right":
                    continue
                reason = mode.reason
                if mode.status in BAD:
                    told = describe(scenario, mode), mode.reason
                    reason = "; ".join(filter(None, told))
                label = answer.system + (f" ({mode.mode})" if differs(answer) else "")
                names, systems = found.setdefault((mode.status, sentence(reason)), ({}, {}))
                names[scenario.name] = systems[label] = None
    order = sorted(found.items(), key=lambda item: -STATUSES.index(item[0][0]))
    return [
        Note(status, reason, tuple(names), tuple(systems))
        for (status, reason), (names, systems) in order
    ]


def surprises(run: Run) -> list[str]:
    """List answers that are better than documented, which makes the table outdated."""
    return [
        f"{answer.scenario}, {answer.system}: {surprise}"
        for answer in run.answers.values()
        for surprise in answer.surprises
    ]


def absences(run: Run) -> list[tuple[list[str], str]]:
    """List reasons for absence, each with the systems that share it."""
    return reasons_of(s for s in run.systems if run.counts(s.name)["absent"])


def summary(run: Run) -> str:
    """Write the counts: `7 right, 1 convention, 2 known failures, 0 wrong, 0 absent`."""
    counts = run.counts()
    parts = [
        f"{counts[status]} {words[counts[status] != 1]}"
        for status, words in _COUNTED.items()
        if counts[status] or status not in _ONLY_IF_ANY
    ]
    return ", ".join(parts)


def link(thread: str) -> str | None:
    """Find the address of a thread such as `JAX #347`; None if it has none."""
    match = re.match(r"(\S+) #(\d+)", thread)
    if match is None or match[1] not in _REPOSITORIES:
        return None
    return f"https://github.com/{_REPOSITORIES[match[1]]}/issues/{match[2]}"


def groups(run: Run) -> list[tuple[str, list[Scenario]]]:
    """Put the scenarios under their headings, in the order of the table."""
    headings: dict[str, list[Scenario]] = {}
    for scenario in run.scenarios:
        headings.setdefault(scenario.group, []).append(scenario)
    return list(headings.items())


def _same(got: np.ndarray | None, want: np.ndarray | None) -> bool:
    if got is None or want is None:
        return got is want
    return bool(np.allclose(got, want, rtol=1e-6, atol=1e-6, equal_nan=True))


def layer_reasons(rows: Sequence[LayerRow]) -> list[str]:
    """List what is not right, with the reason."""
    return list(
        dict.fromkeys(
            f"{case.title}, {dtype}, {system}: {answer.reason or answer.status}"
            for case, dtype, answers in rows
            for system, answer in answers.items()
            if answer.status in ("known", *BAD)
        )
    )


def layer_summary(rows: Sequence[LayerRow]) -> str:
    """Count the answers."""
    counts = Counter(a.status for _, _, answers in rows for a in answers.values())
    return ", ".join(
        f"{counts[name]} {status.meaning}" for name, status in IN_SUITES.items() if counts[name]
    )


def layers_ok(rows: Sequence[LayerRow]) -> bool:
    """Whether no answer is wrong and nothing failed."""
    return not any(a.status in BAD for _, _, answers in rows for a in answers.values())


def asked_functions(result: LibraryResult, verbose: bool) -> list[tuple[str, Report]]:
    return [(name, r) for name, r in result.reports.items() if verbose or r.findings]


def without_findings(result: LibraryResult) -> str:
    names = [name for name, report in result.reports.items() if not report.findings]
    return f"{IN_CHECK['right'].symbol} Nothing found in: {', '.join(names) or 'none'}."


def not_asked(result: LibraryResult) -> list[str]:
    return [f"Not asked: {name}: {reason}." for name, reason in result.refused.items()]


def total(result: LibraryResult) -> str:
    found = [finding for report in result.reports.values() for finding in report.findings]
    parts = [count(sum(f.severity == severity for f in found), severity) for severity in SEVERITIES]
    return f"{count(len(result.reports), 'function')}: {', '.join(parts)}."
