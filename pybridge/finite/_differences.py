"""Difference quotients of a curve `t -> y(t)` at 0, from both sides and from each.

Central, right and left differences share their samples, so that a kink, the edge of a domain and a
vertical tangent are told apart from a smooth point instead of being averaged away.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ._tableau import Estimate, Tableau
from ._tolerances import EPS, TOLERANCES, Tolerances

# The values at an array of distances: a row for each, nan where the curve is not defined.
Sample = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Curve:
    """A curve, and what is known of it before it is sampled.

    Attributes:
        sample: the values at an array of `2 * batch` distances.
        origin: `y(0)`, flat.
        size: the length in t over which the curve may be expected to change.
        smallest: the smallest length in t that matters, at most `size`: the distance to a pole.
        eps: the relative rounding error of the samples.
        noise: by how much each sample errs beyond that, for each component, absolute.
        blur: by how many eps of t the rounding of what moves shifts a sample. Much shorter steps
            would see a staircase.
        shift: the least `blur` that rounding errors of the samples are taken to have; 0 where what
            moves is short against its own size.
        resolution: a kink, jump or edge that is no farther away is at the point: the caller's own
            numbers do not tell the two apart.
        batch: the number of steps whose samples are taken at once.
    """

    sample: Sample
    origin: np.ndarray
    size: float = 1.0
    smallest: float = 1.0
    eps: float = EPS
    noise: np.ndarray | float = 0.0
    blur: float = 0.0
    shift: float = 1.0
    resolution: float = 0.0
    batch: int = TOLERANCES.levels


class Differences(NamedTuple):
    """What difference quotients converge to, for each component in units of `scale`.

    Attributes:
        central: the two-sided derivative.
        right: the one from the right.
        left: the one from the left.
        gap: what remains of the differences at the smallest step.
        is_blurred: whether that is no more than rounding and noise.
        scale: by how much the curve moves.
        is_cut: whether it has one on one side only over the first step.
        size: the length over which the curve may be expected to change.
        shortest: the shortest step.
    """

    central: Estimate
    right: Estimate
    left: Estimate
    gap: np.ndarray
    is_blurred: np.ndarray
    scale: np.ndarray
    is_cut: np.ndarray
    size: np.ndarray | float
    shortest: np.ndarray | float

    def replaced(self, where: np.ndarray, other: Differences) -> Differences:
        """Take others for some components."""
        mine, theirs = self._asdict(), other._asdict()
        return Differences(
            **{
                name: mine[name].replaced(where, value)
                if isinstance(value, Estimate)
                else np.where(where, value, mine[name])
                for name, value in theirs.items()
            }
        )


def difference_quotients(
    curve: Curve,
    *,
    factor: float = 1.0,
    doubtful: bool = False,
    tolerances: Tolerances = TOLERANCES,
) -> Differences:
    """Extrapolate the difference quotients of a curve, from long steps and from short ones.

    The curve may change over its smallest length, whatever its size: 1/x at 1e-8, sin at 3e6. Short
    steps are taken as well there, and trusted where the two contradict each other.

    Args:
        curve: the curve.
        factor: multiplies every step. Estimates with different factors err differently.
        doubtful: whether to look from very near as well, which takes more samples.
        tolerances: see `Tolerances`.
    """
    lengths = [curve.smallest, tolerances.nearest * curve.smallest]
    with np.errstate(all="ignore"):
        chosen = approach(curve, first_step(curve.size, tolerances) * factor, tolerances)
        for length in lengths if doubtful else lengths[:1]:
            step = first_step(length, tolerances) * factor
            is_staircase = step <= tolerances.staircase * curve.blur * curve.eps
            if length < tolerances.near * curve.size and not is_staircase:
                near = approach(curve, step, tolerances)
                chosen = _choose(chosen, near, step, tolerances)
    return chosen


def closest_step(curve: Curve, tolerances: Tolerances = TOLERANCES) -> float:
    """Return the shortest step whose samples are not those of the last digits of what moves."""
    return tolerances.ulps * curve.eps * max(curve.blur, curve.size)


def samples_from(
    curve: Curve, closest: float, batches: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sample a curve on both sides, each step twice the one before.

    Args:
        curve: the curve.
        closest: the first step.
        batches: how many batches of steps.

    Returns:
        The steps, and the values ahead and behind: a row for each step.
    """
    steps = closest * 2.0 ** np.arange(curve.batch * batches)
    values = [
        curve.sample(np.concatenate([some, -some])) for some in steps.reshape(-1, curve.batch)
    ]
    ahead, behind = np.stack(values).reshape(batches, 2, curve.batch, -1).swapaxes(0, 1)
    shape = len(steps), curve.origin.size
    return steps, ahead.reshape(shape), behind.reshape(shape)


def two_sided_derivative(curve: Curve, tolerances: Tolerances = TOLERANCES) -> np.ndarray:
    """Differentiate a curve as if it were smooth at 0: a fraction of the work."""
    table = Tableau(2, tolerances)
    steps = tolerances.first_step / 2.0 ** np.arange(tolerances.levels)
    values = curve.sample(np.concatenate([steps, -steps]))
    with np.errstate(all="ignore"):
        scale = _movement(values, curve.origin)
        rows = values / scale
        for h, ahead, behind in zip(steps, rows[: len(steps)], rows[len(steps) :], strict=True):
            difference = (ahead - behind) / (2.0 * h)
            rounding = curve.eps * (np.abs(ahead) + np.abs(behind) + np.abs(difference)) / h
            table.add(difference, rounding)
        return table.value * scale


def first_step(length: float, tolerances: Tolerances) -> float:
    """Choose the power of two next to the first step for a length."""
    return float(2.0 ** np.round(np.log2(tolerances.first_step * length)))


def approach(
    curve: Curve, step: float, tolerances: Tolerances, last_step: float | None = None
) -> Differences:
    """Halve the step until the quotients stay, or rounding spoils them; or until a last step."""
    central, right, left = Tableau(2, tolerances), *(Tableau(1, tolerances) for _ in range(2))
    eps, batch = curve.eps, curve.batch
    shift, unit = max(curve.shift, curve.blur) * eps, 1.0 / curve.size
    if last_step is None:
        last_step = max(
            tolerances.smallest_step * curve.smallest, tolerances.staircase * curve.blur * eps
        )
    scale = origin = noise = apart = away = np.zeros(0)
    is_cut = np.zeros(curve.origin.shape, bool)
    for taken in range(0, tolerances.most_halvings, batch):
        steps = step / 2.0 ** np.arange(batch)
        values = curve.sample(np.concatenate([steps, -steps]))
        if taken == 0:
            scale = _movement(values, curve.origin)
            origin, noise = curve.origin / scale, np.asarray(curve.noise) / scale
            is_cut = np.isnan(values[0]) != np.isnan(values[batch])
        rows = values / scale
        for h, ahead, behind in zip(steps, rows[:batch], rows[batch:], strict=True):
            for table, difference, size in (
                (central, (ahead - behind) / (2.0 * h), np.abs(ahead) + np.abs(behind)),
                (right, (ahead - origin) / h, np.abs(ahead) + np.abs(origin)),
                (left, (origin - behind) / h, np.abs(origin) + np.abs(behind)),
            ):
                # Of its own two values: the other side may be no number.
                rounding = (eps * size + noise) / h
                table.add(difference, rounding + shift * np.abs(difference) / h)
            apart, away = np.abs(ahead - behind), np.abs(ahead + behind - 2.0 * origin)
        sides = all(side.has_converged(tolerances.one_sided, unit) for side in (right, left))
        step = steps[-1] / 2.0
        if (sides and central.has_converged(tolerances.central, unit)) or step < last_step:
            break
        if taken + batch >= tolerances.fruitless_halvings:
            worst = max(np.max(table.error, initial=0.0) for table in (central, right, left))
            if eps / step > tolerances.estimates * worst:
                break
    ulp = eps * np.abs(origin) + noise
    is_blurred = (apart <= tolerances.ulps * ulp) & (away <= tolerances.ulps_alone * ulp)
    estimates = central.estimate(), right.estimate(), left.estimate()
    gap = np.maximum(away, apart)
    return Differences(*estimates, gap, is_blurred, scale, is_cut, curve.size, 2.0 * step)


def _movement(values: np.ndarray, origin: np.ndarray) -> np.ndarray:
    """Find how much each component moves, so that functions of every size look alike."""
    moves = np.abs(np.where(np.isfinite(values), values, origin) - origin)
    largest = np.max(moves, axis=0, initial=0.0)
    return np.where((largest > 0) & np.isfinite(largest), largest, 1.0)


def _choose(
    far: Differences, near: Differences, step: float, tolerances: Tolerances
) -> Differences:
    """Choose for each component between long steps and those from `step` on."""
    is_near = np.zeros(far.scale.shape, bool)
    for long, short in zip(far[:3], near[:3], strict=True):
        at_far, at_near = long.times(far.scale), short.times(near.scale)
        is_near |= is_nearer(at_far, at_near, step, tolerances)
    return far.replaced(is_near, near)


def is_nearer(
    far: Estimate, near: Estimate, step: float, tolerances: Tolerances = TOLERANCES
) -> np.ndarray:
    """Say for each component whether short steps tell more than long ones.

    Long steps have more digits, but they can agree on what is not the derivative at the point: past
    a pole, or many waves away.

    Args:
        far: the derivative from long steps.
        near: the derivative from short ones.
        step: the longest of these.
        tolerances: see `Tolerances`.
    """
    with np.errstate(all="ignore"):
        # A value that does not move may hide in the last digit of a one: (1 + x) - 1.
        error = near.error + np.where(near.value == 0, EPS / step, 0.0)
        gap = np.abs(near.value - far.value)
        same = (near.value == far.value) | (np.isnan(near.value) & np.isnan(far.value))
        apart = ~same & ~(gap <= tolerances.contradiction * (error + far.error))
        # What grew without end was followed to the smallest step.
        better = apart | (tolerances.contradiction * error < far.error)
        return better & ~np.isinf(far.value)
