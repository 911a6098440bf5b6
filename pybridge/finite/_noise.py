"""The noise of a function's values: what they err by beyond rounding."""

from __future__ import annotations

from math import comb

import numpy as np

from ._differences import Curve
from ._tolerances import TOLERANCES, Tolerances


def noise_level(curve: Curve, tolerances: Tolerances = TOLERANCES) -> np.ndarray:
    """Measure by how much samples err, for each component, beyond what rounding explains.

    High differences of a smooth function vanish, those of noise do not (ECNoise: Moré and Wild,
    SIAM Journal on Scientific Computing 33, 2011). The greater of both sides is taken, and of each
    the median of several orders, so that a kink is not taken for noise; and the least of several
    distances, because waves that are too fast for one of them look like noise there. But what is
    small enough for the last digits of a number on the way is noise, although that number stands
    still over the shorter distances.

    Args:
        curve: the curve. Its smallest length is not below the last digit of what moves: the samples
            would be a staircase.
        tolerances: see `Tolerances`.

    Returns:
        Eight standard deviations; 0 where they cannot be had.
    """
    eps, origin = curve.eps, np.abs(curve.origin)
    with np.errstate(all="ignore"):
        sizes = [
            _deviation(curve, h * curve.smallest, tolerances) for h in tolerances.noise_lengths
        ]
        grain = tolerances.noise_grain * eps * np.maximum(origin, 1.0)
        largest = np.fmax.reduce(np.where(np.asarray(sizes) <= grain, sizes, np.nan))
        noise = np.nan_to_num(np.fmax(np.fmin.reduce(sizes), largest), nan=0.0, posinf=0.0)
        is_noise = noise > tolerances.noise_floor * eps * origin
        return np.where(is_noise, tolerances.noise_margin * noise, 0.0)


def _deviation(curve: Curve, distance: float, tolerances: Tolerances) -> np.ndarray:
    """Measure it from samples that are so far apart; NaN where it cannot be told from a curve."""
    count = tolerances.levels
    steps = distance * np.arange(1, count + 1)
    values = curve.sample(np.concatenate([steps, -steps]))
    deviations = []
    for side in (values[:count], values[count:]):
        sizes, turns = [], np.zeros(side.shape[1:], bool)
        for order in tolerances.noise_orders:
            differences = np.diff(side, order, axis=0)
            # The variance of a difference of this order is that of the noise times comb(2k, k).
            share = 1.0 / comb(2 * order, order)
            sizes.append(np.sqrt(share * np.mean(differences**2, axis=0)))
            # Those of a root have one sign in every order: they are no noise.
            turns |= np.any(differences > 0, axis=0) & np.any(differences < 0, axis=0)
        deviations.append(np.where(turns, np.median(sizes, axis=0), np.nan))
    return np.fmax(*deviations)
