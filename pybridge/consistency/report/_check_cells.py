"""What `pb.check` says of each system in each case: right, wrong, absent, ..."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from ..._backends import Backend
from ..findings import SEVERITIES, Finding, Report, SystemAnswer

# In the order of the rows. "value" is the value under differentiation.
MODES = ("value", "forward", "reverse", "second")

# From good to bad; the severities of findings are among them.
STATUSES = (
    "right",
    "reference",
    "apart",
    "note",
    "unsupported",
    "absent",
    "warning",
    "error",
    "failed",
)

# The rows that a finding without a mode is about.
_ROWS_OF_KIND = {
    "value": ("value",),
    "mode-dependent": ("value",),
    "random": ("value",),
    "second-order": ("second",),
    "unsupported": MODES,
    "exception": MODES,
}
_SLOPES = ("forward", "reverse")

# Findings that explain why there is no answer; they say nothing of one that there is.
_WITHOUT_ANSWER = ("unsupported", "exception")

# Cells that say why there is no number.
_WITHOUT_NUMBER = ("failed", "unsupported", "absent")

# An answer that is further away than this is not said to agree, with or without a finding.
_ALIKE = 1e-3

# With more arguments than this only those that a finding names have rows of their own.
_MANY = 8


@dataclass(frozen=True)
class Case:
    """A row of the heat map.

    Attributes:
        probe: the name of the point.
        mode: one of `MODES`.
        argument: the path of the argument; empty for all together.
    """

    probe: str
    mode: str
    argument: str = ""


@dataclass(frozen=True)
class Verdict:
    """What a system answers in a case.

    Attributes:
        status: one of `STATUSES`.
        deviation: the largest difference from the reference, relative to 1 + its size.
        error: type and first line of the exception.
        findings: the numbers of the findings that are about it, from 0.
    """

    status: str
    deviation: float | None = None
    error: str | None = None
    findings: tuple[int, ...] = ()


def cases(report: Report) -> list[Case]:
    """List the rows of the heat map: points, their modes, and their arguments."""
    rows = []
    for probe in report.probes:
        for mode in MODES:
            answers = [a for a in report.answers if _is_at(a, probe.name, mode)]
            if not answers:
                continue
            if mode == "value":
                rows.append(Case(probe.name, mode))
                continue
            paths = list(dict.fromkeys(path for a in answers for path in a.derivative or ()))
            if len(paths) > _MANY:
                named = {f.argument for f in report.findings if f.probe == probe.name}
                paths = ["", *(path for path in paths if path in named)]
            rows += [Case(probe.name, mode, path) for path in paths or [""]]
    return rows


def cell(report: Report, case: Case, system: Backend) -> Verdict | None:
    """Judge what a system answers in a case; None where it was not asked."""
    answers = [
        a
        for a in report.answers
        if a.system == system.name and _is_at(a, case.probe, case.mode, failed=True)
    ]
    answered = any(_is_at(a, case.probe, case.mode) for a in answers)
    about = tuple(
        number
        for number, finding in enumerate(report.findings)
        if _is_about(finding, case, system.name, answered)
    )
    error = next((a.error for a in answers if a.error is not None), None)
    deviation = _deviation(report, case, answers) if answered else None
    found = [report.findings[number] for number in about]
    if not system.available:
        return Verdict("absent")
    if not answers and not found:
        return None
    if any(f.kind == "unsupported" for f in found) and not answered:
        status = "unsupported"
    elif not answered and error is not None:
        status = "failed"
    elif found:
        gravest = min(found, key=lambda finding: SEVERITIES.index(finding.severity))
        status = gravest.severity
    elif case.mode == "value":
        status = "right"
    elif deviation is None or system.name == "finite":
        status, deviation = "reference", None
    else:
        status = "right" if deviation <= _ALIKE else "apart"
    return Verdict(status, deviation, error, about)


def overview(report: Report) -> dict[tuple[str, str], Verdict]:
    """Take the worst cell of all points, by the names of system and mode."""
    table: dict[tuple[str, str], Verdict] = {}
    places = dict.fromkeys((case.probe, case.mode) for case in cases(report))
    for system in report.systems:
        for probe, mode in places:
            found = cell(report, Case(probe, mode), system)
            if found is not None:
                before = table.get((system.name, mode), found)
                table[system.name, mode] = _worst(before, found)
    return table


def modes(report: Report) -> list[str]:
    """List the modes in which anything was asked."""
    asked = {case.mode for case in cases(report)}
    return [mode for mode in MODES if mode in asked]


def _is_at(answer: SystemAnswer, probe: str, mode: str, *, failed: bool = False) -> bool:
    """Say whether an answer belongs in a case; one that failed only if `failed`."""
    if answer.probe != probe:
        return False
    if mode == "value":
        return answer.value is not None
    return answer.mode == mode and (failed or answer.derivative is not None)


def _is_about(finding: Finding, case: Case, system: str, answered: bool) -> bool:
    if finding.probe != case.probe or (finding.kind in _WITHOUT_ANSWER and answered):
        return False
    # A finding about all systems compares them with finite differences.
    if system not in (finding.systems or (system,)) or (not finding.systems and system == "finite"):
        return False
    rows = _ROWS_OF_KIND.get(finding.kind, _SLOPES) if finding.mode is None else (finding.mode,)
    both = "" in (finding.argument, case.argument)
    return case.mode in rows and (both or finding.argument == case.argument)


def _deviation(report: Report, case: Case, answers: Iterable[SystemAnswer]) -> float | None:
    """Take the answer's own deviation, or measure that of one argument among several."""
    if case.mode == "value":
        return None
    answer = next(a for a in answers if a.derivative is not None)
    derivative = answer.derivative or {}
    mine = [case.argument] if case.argument else list(derivative)
    if any(np.isnan(derivative[path]).any() for path in mine if path in derivative):
        return math.nan
    if answer.deviation is None or not case.argument or len(derivative) == 1:
        return answer.deviation
    got, want = derivative.get(case.argument), _reference(report, case)
    if got is None or want is None or got.shape != want.shape:
        return answer.deviation
    with np.errstate(all="ignore"):
        gaps = np.abs(got - want) / (1 + np.abs(want))
    own = float(np.max(gaps, initial=0.0, where=np.isfinite(want)))
    # The answer's own leaves out kinks, so that what is beyond it comes from these.
    return answer.deviation if own > answer.deviation else own


def _reference(report: Report, case: Case) -> np.ndarray | None:
    """Find what finite differences give for an argument; in reverse mode those of forward."""
    wanted = (case.mode,) if case.mode == "second" else _SLOPES
    for answer in report.answers:
        if answer.system == "finite" and answer.probe == case.probe and answer.mode in wanted:
            return (answer.derivative or {}).get(case.argument)
    return None


def _worst(one: Verdict, other: Verdict) -> Verdict:
    """Take the worse status of two cells and the larger deviation; NaN is the largest."""
    worse = max(one, other, key=lambda cell: STATUSES.index(cell.status))
    if worse.status in _WITHOUT_NUMBER:
        return replace(worse, deviation=None)
    known = [cell.deviation for cell in (one, other) if cell.deviation is not None]
    largest = max(known, key=lambda number: (math.isnan(number), number), default=None)
    return replace(worse, deviation=largest)
