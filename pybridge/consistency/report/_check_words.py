"""What `pb.check` found put into words and symbols, the same on every kind of report."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._wording import as_array, count, join, numbers, reasons_of
from ..findings import SEVERITIES, Finding, Report
from ._grid import Cell, modes

SYMBOLS = {
    "right": "✓",
    "reference": "○",
    "apart": "~",
    "note": "≈",
    "warning": "△",
    "error": "✘",
    "unsupported": "/",
    "failed": "!",
    "absent": "·",
}

MEANINGS = {
    "right": "agrees",
    "reference": "the reference",
    "apart": "differs, see elsewhere",
    "note": "a choice, no error",
    "warning": "may surprise",
    "error": "wrong",
    "unsupported": "unsupported",
    "failed": "an exception",
    "absent": "absent",
}

# Each looks like that status of the scenarios: on the terminal and in the style sheet.
LOOKS = {
    "right": "right",
    "reference": "absent",
    "apart": "known",
    "note": "convention",
    "warning": "known",
    "error": "wrong",
    "unsupported": "unsupported",
    "failed": "error",
    "absent": "absent",
}

BESIDE = (
    "Beside the symbol: the largest difference from the reference, relative to 1 + its size. "
    "Value: the value under differentiation."
)

_LONGEST_NAME = 60
_LONGEST_ARRAY = 8


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


def cell_text(cell: Cell | None) -> str:
    """Write a cell: the symbol, and the deviation or the type of the exception."""
    if cell is None:
        return ""
    detail = ""
    if cell.deviation is not None:
        detail = size(cell.deviation)
    elif cell.error is not None and cell.status == "failed":
        detail = cell.error.split(":")[0]
    return f"{SYMBOLS[cell.status]} {detail}".rstrip()


def size(deviation: float) -> str:
    """Write a deviation with two digits: `2.2e-16`, `0.5`, `nan`."""
    return f"{deviation:.2g}"


def place(finding: Finding) -> str:
    """Say where a finding is: `zygote, reverse mode, args[0][1, 2], at zeros`."""
    parts = list(finding.systems)
    if finding.mode is not None:
        parts.append({"value": "value", "second": "second order"}.get(finding.mode, ""))
        parts[-1] = parts[-1] or f"{finding.mode} mode"
    if finding.argument:
        element = finding.element or ()
        index = f"[{', '.join(map(str, element))}]" if element else ""
        parts.append(f"{finding.argument}{index}")
    parts.append("at the given point" if finding.probe == "given" else f"at {finding.probe}")
    return ", ".join(parts)


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


def brief(value: Any) -> str:
    """Write a value in little room: numbers with four digits, of long arrays the shape."""
    if value is None or isinstance(value, bool | np.bool_ | str):
        return str(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {brief(part)}" for key, part in value.items()) + "}"
    if isinstance(value, tuple | list):
        if len(value) > _LONGEST_ARRAY:
            return f"{count(len(value), 'element')}: ({brief(value[0])}, ...)"
        inside = ", ".join(map(brief, value))
        return f"[{inside}]" if isinstance(value, list) else f"({inside})"
    array = as_array(value)
    if array is None:
        return repr(value)
    if array.size > _LONGEST_ARRAY:
        return f"shape {array.shape}, {brief(array.ravel()[0])} ... {brief(array.ravel()[-1])}"
    if array.ndim:
        return "[" + ", ".join(map(brief, array)) + "]"
    if array.dtype.kind in "biu":
        return str(array[()])
    if array.dtype.kind == "c":
        return f"{array[()]:.4g}"
    return numbers(array)
