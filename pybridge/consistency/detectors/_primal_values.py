"""Values that are others while the function is differentiated."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...primitives import within_gradient_p
from ..findings import Finding
from ..subject import Arrays, Place, Point, Who, first_place, own_mode, system_names
from ._context import Context
from ._custom_rules import RuleFault, faulty_rules, largest_gap

# A value may differ by this many units in the last place, and by as many of what rounding the
# arguments does to it: compiled programs add up in another order.
_ULPS = 64.0

# So many tolerances are more than another order of rounding explains, with no rule to blame.
_BEYOND_ROUNDING = 1e4

_ADVICE = (
    "While it is differentiated, the function computes something else: a custom rule replaces "
    "the value as well. Let the rule call the function itself for its value."
)

ASKS = frozenset({within_gradient_p.name})


class Gap(NamedTuple):
    """Where two values differ most.

    Attributes:
        ratio: the difference, in units of the tolerance.
        number: of the output.
        place: the index in it.
    """

    ratio: float = 0.0
    number: int = 0
    place: tuple[int, ...] = ()

    def of(self, values: Arrays) -> Any:
        """Give the number of a value there."""
        return values[self.number][self.place]


Values = Mapping[Who, Arrays]
Gaps = dict[Who, Gap]


def detect_other_values(context: Context) -> Iterable[Finding]:
    """Compare each system's value with the plain one, and each custom rule with its function."""
    if not context.is_comparable:
        return []
    point, closed, values = context.point, context.point.subject.jaxpr, context.point.answers.values
    allowed = tolerance(point.plain, point.eps, sensitivity(point))
    gaps = find_gaps(point.plain, values, allowed)
    if gaps and context.inside is not None:
        answered = tuple(map(np.asarray, context.inside(point.xs)))
        rest = {who for who in gaps if _worst(answered, values[who], allowed).ratio > 10.0}
        explained = {who: gap for who, gap in gaps.items() if who not in rest}
        if explained:
            gaps = {who: gap for who, gap in gaps.items() if who in rest}
            note = _mode_dependent(point, explained)
            return [note, *(blame_rules(point, point.plain, values, gaps, []) if gaps else [])]
    faults: list[RuleFault] = []
    if closed is not None:
        with contextlib.suppress(Exception):
            faults = faulty_rules(closed, point.xs, 64.0 * point.eps)
            if gaps and not faults:
                faults = faulty_rules(closed, point.xs, 0.0)
    if closed is not None and not faults and not point.subject.is_julia:
        gaps = beyond_rounding(gaps)
    return blame_rules(point, point.plain, values, gaps, faults)


def tolerance(ys: Arrays, eps: float, sensitivity: float) -> list[np.ndarray]:
    """Say by how much each output may differ for no other reason than rounding.

    Args:
        ys: the outputs.
        eps: the relative rounding error of their precision.
        sensitivity: the sum of |derivative times argument|, for one output.

    Returns:
        One array for each output.
    """
    return [_ULPS * eps * (np.abs(np.asarray(y, np.complex128)) + sensitivity) for y in ys]


def sensitivity(point: Point) -> float:
    """Say what rounding of the arguments does to one output, relative to the rounding."""
    outputs = max(point.origin.size, 1)
    for gs in point.gradients.values():
        with np.errstate(all="ignore"):
            total = sum(float(np.nansum(np.abs(g * x))) for g, x in zip(gs, point.xs, strict=True))
        return 4.0 * total / outputs if np.isfinite(total) else 0.0
    return 0.0


def find_gaps(plain: Arrays, values: Values, allowed: Sequence[np.ndarray]) -> Gaps:
    """Find the values under differentiation that differ from the plain one beyond a tolerance."""
    gaps = {who: _worst(plain, ys, allowed) for who, ys in values.items() if ys}
    return {who: gap for who, gap in gaps.items() if gap.ratio > 1.0}


def beyond_rounding(gaps: Gaps) -> Gaps:
    """Leave out what rounding in another order explains, where no rule computes another value."""
    return {who: gap for who, gap in gaps.items() if gap.ratio > _BEYOND_ROUNDING}


def _worst(one: Arrays, two: Arrays, tolerances: Sequence[np.ndarray]) -> Gap:
    """Find where two values differ most, in units of the tolerance."""
    best = Gap()
    for number, (a, b, allowed) in enumerate(zip(one, two, tolerances, strict=True)):
        a, b = np.asarray(a), np.asarray(b)
        if a.shape == b.shape and a.size:
            ratio, place = largest_gap(a, b, allowed)
            best = Gap(ratio, number, place) if ratio > best.ratio else best
    return best


def blame_rules(
    point: Point, plain: Arrays, values: Values, gaps: Gaps, faults: list[RuleFault]
) -> list[Finding]:
    """Write findings for values that differ, or else for the rules that do.

    Args:
        point: where they differ.
        plain: the plain value.
        values: those under differentiation.
        gaps: where these differ from the plain one.
        faults: rules that compute other values, the worst first.
    """
    if not gaps:
        return [_blame_rule(point, fault) for fault in faults[:3]]
    place = faults[0].place if faults else Place()
    reason = f" The rule of {faults[0].name} computes another value." if faults else ""
    alike: dict[Any, list[Who]] = {}
    for who, gap in gaps.items():
        number = f"{complex(gap.of(values[who])):.6g}"
        alike.setdefault((gap.number, gap.place, number), []).append(who)
    findings = []
    for whos in alike.values():
        gap, names = gaps[whos[0]], system_names(whos)
        got, want = gap.of(values[whos[0]]), gap.of(plain)
        numbers = {**dict.fromkeys(names, got), "plain": want}
        findings.append(
            point.finding(
                "value",
                "error",
                f"value under differentiation {_write(got)}, plain value {_write(want)}",
                names,
                mode=own_mode(whos),
                place=place,
                numbers={name: float(np.real(number)) for name, number in numbers.items()},
                advice=_ADVICE + reason,
            )
        )
    return findings


def _blame_rule(point: Point, fault: RuleFault) -> Finding:
    """Report a rule whose other value does not reach that of the function."""
    return point.finding(
        "value",
        "error",
        f"the rule of {fault.name} computes {_write(fault.inside)}, the function "
        f"{_write(fault.plain)}",
        ["jax"],
        place=fault.place,
        numbers={"jax": fault.inside, "plain": fault.plain, "relative": fault.difference},
        advice="The difference does not reach the value here, but it may elsewhere. Let "
        "the rule call the function itself for its value.",
    )


def _mode_dependent(point: Point, explained: Gaps) -> Finding:
    who, gap = next(iter(explained.items()))
    got, want = gap.of(point.answers.values[who]), gap.of(point.plain)
    return mode_dependent(
        point,
        f"value under differentiation {_write(got)}, plain value {_write(want)}: the function "
        "asks within_gradient",
        {who[0]: float(np.real(got)), "plain": float(np.real(want))},
        system_names(explained),
    )


def mode_dependent(
    point: Point, title: str, numbers: dict[str, float], names: tuple[str, ...]
) -> Finding:
    """Note that a function does something else inside a gradient, on purpose."""
    return point.finding(
        "mode-dependent",
        "note",
        title,
        names,
        place=asking_place(point),
        numbers=numbers,
        advice="On purpose, and no fault: derivatives were compared with differences of the "
        "function as it is inside a gradient.",
    )


def asking_place(point: Point) -> Place:
    """Find where a function asks `within_gradient`."""
    if point.subject.is_julia:
        asks = point.subject.sightings.asks
        location = asks.location if asks is not None else None
    else:
        asked = first_place(point.subject.jaxpr, lambda eqn: eqn.primitive.name in ASKS)
        location = asked.location
    return Place(location, "within_gradient")


def _write(x: Any) -> str:
    """Write a number with as many digits as two of them need to differ visibly."""
    x = complex(x)
    return f"{x.real:.8g}" if x.imag == 0 else f"{x:.8g}"
