"""Second derivatives: against differences of gradients, and for symmetry."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from ..._errors import first_line
from ...finite import (
    TOLERANCES,
    Curve,
    DirectionalDerivative,
    is_closer,
    is_shown,
    two_sided_derivative,
)
from ..findings import Finding, SystemAnswer
from ..subject import (
    NOWHERE,
    Arrays,
    Line,
    Point,
    Section,
    derivative_along,
    is_unsupported,
    moved,
    named,
    random_line,
    real_vector,
)
from ._context import Context
from ._custom_rules import rule_place
from ._purposes import on_purpose


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
    start, said = time.perf_counter(), {}
    paths = point.subject.paths
    line = Line(tuple(point.probe.direction[path] for path in paths))
    hs, refusal = (), None
    try:
        hs = _second(system, point.xs, line)
        said["derivative"] = named(paths, hs)
    except Exception as error:
        refusal, said["error"] = error, first_line(error)
    seconds = time.perf_counter() - start
    yield SystemAnswer(system.name, "second", point.probe.name, **said, seconds=seconds)
    if refusal is None:
        wrong = _compare_with_differences(point, system, line, hs)
        yield from wrong or _symmetry(point, system, line, hs, seed)
        return
    refused = is_unsupported(refusal)
    yield point.finding(
        "unsupported" if refused else "exception",
        "note" if refused else "error",
        f"{system.name} has no second derivative: {said['error']}",
        [system.name],
        mode="second",
        advice="First derivatives were compared without it.",
    )


def _second(system: Any, xs: Arrays, line: Line) -> tuple[np.ndarray, ...]:
    return tuple(map(np.asarray, system.second(xs, line.vs)[1]))


# --- against differences of gradients -------------------------------------------------------------


def _compare_with_differences(
    point: Point, system: Any, line: Line, hs: tuple[np.ndarray, ...]
) -> list[Finding]:
    flat = np.asarray(real_vector(hs), float)
    origin = _gradient(system, point)
    if origin is None or not np.all(np.isfinite(origin)):
        return []

    def sample(ts: np.ndarray) -> np.ndarray:
        return system.gradients(point.xs, line.vs, ts.astype(point.subject.dtype))

    # A gradient has a thousand components where a value has one, and where all of them agree
    # already no one-sided derivatives are needed. The estimate's error is no excuse here.
    first = two_sided_derivative(Curve(sample, origin, eps=point.eps))
    with np.errstate(all="ignore"):
        if np.all(np.abs(flat - first) <= _slack(flat, first, origin, point)):
            return []
    section = Section(sample, origin, line, point.xs, point.eps)
    noise = section.noise()
    bad, middle = _compare_closely(point, section, flat, noise)
    if not bad.any():
        return []
    bad &= ~(np.abs(flat - middle) <= 10.0 * _unsteady(system, point, line, flat))
    if bad.any() and system.name == "jax":
        # A gradient that has lost its digits tells nothing about the rule for its derivative.
        rounding = _rounding_of_gradient(point, line)
        lost = TOLERANCES.estimates * _rounding_of_second(point, line)
        bad &= _compare_closely(point, section, flat, noise, rounding)[0]
        bad &= ~(np.abs(flat - middle) <= lost)
    if bad.any():
        steady = section.steady_quotients()
        closer = bad & is_closer(flat, middle, steady)
        # Differences that converge elsewhere in one component say little about the others.
        bad &= is_shown(middle, steady) if closer.any() else True
    with np.errstate(all="ignore"):
        gaps = np.where(bad, np.nan_to_num(np.abs(flat - middle), nan=np.inf), -1.0)
    place = int(np.argmax(gaps))
    if not bad.any() or gaps[place] < point.hidden(point.along(line)):
        return []
    leaf, element = _element(hs, place)
    got, seen = float(flat[place]), float(middle[place])
    more = f" (and in {int(bad.sum()) - 1} more)" if bad.sum() > 1 else ""
    closed = point.subject.jaxpr
    rule = rule_place(closed)
    finding = point.finding(
        "second-order" if np.isfinite(got) else "non-finite",
        "error",
        f"{system.name}: the second derivative is {got:.6g}, where differences of the gradient "
        f"give {seen:.6g}{more}",
        [system.name],
        mode="second",
        argument=point.subject.paths[leaf],
        element=element or None,
        place=rule,
        numbers={system.name: got, "finite": seen},
        advice="The gradient is right, and its own derivative is not: a rule whose derivative "
        "is cut off or written for the first order only, or a shortcut at this very point.",
    )
    meant = on_purpose(finding, closed) if rule == NOWHERE and np.isfinite(got) else None
    return [meant or finding]


def _compare_closely(
    point: Point,
    section: Section,
    flat: np.ndarray,
    noise: np.ndarray,
    rounding: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Compare second derivatives with differences of gradients whose noise is known.

    Args:
        point: the point.
        section: the gradients along the direction.
        flat: the second derivatives.
        noise: as it is seen in the gradients.
        rounding: what rounding does to them; None where that is not known.

    Returns:
        Which components differ for sure, and what differences give for them.
    """
    is_exact, noise = rounding is not None, np.fmax(noise, 0.0 if rounding is None else rounding)
    references, bad = [], np.ones(flat.shape, bool)
    for factor in TOLERANCES.factors:
        reference = section.differentiate_closely(
            np.ones_like(section.origin), factor, noise, is_exact=is_exact
        )
        references.append(reference.components)
        bad &= _different(flat, reference, section.origin, point)
        if not bad.any():
            break
    middle, spread = np.median(references, axis=0), np.ptp(references, axis=0)
    with np.errstate(all="ignore"):
        bad &= (np.abs(flat - middle) > TOLERANCES.spread * spread) | ~np.isfinite(flat)
    return bad, middle


def _gradient(system: Any, point: Point) -> np.ndarray | None:
    """Give a system's gradient at the point; None where there is none."""
    known = (point.gradients.get((system.name, mode)) for mode in ("reverse", "chunks"))
    gs = next((gs for gs in known if gs is not None), None)
    try:
        gs = gs if gs is not None else tuple(map(np.asarray, system.reverse(point.xs)[1]))
        return np.asarray(real_vector(gs), float)
    except Exception:
        return None


def _unsteady(system: Any, point: Point, line: Line, flat: np.ndarray) -> np.ndarray:
    """Say by how much the last digits of the arguments change second derivatives.

    The point itself is left out, so that a shortcut at the very point does not count.
    """
    nearby = []
    for ulps in (4.0, -4.0, 2.0, -2.0, 1.0, -1.0):
        try:
            hs = _second(system, moved(point.xs, point.xs, ulps * point.eps), line)
        except Exception:
            return np.zeros_like(flat)
        nearby.append(np.asarray(real_vector(hs), float))
    return np.nan_to_num(np.ptp(nearby, axis=0), nan=0.0, posinf=0.0)


def _rounding_of_gradient(point: Point, line: Line) -> np.ndarray | None:
    """Say by how much rounding changes JAX's gradient near the point; None if it is not known."""
    gradient = point.weighted.value_and_gradient
    return point.references.rounding_along(line, lambda xs: gradient(xs)[1])


def _rounding_of_second(point: Point, line: Line) -> np.ndarray | float:
    """Say by how much rounding changes JAX's second derivatives; 0 where that is not known."""
    second = point.weighted.gradient_and_tangent
    found = point.references.rounding_at(point.xs, lambda xs: second(xs, line.vs)[1])
    return 0.0 if found is None else found


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
    relative = TOLERANCES.relative(point.eps, TOLERANCES.agreement_second)
    largest = float(np.max(np.abs(components[smooth]), initial=0.0))
    return (
        max(relative, point.allowed.rtol) * (np.abs(flat) + np.abs(components))
        + point.allowed.atol
        + 0.1 * relative * largest
        + TOLERANCES.lost * point.eps * float(np.max(np.abs(origin), initial=0.0))
        + _rounding(point)
        + np.finfo(float).tiny
    )


def _rounding(point: Point) -> float:
    """Say what rounding of the value may do, see `Tolerances.lost`."""
    weights = point.weighted.flat_weights
    parts = np.abs((point.origin * weights)[weights != 0])
    return TOLERANCES.lost * point.eps * float(np.sum(parts))


def _element(hs: tuple[np.ndarray, ...], place: int) -> tuple[int, tuple[int, ...]]:
    """Find leaf and element of a place in the flat vector."""
    for leaf, h in enumerate(hs):
        size = h.size * (2 if np.iscomplexobj(h) else 1)
        if place < size:
            return leaf, tuple(int(k) for k in np.unravel_index(place % max(h.size, 1), h.shape))
        place -= size
    return 0, ()


# --- symmetry -------------------------------------------------------------------------------------


def _symmetry(
    point: Point, system: Any, line: Line, hs: tuple[np.ndarray, ...], seed: int
) -> list[Finding]:
    """Compare v'Hw with w'Hv."""
    if system.name != "jax":
        return []  # built from the whole Hessian, whose columns the differences saw
    if sum(h.size * (2 if np.iscomplexobj(h) else 1) for h in hs) < 2:
        return []  # one number
    other = random_line(point.xs, np.random.default_rng([seed, 99]))
    try:
        turned = _second(system, point.xs, other)
    except Exception:
        return []
    left, right = derivative_along(hs, other), derivative_along(turned, line)
    gs = point.gradients.get((system.name, "reverse"), ())
    relative = max(TOLERANCES.agreement_second, 100 * point.eps, point.allowed.rtol)
    slack = (
        relative * (_size_along(hs, other) + _size_along(turned, line))
        # What rounding of the gradient itself amounts to.
        + TOLERANCES.lost * point.eps * (_size_along(gs, line) + _size_along(gs, other))
        + _rounding(point)
        + point.hidden(point.along(line))
        + point.allowed.atol
    )
    if not np.isfinite(left + right) or abs(left - right) <= slack:
        return []
    return [
        point.finding(
            "second-order",
            "warning",
            f"{system.name}: the Hessian is not symmetric: w'Hv is {left:.6g}, v'Hw {right:.6g}",
            [system.name],
            mode="second",
            numbers={"w'Hv": left, "v'Hw": right},
            advice="The gradient is not the gradient of one function near this point, or a rule "
            "is right for the first order only.",
        )
    ]


def _size_along(gs: Arrays, line: Line) -> float:
    """Sum up the sizes of the terms of a directional derivative."""
    return sum(float(np.sum(np.abs(g * v))) for g, v in zip(gs, line.vs, strict=False))
