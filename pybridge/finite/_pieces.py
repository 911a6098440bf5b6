"""Difference quotients on the piece of a curve that the point is on.

A pole, a kink, a jump or the edge of the domain beside the point is where another piece begins.
"""

from __future__ import annotations

import numpy as np

from ._differences import (
    Curve,
    Differences,
    approach,
    closest_step,
    difference_quotients,
    first_step,
    samples_from,
)
from ._kinds import PointKinds, classify, distance_of_same
from ._tableau import Estimate
from ._tolerances import TOLERANCES, Tolerances


def quotients_at_point(
    curve: Curve, factor: float = 1.0, doubtful: bool = False, tolerances: Tolerances = TOLERANCES
) -> Differences:
    """Extrapolate as `difference_quotients` does, and from closer by where that tells nothing.

    From steps that leave the domain the point looks as if it were at its edge: there are samples on
    one side alone, and a derivative need not exist there. From steps past a pole each side is as
    far away as the other, and the shorter the step the steeper.
    """
    far = difference_quotients(curve, factor=factor, doubtful=doubtful, tolerances=tolerances)
    kinds, is_lost = classify(far, tolerances), _is_lost(far, tolerances)
    is_open = is_lost | (far.is_cut & ~_is_known(far, kinds, tolerances.kink))
    if not is_open.any():
        return far
    found, is_found = _look_closer(curve, far, kinds, is_open, factor, tolerances)
    # What looks smooth and is lost is past a pole that is too near. Noise has its own error.
    is_lost &= ~is_found & ~far.is_blurred & kinds.smooth
    nothing = Estimate(np.full(is_lost.shape, np.nan), np.full(is_lost.shape, np.inf))
    return found.replaced(is_lost, far._replace(central=nothing, right=nothing, left=nothing))


def _look_closer(
    curve: Curve,
    far: Differences,
    kinds: PointKinds,
    is_open: np.ndarray,
    factor: float,
    tolerances: Tolerances,
) -> tuple[Differences, np.ndarray]:
    """Take steps that stay on the piece of the curve that the point is on.

    Args:
        curve: the curve.
        far: what longer steps tell.
        kinds: of points that they show.
        is_open: for which components to do so.
        factor: of the steps.
        tolerances: see `Tolerances`.

    Returns:
        What is known then, and of which components more is.
    """
    closest = closest_step(curve, tolerances)
    reach = _steady_reach(curve, closest, tolerances)
    is_open = is_open & (reach > np.where(kinds.smooth, 0.0, curve.resolution))
    # What has no bound over its last steps has none here, if these are on this piece.
    followed = far.shortest * 2.0**tolerances.diverging_halvings
    is_open &= ~(kinds.vertical & (reach >= followed))
    is_found = np.zeros(is_open.shape, bool)
    for length in np.unique(reach[is_open]):
        first = first_step(length, tolerances) * factor
        # The steps of one batch are no shorter than `closest` is, in last digits.
        if first < 2.0 ** (curve.batch - 1) * closest / tolerances.ulps:
            continue
        near = approach(curve, first, tolerances, closest)._replace(size=length)
        # No longer steps stay on this piece: what they tell is all that can be known.
        known = is_open & (reach == length)
        unit = far.scale / far.size / near.scale
        part = 1.0 / tolerances.estimates
        known &= _is_known(near, classify(near, tolerances), part, unit)
        far, is_found = far.replaced(known, near), is_found | known
    return far, is_found


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
    steps, *sides = samples_from(curve, closest, max(1, round(count / curve.batch)))
    moves = np.abs(np.stack(sides, axis=1) - curve.origin)
    # Twice the move over a step, and the move over twice the step; less is not seen.
    unseen = 2.0 * tolerances.ulps * (curve.eps * np.abs(curve.origin) + curve.noise)
    expected, found = np.maximum(2.0 * moves[:-1], unseen), np.maximum(moves[1:], unseen)
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
    middle, error = (right.value + left.value) / 2.0, (right.error + left.error) / 2.0
    doubt = distance_of_same(found, error + central.error, tolerances)
    return unknown | (np.isfinite(middle) & (np.abs(central.value - middle) > doubt))


def _is_known(
    found: Differences, kinds: PointKinds, part: float, unit: np.ndarray | float = 0.0
) -> np.ndarray:
    """Tell for each component whether its derivative, or both at a kink, are known.

    Args:
        found: the differences.
        kinds: of points.
        part: of the derivative, which the error is at most.
        unit: a derivative that the error may be that part of as well.
    """
    central, right, left = (
        one.error <= part * np.maximum(np.abs(one.value), unit) for one in found[:3]
    )
    return np.where(kinds.kink, right & left, central & kinds.smooth)
