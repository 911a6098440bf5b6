"""Points at which a function has no derivative: kinks, jumps and vertical tangents."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
from jax.extend.core import ClosedJaxpr

from ...finite import TOLERANCES, DirectionalDerivative
from ...jaxprs import Location, contains
from .._wording import gives, join
from ..findings import Finding, SlopeCurve
from ..subject import Arrays, Line, Point, Seen, system_names, walk

# Operations that have a kink where two numbers are equal, or one is 0.
_TIES = frozenset(
    {"max", "min", "abs", "sign", "reduce_max", "reduce_min", "clamp", "sort", "floor", "ceil",
     "round", "lt", "gt", "le", "ge", "eq", "ne", "sqrt", "cumsum", "cummax", "cummin", "argmax",
     "argmin", "top_k"}
)  # fmt: skip


def find_change(
    closed: ClosedJaxpr | None, point: Point, line: Line
) -> tuple[Location | None, str | None]:
    """Find the operation whose choice changes where a line goes through a kink, with its line.

    What differs between the two sides counts first, then what differs between the point and a
    side: a norm at 0 is above 0 on both.
    """
    if closed is None or not contains(closed, _TIES):
        return None, None
    step = 4.0 * point.eps**0.5
    runs = []
    for t in (-step, 0.0, step):
        seen: list[tuple[Any, Location | None, bytes]] = []

        def visit(visited: Seen, seen: list[Any] = seen) -> None:
            ins = [np.asarray(x) for x in visited.ins]
            seen.append((visited.eqn.primitive.name, visited.line, _choice(visited, ins)))

        pairs = zip(point.xs, line.vs, strict=True)
        with contextlib.suppress(Exception):
            walk(closed, [np.asarray(x + t * v, x.dtype) for x, v in pairs], _TIES, visit)
        runs.append(seen)
    before, at, after = runs
    for first, second in ((before, after), (before, at), (at, after)):
        # Where a branch changes, so do all operations after it: only the common start counts.
        for (name, place, choice), (other_name, other_place, changed) in zip(
            first, second, strict=False
        ):
            if (name, place) != (other_name, other_place):
                break
            if choice != changed:
                return place, name
    return find_tie(closed, point.xs)


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
        found = np.asarray(seen.outs[0])
    elif name in ("reduce_max", "reduce_min"):
        found = _largest(name, first, params)
    elif name == "sort":
        found = np.argsort(first, axis=params["dimension"], kind="stable")
    elif name == "top_k":
        found = np.asarray(seen.outs[1])
    elif name in ("cummax", "cummin"):
        found = np.asarray(seen.outs[0]) == first
    return np.asarray(found).tobytes()


def find_tie(closed: ClosedJaxpr | None, xs: Arrays) -> tuple[Location | None, str | None]:
    """Find the operation that is at its kink, with its line."""
    if closed is None or not contains(closed, _TIES):
        return None, None
    found: list[tuple[Location | None, str]] = []

    def visit(seen: Seen) -> None:
        name = seen.eqn.primitive.name
        if not found and _is_tied(name, [np.asarray(x) for x in seen.ins], seen.eqn.params):
            found.append((seen.line, name))

    walk(closed, xs, _TIES, visit)
    return found[0] if found else (None, None)


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


def compare_choices(
    point: Point, line: Line, reference: DirectionalDerivative, place: tuple[Any, Any]
) -> list[Finding]:
    """Say what each system chooses at a kink, and whether it lies between the one-sided ones."""
    unit = point.unit(line)
    choices = {
        who: point.derivative(who, line) / unit for who in point.derivatives if _is_own_mode(who)
    }
    low, high = sorted((reference.low / unit, reference.high / unit))
    slack = TOLERANCES.estimates * reference.error / abs(unit)
    slack += TOLERANCES.choice * (1e-3 + abs(low) + abs(high))
    inside = {
        who: bool(low - slack <= derivative <= high + slack)
        for who, derivative in choices.items()
        if np.isfinite(derivative)
    }
    left, right = reference.left / unit, reference.right / unit
    shown = choice_numbers({who: choices[who] for who in inside})
    numbers = {"left": left, "right": right, **shown}
    findings = []
    common = {
        **point.place_of(line),
        "location": place[0],
        "primitive": place[1],
        "numbers": numbers,
    }
    derivatives = f"{left:.4g} from the left and {right:.4g} from the right"
    wrong = system_names(who for who, is_in in inside.items() if not is_in)
    if wrong:
        findings.append(
            Finding(
                "kink",
                "error",
                f"the derivative is {derivatives}, and {join(wrong)} "
                f"{gives(wrong)} another that does not lie between them",
                systems=wrong,
                **common,
                advice="Such a number is no derivative of the function. Choose one with a rule "
                "of your own, or smooth the kink.",
            )
        )
    right_ones = system_names(who for who, is_in in inside.items() if is_in)
    if right_ones:
        findings.append(
            Finding(
                "kink",
                "note",
                f"the derivative is {derivatives}; each system makes a choice between them",
                systems=right_ones,
                **common,
                advice="No fault: there is no derivative here. Smooth the function, or choose "
                "with a rule of your own, if the choice matters.",
            )
        )
    return findings


def _is_own_mode(who: tuple[str, str]) -> bool:
    return who[1] in ("forward", "reverse")


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


def curve(point: Point, line: Line, reference: DirectionalDerivative) -> SlopeCurve:
    """Sample the function along a line through a kink."""
    grid = np.linspace(1.0, 0.0, TOLERANCES.levels, endpoint=False) * 0.5
    ts = np.concatenate([grid, -grid])
    middle = point.origin @ point.weighted.flat_weights
    values = np.append(point.references.values_along(line, ts), middle)
    steps = np.concatenate([ts, [0.0]]) * line.scale
    order = np.argsort(steps)
    choices = {who: point.derivative(who, line) / line.scale for who in point.derivatives
               if _is_own_mode(who)}  # fmt: skip
    return SlopeCurve(
        point.subject.paths[line.leaf or 0],
        line.element,
        steps[order],
        values[order],
        reference.left / line.scale,
        reference.right / line.scale,
        choice_numbers(choices),
        point.probe.name,
    )


def note_break(
    point: Point, line: Line, reference: DirectionalDerivative, place: tuple[Any, Any]
) -> Finding | None:
    """Say that a value jumps, or that a derivative has no bound, where systems give a number."""
    unit = point.unit(line)
    derivatives = {who: point.derivative(who, line) / unit for who in point.derivatives
              if _is_own_mode(who)}  # fmt: skip
    common = {
        "systems": system_names(derivatives),
        **point.place_of(line),
        "location": place[0],
        "primitive": place[1],
    }
    numbers = {"left": reference.left / unit, "right": reference.right / unit}
    numbers |= choice_numbers(derivatives)
    if reference.kind == "jump":
        return Finding(
            "special-case",
            "note",
            "the value jumps here; the systems give the derivative of the side that is taken",
            numbers=numbers,
            advice="A derivative says nothing about a jump: optimisation does not see it.",
            **common,
        )
    if reference.kind == "vertical" and all(np.isfinite(list(derivatives.values()))):
        return Finding(
            "special-case",
            "warning",
            "the derivative has no bound here, and the systems give a finite number",
            numbers=numbers,
            advice="The number comes from a guard or a convention of one operation.",
            **common,
        )
    return None
