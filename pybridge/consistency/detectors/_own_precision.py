"""Values and gradients that are wrong in the caller's own precision alone."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import jax
import numpy as np

from ..findings import Finding
from ..subject import OwnPrecision, Point
from ._context import Context
from ._custom_rules import RuleFault, faulty_rules
from ._primal_values import beyond_rounding, blame_rules, find_gaps, sensitivity, tolerance


def detect_own_precision(context: Context) -> Iterator[Finding]:
    """Compare in the caller's precision what double precision did not show already."""
    kinds = {finding.kind for finding in context.findings}
    known = kinds & {"value", "non-finite", "precision"} or context.inside is not None
    if context.own is not None and not known:
        yield from _compare_values(context.point, context.own)
        yield from _compare_gradients(context.point, context.own)


def _compare_values(point: Point, own: OwnPrecision) -> list[Finding]:
    allowed = tolerance(own.plain, own.eps, sensitivity(point))
    values = {("jax", mode): ys for mode, ys in own.values.items()}
    gaps = find_gaps(own.plain, values, allowed)
    if not gaps or not point.subject.traced:
        return []
    faults: list[RuleFault] = []
    with contextlib.suppress(Exception):
        closed = jax.make_jaxpr(lambda *xs: point.subject.call(xs))(*own.xs)
        faults = faulty_rules(closed, own.xs, 64.0 * own.eps) or faulty_rules(closed, own.xs, 0.0)
    if not faults:
        gaps = beyond_rounding(gaps)
    return blame_rules(point, own.plain, values, gaps, faults)


def _compare_gradients(point: Point, own: OwnPrecision) -> Iterator[Finding]:
    wide, subject = point.gradients.get(("jax", "reverse"), ()), point.subject
    for leaf, (narrow, known) in enumerate(zip(own.gradients, wide, strict=False)):
        bad = ~np.isfinite(narrow) & np.isfinite(known)
        if bad.any() and all(np.all(np.isfinite(y)) for y in own.plain):
            place = tuple(int(k) for k in np.argwhere(bad)[0])
            numbers = {str(narrow.dtype): narrow[place], "float64": known[place]}
            yield point.finding(
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
            return
