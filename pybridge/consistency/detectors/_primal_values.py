"""Values that are others while the function is differentiated."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Any

import numpy as np

from ..findings import Finding
from ..subject import OwnPrecision, Point, Who, own_mode, system_names
from ._context import Context
from ._rule_values import RuleFault, faulty_rules, tolerance, worst

_ADVICE = (
    "While it is differentiated, the function computes something else: a custom rule replaces "
    "the value as well. Let the rule call the function itself for its value."
)


def detect_other_values(context: Context) -> Iterable[Finding]:
    """Compare each system's value with the plain one, and each custom rule with its function."""
    if not context.is_comparable:
        return []
    point, inside = context.point, context.inside
    subject = point.subject
    closed = subject.jaxpr
    allowed = tolerance(point.plain, point.eps, sensitivity(point))
    differing: dict[Who, tuple[float, int, Any]] = {}
    values = point.answers.values
    for who, ys in values.items():
        found = worst(point.plain, ys, allowed) if ys else (0.0, 0, ())
        if found[0] > 1.0:
            differing[who] = found
    if differing and inside is not None:
        answered = tuple(map(np.asarray, inside(point.xs)))
        rest = {who for who in differing if worst(answered, values[who], allowed)[0] > 10.0}
        explained = {who: found for who, found in differing.items() if who not in rest}
        if explained:
            note = _mode_dependent(point, explained)
            differing = {who: found for who, found in differing.items() if who in rest}
            if not differing:
                return [note]
            return [note, *blame_rules(point, differing, [])]
    faults: list[RuleFault] = []
    if closed is not None:
        with contextlib.suppress(Exception):
            faults = faulty_rules(closed, point.xs, 64.0 * point.eps)
            if differing and not faults:
                faults = faulty_rules(closed, point.xs, 0.0)
    if closed is not None and not faults and not subject.is_julia:
        # No rule computes another value: rounding in another order explains the rest.
        differing = {who: found for who, found in differing.items() if found[0] > 1e4}
    return blame_rules(point, differing, faults)


def blame_rules(
    point: Point,
    differing: dict[Who, tuple[float, int, Any]],
    faults: list[RuleFault],
    own: OwnPrecision | None = None,
) -> list[Finding]:
    """Write findings for values that differ, and for rules that do."""
    plain = own.plain if own else point.plain
    fault = faults[0] if faults else None
    common: dict[str, Any] = {"probe": point.probe.name}
    if fault is not None:
        common |= {"location": fault.line, "primitive": fault.primitive}
    reason = "" if fault is None else f" The rule of {fault.name} computes another value."
    findings = []
    by_place: dict[Any, list[Who]] = {}
    for who, (_, number, place) in differing.items():
        here = (own.values[who[1]] if own else point.answers.values[who])[number][place]
        by_place.setdefault((number, place, _key(here)), []).append(who)
    for (number, place, _), whos in by_place.items():
        values = {who: (own.values[who[1]] if own else point.answers.values[who]) for who in whos}
        got = values[whos[0]][number][place]
        want = plain[number][place]
        names = system_names(whos)
        findings.append(
            Finding(
                "value",
                "error",
                f"value under differentiation {_write(got)}, plain value {_write(want)}",
                systems=names,
                mode=own_mode(whos),
                numbers={**{name: _plain(got) for name in names}, "plain": _plain(want)},
                advice=_ADVICE + reason,
                **common,
            )
        )
    for fault in [] if findings else faults[:3]:
        findings.append(
            Finding(
                "value",
                "error",
                f"the rule of {fault.name} computes {_write(fault.inside)}, the function "
                f"{_write(fault.plain)}",
                systems=("jax",),
                probe=point.probe.name,
                location=fault.line,
                primitive=fault.primitive,
                numbers={"jax": fault.inside, "plain": fault.plain, "relative": fault.difference},
                advice="The difference does not reach the value here, but it may elsewhere. Let "
                "the rule call the function itself for its value.",
            )
        )
    return findings


def _mode_dependent(point: Point, explained: dict[Who, tuple[float, int, Any]]) -> Finding:
    who, (_, number, place) = next(iter(explained.items()))
    got, want = point.answers.values[who][number][place], point.plain[number][place]
    return mode_dependent(
        point,
        f"value under differentiation {_write(got)}, plain value {_write(want)}: the function "
        "asks within_gradient",
        {who[0]: _plain(got), "plain": _plain(want)},
        system_names(explained),
    )


def mode_dependent(
    point: Point, title: str, numbers: dict[str, float], names: tuple[str, ...]
) -> Finding:
    """Note that a function does something else inside a gradient, on purpose."""
    line = None
    if point.subject.is_julia:
        asks = point.subject.sightings.asks
        line = asks.location if asks is not None else None
    elif point.subject.jaxpr is not None:
        from ...jaxprs import equations, user_line
        from ._rule_values import ASKS

        asked = [e for e in equations(point.subject.jaxpr) if e.primitive.name in ASKS]
        line = user_line(asked[0]) if asked else None
    return Finding(
        "mode-dependent",
        "note",
        title,
        systems=names,
        probe=point.probe.name,
        location=line,
        primitive="within_gradient",
        numbers=numbers,
        advice="On purpose, and no fault: derivatives were compared with differences of the "
        "function as it is inside a gradient.",
    )


def sensitivity(point: Point) -> float:
    """Say what rounding of the arguments does to one output, relative to the rounding."""
    outputs = max(point.origin.size, 1)
    for gs in point.gradients.values():
        with np.errstate(all="ignore"):
            total = sum(float(np.nansum(np.abs(g * x))) for g, x in zip(gs, point.xs, strict=True))
        return 4.0 * total / outputs if np.isfinite(total) else 0.0
    return 0.0


def _plain(x: Any) -> float:
    return float(np.real(x))


def _key(x: Any) -> str:
    return f"{complex(x):.6g}"


def _write(x: Any) -> str:
    """Write a number with as many digits as two of them need to differ visibly."""
    x = complex(x)
    return f"{x.real:.8g}" if x.imag == 0 else f"{x:.8g}"
