"""What kind of point 0 is for a curve.

Smooth, a kink (the one-sided derivatives differ), an edge of the domain (defined on one side), a
vertical tangent (the derivative has no bound), a jump of the value, or undefined.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ._differences import Differences
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


def distance_of_same(found: Differences, error: np.ndarray, tolerances: Tolerances) -> np.ndarray:
    """Say how far apart estimates of one derivative may be, by the sum of their errors."""
    unit = 1.0 / found.size + np.abs(found.central.value)
    return tolerances.estimates * error + tolerances.kink * unit


def classify(found: Differences, tolerances: Tolerances = TOLERANCES) -> PointKinds:
    """Say for each component what kind of point 0 is."""
    central, right, left = found.central, found.right, found.left
    doubt = distance_of_same(found, right.error + left.error, tolerances)
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
