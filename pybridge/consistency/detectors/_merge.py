"""The findings of a report: each thing once, the gravest first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..findings import KINDS, SEVERITIES, Finding
from ._non_finite import VALUE_NOT_FINITE


def merge_findings(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Sort findings by gravity, and drop those that say the same as one before."""
    lost = any(
        f.kind == "precision" and f.mode == "value" and f.severity != "note" for f in findings
    )
    if lost:
        # That the value is not finite is said with the reason.
        findings = [f for f in findings if f.title != VALUE_NOT_FINITE]
    # So is that the modes differ where each does something else with an index out of bounds.
    outside = {f.probe for f in findings if f.kind == "out-of-bounds" and f.severity == "error"}
    findings = [
        f
        for f in findings
        if f.kind != "reverse-forward" or f.location is not None or f.probe not in outside
    ]
    kept = sorted(_once(findings), key=_gravity)
    # A derivative that is NaN says all about an argument at a point: whether the value jumps there
    # as well, and which elements differences know a derivative of, is no news.
    errors = [f for f in kept if f.kind == "non-finite" and f.severity == "error"]
    errors = [f for f in errors if f.mode != "second"]
    lesser = ("non-finite", "special-case")
    return tuple(
        f
        for f in kept
        if f.severity == "error" or f.kind not in lesser or not any(_tells(e, f) for e in errors)
    )


def _tells(error: Finding, lesser: Finding) -> bool:
    """Say whether an error is about all that a lesser finding is about.

    One about forward mode alone says nothing of NaN in reverse mode.
    """
    same = (error.probe, error.argument) == (lesser.probe, lesser.argument)
    if lesser.kind != "non-finite" or error.mode is None:
        return same
    return same and error.mode == lesser.mode and set(lesser.systems) <= set(error.systems)


def _once(findings: Sequence[Finding]) -> list[Finding]:
    """Drop what was said at the given point already, and merge elements of one argument."""
    kept: dict[Any, Finding] = {}
    more: dict[Any, int] = {}
    for f in findings:
        key: Any = (f.kind, f.severity, f.systems, f.mode, f.probe, f.argument, f.primitive)
        if f.kind == "kink":
            key = (*key, f.location)
        if f.kind in ("out-of-bounds", "value", "exception", "unsupported", "mode-dependent"):
            key = (f.kind, f.severity, f.systems, f.mode, f.location, f.primitive)
            key = (*key, f.title if f.location is None else "")
            more[key] = -(10**9)
        more[key] = more.get(key, 0) + (key in kept)
        kept.setdefault(key, f)
    return [
        replace(
            f,
            title=f"{f.title} (and in {more[key]} more)",
            numbers={**f.numbers, "places": more[key] + 1},
        )
        if more[key] > 0 and "places" not in f.numbers
        else f
        for key, f in kept.items()
    ]


def _gravity(finding: Finding) -> tuple[int, int]:
    return SEVERITIES.index(finding.severity), list(KINDS).index(finding.kind)
