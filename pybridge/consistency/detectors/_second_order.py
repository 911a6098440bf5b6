"""Second derivatives: against differences of gradients, and for symmetry."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from ..._errors import first_line
from ...finite import TOLERANCES, Curve, DirectionalDerivative, two_sided_derivative
from ..findings import Finding, SystemAnswer
from ..subject import (
    Arrays,
    Line,
    Point,
    closely,
    is_unsupported,
    named,
    noise_along,
    random_line,
    real_vector,
)
from ._context import Context
from ._wrong_rules import rule_line

# Steps of differences begin at an eighth and end near this part of it.
_TINY = 2.0**-20


def detect_wrong_second_order(context: Context) -> Iterator[Finding | SystemAnswer]:
    """Ask each system for derivatives of its gradient along the probe's direction.

    Only where gradients are right and the function smooth: otherwise the second derivative tells
    nothing new. What the accuracy of a solver hides in the gradient it hides in its derivative.
    """
    point = context.point
    wrong = any(f.severity == "error" or f.kind == "finite" for f in context.findings)
    if not context.is_comparable or wrong:
        return
    for system in point.answers.systems:
        if "second" in system.modes and any(name == system.name for name, _ in point.derivatives):
            context.say(f"{point.probe.name}: {system.name}, second order")
            yield from _compare_second(point, system, context.seed)


def _compare_second(point: Point, system: Any, seed: int) -> Iterator[Finding | SystemAnswer]:
    start, name = time.perf_counter(), point.probe.name
    length = _length(point.xs)
    whole = tuple(point.probe.direction[path] for path in point.subject.paths)
    direction = Line(tuple(np.asarray(v * length, v.dtype) for v in whole))
    try:
        _, hs = system.second(point.xs, direction.vs)
        hs = tuple(np.asarray(h) for h in hs)
    except Exception as error:
        yield SystemAnswer(system.name, "second", name, error=first_line(error),
                           seconds=time.perf_counter() - start)  # fmt: skip
        refused = is_unsupported(error)
        yield Finding(
            "unsupported" if refused else "exception",
            "note" if refused else "error",
            f"{system.name} has no second derivative: {first_line(error)}",
            systems=(system.name,),
            mode="second",
            probe=name,
            advice="First derivatives were compared without it.",
        )
        return
    shown = named(point.subject.paths, tuple(h / length for h in hs))
    yield SystemAnswer(system.name, "second", name, None, shown,
                       seconds=time.perf_counter() - start)  # fmt: skip
    findings = _compare_with_differences(point, system, direction, hs)
    yield from findings or _symmetry(point, system, direction, hs, seed)


def _length(xs: Arrays) -> float:
    """Say how long a direction is to be: where all numbers are tiny, a function may change there.

    The curvature of a norm at 1e-25 cannot be seen from steps of an eighth, nor from a millionth
    of that, see `Tolerances`.
    """
    sizes = np.concatenate([np.abs(np.ravel(x)) for x in xs] or [np.zeros(0)])
    largest = float(np.max(sizes[np.isfinite(sizes)], initial=0.0))
    return largest if 0.0 < largest < _TINY else 1.0


def _compare_with_differences(
    point: Point, system: Any, line: Line, hs: tuple[np.ndarray, ...]
) -> list[Finding]:
    flat = np.asarray(real_vector(hs), float)
    tables: list[DirectionalDerivative] = []
    origin = _gradient(system, point, point.xs)
    if origin is None or not np.all(np.isfinite(origin)):
        return []

    def sample(ts: np.ndarray) -> np.ndarray:
        return _gradients(system, point, line, ts)

    # A gradient has a thousand components where a value has one, and where all of them agree
    # already no one-sided derivatives are needed. The estimate's error is no excuse here.
    first = two_sided_derivative(Curve(sample, origin, eps=point.eps))
    with np.errstate(all="ignore"):
        if np.all(np.abs(flat - first) <= _slack(flat, first, origin, point)):
            return []
    noise, ones = noise_along(sample, origin, line, point.xs, point.eps), np.ones_like(origin)
    for factor in TOLERANCES.factors:
        reference = closely(sample, origin, ones, line, point.xs, point.eps, factor, noise)
        tables.append(reference)
        bad = _different(flat, reference, origin, point)
        if not bad.any():
            return []
    bad = np.logical_and.reduce(
        [_different(flat, reference, origin, point) for reference in tables]
    )
    middle = np.median([reference.components for reference in tables], axis=0)
    spread = np.ptp([reference.components for reference in tables], axis=0)
    with np.errstate(all="ignore"):
        bad &= (np.abs(flat - middle) > TOLERANCES.spread * spread) | ~np.isfinite(flat)
        bad &= ~(np.abs(flat - middle) <= 10.0 * _unsteady(system, point, line, flat))
    if not bad.any():
        return []
    with np.errstate(all="ignore"):
        gaps = np.where(bad, np.nan_to_num(np.abs(flat - middle), nan=np.inf), -1.0)
    place = int(np.argmax(gaps))
    if gaps[place] < point.hidden(point.along(line)):
        return []
    leaf, element = _element(hs, place)
    location, primitive = rule_line(point.subject.jaxpr)
    length = _length(point.xs)
    got, seen = float(flat[place]) / length, float(middle[place]) / length
    if not np.isfinite(got):
        title, kind = f"the second derivative is {got}", "non-finite"
    else:
        title, kind = f"the second derivative is {got:.6g}", "second-order"
    title += f", where differences of the gradient give {seen:.6g}"
    if bad.sum() > 1:
        title += f" (and in {int(bad.sum()) - 1} more)"
    return [
        Finding(
            kind,
            "error",
            f"{system.name}: {title}",
            systems=(system.name,),
            mode="second",
            probe=point.probe.name,
            argument=point.subject.paths[leaf],
            element=element or None,
            numbers={system.name: got, "finite": seen},
            advice="The gradient is right, and its own derivative is not: a rule whose derivative "
            "is cut off or written for the first order only, or a shortcut at this very point.",
            location=location,
            primitive=primitive,
        )
    ]


def _unsteady(system: Any, point: Point, line: Line, flat: np.ndarray) -> np.ndarray:
    """Say by how much the last digits of the arguments change second derivatives.

    Both sides of the point are compared, so that a shortcut at the very point does not count.
    """
    sides = []
    for nudge in (4.0 * point.eps, -4.0 * point.eps):
        moved = tuple(np.asarray(x + nudge * x, x.dtype) for x in point.xs)
        try:
            _, hs = system.second(moved, line.vs)
        except Exception:
            return np.zeros_like(flat)
        sides.append(np.asarray(real_vector(tuple(map(np.asarray, hs))), float))
    return np.nan_to_num(np.abs(sides[0] - sides[1]), nan=0.0, posinf=0.0)


def _different(
    flat: np.ndarray, reference: DirectionalDerivative, origin: np.ndarray, point: Point
) -> np.ndarray:
    """Mark the components that differ for sure, where the gradient is smooth."""
    components = reference.components
    with np.errstate(all="ignore"):
        slack = TOLERANCES.estimates * reference.errors + _slack(
            flat, components, origin, point, reference.smooth
        )
        gap = np.abs(flat - components)
        known = reference.smooth & np.isfinite(components) & np.isfinite(reference.errors)
        return known & ((gap > slack) | ~np.isfinite(flat))


def _slack(
    flat: np.ndarray,
    components: np.ndarray,
    origin: np.ndarray,
    point: Point,
    smooth: np.ndarray | slice = slice(None),
) -> np.ndarray:
    """Say by how much right components may differ, apart from the error of the differences."""
    eps = point.eps
    relative = TOLERANCES.relative(eps, TOLERANCES.agreement_second)
    largest = float(np.max(np.abs(components[smooth]), initial=0.0))
    allowed = point.allowed
    return (
        max(relative, allowed.rtol) * (np.abs(flat) + np.abs(components))
        + allowed.atol
        + 0.1 * relative * largest
        + TOLERANCES.lost * eps * float(np.max(np.abs(origin), initial=0.0))
        + _rounding(point)
        + np.finfo(float).tiny
    )


def _rounding(point: Point) -> float:
    """Say what rounding of the value may do, see `Tolerances.lost`."""
    weights = point.weighted.flat_weights
    parts = np.abs((point.origin * weights)[weights != 0])
    return TOLERANCES.lost * point.eps * float(np.sum(parts))


def _symmetry(
    point: Point, system: Any, line: Line, hs: tuple[np.ndarray, ...], seed: int
) -> list[Finding]:
    """Compare v'Hw with w'Hv."""
    other = random_line(point.xs, np.random.default_rng([seed, 99]))
    if system.name != "jax":
        return []  # built from the whole Hessian, whose columns the differences saw
    try:
        _, turned = system.second(point.xs, other.vs)
    except Exception:
        return []
    first = [float(np.sum(np.real(h * v))) for h, v in zip(hs, other.vs, strict=True)]
    second = [
        float(np.sum(np.real(np.asarray(h) * v))) for h, v in zip(turned, line.vs, strict=True)
    ]
    size = sum(float(np.sum(np.abs(h * v))) for h, v in zip(hs, other.vs, strict=True))
    size += sum(float(np.sum(np.abs(np.asarray(h) * v))) for h, v in
                zip(turned, line.vs, strict=True))  # fmt: skip
    left, right = sum(first), sum(second)
    # What rounding of the gradient itself amounts to.
    floor = (
        TOLERANCES.lost
        * point.eps
        * sum(
            float(np.sum(np.abs(g * v) + np.abs(g * w)))
            for g, v, w in zip(
                point.gradients.get((system.name, "reverse"), ()), line.vs, other.vs, strict=False
            )
        )
    )
    slack = (
        max(TOLERANCES.agreement_second, 100 * point.eps, point.allowed.rtol) * size
        + floor
        + _rounding(point)
    )
    slack += point.allowed.atol
    if not np.isfinite(left + right) or abs(left - right) <= slack:
        return []
    return [
        Finding(
            "second-order",
            "warning",
            f"{system.name}: the Hessian is not symmetric: w'Hv is {left:.6g}, v'Hw {right:.6g}",
            systems=(system.name,),
            mode="second",
            probe=point.probe.name,
            numbers={"w'Hv": left, "v'Hw": right},
            advice="The gradient is not the gradient of one function near this point, or a rule "
            "is right for the first order only.",
        )
    ]


def _gradient(system: Any, point: Point, xs: Arrays) -> np.ndarray | None:
    known = point.gradients.get((system.name, "reverse"))
    known = known if known is not None else point.gradients.get((system.name, "chunks"))
    if known is not None and xs is point.xs:
        return np.asarray(real_vector(known), float)
    try:
        return np.asarray(real_vector(tuple(map(np.asarray, system.reverse(xs)[1]))), float)
    except Exception:
        return None


def _gradients(system: Any, point: Point, line: Line, ts: np.ndarray) -> np.ndarray:
    """Compute gradients at several distances; NaN where there is none."""
    many = getattr(system, "gradients", None)
    if many is not None:
        try:
            return np.asarray(many(point.xs, line.vs, ts.astype(point.subject.dtype)), float)
        except Exception:
            pass
    rows = []
    for t in ts:
        pairs = zip(point.xs, line.vs, strict=True)
        moved = tuple(np.asarray(x + t * v, x.dtype) for x, v in pairs)
        row = _gradient(system, point, moved)
        size = sum(np.size(x) * (2 if np.iscomplexobj(x) else 1) for x in point.xs)
        rows.append(np.full(size, np.nan) if row is None else row)
    return np.stack(rows)


def _element(hs: tuple[np.ndarray, ...], place: int) -> tuple[int, tuple[int, ...]]:
    """Find leaf and element of a place in the flat vector."""
    for leaf, h in enumerate(hs):
        size = h.size * (2 if np.iscomplexobj(h) else 1)
        if place < size:
            return leaf, tuple(int(k) for k in np.unravel_index(place % max(h.size, 1), h.shape))
        place -= size
    return 0, ()
