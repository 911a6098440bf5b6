"""The derivatives that difference quotients show by themselves, without extrapolation.

A function may vary over lengths so short that differences over longer ones converge to something
else: the last state of a chaotic system, or a root of what cancels. Where a derivative from
elsewhere and the extrapolated one differ, this tells whether the first is the function's.
"""

from __future__ import annotations

import numpy as np

from ._differences import Curve, closest_step, samples_from
from ._tolerances import TOLERANCES, Tolerances


def steady_quotients(curve: Curve, tolerances: Tolerances = TOLERANCES) -> np.ndarray:
    """List difference quotients that stay the same from step to step, for each component.

    From the last digit of what moves on, each step is twice the one before. While rounding is
    all that samples show, quotients are zero, or halve from step to step; where the function
    bends, they change. In between `steady` of them in a row are the same.

    Args:
        curve: the curve.
        tolerances: see `Tolerances`.

    Returns:
        For each step, the closest first, the mean of the last quotients; nan where they differ.
    """
    first = closest_step(curve, tolerances)
    count = int(np.ceil(np.log2(max(curve.size / first, 2.0))))
    steps, ahead, behind = samples_from(curve, first, int(np.ceil(count / curve.batch)))
    quotients = (ahead - behind) / (2.0 * steps[:, None])
    recent = np.lib.stride_tricks.sliding_window_view(quotients, tolerances.steady, 0)
    with np.errstate(all="ignore"):
        middle, spread = np.mean(recent, axis=-1), np.ptp(recent, axis=-1)
        is_steady = (spread <= tolerances.steady_spread * np.abs(middle)) & (middle != 0)
    return np.where(is_steady, middle, np.nan)


def steady_length(curve: Curve, tolerances: Tolerances = TOLERANCES) -> float:
    """Find the distance up to which a curve of one component is as it is next to 0.

    Args:
        curve: the curve.
        tolerances: see `Tolerances`.

    Returns:
        The longest step of the closest quotients that stay the same; 0 where none do.
    """
    is_steady = ~np.isnan(steady_quotients(curve, tolerances)[:, 0])
    if not is_steady.any():
        return 0.0
    first = int(np.argmax(is_steady))
    end = first + int(np.argmin(np.append(is_steady[first:], False)))
    return closest_step(curve, tolerances) * 2.0 ** (end + tolerances.steady - 2)


def is_closer(derivative: np.ndarray, other: np.ndarray, steady: np.ndarray) -> np.ndarray:
    """Tell whether the closest quotients show one derivative, and none of them the other one.

    Where some show the other, the function has both over different lengths, as rounding to a
    grid has.

    Args:
        derivative: of each component.
        other: the same from elsewhere.
        steady: see `steady_quotients`.
    """
    first = np.argmax(~np.isnan(steady), axis=0)
    closest = np.take_along_axis(steady, first[None], 0)[0]
    with np.errstate(all="ignore"):
        gap = np.abs(closest - derivative)
        shows = (gap <= 0.1 * np.abs(closest)) & (gap <= 0.1 * np.abs(closest - other))
        return shows & ~is_shown(other, steady)


def is_shown(derivative: np.ndarray, steady: np.ndarray) -> np.ndarray:
    """Tell whether any quotients that stay the same show a derivative; see `steady_quotients`."""
    with np.errstate(all="ignore"):
        return np.any(np.abs(steady - derivative) <= 0.1 * np.abs(derivative), axis=0)
