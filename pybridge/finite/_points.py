"""The derivative of a curve at 0, whatever kind of point that is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ._differences import Curve, Differences
from ._kinds import PointKinds, classify
from ._pieces import quotients_at_point
from ._tableau import Estimate
from ._tolerances import TOLERANCES, Tolerances


class CurveDerivative(NamedTuple):
    """The derivative of a curve and its one-sided ones.

    Attributes:
        derivative: at a kink the middle of the one-sided derivatives, and half their distance as
            the error, so that value +- error is the interval between them; at an edge of the domain
            the derivative of the side on which the curve exists; at a vertical tangent +-inf when
            both sides agree on it, else nan (a cusp).
        right: from the right.
        left: from the left.
    """

    derivative: Estimate
    right: Estimate
    left: Estimate


@dataclass(frozen=True)
class DirectionalDerivative:
    """The derivative of a weighted sum of outputs along a direction.

    Attributes:
        kind: `"smooth"`, or the gravest of `PointKinds` that any output has.
        value: the derivative; at a kink the middle of the one-sided ones.
        error: its estimated absolute error; inf where it is not known.
        left: from the left.
        right: from the right.
        low: the least derivative that a choice between left and right can give, for each output.
        high: the largest.
        components: the two-sided derivative of each output.
        errors: their errors.
        smooth: for each output whether it is smooth here.
        lead: the weight of the output that moves, if only one does, else 1: numbers are shown
            without it.
    """

    kind: str
    value: float
    error: float
    left: float
    right: float
    low: float
    high: float
    components: np.ndarray
    errors: np.ndarray
    smooth: np.ndarray
    lead: float


def differentiate_curve(curve: Curve, tolerances: Tolerances = TOLERANCES) -> CurveDerivative:
    """Differentiate each component of a curve at 0."""
    with np.errstate(all="ignore"):
        found = quotients_at_point(curve, tolerances=tolerances)
        kinds, scale = classify(found, tolerances), found.scale
        central, right, left = found.central, found.right, found.left
        value = np.where(kinds.kink, (right.value + left.value) / 2.0, central.value)
        error = np.where(kinds.kink, np.abs(right.value - left.value) / 2.0, central.error)
        agreed = np.where(right.value == left.value, right.value, np.nan)
        value = np.where(kinds.vertical, agreed, value)
        value = np.where(kinds.edge, _inner(right.value, left.value), value)
        error = np.where(kinds.edge, np.fmin(right.error, left.error), error)
        error = np.where(np.isfinite(value), error, np.inf)
        parts = Estimate(value, error), right, left
        return CurveDerivative(*(part.times(scale) for part in parts))


def directional_derivative(
    curve: Curve,
    weights: np.ndarray,
    *,
    factor: float = 1.0,
    doubtful: bool = False,
    tolerances: Tolerances = TOLERANCES,
) -> DirectionalDerivative:
    """Differentiate a weighted sum of a curve's components at 0, and say what kind of point it is.

    Args:
        curve: the curve.
        weights: of its components.
        factor: see `difference_quotients`.
        doubtful: see `difference_quotients`.
        tolerances: see `Tolerances`.
    """
    with np.errstate(all="ignore"):
        found = quotients_at_point(curve, factor, doubtful, tolerances)
        return _weigh(found, classify(found, tolerances), weights)


def _weigh(found: Differences, kinds: PointKinds, weights: np.ndarray) -> DirectionalDerivative:
    """Put the components together."""
    used, scale, smooth = weights != 0, found.scale, kinds.smooth
    central, right, left = found.central.value, found.right.value, found.left.value
    kind = next(
        (name for name in PointKinds._fields if np.any(getattr(kinds, name) & used)), "smooth"
    )
    middle = np.where(kinds.kink, (right + left) / 2.0, central)
    middle = np.where(kinds.edge, _inner(right, left), middle)
    side_error = np.fmin(found.right.error, found.left.error)
    error = np.where(kinds.edge, side_error, found.central.error)
    # Where a component is smooth, its sides are its two-sided derivative, which has more digits.
    right = np.where(smooth | kinds.edge, middle, right)
    left = np.where(smooth | kinds.edge, middle, left)
    factors = weights * scale
    ends = np.stack([factors * left, factors * right])

    def total(parts: np.ndarray) -> float:
        return float(np.sum(np.where(used, parts, 0.0)))

    value = total(factors * middle)
    moving = np.flatnonzero(used & ~((right == 0) & (left == 0) & (middle == 0)))
    return DirectionalDerivative(
        kind=kind,
        value=value,
        error=total(np.abs(factors) * error) if np.isfinite(value) else np.inf,
        left=total(factors * left),
        right=total(factors * right),
        low=total(ends.min(axis=0)),
        high=total(ends.max(axis=0)),
        components=middle * scale,
        errors=error * scale,
        smooth=smooth,
        lead=float(weights[moving[0]]) if len(moving) == 1 else 1.0,
    )


def _inner(right: np.ndarray, left: np.ndarray) -> np.ndarray:
    """Take the side on which the curve exists."""
    return np.where(np.isnan(right), left, right)
