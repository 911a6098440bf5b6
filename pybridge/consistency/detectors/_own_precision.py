"""Values and gradients that are wrong in the caller's own precision alone."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import jax
import numpy as np

from ..findings import Finding
from ..subject import OwnPrecision, Point
from ._context import Context
from ._primal_values import blame_rules, sensitivity
from ._rule_values import RuleFault, faulty_rules, tolerance, worst


def detect_own_precision(context: Context) -> Iterator[Finding]:
    """Compare in the caller's precision what double precision did not show already."""
    kinds = {finding.kind for finding in context.findings}
    known = kinds & {"value", "non-finite", "precision"} or context.inside is not None
    if context.own is not None and not known:
        yield from _compare_values(context.point, context.own)
        yield from _compare_gradients(context.point, context.own)


def _compare_values(point: Point, own: OwnPrecision) -> list[Finding]:
    allowed = tolerance(own.plain, own.eps, sensitivity(point))
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
        return blame_rules(point, differing, faults, own)
    return []


def _compare_gradients(point: Point, own: OwnPrecision) -> Iterator[Finding]:
    wide, subject = point.gradients.get(("jax", "reverse"), ()), point.subject
    for leaf, (narrow, known) in enumerate(zip(own.gradients, wide, strict=False)):
        bad = ~np.isfinite(narrow) & np.isfinite(known)
        if bad.any() and all(np.all(np.isfinite(y)) for y in own.plain):
            place = tuple(int(k) for k in np.argwhere(bad)[0])
            yield Finding(
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
            return
