"""Values and gradients that are wrong in the caller's own precision alone."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator

import numpy as np
from jax.extend.core import ClosedJaxpr

from ...jaxprs import DRAWING, equations
from ..findings import Finding
from ..subject import OwnPrecision, Point, coarsest
from ._context import Context
from ._custom_rules import RuleFault, faulty_rules, rule_place
from ._primal_values import beyond_rounding, blame_rules, find_gaps, sensitivity, tolerance
from .precision import Results, harmless_error

# Rounding on the way does to a gradient so many times what rounding the arguments does, as a
# backward stable program has it; see `precision`.
_CONDITION = 64.0


def detect_own_precision(context: Context) -> Iterator[Finding]:
    """Compare in the caller's precision what double precision did not show already."""
    kinds = {finding.kind for finding in context.findings}
    known = kinds & {"value", "non-finite", "precision"} or context.inside is not None
    if context.own is not None and not known:
        yield from _compare_values(context.point, context.own)
        yield from _gradients_lost(context.point, context.own) or _other_gradients(
            context.point, context.own
        )


def _compare_values(point: Point, own: OwnPrecision) -> list[Finding]:
    allowed = tolerance(own.plain, own.eps, sensitivity(point))
    values = {("jax", mode): ys for mode, ys in own.values.items()}
    gaps = find_gaps(own.plain, values, allowed)
    if not gaps or not point.subject.traced:
        return []
    faults: list[RuleFault] = []
    program = point.subject.own_program
    if program is not None:
        with contextlib.suppress(Exception):
            for eps in (64.0 * own.eps, 0.0):
                faults = faults or faulty_rules(program, own.xs, eps)
    if not faults:
        gaps = beyond_rounding(gaps)
    return blame_rules(point, own.plain, values, gaps, faults)


def _gradients_lost(point: Point, own: OwnPrecision) -> list[Finding]:
    wide, subject = point.gradients.get(("jax", "reverse"), ()), point.subject
    for leaf, (narrow, known) in enumerate(zip(own.gradients, wide, strict=False)):
        bad = ~np.isfinite(narrow) & np.isfinite(known)
        if bad.any() and all(np.all(np.isfinite(y)) for y in own.plain):
            place = tuple(int(k) for k in np.argwhere(bad)[0])
            numbers = {str(narrow.dtype): narrow[place], "float64": known[place]}
            finding = point.finding(
                "non-finite",
                "error",
                f"jax in reverse mode gives {narrow[place]} in {narrow.dtype}, and "
                f"{known[place]:.6g} in double precision",
                ["jax"],
                mode="reverse",
                argument=subject.paths[leaf],
                element=place or None,
                numbers={name: float(np.real(number)) for name, number in numbers.items()},
                advice="A number in between is too large or too small for this precision: "
                "compute with logarithms, or subtract the largest before an exponential.",
            )
            return [finding]
    return []


def _other_gradients(point: Point, own: OwnPrecision) -> Iterator[Finding]:
    """Report a gradient that is another one in double precision, for no loss of digits.

    A rule may depend on the dtype, or keep less precise numbers for its backward pass.
    """
    wide = point.gradients.get(("jax", "reverse"), ())
    if not wide or not own.gradients:
        return
    program = point.subject.own_program
    eps = own.eps if program is None else max(own.eps, coarsest(program))
    if _draws(program) != _draws(point.subject.jaxpr):
        return
    if any(_apart(*pair, eps).any() for pair in zip(own.plain, point.plain, strict=True)):
        return  # the function is another one
    harmless = harmless_error(Results(eps, own.xs, own.plain, own.gradients), "reverse")
    for leaf, (narrow, known) in enumerate(zip(own.gradients, wide, strict=True)):
        gap = np.where(_apart(narrow, known, eps), np.abs(narrow - known), 0.0)
        largest = np.max(gap, initial=0.0)
        if largest <= harmless or largest <= _CONDITION * _sensitivity(point, leaf, eps):
            continue
        place = np.unravel_index(int(np.argmax(gap)), gap.shape)
        got, want = float(np.real(narrow[place])), float(np.real(known[place]))
        yield point.finding(
            "finite",
            "error" if largest > 0.1 * np.max(np.abs(known)) else "warning",
            f"jax in reverse mode gives {got:.6g} in {narrow.dtype}, and {want:.6g} in double "
            "precision",
            ["jax"],
            mode="reverse",
            argument=point.subject.paths[leaf],
            element=tuple(map(int, place)) or None,
            place=rule_place(point.subject.jaxpr),
            numbers={str(narrow.dtype): got, "float64": want},
            advice="The function itself loses no digits here: a rule computes something else in "
            "this dtype, or keeps numbers of less precision for its backward pass.",
        )
        return


def _draws(program: ClosedJaxpr | None) -> Counter[str]:
    """Count the random numbers of each dtype and shape that a program draws."""
    found = equations(program) if program is not None else ()
    return Counter(
        str([v.aval for v in eqn.outvars]) for eqn in found if eqn.primitive.name in DRAWING
    )


def _apart(narrow: np.ndarray, known: np.ndarray, eps: float) -> np.ndarray:
    """Mark the elements that have lost half of their digits, or are others."""
    size = max(float(np.max(np.abs(known), initial=0.0)), eps**0.5)
    return np.abs(narrow.astype(known.dtype) - known) > eps**0.5 * size


def _sensitivity(point: Point, leaf: int, eps: float) -> float:
    """Say by how much rounding the arguments to a precision changes a gradient."""
    rng, found = np.random.default_rng(0), [np.asarray(point.gradients["jax", "reverse"][leaf])]
    for _ in range(3):
        xs = tuple(
            np.asarray(x * (1.0 + eps * rng.choice([-1.0, 1.0], np.shape(x))), x.dtype)
            for x in point.xs
        )
        with contextlib.suppress(Exception), point.subject.precision():
            found.append(np.asarray(point.weighted.value_and_gradient(xs)[1][leaf]))
    return float(np.nan_to_num(np.max(np.abs(np.ptp(found, axis=0)), initial=0.0), posinf=np.inf))
