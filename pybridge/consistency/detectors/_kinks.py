"""Points at which a function has no derivative: kinks, jumps and vertical tangents."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
from jax.extend.core import ClosedJaxpr

from ...finite import TOLERANCES
from ...jaxprs import contains
from .._wording import gives, join
from ..findings import Finding, SlopeCurve
from ..subject import NOWHERE, Arrays, Line, Place, Point, Seen, system_names, walk

# Operations that have a kink where two numbers are equal, or one is 0.
_TIES = frozenset(
    {"max", "min", "abs", "sign", "reduce_max", "reduce_min", "clamp", "sort", "floor", "ceil",
     "round", "lt", "gt", "le", "ge", "eq", "ne", "sqrt", "cumsum", "cummax", "cummin", "argmax",
     "argmin", "top_k"}
)  # fmt: skip


def find_change(closed: ClosedJaxpr | None, point: Point, line: Line) -> Place:
    """Find the operation whose choice changes where a line goes through a kink, with its line.

    What differs between the two sides counts first, then what differs between the point and a
    side: a norm at 0 is above 0 on both.
    """
    if closed is None or not contains(closed, _TIES):
        return NOWHERE
    step = 4.0 * point.eps**0.5
    before, at, after = (_choices(closed, line.at(point.xs, t)) for t in (-step, 0.0, step))
    for first, second in ((before, after), (before, at), (at, after)):
        # Where a branch changes, so do all operations after it: only the common start counts.
        for (place, choice), (other, changed) in zip(first, second, strict=False):
            if place != other:
                break
            if choice != changed:
                return place
    return find_tie(closed, point.xs)


def _choices(closed: ClosedJaxpr, xs: Arrays) -> list[tuple[Place, bytes]]:
    """List what each operation that chooses chooses at a point, up to the first exception."""
    found: list[tuple[Place, bytes]] = []

    def visit(seen: Seen) -> None:
        place = Place(seen.line, seen.eqn.primitive.name)
        found.append((place, _choice(seen, [np.asarray(x) for x in seen.ins])))

    with contextlib.suppress(Exception):
        walk(closed, xs, _TIES, visit)
    return found


def _compared(name: str, ins: list[np.ndarray]) -> list[tuple[np.ndarray, Any]]:
    """Give the pairs of numbers whose order an operation on elements goes by."""
    first = ins[0]
    if name in ("max", "min", "lt", "gt", "le", "ge", "eq", "ne"):
        return [(first, ins[1])]
    if name in ("abs", "sign", "sqrt"):
        return [(first, 0)]
    return [(ins[1], first), (ins[1], ins[2])] if name == "clamp" else []


def _largest(name: str, first: np.ndarray, params: Any) -> np.ndarray:
    """Mark the elements that a reduction chooses."""
    reduce = np.max if name == "reduce_max" else np.min
    return first == reduce(first, axis=tuple(params["axes"]), keepdims=True)


def _choice(seen: Seen, ins: list[np.ndarray]) -> bytes:
    """Write which of its operands, or which of its pieces, an operation chooses."""
    name, params, first = seen.eqn.primitive.name, seen.eqn.params, ins[0]
    if not np.issubdtype(first.dtype, np.inexact) or np.iscomplexobj(first):
        return b""
    found: Any = first * 0
    pairs = _compared(name, ins)
    if pairs:
        found = sum(np.sign(one - other) for one, other in pairs)
    elif name in ("floor", "ceil", "round", "argmax", "argmin"):
        found = np.asarray(seen.outs()[0])
    elif name in ("reduce_max", "reduce_min"):
        found = _largest(name, first, params)
    elif name == "sort":
        found = np.argsort(first, axis=params["dimension"], kind="stable")
    elif name == "top_k":
        found = np.asarray(seen.outs()[1])
    elif name in ("cummax", "cummin"):
        found = np.asarray(seen.outs()[0]) == first
    return np.asarray(found).tobytes()


def find_tie(closed: ClosedJaxpr | None, xs: Arrays) -> Place:
    """Find the operation that is at its kink, with its line."""
    found: list[Place] = []

    def visit(seen: Seen) -> None:
        name = seen.eqn.primitive.name
        if not found and _is_tied(name, [np.asarray(x) for x in seen.ins], seen.eqn.params):
            found.append(Place(seen.line, name))

    if closed is not None and contains(closed, _TIES):
        walk(closed, xs, _TIES, visit)
    return found[0] if found else NOWHERE


def _is_tied(name: str, ins: list[np.ndarray], params: Any) -> bool:
    """Say whether an operation meets equal numbers, or a 0, where it matters."""
    if not np.issubdtype(ins[0].dtype, np.inexact):
        return False
    first, pairs = ins[0], _compared(name, ins)
    if pairs:
        return any(bool(np.any(one == other)) for one, other in pairs)
    if name in ("floor", "ceil", "round"):
        return bool(np.any(first == np.round(first)))
    if name in ("reduce_max", "reduce_min"):
        return bool(np.any(np.sum(_largest(name, first, params), tuple(params["axes"])) > 1))
    if name == "sort":
        axis = params["dimension"]
        ordered = np.sort(first, axis=axis)
        return bool(np.any(np.diff(ordered, axis=axis) == 0))
    return False


def compare_choices(point: Point, line: Line, place: Place) -> Iterator[Finding]:
    """Say what each system chooses at a kink, and whether it lies between the one-sided ones."""
    reference, unit = point.along(line), point.unit(line)
    choices = {who: choice for who, choice in point.shown(line).items() if np.isfinite(choice)}
    low, high = sorted((reference.low / unit, reference.high / unit))
    slack = TOLERANCES.estimates * reference.error / abs(unit)
    slack += TOLERANCES.choice * (1e-3 + abs(low) + abs(high))
    between = {who for who, choice in choices.items() if low - slack <= choice <= high + slack}
    left, right = reference.left / unit, reference.right / unit
    numbers = {"left": left, "right": right, **choice_numbers(choices)}
    derivatives = f"{left:.4g} from the left and {right:.4g} from the right"
    wrong = system_names(who for who in choices if who not in between)
    if wrong:
        yield point.finding(
            "kink",
            "error",
            f"the derivative is {derivatives}, and {join(wrong)} "
            f"{gives(wrong)} another that does not lie between them",
            wrong,
            line=line,
            place=place,
            numbers=numbers,
            advice="Such a number is no derivative of the function. Choose one with a rule "
            "of your own, or smooth the kink.",
        )
    if between:
        yield point.finding(
            "kink",
            "note",
            f"the derivative is {derivatives}; each system makes a choice between them",
            system_names(who for who in choices if who in between),
            line=line,
            place=place,
            numbers=numbers,
            advice="No fault: there is no derivative here. Smooth the function, or choose "
            "with a rule of your own, if the choice matters.",
        )


def note_kink_of_many(point: Point, line: Line, place: Place) -> Finding:
    """Report a kink that shows only when several elements move together."""
    reference = point.along(line)
    return point.finding(
        "kink",
        "note",
        "the one-sided derivatives differ in a direction in which several elements move",
        system_names(point.derivatives),
        place=place,
        numbers={"left": reference.left, "right": reference.right},
        advice="No fault: there is no derivative here, and each system makes a choice.",
    )


def choice_numbers(choices: dict[tuple[str, str], float]) -> dict[str, float]:
    """Name derivatives by their systems, and by the mode where the modes of one differ."""
    numbers: dict[str, float] = {}
    for (name, mode), derivative in choices.items():
        same = all(
            np.isclose(other, derivative, rtol=1e-7, atol=1e-12, equal_nan=True)
            for (other_name, _), other in choices.items()
            if other_name == name
        )
        numbers[name if same else f"{name} ({mode})"] = derivative
    return numbers


def curve(point: Point, line: Line) -> SlopeCurve:
    """Sample the function along a line through a kink."""
    grid = np.linspace(1.0, 0.0, TOLERANCES.levels, endpoint=False) * 0.5
    ts = np.concatenate([grid, -grid])
    middle = point.origin @ point.weighted.flat_weights
    values = np.append(point.references.values_along(line, ts), middle)
    steps = np.append(ts, 0.0) * line.scale
    order, reference = np.argsort(steps), point.along(line)
    return SlopeCurve(
        point.subject.paths[line.leaf or 0],
        line.element,
        steps[order],
        values[order],
        reference.left / line.scale,
        reference.right / line.scale,
        choice_numbers(point.shown(line, unit=line.scale)),
        point.probe.name,
    )


def note_break(point: Point, line: Line, place: Place) -> Finding | None:
    """Say that a value jumps, or that a derivative has no bound, where systems give a number."""
    reference, unit, choices = point.along(line), point.unit(line), point.shown(line)
    if reference.kind == "jump":
        severity = "note"
        title = "the value jumps here; the systems give the derivative of the side that is taken"
        advice = "A derivative says nothing about a jump: optimisation does not see it."
    elif reference.kind == "vertical" and np.all(np.isfinite(list(choices.values()))):
        severity = "warning"
        title = "the derivative has no bound here, and the systems give a finite number"
        advice = "The number comes from a guard or a convention of one operation."
    else:
        return None
    sides = {"left": reference.left / unit, "right": reference.right / unit}
    return point.finding(
        "special-case",
        severity,
        title,
        system_names(choices),
        line=line,
        place=place,
        numbers={**sides, **choice_numbers(choices)},
        advice=advice,
    )
