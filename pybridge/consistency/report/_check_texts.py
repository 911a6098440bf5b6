"""What `pb.check` found in words, the same on every kind of report."""

from __future__ import annotations

from .._wording import count, join, reasons_of
from ..findings import SEVERITIES, Finding, Report
from ._check_cells import modes
from ._numbers import brief

_LONGEST_NAME = 60


def title(report: Report) -> str:
    """Write the name of what was checked in one line."""
    first, *more = report.name.strip().splitlines() or [""]
    if more or len(first) > _LONGEST_NAME:
        return first[:_LONGEST_NAME].rstrip() + " ..."
    return first


def summary(report: Report) -> str:
    """Write the counts: `1 error, 0 warnings, 2 notes`."""
    counts = report.counts()
    return ", ".join(count(counts[severity], severity) for severity in SEVERITIES)


def compared(report: Report) -> str:
    """Say what was compared, as a sentence."""
    parts = []
    for system in report.systems:
        own = {answer.mode for answer in report.answers if answer.system == system.name}
        if own:
            listed = ", ".join(mode for mode in modes(report) if mode in own)
            parts.append(f"{system.name} ({listed})" if listed else f"{system.name} (no answer)")
    if not parts:
        return "No system was asked."
    points = count(len(report.probes), "point")
    names = ", ".join(probe.name for probe in report.probes)
    return f"Compared {join(parts)} at {points}: {names}."


def absences(report: Report) -> list[tuple[list[str], str]]:
    """List reasons for absence, each with the systems that share it."""
    return reasons_of(system for system in report.systems if not system.available)


def place(finding: Finding) -> str:
    """Say where a finding is: `zygote, reverse mode, args[0][1, 2], at zeros`."""
    parts = list(finding.systems)
    if finding.mode is not None:
        parts.append({"value": "value", "second": "second order"}.get(finding.mode, ""))
        parts[-1] = parts[-1] or f"{finding.mode} mode"
    if finding.argument:
        parts.append(f"{finding.argument}{element(finding.element)}")
    parts.append("at the given point" if finding.probe == "given" else f"at {finding.probe}")
    return ", ".join(parts)


def element(place: tuple[int, ...] | None) -> str:
    """Write a place in an array: `[1, 2]`; nothing for a scalar or all elements."""
    return f"[{', '.join(map(str, place))}]" if place else ""


def line(finding: Finding) -> str:
    """Write the user's line and the operation: `model.py:12 (loss): y = x[i], in gather`."""
    parts = []
    if finding.location is not None:
        source = f": {finding.location.source}" if finding.location.source else ""
        parts.append(f"{finding.location}{source}")
    if finding.primitive is not None:
        parts.append(f"operation {finding.primitive}")
    return "; ".join(parts)


def measured(finding: Finding) -> str:
    """Write the numbers of a finding: `jax 1, finite 2`."""
    return ", ".join(f"{name} {brief(value)}" for name, value in finding.numbers.items())
