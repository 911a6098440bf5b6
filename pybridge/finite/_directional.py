"""Slopes of a function along a line, by differences, with what kind of point it is.

The samples of several steps are taken at once, because one compiled call that computes sixteen
values costs little more than one that computes one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import comb
from typing import NamedTuple

import numpy as np

from ._tableau import NEAR, Slope, Tableau, is_nearer

LEVELS = 8
_FIRST_STEP = 0.125
_SMALLEST = 1e-9
_CENTRAL, _ONE_SIDED = 1e-10, 1e-6
_MOST_PASSES = 14

# Waves of this length look like nothing from afar.
_NEAREST = 2.0**-20

# What remains of a difference at the smallest steps, of what there was at the largest.
_JUMP = 0.02

# A difference of fewer units in the last place, or of less noise, is none: the last digits of a
# number that stays may depend on what is computed along with it.
_ULPS = 64.0
# The samples are one program and the value at the point is another, whose loops may stop elsewhere:
# both sides may stay away from it by more.
_ULPS_ALONE = 2.0**16
# Where what moves has so few steps left, the shortest of a pass would see its last digit jump.
_STAIRCASE = _ULPS * 2.0**LEVELS

# Samples for the noise are this far apart, and on either side of the point. No binary fractions:
# those of a round number would be exact.
_APARTS = (2.0**-12 / np.pi, 2.0**-16 / np.pi, 2.0**-20 / np.pi, 2.0**-28 / np.pi)
# So many last digits of a one, or of the value, can be noise of what it is computed from.
_GRAIN = 2.0**10

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
    blur: float = 0.0,
    doubtful: bool = False,
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
        blur: by how many eps of t the rounding of what moves shifts a sample. Much shorter steps
            would see a staircase.
        doubtful: whether to look from very near as well, which takes more samples.

    Returns:
        The slopes.
    """
    lengths = [smallest, _NEAREST * smallest] if doubtful else [smallest]
    with np.errstate(all="ignore"):
        run = _approach(sample, origin, _FIRST_STEP * factor, smallest, eps, noise, blur)
        for length in lengths:
            first = _FIRST_STEP * length * factor
            if length < NEAR and first > _STAIRCASE * blur * eps:
                near = _approach(sample, origin, first, smallest, eps, noise, blur)
                run = _nearer(run, near, first)
        return _read(*run, weights)


class _Approach(NamedTuple):
    """What differences say from steps of one length on, in units of `scale`."""

    central: Slope
    right: Slope
    left: Slope
    gap: np.ndarray
    blurred: np.ndarray
    scale: np.ndarray


def _approach(
    sample: Sample,
    origin: np.ndarray,
    step: float,
    smallest: float,
    eps: float,
    noise: np.ndarray | float,
    blur: float,
) -> _Approach:
    """Halve the step until the slopes stay, or rounding spoils them."""
    central, right, left = Tableau(2), Tableau(1), Tableau(1)
    nothing, shift = np.zeros(0), max(1.0, blur) * eps
    scale, noisy, alone, apart = nothing, nothing, nothing, nothing
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
                table.add(difference, floor + shift * np.abs(difference) / h)
            alone, apart = np.abs(one + two - 2.0 * origin), np.abs(one - two)
        sides = right.converged(_ONE_SIDED) and left.converged(_ONE_SIDED)
        if central.converged(_CENTRAL) and sides:
            break
        step = steps[-1] / 2.0
        if step < max(_SMALLEST * smallest, _STAIRCASE * blur * eps):
            break
        if number > 1 and _hopeless(central, right, left, eps / step):
            break
    ulp = eps * np.abs(origin) + noisy
    blurred = (apart <= _ULPS * ulp) & (alone <= _ULPS_ALONE * ulp)
    gap = np.maximum(alone, apart)
    return _Approach(central.slope(), right.slope(), left.slope(), gap, blurred, scale)


def _nearer(far: _Approach, near: _Approach, step: float) -> _Approach:
    """Choose for each component between long steps and those from `step` on."""
    chosen = np.zeros(far.scale.shape, bool)
    for one, two in zip(far[:3], near[:3], strict=True):
        at_far = Slope(one.value * far.scale, one.error * far.scale)
        at_near = Slope(two.value * near.scale, two.error * near.scale)
        chosen |= is_nearer(at_far, at_near, step)

    def pick(one: np.ndarray, two: np.ndarray) -> np.ndarray:
        return np.where(chosen, two, one)

    return _Approach(
        Slope(*map(pick, far.central, near.central)),
        Slope(*map(pick, far.right, near.right)),
        Slope(*map(pick, far.left, near.left)),
        pick(far.gap, near.gap),
        pick(far.blurred, near.blurred),
        pick(far.scale, near.scale),
    )


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


def noise_of(
    sample: Sample, origin: np.ndarray, *, smallest: float = 1.0, eps: float
) -> np.ndarray:
    """Measure by how much samples err, for each component, beyond what rounding explains.

    High differences of a smooth function vanish, those of noise do not (ECNoise: Moré and Wild,
    SIAM Journal on Scientific Computing 33, 2011). The greater of both sides is taken, and of each
    the median of several orders, so that a kink is not taken for noise; and the least of several
    distances, because waves that are too fast for one of them look like noise there. But what is
    small enough for the last digits of a number on the way is noise, although that number stands
    still over the shorter distances.

    Args:
        sample: as for `along`.
        origin: `y(0)`, flat.
        smallest: the smallest length in t that matters, at most 1. Not below the last digit of what
            moves: the samples would be a staircase.
        eps: the relative rounding error of the samples.

    Returns:
        Eight standard deviations; 0 where they cannot be had.
    """
    with np.errstate(all="ignore"):
        sizes = [_noise_at(sample, apart * smallest) for apart in _APARTS]
        least, grain = np.fmin.reduce(sizes), _GRAIN * eps * np.maximum(np.abs(origin), 1.0)
        largest = np.fmax.reduce(np.where(np.asarray(sizes) <= grain, sizes, np.nan))
        noise = np.nan_to_num(np.fmax(least, largest), nan=0.0, posinf=0.0)
        return np.where(noise > 4.0 * eps * np.abs(origin), 8.0 * noise, 0.0)


def _noise_at(sample: Sample, apart: float) -> np.ndarray:
    """Measure it from samples that are so far apart; NaN where it cannot be told from a curve."""
    steps = apart * np.arange(1, LEVELS + 1)
    values = sample(np.concatenate([steps, -steps]))
    found = []
    for side in (values[:LEVELS], values[LEVELS:]):
        sizes, turns = [], np.zeros(side.shape[1:], bool)
        for order in (4, 5, 6):
            differences = np.diff(side, order, axis=0)
            share = 1.0 / comb(2 * order, order)
            sizes.append(np.sqrt(share * np.mean(differences**2, axis=0)))
            # Those of a root have one sign in every order: they are no noise.
            turns |= np.any(differences > 0, axis=0) & np.any(differences < 0, axis=0)
        found.append(np.where(turns, np.median(sizes, axis=0), np.nan))
    return np.fmax(*found)


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
