"""Values that are NaN or infinite, and derivatives that are where the value is finite."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from .._wording import gives, join
from ..findings import Finding
from ..subject import (
    NOWHERE,
    Line,
    Place,
    Point,
    Who,
    is_mode,
    own_mode,
    system_names,
    unit_line,
)
from ._context import Cause, Context

VALUE_NOT_FINITE = "the value itself is NaN or infinite"

# How many elements of each gradient are looked at with differences.
_ELEMENTS = 3

_ADVICE = (
    "Keep the operation away from the argument that it has no derivative at: choose the argument "
    "before it ({})."
)
_ADVICE_IN_PYTHON = _ADVICE.format("a second where, pb.cond or pb.strong_zero")
_ADVICE_IN_JULIA = _ADVICE.format("PyBridge.cond runs the branch taken alone")


def detect_non_finite(context: Context) -> Iterable[Finding]:
    """Report NaN and infinity in the value, or else in derivatives, with where they come from."""
    if not context.point.references.is_finite():
        return [_find_in_value(context)]
    return _find_in_derivatives(context) if context.is_comparable else []


def _find_in_derivatives(context: Context) -> list[Finding]:
    point = context.point
    cases: dict[Any, tuple[Line, list[Who], int]] = {}
    for who, line, many in _places(point):
        key = line.leaf, line.element
        line, whos, _ = cases.setdefault(key, (line, [], many))
        whos.append(who)
    grouped: dict[Any, Finding] = {}
    for line, whos, many in cases.values():
        finding = _finding(point, line, whos, many)
        key = finding.severity, finding.systems, finding.mode, finding.argument
        grouped.setdefault(key, finding)
    if not grouped:
        return []
    from_jax = any(name == "jax" for _, whos, _ in cases.values() for name, _ in whos)
    cause = context.find_cause(point) if from_jax else None
    return [with_cause(finding, cause) for finding in grouped.values()]


def _find_in_value(context: Context) -> Finding:
    point, cause = context.point, context.find_cause(context.point)
    advice = "Derivatives mean nothing here: mend the value first."
    if cause is not None:
        advice = f"It comes from {cause.operation}. {cause.advice or advice}"
    return point.finding(
        "non-finite",
        "warning" if point.probe.name == "given" else "note",
        VALUE_NOT_FINITE,
        mode="value",
        place=Place(cause.location, cause.primitive) if cause is not None else NOWHERE,
        advice=advice,
    )


def _places(point: Point) -> Iterator[tuple[Who, Line, int]]:
    """Yield the elements of derivatives that are not finite, a few of each."""
    for who, derivatives in point.derivatives.items():
        if who in point.gradients:
            for leaf, g in enumerate(point.gradients[who]):
                bad = np.argwhere(~np.isfinite(g))
                for element in bad[:_ELEMENTS]:
                    yield who, unit_line(point.xs, leaf, tuple(map(int, element))), len(bad)
            continue
        bad = [line for line, derivative in zip(point.lines, derivatives, strict=True)
               if not np.isfinite(derivative)]  # fmt: skip
        for line in bad[:_ELEMENTS]:
            yield who, line, len(bad)


def _finding(point: Point, line: Line, whos: list[Who], many: int) -> Finding:
    reference, unit = point.along(line), point.unit(line)
    names = system_names(whos)
    mode = own_mode(filter(is_mode, whos))
    derivatives = {who: point.derivative(who, line) for who in whos}
    shown = float(next(iter(derivatives.values())))
    choices = point.shown(line, 1.0)
    others = {who: d for who, d in choices.items() if who not in whos and np.isfinite(d)}
    numbers: dict[str, Any] = {
        f"{n} ({m})": d / unit for (n, m), d in (derivatives | others).items()
    }
    numbers["finite"] = reference.value / unit
    where = f"{join(names)}{f' in {mode} mode' if mode else ''} {gives(names)}"
    title = f"{where} {_word(shown)}, where the value is finite"
    severity, advice = "error", _ADVICE_IN_JULIA if point.subject.is_julia else _ADVICE_IN_PYTHON
    if reference.kind == "vertical" and not others:
        agree = all(np.isinf(s) and s == reference.value for s in derivatives.values())
        severity = "note" if agree else "warning"
        title = f"{where} {_word(shown)}: the derivative has no bound here"
        advice = (
            "The derivative grows without end. Keep away from this point, or bound the derivative."
        )
    elif reference.kind in ("jump", "vertical", "undefined") or not np.isfinite(reference.value):
        if not others:
            severity = "warning"
            title = f"{where} {_word(shown)}, at a point where the function has no derivative"
    elif reference.kind == "kink":
        title += f"; the derivative is {reference.left / unit:.4g} from the left"
        title += f" and {reference.right / unit:.4g} from the right"
    else:
        title += f", and differences give {reference.value / unit:.6g}"
    if many > 1:
        numbers["places"] = many
        title += f" (and in {many - 1} more)"
    return point.finding(
        "non-finite",
        severity,
        title,
        names,
        line=line,
        mode=mode,
        numbers=numbers,
        advice=advice,
    )


def _word(x: float) -> str:
    return "NaN" if np.isnan(x) else "infinity" if x > 0 else "-infinity"


def with_cause(finding: Finding, cause: Cause | None) -> Finding:
    """Name the operation that a number comes from, what hid it, and a cure that was run."""
    if cause is None or "jax" not in finding.systems:
        return finding
    advice = cause.advice or finding.advice
    if cause.dropped_by:
        advice = f"{cause.dropped_by} drops it from the value, but 0 times it is NaN. {advice}"
    return replace(finding, location=cause.location, primitive=cause.primitive, advice=advice)
