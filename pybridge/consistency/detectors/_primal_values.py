"""Judge the value under differentiation, in double precision and in the caller's own."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..findings import Finding
from ..subject import Arrays, Point, Subject, Weighted, Who
from ._rule_values import RuleFault, faulty_rules, tolerance, worst

_ADVICE = (
    "While it is differentiated, the function computes something else: a custom rule replaces "
    "the value as well. Let the rule call the function itself for its value."
)


@dataclass
class Own:
    """What JAX gives in the caller's own precision.

    Attributes:
        eps: the relative rounding error of that precision.
        xs: the leaves.
        plain: the plain value.
        values: the value under differentiation, by mode.
        gradients: the gradients; empty where there are none.
    """

    eps: float
    xs: tuple[Any, ...]
    plain: tuple[np.ndarray, ...]
    values: dict[str, tuple[np.ndarray, ...]]
    gradients: tuple[np.ndarray, ...]


def ask_own(subject: Subject, weighted: Weighted, modes: Sequence[str]) -> Own | None:
    """Ask JAX at the given point in the caller's own precision, all in one program.

    Args:
        subject: what is checked.
        weighted: the weights of its outputs.
        modes: those that worked in double precision.

    Returns:
        The answers; None where double precision is the caller's own.
    """
    xs = tuple(jnp.asarray(x) for x in subject.given)
    if subject.is_julia or all(x.real.dtype == subject.dtype for x in xs):
        return None

    def reverse(xs: Arrays) -> Any:
        def scalar(xs: Arrays) -> Any:
            ys = subject.call(xs)
            return weighted.total(ys), ys

        (_, ys), gs = jax.value_and_grad(scalar, has_aux=True)(tuple(xs))
        return ys, gs

    def all_of_it(xs: Arrays) -> Any:
        found: dict[str, Any] = {"plain": subject.call(xs)}
        if "reverse" in modes:
            found["reverse"], found["gradients"] = reverse(xs)
        if "forward" in modes:
            zeros = tuple(jnp.zeros_like(x) for x in xs)
            found["forward"], _ = jax.jvp(lambda *xs: subject.call(xs), tuple(xs), zeros)
        return found

    with contextlib.suppress(Exception):
        found = (jax.jit(all_of_it) if subject.traced else all_of_it)(xs)
        found = jax.tree.map(np.asarray, found)
        largest = max(float(jnp.finfo(x.dtype).eps) for x in xs)
        values = {mode: found[mode] for mode in ("reverse", "forward") if mode in found}
        return Own(largest, xs, found["plain"], values, found.get("gradients", ()))
    return None


def judge_values(point: Point, inside: Callable[[Arrays], Any] | None) -> list[Finding]:
    """Compare each system's value with the plain one, and each custom rule with its function.

    Args:
        point: the point.
        inside: the function as it is where `within_gradient` is True; None where it does not ask.
    """
    subject = point.subject
    closed = subject.jaxpr
    allowed = tolerance(point.plain, point.eps, _sensitivity(point))
    differing: dict[Who, tuple[float, int, Any]] = {}
    for who, ys in point.values.items():
        found = worst(point.plain, ys, allowed) if ys else (0.0, 0, ())
        if found[0] > 1.0:
            differing[who] = found
    if differing and inside is not None:
        answered = tuple(map(np.asarray, inside(point.xs)))
        rest = {who for who in differing if worst(answered, point.values[who], allowed)[0] > 10.0}
        explained = {who: found for who, found in differing.items() if who not in rest}
        if explained:
            note = _mode_dependent(point, explained)
            differing = {who: found for who, found in differing.items() if who in rest}
            if not differing:
                return [note]
            return [note, *_blame(point, differing, [])]
    faults: list[RuleFault] = []
    if closed is not None:
        with contextlib.suppress(Exception):
            faults = faulty_rules(closed, point.xs, 64.0 * point.eps)
            if differing and not faults:
                faults = faulty_rules(closed, point.xs, 0.0)
    if closed is not None and not faults and not subject.is_julia:
        # No rule computes another value: rounding in another order explains the rest.
        differing = {who: found for who, found in differing.items() if found[0] > 1e4}
    return _blame(point, differing, faults)


def judge_own(point: Point, own: Own) -> list[Finding]:
    """Compare in the caller's precision what double precision did not show already."""
    findings: list[Finding] = []
    allowed = tolerance(own.plain, own.eps, _sensitivity(point))
    differing = {("jax", mode): worst(own.plain, ys, allowed) for mode, ys in own.values.items()}
    differing = {who: found for who, found in differing.items() if found[0] > 1.0}
    subject = point.subject
    if differing and subject.traced:
        faults: list[RuleFault] = []
        with contextlib.suppress(Exception):
            closed = jax.make_jaxpr(lambda *xs: subject.call(xs))(*own.xs)
            faults = faulty_rules(closed, own.xs, 64.0 * own.eps) or faulty_rules(
                closed, own.xs, 0.0
            )
        if not faults:
            differing = {who: found for who, found in differing.items() if found[0] > 1e4}
        findings += _blame(point, differing, faults, own)
    wide = point.gradients.get(("jax", "reverse"), ())
    for leaf, (narrow, known) in enumerate(zip(own.gradients, wide, strict=False)):
        bad = ~np.isfinite(narrow) & np.isfinite(known)
        if bad.any() and all(np.all(np.isfinite(y)) for y in own.plain):
            place = tuple(int(k) for k in np.argwhere(bad)[0])
            findings.append(
                Finding(
                    "non-finite",
                    "error",
                    f"jax in reverse mode gives {narrow[place]} in {narrow.dtype}, and "
                    f"{known[place]:.6g} in double precision",
                    systems=("jax",),
                    mode="reverse",
                    argument=subject.paths[leaf],
                    element=place or None,
                    numbers={
                        str(narrow.dtype): float(np.real(narrow[place])),
                        "float64": float(np.real(known[place])),
                    },
                    advice="A number in between is too large or too small for this precision: "
                    "compute with logarithms, or subtract the largest before an exponential.",
                )
            )
            break
    return findings


def _blame(
    point: Point,
    differing: dict[Who, tuple[float, int, Any]],
    faults: list[RuleFault],
    own: Own | None = None,
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
        here = (own.values[who[1]] if own else point.values[who])[number][place]
        by_place.setdefault((number, place, _key(here)), []).append(who)
    for (number, place, _), whos in by_place.items():
        values = {who: (own.values[who[1]] if own else point.values[who]) for who in whos}
        got = values[whos[0]][number][place]
        want = plain[number][place]
        names = tuple(dict.fromkeys(name for name, _ in whos))
        modes = {mode for _, mode in whos}
        findings.append(
            Finding(
                "value",
                "error",
                f"value under differentiation {_write(got)}, plain value {_write(want)}",
                systems=names,
                mode=modes.pop() if len(modes) == 1 and modes <= {"forward", "reverse"} else None,
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
    got, want = point.values[who][number][place], point.plain[number][place]
    return mode_dependent(
        point,
        f"value under differentiation {_write(got)}, plain value {_write(want)}: the function "
        "asks within_gradient",
        {who[0]: _plain(got), "plain": _plain(want)},
        tuple(dict.fromkeys(name for name, _ in explained)),
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
        from ..._jaxprs import user_line
        from ..subject import equations
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


def _sensitivity(point: Point) -> float:
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
