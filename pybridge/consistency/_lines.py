"""Slopes of a function along a line, by differences, with what kind of point it is.

The samples of several steps are taken at once, because one compiled call that computes sixteen
values costs little more than one that computes one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import comb

import numpy as np

from .._richardson import Slope, Tableau

LEVELS = 8
_FIRST_STEP = 0.125
_SMALLEST = 1e-9
_CENTRAL, _ONE_SIDED = 1e-10, 1e-6
_MOST_PASSES = 14

# What remains of a difference at the smallest steps, of what there was at the largest.
_JUMP = 0.02

# A difference of fewer units in the last place, or of less noise, is none: the last digits of a
# number that stays may depend on what is computed along with it.
_ULPS = 64.0
# The samples are one program and the value at the point is another, whose loops may stop elsewhere:
# both sides may stay away from it by more.
_ULPS_ALONE = 2.0**16

# Samples for the noise are this far apart, and on either side of the point.
_APART = 2.0**-12 / 3.0

Sample = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Along:
    """The slope of a weighted sum of outputs along a line.

    Attributes:
        kind: `"smooth"`; `"kink"`: the one-sided slopes differ; `"edge"`: defined on one side;
            `"vertical"`: the slope has no bound; `"jump"`: the value jumps; `"undefined"`.
        slope: the slope; at a kink the middle of the one-sided ones.
        error: its estimated absolute error; inf where it is not known.
        left: from the left.
        right: from the right.
        low: the least slope that a choice between left and right can give, for each output.
        high: the largest.
        components: the two-sided slope of each output.
        errors: their errors.
        smooth: for each output whether it is smooth here.
        lead: the weight of the output that moves, if only one does, else 1: numbers are shown
            without it.
    """

    kind: str
    slope: float
    error: float
    left: float
    right: float
    low: float
    high: float
    components: np.ndarray
    errors: np.ndarray
    smooth: np.ndarray
    lead: float


def along(
    sample: Sample,
    origin: np.ndarray,
    weights: np.ndarray,
    *,
    smallest: float = 1.0,
    eps: float = float(np.finfo(float).eps),
    factor: float = 1.0,
    noise: np.ndarray | float = 0.0,
) -> Along:
    """Differentiate `y(t)` at 0 and say what kind of point 0 is.

    Args:
        sample: the values at an array of `2 * LEVELS` distances: an array with a row for each; nan
            where the function is not defined.
        origin: `y(0)`, flat.
        weights: of the components of y.
        smallest: the smallest length in t that matters, at most 1.
        eps: the relative rounding error of the samples.
        factor: multiplies every step. Estimates with different factors err differently.
        noise: by how much each sample errs beyond that, for each component, absolute.

    Returns:
        The slopes.
    """
    central, right, left = Tableau(2), Tableau(1), Tableau(1)
    step, nothing = _FIRST_STEP * factor, np.zeros(0)
    scale, noisy, alone, apart = nothing, nothing, nothing, nothing
    with np.errstate(all="ignore"):
        for number in range(_MOST_PASSES):
            steps = step / 2.0 ** np.arange(LEVELS)
            values = sample(np.concatenate([steps, -steps]))
            ahead, behind = values[:LEVELS], values[LEVELS:]
            if number == 0:
                scale = _scale(values, origin)
                origin = origin / scale
                noisy = np.asarray(noise) / scale
            for h, one, two in zip(steps, ahead / scale, behind / scale, strict=True):
                for table, difference, size in (
                    (central, (one - two) / (2.0 * h), np.abs(one) + np.abs(two)),
                    (right, (one - origin) / h, np.abs(one) + np.abs(origin)),
                    (left, (origin - two) / h, np.abs(origin) + np.abs(two)),
                ):
                    # Of its own two values: the other side may be no number.
                    floor = (eps * size + noisy) / h
                    table.add(difference, floor + eps * np.abs(difference) / h)
                alone, apart = np.abs(one + two - 2.0 * origin), np.abs(one - two)
            sides = right.converged(_ONE_SIDED) and left.converged(_ONE_SIDED)
            if central.converged(_CENTRAL) and sides:
                break
            step = steps[-1] / 2.0
            if step < _SMALLEST * smallest:
                break
            if number > 1 and _hopeless(central, right, left, eps / step):
                break
        ulp = eps * np.abs(origin) + noisy
        blurred = (apart <= _ULPS * ulp) & (alone <= _ULPS_ALONE * ulp)
        gap = np.maximum(alone, apart)
        return _read(central.slope(), right.slope(), left.slope(), gap, blurred, scale, weights)


def two_sided(sample: Sample, origin: np.ndarray, *, eps: float) -> np.ndarray:
    """Differentiate `y(t)` at 0 as if it were smooth: a fraction of the work of `along`.

    Args:
        sample: as for `along`.
        origin: `y(0)`, flat.
        eps: the relative rounding error of the samples.

    Returns:
        The slope of each component.
    """
    table = Tableau(2)
    steps = _FIRST_STEP / 2.0 ** np.arange(LEVELS)
    values = sample(np.concatenate([steps, -steps]))
    with np.errstate(all="ignore"):
        scale = _scale(values, origin)
        values = values / scale
        for h, one, two in zip(steps, values[:LEVELS], values[LEVELS:], strict=True):
            difference = (one - two) / (2.0 * h)
            floor = eps * (np.abs(one) + np.abs(two) + np.abs(difference)) / h
            table.add(difference, floor)
        return table.value * scale


def noise_of(sample: Sample, smallest: float = 1.0) -> np.ndarray:
    """Measure by how much samples err, for each component.

    High differences of a smooth function vanish, those of noise do not (ECNoise: Moré and Wild,
    SIAM Journal on Scientific Computing 33, 2011). The greater of both sides is taken, and of each
    the median of several orders, so that a kink or a fast wave is not taken for noise.

    Args:
        sample: as for `along`.
        smallest: the smallest length in t that matters, at most 1.

    Returns:
        Standard deviations; 0 where they cannot be had.
    """
    steps = _APART * smallest * np.arange(1, LEVELS + 1)
    values = sample(np.concatenate([steps, -steps]))
    found = []
    with np.errstate(all="ignore"):
        for side in (values[:LEVELS], values[LEVELS:]):
            sizes, turns = [], np.zeros(side.shape[1:], bool)
            for order in (4, 5, 6):
                differences = np.diff(side, order, axis=0)
                share = 1.0 / comb(2 * order, order)
                sizes.append(np.sqrt(share * np.mean(differences**2, axis=0)))
                # Those of a root have one sign in every order: they are no noise.
                turns |= np.any(differences > 0, axis=0) & np.any(differences < 0, axis=0)
            found.append(np.where(turns, np.median(sizes, axis=0), 0.0))
    return np.nan_to_num(np.max(found, axis=0), nan=0.0, posinf=0.0)


def _hopeless(central: Tableau, right: Tableau, left: Tableau, floor: float) -> bool:
    """Say whether rounding spoils every smaller step."""
    worst = max(np.max(t.error, initial=0.0) for t in (central, right, left))
    return bool(floor > 10.0 * worst)


def _scale(values: np.ndarray, origin: np.ndarray) -> np.ndarray:
    """Find how much each component moves, so that functions of every size look alike."""
    moves = np.abs(np.where(np.isfinite(values), values, origin) - origin)
    # Capped by the value's own size: what is constant moves by nothing.
    largest = np.max(moves, axis=0, initial=0.0)
    return np.where((largest > 0) & np.isfinite(largest), largest, 1.0)


def _read(
    central: Slope,
    right: Slope,
    left: Slope,
    gap: np.ndarray,
    blurred: np.ndarray,
    scale: np.ndarray,
    weights: np.ndarray,
) -> Along:
    """Put the components together."""
    used = weights != 0
    c, r, s = central.value, right.value, left.value
    doubt = 10.0 * (right.error + left.error) + 1e-5 * (1.0 + np.abs(c))
    kink = np.abs(r - s) > doubt
    vertical = (np.isinf(r) | np.isinf(s)) & ~blurred
    # However near, a side stays away from the value, or from the other side.
    jump = (gap > _JUMP) & (vertical | (right.error > 1e3) | (left.error > 1e3) | np.isnan(r + s))
    jump |= vertical & (np.sign(r) != np.sign(s)) & (gap > _JUMP)
    jump &= ~blurred
    kink &= ~(blurred & np.isinf(r - s))
    edge = np.isnan(c) & (np.isnan(r) != np.isnan(s))
    undefined = np.isnan(c) & np.isnan(r) & np.isnan(s)
    kind = "smooth"
    for name, mask in (
        ("undefined", undefined),
        ("jump", jump),
        ("vertical", vertical),
        ("edge", edge),
        ("kink", kink),
    ):
        if np.any(mask & used):
            kind = name
            break
    inner = np.where(np.isnan(r), s, r)
    c = np.where(edge, inner, np.where(kink, (r + s) / 2.0, c))
    error = np.where(edge, np.fmin(right.error, left.error), central.error)
    smooth = ~(kink | vertical | jump | edge | undefined)
    w = weights * scale
    # Where a component is smooth, its two sides are its two-sided slope, which has more digits.
    r, s = np.where(smooth | edge, c, r), np.where(smooth | edge, c, s)
    ends = np.stack([w * s, w * r])
    moving = np.flatnonzero(used & ~((r == 0) & (s == 0) & (c == 0)))
    parts = [np.where(used, x, 0.0) for x in (w * c, np.abs(w) * error, w * s, w * r)]
    slope, total, at_left, at_right = (float(np.sum(part)) for part in parts)
    return Along(
        kind,
        slope,
        total if np.isfinite(slope) else np.inf,
        at_left,
        at_right,
        float(np.sum(np.where(used, ends.min(axis=0), 0.0))),
        float(np.sum(np.where(used, ends.max(axis=0), 0.0))),
        c * scale,
        error * scale,
        smooth,
        float(weights[moving[0]]) if len(moving) == 1 else 1.0,
    )
