"""Derivatives that are not the function's, beside those at points where it has none."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from jax.extend.core import ClosedJaxpr

from ...finite import TOLERANCES
from .._wording import gives, join
from ..findings import Finding, SlopeCurve
from ..subject import (
    NOWHERE,
    Line,
    Place,
    Point,
    Who,
    halves,
    own_mode,
    system_names,
    unit_line,
)
from ._context import Context
from ._custom_rules import wrong_rule
from ._kinks import (
    choice_numbers,
    compare_choices,
    curve,
    find_change,
    find_tie,
    note_break,
    note_kink_of_many,
)
from ._purposes import on_purpose
from ._zero_gradients import flat_place

_BREAKS = ("jump", "vertical")
_CURVES = 4
_LOCATED = 3
_PLACES = 8


class Fault(NamedTuple):
    """A direction along which a system gives another derivative than differences.

    Attributes:
        line: the direction.
        numbers: what is shown of the derivatives, `"finite"` among them.
        bad: the systems that are wrong, with their modes.
        good: those that are right.
        apart: whether those that are wrong are right on both sides of the point.
    """

    line: Line
    numbers: dict[str, float]
    bad: tuple[Who, ...]
    good: tuple[Who, ...]
    apart: bool

    def size(self) -> float:
        """Measure the largest difference from finite differences."""
        return max(abs(x - self.numbers["finite"]) for x in self.numbers.values())


def detect_wrong_derivatives(context: Context) -> Iterator[Finding | SlopeCurve]:
    """Compare every system's derivatives with differences and with each other."""
    mixed = any(f.kind == "mode-dependent" and f.severity == "error" for f in context.findings)
    if not context.is_comparable or mixed:
        return  # what is the derivative of no function differs from that of each
    point, closed = context.point, context.point.subject.jaxpr
    kinks: dict[Any, Line] = {}
    breaks: list[Line] = []
    suspects: list[Line] = []
    inexact: list[tuple[Who, Line]] = []
    for line in point.lines:
        kind = point.along(line).kind
        if kind == "kink":
            for found in _locate(point, line, lambda part: point.along(part).kind == "kink"):
                kinks.setdefault(_key(found), found)
        elif kind in _BREAKS:
            breaks += _locate(point, line, lambda part: point.along(part).kind in _BREAKS)
        elif _is_suspect(point, line, inexact):
            suspects.append(line)
    if kinks and point.lines[0].leaf is None:
        suspects += _beside(point, list(kinks.values()), inexact)
    drawn = 0
    for line, place in _placed(point, kinks.values(), closed):
        if line.leaf is None:
            yield note_kink_of_many(point, line, place)
            continue
        yield from compare_choices(point, line, place)
        drawn += 1
        if drawn <= _CURVES:
            yield curve(point, line)
    for line, place in _placed(point, breaks, closed):
        note = note_break(point, line, place) if line.leaf is not None else None
        if note is not None:
            yield note
    wrong = _wrong(context, suspects)
    yield from wrong or [*_disagreements(point), *_inexact(point, inexact)]


def _key(line: Line) -> Any:
    """Say what a line moves: lines that move the same element are one."""
    return (line.leaf, line.element) if line.leaf is not None else id(line)


def _placed(
    point: Point, lines: Iterable[Line], closed: ClosedJaxpr | None
) -> Iterator[tuple[Line, Place]]:
    """Give each line with the operation that changes there; the last of them have the same."""
    place = NOWHERE
    for number, line in enumerate(lines):
        place = find_change(closed, point, line) if number < _PLACES else place
        yield line, place


def _is_suspect(point: Point, line: Line, inexact: list[tuple[Who, Line]]) -> bool:
    """Tell whether a derivative along a line is wrong; add those that are inexact."""
    verdicts = {who: point.compare(who, line) for who in point.derivatives}
    inexact += [(who, line) for who, verdict in verdicts.items() if verdict == "inexact"]
    return "wrong" in verdicts.values()


def _inexact(point: Point, cases: list[tuple[Who, Line]]) -> Iterator[Finding]:
    """Note a derivative that differs by no more than the accuracy of the function's own loops."""
    for who, line in cases[:1]:
        assert point.solver is not None
        unit, name = point.unit(line), who[0]
        got, finite = point.derivative(who, line) / unit, point.along(line).value / unit
        yield point.finding(
            "finite",
            "note",
            f"{name} gives {_told_apart(got, finite)}: within the accuracy of the function itself",
            [name],
            line=line,
            place=point.solver.place,
            mode=own_mode([who]),
            numbers={name: got, "finite": finite},
            advice="A loop stops near the number that it converges to, and a few iterations "
            "more change the derivative by as much. A smaller tolerance in the solver brings "
            "the two together.",
        )


def _beside(point: Point, kinks: list[Line], inexact: list[tuple[Who, Line]]) -> list[Line]:
    """Leave out the elements that are at a kink, and look at all others together."""
    if any(line.leaf is None for line in kinks):
        return []
    vs = [v.copy() for v in point.lines[0].vs]
    for line in kinks:
        vs[line.leaf or 0][line.element] = 0.0
    rest = Line(tuple(vs))
    return [rest] if _is_suspect(point, rest, inexact) else []


def _locate(point: Point, line: Line, shows: Callable[[Line], bool]) -> list[Line]:
    """Find the elements, up to three, that make a direction show something."""
    if line.leaf is not None:
        return [line]
    found: list[Line] = []

    def search(part: Line) -> None:
        if len(found) >= _LOCATED:
            return
        parts = halves(part)
        if parts is None:
            leaf = next(i for i, v in enumerate(part.vs) if v.any())
            element = tuple(int(k[0]) for k in np.nonzero(part.vs[leaf]))
            unit = unit_line(point.xs, leaf, element)
            found.append(unit if shows(unit) else part)
            return
        for half in parts:
            if shows(half):
                search(half)

    search(line)
    return [part for part in found if part.leaf is not None] or [line]


def _wrong(context: Context, suspects: list[Line]) -> list[Finding]:
    """Name the systems whose derivatives are not the function's, once for each argument."""
    point, closed = context.point, context.point.subject.jaxpr
    values = (f for f in context.findings if f.kind == "value" and f.severity == "error")
    other_value = next(values, None)

    def shows(part: Line) -> bool:
        return any(point.deviates(who, part) for who in point.derivatives)

    faults: dict[Any, dict[Any, Fault]] = {}
    for suspect in suspects:
        for line in _locate(point, suspect, shows):
            fault = _compare(point, line)
            if fault.bad:
                key = fault.bad, fault.good, fault.apart, line.leaf
                faults.setdefault(key, {})[_key(line)] = fault
    rule = wrong_rule(closed, point.xs, point.eps) if faults else None
    findings = []
    for cases in faults.values():
        fault = max(cases.values(), key=Fault.size)
        finding = _name_fault(point, fault)
        if fault.apart:
            finding = _at(finding, find_tie(closed, point.xs))
        elif rule is not None:
            name, place = rule
            advice = f"The custom rule of {name} is wrong: it differs from differences of "
            advice += f"{name} itself. "
            cure = "Mend it, or leave it out: JAX then differentiates the function as it stands."
            # Where systems or modes differ, the finding says which of them can be used.
            advice += cure if finding.kind == "finite" else finding.advice
            finding = replace(_at(finding, place), advice=advice)
        elif finding.kind == "finite" and other_value is not None:
            place = Place(other_value.location, other_value.primitive)
            advice = "It follows from the other value that is computed under differentiation."
            finding = replace(_at(finding, place), advice=advice)
        elif finding.kind == "finite" and closed is not None:
            finding = on_purpose(finding, closed) or _at(finding, flat_place(closed))
        findings.append(_counted(finding, len(cases)))
    return findings


def _compare(point: Point, line: Line) -> Fault:
    """Compare all systems with differences along a line."""
    derivatives = {who: point.derivative(who, line) for who in point.derivatives}
    bad = tuple(who for who in derivatives if point.deviates(who, line))
    good = tuple(who for who, d in derivatives.items() if np.isfinite(d) and who not in bad)
    unit = point.unit(line)
    numbers = choice_numbers({who: d / unit for who, d in derivatives.items()})
    numbers["finite"] = point.along(line).value / unit
    return Fault(line, numbers, bad, good, bool(bad) and _is_apart(point, line, bad))


def _at(finding: Finding, place: Place) -> Finding:
    return replace(finding, location=place.location, primitive=place.primitive)


def _counted(finding: Finding, cases: int) -> Finding:
    """Say in how many places the same thing was seen."""
    if cases < 2:
        return finding
    numbers = {**finding.numbers, "places": cases}
    return replace(finding, title=f"{finding.title} (and in {cases - 1} more)", numbers=numbers)


def _told_apart(got: float, finite: float) -> str:
    """Write two numbers with as many digits as it takes to see that they differ."""
    digits = next((n for n in (6, 9, 12) if f"{got:.{n}g}" != f"{finite:.{n}g}"), 17)
    return f"{got:.{digits}g}, where differences give {finite:.{digits}g}"


def _is_apart(point: Point, line: Line, bad: tuple[Who, ...]) -> bool:
    """Say whether a system that is wrong here is right on both sides of the point."""
    want = point.along(line).value
    for who in bad:
        try:
            there = [
                point.answers.derivative_at(who, line.at(point.xs, t), line)
                for t in (1e-5, -1e-5, 1e-4, -1e-4)
            ]
        except Exception:
            return False
        gap = max(abs(derivative - want) for derivative in there)
        if not gap < 0.05 * abs(point.derivative(who, line) - want):
            return False
    return True


def _name_fault(point: Point, fault: Fault) -> Finding:
    """Choose the kind, and say who is wrong."""
    bad, good, numbers = fault.bad, fault.good, fault.numbers
    if point.subject.is_julia:
        # There JAX is Zygote, ForwardDiff and their like, and no witness beside them.
        bad, good = _without_jax(bad), _without_jax(good)
    names, right = system_names(bad), system_names(good)
    who = f"{join(names)} {gives(names)}"
    mine = [x for key, x in numbers.items() if key.split(" (")[0] in names and np.isfinite(x)]
    got = max(mine, key=lambda x: abs(x - numbers["finite"]), default=np.nan)
    gave = _told_apart(got, numbers["finite"])
    mixed = [name for name in names if name in right]
    special = {"chunks", "negative seeds"} & {mode for _, mode in (*bad, *good)}
    seeds = any(name in mixed and mode in special for name, mode in bad)
    kind, title = "minority", f"{who} {gave}"
    if fault.apart and not (seeds and len(names) == 1):
        kind = "special-case"
        title = f"this point is treated apart from its neighbours, and {title}"
        advice = (
            "The function takes a shortcut, or is at a tie, at this very value, and the derivative "
            "of that is not the derivative of the function. Compute the general formula here too, "
            "or give the function a rule."
        )
    elif mixed and not seeds:
        which = " and ".join(dict.fromkeys(mode for _, mode in bad))
        kind = "reverse-forward"
        title = f"the modes of {mixed[0]} differ: {which} mode gives {gave}"
        advice = (
            f"The {which} rule of an operation is wrong, or it does something else with the same "
            "operands: custom rules and indices out of bounds are the usual causes."
        )
    elif mixed:
        title = f"the answer of {mixed[0]} depends on its chunks or the sign of its seeds: {gave}"
        advice = (
            "A comparison in the function sees the derivative along with the value: compare "
            "PyBridge.primal(x)."
        )
    elif good:
        others = join(right)
        title = f"{title}, as {others} {'does' if len(right) == 1 else 'do'}"
        advice = f"Use {others} here, or give the function a rule for {join(names)}."
    else:
        kind = "finite"
        title = title if len(names) == 1 else f"all systems give {gave}"
        advice = (
            "The derivative is not that of the function: a wrong rule, a stopped gradient, a "
            "rounding or an integer in between."
        )
    systems, mode = system_names(fault.bad), own_mode(bad)
    return point.finding(
        kind, "error", title, systems, line=fault.line, mode=mode, numbers=numbers, advice=advice
    )


def _without_jax(whos: tuple[Who, ...]) -> tuple[Who, ...]:
    """Leave out JAX, unless it is alone."""
    return tuple(who for who in whos if who[0] != "jax") or whos


def _disagreements(point: Point) -> list[Finding]:
    """Compare systems with each other where differences say nothing."""
    findings = []
    for number, line in enumerate(point.lines):
        if point.along(line).kind in ("smooth", "edge", "kink"):
            continue
        found = {who: along[number] / line.scale for who, along in point.derivatives.items()}
        derivatives = {who: d for who, d in found.items() if np.isfinite(d)}
        if len(derivatives) < 2:
            continue
        low, high = min(derivatives.values()), max(derivatives.values())
        if high - low <= TOLERANCES.disagreement * (1e-6 + max(-low, high)):
            continue
        names = system_names(derivatives)
        findings.append(
            point.finding(
                "reverse-forward" if len(names) == 1 else "minority",
                "warning",
                "the answers differ at a point where the function has no derivative",
                names,
                line=line,
                numbers=choice_numbers(derivatives),
                advice="Nobody is right here: the value jumps, or its derivative has no bound.",
            )
        )
    return [_counted(findings[0], len(findings))] if findings else []
