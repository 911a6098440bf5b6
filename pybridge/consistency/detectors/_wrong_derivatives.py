"""Judge what the systems say at one point."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from jax.extend.core import ClosedJaxpr

from ...finite import TOLERANCES
from ...jaxprs import equations, is_stopped_by_jax, user_line
from .._wording import gives, join
from ..findings import Finding, SlopeCurve
from ..subject import Line, Point, Who, halves, own_mode, system_names, unit_line
from ._context import Context
from ._kinks import choice_numbers, compare_choices, curve, find_change, find_tie, note_break
from ._wrong_rules import wrong_rule
from ._zero_gradients import flat_line

_STOPS = frozenset({"stop_gradient"})
_BREAKS = ("jump", "vertical")
_CURVES = 4
_LOCATED = 3
_PLACES = 8


def detect_wrong_derivatives(context: Context) -> Iterator[Finding | SlopeCurve]:
    """Compare every system's derivatives with differences and with each other."""
    if not context.is_comparable:
        return
    point, closed, drawn = context.point, context.point.subject.jaxpr, 0
    kinks: dict[Any, Line] = {}
    breaks: list[Line] = []
    suspects: list[Line] = []
    inexact: list[tuple[Who, Line]] = []
    for line in point.lines:
        kind = point.along(line).kind
        if kind == "kink":
            for found in _locate(point, line, lambda part: point.along(part).kind == "kink"):
                kinks.setdefault((found.leaf, found.element, id(found) if found.leaf is None
                                  else None), found)  # fmt: skip
        elif kind in _BREAKS:
            breaks += _locate(point, line, lambda part: point.along(part).kind in _BREAKS)
        elif _is_suspect(point, line, inexact):
            suspects.append(line)
    if kinks and point.lines and point.lines[0].leaf is None:
        suspects += _beside(point, list(kinks.values()), inexact)
    place: Any = (None, None)
    for number, line in enumerate(kinks.values()):
        place = find_change(closed, point, line) if number < _PLACES else place
        if line.leaf is not None:
            yield from compare_choices(point, line, point.along(line), place)
            drawn += 1
            if drawn <= _CURVES:
                yield curve(point, line, point.along(line))
        else:
            yield _kink_of_many(point, line, place)
    for number, line in enumerate(breaks):
        place = find_change(closed, point, line) if number < _PLACES else place
        if line.leaf is not None:
            found = note_break(point, line, point.along(line), place)
            if found is not None:
                yield found
    wrong = _wrong(point, suspects, closed)
    yield from wrong or [*_disagreements(point), *_inexact(point, inexact)]


def _is_suspect(point: Point, line: Line, inexact: list[tuple[Who, Line]]) -> bool:
    """Tell whether a derivative along a line is wrong; add those that are inexact."""
    verdicts = {who: point.compare(who, line) for who in point.derivatives}
    inexact += [(who, line) for who, verdict in verdicts.items() if verdict == "inexact"]
    return "wrong" in verdicts.values()


def _inexact(point: Point, cases: list[tuple[Who, Line]]) -> Iterator[Finding]:
    """Note a derivative that differs by no more than the accuracy of the function's own loops."""
    for (name, mode), line in cases[:1]:
        assert point.solver is not None
        unit = point.unit(line)
        got, finite = point.derivative((name, mode), line) / unit, point.along(line).value / unit
        location, primitive = point.solver.line
        yield Finding(
            "finite",
            "note",
            f"{name} gives {_told_apart(got, finite)}: within the accuracy of the function itself",
            systems=(name,),
            mode=own_mode([(name, mode)]),
            **point.place_of(line),
            location=location,
            primitive=primitive,
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


def _wrong(point: Point, suspects: list[Line], closed: ClosedJaxpr | None) -> list[Finding]:
    """Name the systems whose derivatives are not the function's."""
    by_fault: dict[Any, dict[Any, tuple[Line, dict[str, float]]]] = {}
    for suspect in suspects:

        def shows(part: Line) -> bool:
            return any(point.deviates(who, part) for who in point.derivatives)

        for line in _locate(point, suspect, shows):
            derivatives = {who: point.derivative(who, line) for who in point.derivatives}
            bad = tuple(who for who in derivatives if point.deviates(who, line))
            good = tuple(who for who, s in derivatives.items() if np.isfinite(s) and who not in bad)
            if not bad:
                continue
            unit = point.unit(line)
            numbers = choice_numbers({who: s / unit for who, s in derivatives.items()})
            numbers["finite"] = point.along(line).value / unit
            apart = _is_apart(point, line, bad)
            leaf = line.leaf if line.leaf is not None else -1
            place = leaf, line.element if leaf >= 0 else id(line)
            by_fault.setdefault((bad, good, apart, leaf), {})[place] = (line, numbers)
    if not by_fault:
        return []
    rule = wrong_rule(closed, point.xs, point.eps)
    findings = []
    for (bad, good, apart, _), cases in by_fault.items():
        line, numbers = max(cases.values(), key=lambda case: _size(case[1]))
        finding = _name_fault(point, line, numbers, bad, good, apart)
        if apart:
            location, primitive = find_tie(closed, point.xs)
            finding = replace(finding, location=location, primitive=primitive)
        elif rule is not None:
            name, location, primitive = rule
            finding = replace(
                finding,
                location=location,
                primitive=primitive,
                advice=f"The custom rule of {name} is wrong: it differs from differences of "
                f"{name} itself. {finding.advice}",
            )
        elif finding.kind == "finite" and closed is not None:
            finding = _stopped(finding, closed)
        findings.append(_counted(finding, len(cases)))
    return findings


def _stopped(finding: Finding, closed: ClosedJaxpr) -> Finding:
    """Say that the function stops a gradient, which may be what somebody wants."""
    stops = [eqn for eqn in equations(closed) if eqn.primitive.name in _STOPS]
    # JAX's own functions stop gradients where that leaves the derivative right.
    stops = [eqn for eqn in stops if not is_stopped_by_jax(eqn)]
    if not stops:
        line, primitive = flat_line(closed)
        return replace(finding, location=line, primitive=primitive)
    return replace(
        finding,
        severity="warning",
        location=user_line(stops[0]),
        primitive=stops[0].primitive.name,
        advice="The function stops a gradient. Where that is on purpose, the derivative is "
        "another one on purpose too.",
    )


def _size(numbers: dict[str, float]) -> float:
    """Measure the largest difference from finite differences."""
    return max(abs(x - numbers["finite"]) for name, x in numbers.items() if name != "finite")


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
        system = next(s for s in point.answers.systems if s.name == who[0])
        here = point.derivative(who, line)
        gaps = []
        for t in (1e-5, -1e-5, 1e-4, -1e-4):
            pairs = zip(point.xs, line.vs, strict=True)
            moved = tuple(np.asarray(x + t * v, x.dtype) for x, v in pairs)
            try:
                there = point.answers.derivative_at(system, who[1], moved, line)
            except Exception:
                return False
            gaps.append(abs(there - want))
        if not max(gaps) < 0.05 * abs(here - want):
            return False
    return True


def _name_fault(
    point: Point,
    line: Line,
    numbers: dict[str, float],
    bad: tuple[Who, ...],
    good: tuple[Who, ...],
    apart: bool,
) -> Finding:
    """Choose the kind, and say who is wrong."""
    systems = system_names(bad)
    if point.subject.is_julia:
        # There JAX is Zygote, ForwardDiff and their like, and no witness beside them.
        bad, good = _without_jax(bad), _without_jax(good)
    common: dict[str, Any] = {
        "systems": systems,
        "mode": own_mode(bad),
        **point.place_of(line),
        "numbers": numbers,
    }
    names = system_names(bad)
    who, give = join(names), gives(names)
    mine = [x for key, x in numbers.items() if key.split(" (")[0] in names and np.isfinite(x)]
    got = max(mine, key=lambda x: abs(x - numbers["finite"]), default=np.nan)
    gave = _told_apart(got, numbers["finite"])
    mixed = [name for name in names if any(name == other for other, _ in good)]
    special = {"chunks", "negative seeds"} & {mode for _, mode in (*bad, *good)}
    seeds = any(name in mixed and mode in special for name, mode in bad)
    if apart and not (seeds and len(names) == 1):
        return Finding(
            "special-case",
            "error",
            f"this point is treated apart from its neighbours, and {who} {give} {gave}",
            **common,
            advice="The function takes a shortcut, or is at a tie, at this very value, and the "
            "derivative of that is not the derivative of the function. Compute the general formula "
            "here too, or give the function a rule.",
        )
    if mixed and not seeds:
        which = " and ".join(dict.fromkeys(mode for _, mode in bad))
        return Finding(
            "reverse-forward",
            "error",
            f"the modes of {mixed[0]} differ: {which} mode gives {gave}",
            **common,
            advice=f"The {which} rule of an operation is wrong, or it does something else with "
            "the same operands: custom rules and indices out of bounds are the usual causes.",
        )
    if mixed:
        return Finding(
            "minority",
            "error",
            f"the answer of {mixed[0]} depends on its chunks or the sign of its seeds: {gave}",
            **common,
            advice="A comparison in the function sees the derivative along with the value: "
            "compare PyBridge.primal(x).",
        )
    if good:
        right = system_names(good)
        others, do = join(right), "does" if len(right) == 1 else "do"
        return Finding(
            "minority",
            "error",
            f"{who} {give} {gave}, as {others} {do}",
            **common,
            advice=f"Use {others} here, or give the function a rule for {who}.",
        )
    return Finding(
        "finite",
        "error",
        f"{who} {give} {gave}" if len(names) == 1 else f"all systems give {gave}",
        **common,
        advice="The derivative is not that of the function: a wrong rule, a stopped gradient, a "
        "rounding or an integer in between.",
    )


def _without_jax(whos: tuple[Who, ...]) -> tuple[Who, ...]:
    """Leave out JAX, unless it is alone."""
    return tuple(who for who in whos if who[0] != "jax") or whos


def _disagreements(point: Point) -> list[Finding]:
    """Compare systems with each other where differences say nothing."""
    findings = []
    for i, line in enumerate(point.lines):
        reference = point.along(line)
        if reference.kind in ("smooth", "edge", "kink"):
            continue
        derivatives = {
            who: found[i] / line.scale
            for who, found in point.derivatives.items()
            if np.isfinite(found[i])
        }
        if len(derivatives) < 2:
            continue
        values = list(derivatives.values())
        largest = max(map(abs, values))
        if max(values) - min(values) <= TOLERANCES.disagreement * (1e-6 + largest):
            continue
        names = system_names(derivatives)
        findings.append(
            Finding(
                "reverse-forward" if len(names) == 1 else "minority",
                "warning",
                "the answers differ at a point where the function has no derivative",
                systems=names,
                **point.place_of(line),
                numbers=choice_numbers(derivatives),
                advice="Nobody is right here: the value jumps, or its derivative has no bound.",
            )
        )
    return [_counted(findings[0], len(findings))] if findings else []


def _kink_of_many(point: Point, line: Line, place: Any) -> Finding:
    """Report a kink that shows only when several elements move together."""
    reference = point.along(line)
    return Finding(
        "kink",
        "note",
        "the one-sided derivatives differ in a direction in which several elements move",
        systems=system_names(point.derivatives),
        probe=point.probe.name,
        location=place[0],
        primitive=place[1],
        numbers={"left": reference.left, "right": reference.right},
        advice="No fault: there is no derivative here, and each system makes a choice.",
    )
