"""What kind of point 0 is for a curve, and the derivative there.

Smooth, a kink (the one-sided derivatives differ), an edge of the domain (defined on one side), a
vertical tangent (the derivative has no bound), a jump of the value, or undefined.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ._differences import (
    Curve,
    Differences,
    approach,
    closest_step,
    difference_quotients,
    first_step,
)
from ._tableau import Estimate
from ._tolerances import TOLERANCES, Tolerances


class PointKinds(NamedTuple):
    """For each component which kind of point it is, from the gravest on; none: smooth."""

    undefined: np.ndarray
    jump: np.ndarray
    vertical: np.ndarray
    edge: np.ndarray
    kink: np.ndarray

    @property
    def smooth(self) -> np.ndarray:
        """Whether it is none of these."""
        return ~np.logical_or.reduce(self)


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


def classify(found: Differences, tolerances: Tolerances = TOLERANCES) -> PointKinds:
    """Say for each component what kind of point 0 is."""
    central, right, left = found.central, found.right, found.left
    doubt = tolerances.estimates * (right.error + left.error)
    doubt = doubt + tolerances.kink * (1.0 / found.size + np.abs(central.value))
    sharp = ~found.is_blurred
    kink = (np.abs(right.value - left.value) > doubt) & (
        sharp | ~np.isinf(right.value - left.value)
    )
    vertical = (np.isinf(right.value) | np.isinf(left.value)) & sharp
    # However near, a side stays away from the value, or from the other side.
    unknown = np.isnan(right.value + left.value)
    for side in (right, left):
        unknown = unknown | (side.error > tolerances.jump_error / found.size)
    jump = sharp & (found.gap > tolerances.jump) & (vertical | unknown)
    edge = np.isnan(central.value) & (np.isnan(right.value) != np.isnan(left.value))
    undefined = np.isnan(central.value) & np.isnan(right.value) & np.isnan(left.value)
    return PointKinds(undefined, jump, vertical, edge, kink)


def _quotients(
    curve: Curve, factor: float = 1.0, doubtful: bool = False, tolerances: Tolerances = TOLERANCES
) -> Differences:
    """Extrapolate as `difference_quotients` does, and from closer by where that tells nothing.

    From steps that leave the domain the point looks as if it were at its edge: there are samples on
    one side alone, and a derivative need not exist there. From steps past a pole each side is as
    far away as the other, and the shorter the step the steeper.
    """
    far = difference_quotients(curve, factor=factor, doubtful=doubtful, tolerances=tolerances)
    is_lost = _is_lost(far, tolerances)
    is_open = is_lost | (far.is_cut & ~_is_known(far, tolerances.kink, tolerances))
    if not is_open.any():
        return far
    closest = closest_step(curve, tolerances)
    reach = _steady_reach(curve, closest, tolerances)
    kinds = classify(far, tolerances)
    is_open &= reach > np.where(kinds.smooth, 0.0, curve.resolution)
    # What has no bound over its last steps has none here, if these are on this piece of the curve.
    followed = far.shortest * 2.0**tolerances.diverging_halvings
    is_open &= ~(kinds.vertical & (reach >= followed))
    for length in np.unique(reach[is_open]):
        first = first_step(length, tolerances) * factor
        # The steps of one batch are no shorter than `closest` is, in last digits.
        if first < 2.0**curve.batch * closest / tolerances.ulps:
            continue
        near = approach(curve, first, tolerances, closest)._replace(size=length)
        # No longer steps stay on this piece of the curve: what they tell is all that can be known.
        known = is_open & (reach == length)
        unit = far.scale / far.size / near.scale
        known &= _is_known(near, 1.0 / tolerances.estimates, tolerances, unit)
        far = far.replaced(known, near)
        is_lost &= ~known
    # What looks smooth and is lost is past a pole that is too near. Noise has its own error.
    nothing = Estimate(np.full(is_lost.shape, np.nan), np.full(is_lost.shape, np.inf))
    unknown = far._replace(central=nothing, right=nothing, left=nothing)
    return far.replaced(is_lost & ~far.is_blurred & kinds.smooth, unknown)


def _steady_reach(curve: Curve, closest: float, tolerances: Tolerances) -> np.ndarray:
    """Find for each component the longest step up to which each side moves in proportion to it.

    Past a pole, or outside of the domain, it does not; at a jump no step is short enough. The rates
    of a smooth curve at a step and at half of it are nearly the same.

    Args:
        curve: the curve.
        closest: the shortest step.
        tolerances: see `Tolerances`.

    Returns:
        The steps; 0 where there is none.
    """
    count = np.log2(tolerances.first_step * curve.size / closest)
    steps = closest * 2.0 ** np.arange(curve.batch * max(1, round(count / curve.batch)))
    moves = []
    for some in steps.reshape(-1, curve.batch):
        values = curve.sample(np.concatenate([some, -some])) - curve.origin
        moves.extend(np.abs(values).reshape(2, curve.batch, -1).swapaxes(0, 1))
    # Twice the move over a step, and the move over twice the step; less is not seen.
    unseen = 2.0 * tolerances.ulps * (curve.eps * np.abs(curve.origin) + curve.noise)
    expected = np.maximum(2.0 * np.stack(moves)[:-1], unseen)
    found = np.maximum(np.stack(moves)[1:], unseen)
    is_steady = np.abs(np.log2(found / expected)) <= tolerances.steady_rate
    is_steady = ((found == expected) | is_steady).all(axis=1)
    reached = np.logical_and.accumulate(is_steady, axis=0).sum(axis=0)
    return np.where(reached > 0, steps[reached], 0.0)


def _is_lost(found: Differences, tolerances: Tolerances) -> np.ndarray:
    """Tell for each component whether no digit is known of a one-sided derivative.

    Or whether the two-sided one contradicts them: on both sides of 1/x**2 values are the same.
    """
    central, right, left = found.central, found.right, found.left
    unknown = np.zeros(found.is_blurred.shape, bool)
    for side in (right, left):
        size = np.where(np.isinf(side.value), 0.0, np.abs(side.value))
        unknown |= tolerances.estimates * side.error > np.maximum(size, 1.0 / found.size)
    middle, doubt = (right.value + left.value) / 2.0, (right.error + left.error) / 2.0
    doubt = tolerances.estimates * (doubt + central.error)
    doubt = doubt + tolerances.kink * (1.0 / found.size + np.abs(central.value))
    return unknown | (np.isfinite(middle) & (np.abs(central.value - middle) > doubt))


def _is_known(
    found: Differences, part: float, tolerances: Tolerances, unit: np.ndarray | float = 0.0
) -> np.ndarray:
    """Tell for each component whether its derivative, or both at a kink, are known.

    Args:
        found: the differences.
        part: of the derivative, which the error is at most.
        tolerances: see `Tolerances`.
        unit: a derivative that the error may be that part of as well.
    """
    kinds = classify(found, tolerances)
    central, right, left = (
        one.error <= part * np.maximum(np.abs(one.value), unit) for one in found[:3]
    )
    return np.where(kinds.kink, right & left, central & kinds.smooth)


def differentiate_curve(curve: Curve, tolerances: Tolerances = TOLERANCES) -> CurveDerivative:
    """Differentiate each component of a curve at 0."""
    with np.errstate(all="ignore"):
        found = _quotients(curve, tolerances=tolerances)
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
        found = _quotients(curve, factor, doubtful, tolerances)
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
