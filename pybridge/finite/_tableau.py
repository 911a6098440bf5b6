"""Derivatives of a curve `t -> y(t)` at 0 by extrapolated differences.

Differences at steps h, h/2, h/4, ... form the first column of a Neville tableau, which
removes the error terms h^p, h^2p, ... one after the other (Richardson; the choice of the
best entry follows Ridders, Advances in Engineering Software 4, 1982). One-sided
differences also try Aitken's formula, for error terms with powers that are not whole.
Central, right and left differences share their samples, so that a kink, the edge of a
domain and a vertical tangent are told apart from a smooth point instead of being averaged
away.

Every component of y picks the entry that is best for itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

FIRST_STEP = 0.125
SMALLEST_STEP = 1e-9
COLUMNS = 7
SMOOTH = 1e-11
ONE_SIDED = 1e-6
EPS = float(np.finfo(np.float64).eps)

# Where a length that matters is smaller than this share of the first one, steps of that length are
# taken as well. Otherwise the steps of the first length are short enough to see what it does.
NEAR = 2.0**-8

# Estimates whose distance is so many times their errors were not of the same slope.
_APART = 1e3

# A slope diverges when it keeps moving the same way, by steps that do not shrink, while h
# is halved this many times.
DIVERGING_STEPS = 10
DIVERGING_RATIO = 0.97


class Slope(NamedTuple):
    """A derivative per component of y, with an estimate of its error.

    Attributes:
        value: the derivative; +-inf where it diverges, nan where it does not exist.
        error: the estimated absolute error; inf where the value is not finite.
    """

    value: np.ndarray
    error: np.ndarray


class Slopes(NamedTuple):
    """The three derivatives of a curve at a point: two-sided, from the right, the left."""

    central: Slope
    right: Slope
    left: Slope


class Tableau:
    """A Neville tableau that keeps, per component, the best entry seen so far."""

    def __init__(self, order: int):
        """Start an empty tableau.

        Args:
            order: the first power of h in the error, and the distance between powers.
        """
        self._ratio = 2.0**order
        self._one_sided = order == 1
        self._row: list[np.ndarray] = []
        self._limit = np.array(np.nan)
        self._first_column: list[np.ndarray] = []
        self._rounding = np.array(0.0)
        self.value = np.array(np.nan)
        self.error = np.array(np.inf)

    def add(self, difference: np.ndarray, rounding: np.ndarray) -> None:
        """Add the difference at the next step, which is half of the step before.

        Args:
            difference: one estimate per component; nan where it could not be had.
            rounding: what rounding alone may have changed in it. Without this floor the
                differences of equal numbers at tiny steps agree on a wrong 0.
        """
        row = [difference]
        self._rounding = rounding
        best, error = self.value, self.error
        if not self._row:
            best = np.full(difference.shape, np.nan, difference.dtype)
            error = np.full(difference.shape, np.inf)
        factor = 1.0
        for above in self._row[: COLUMNS - 1]:
            factor *= self._ratio
            # The entry is farther from the one above than from the one beside it.
            change = (row[-1] - above) / (factor - 1.0)
            entry = row[-1] + change
            gap = np.abs(change) * factor + rounding
            better = gap < error
            best, error = np.where(better, entry, best), np.where(better, gap, error)
            row.append(entry)
        self._row = row
        self._first_column.append(difference)
        self.value, self.error = best, error
        if self._one_sided and len(self._first_column) > 2:
            self._accelerate(rounding)

    def _accelerate(self, rounding: np.ndarray) -> None:
        """Try Aitken's formula, which is right for an error term of any one power.

        At the edge of a domain that power is often a fraction: x^1.5 at 0.
        """
        first, second, third = self._first_column[-3:]
        ratio = (third - second) / (second - first)
        shrinking = (np.abs(ratio) < DIVERGING_RATIO) & (ratio != 0)
        limit = np.where(shrinking, third + (third - second) * ratio / (1 - ratio), np.nan)
        gap = np.abs(limit - self._limit) + rounding / np.abs(1 - ratio) ** 2
        better = gap < self.error
        self.value = np.where(better, limit, self.value)
        self.error = np.where(better, gap, self.error)
        self._limit = limit

    def converged(self, tolerance: float, scale: np.ndarray | float = 1.0) -> bool:
        """Say whether every component's error is below the relative tolerance.

        Args:
            tolerance: of the slope.
            scale: a slope to which the tolerance of a lesser one is relative.
        """
        return bool(np.all(self.error <= tolerance * (scale + np.abs(self.value))))

    def slope(self) -> Slope:
        """Read the result, with divergence turned into +-inf."""
        value, error = self.value, self.error
        column = np.stack(self._first_column[-DIVERGING_STEPS - 1 :])
        if len(column) > DIVERGING_STEPS and not np.iscomplexobj(column):
            moves = np.diff(column, axis=0)
            steady = np.all(np.sign(moves) == np.sign(moves[0]), axis=0) & (moves[0] != 0)
            growing = np.abs(moves[1:]) >= DIVERGING_RATIO * np.abs(moves[:-1])
            # A last digit that never changes back, divided by h, grows as well.
            seen = np.abs(moves[-1]) > 2.0 * self._rounding
            diverging = steady & np.all(growing, axis=0) & seen
            value = np.where(diverging, np.copysign(np.inf, moves[0]), value)
            error = np.where(diverging, np.inf, error)
        return Slope(value, np.where(np.isnan(value), np.inf, error))


def slopes(
    curve: Callable[[float], np.ndarray], origin: np.ndarray, size: float, smallest: float
) -> Slopes:
    """Differentiate a curve at 0 from both sides and from each side.

    Args:
        curve: `y(t)`, a flat array; nan where it is not defined.
        origin: `y(0)`.
        size: the length in t over which the curve may be expected to change; the first
            step is an eighth of it.
        smallest: the smallest length in t that matters, for example the distance to the
            edge of the domain; the steps go down to 1e-9 of it.

    Returns:
        The slopes, each with its error.
    """
    with np.errstate(all="ignore"):
        found = _approach(curve, origin, size, smallest)
        # The function may change over a length of about one, whatever the size of its argument:
        # sin(1e6).
        near = min(smallest, 1.0)
        if near < NEAR * size:
            short = _approach(curve, origin, near, smallest)
            step = FIRST_STEP * near
            return Slopes(*(_nearer(*pair, step) for pair in zip(found, short, strict=True)))
        return found


def _approach(
    curve: Callable[[float], np.ndarray], origin: np.ndarray, size: float, smallest: float
) -> Slopes:
    """Halve the step until the slopes stay."""
    central, right, left = Tableau(2), Tableau(1), Tableau(1)
    last_step = SMALLEST_STEP * smallest
    # Steps that are powers of two add and divide without rounding.
    step = 2.0 ** np.round(np.log2(FIRST_STEP * size))
    scale = None
    while True:
        ahead, behind = curve(step), curve(-step)
        if scale is None:
            scale = _slope_scale((ahead, behind, origin), size)
        central.add((ahead - behind) / (2.0 * step), _rounding(ahead, behind, step))
        right.add((ahead - origin) / step, _rounding(ahead, origin, step))
        left.add((origin - behind) / step, _rounding(origin, behind, step))
        step /= 2.0
        done = central.converged(SMOOTH, scale) and (
            right.converged(ONE_SIDED, scale) and left.converged(ONE_SIDED, scale)
        )
        if done or step < last_step:
            return Slopes(central.slope(), right.slope(), left.slope())


def _slope_scale(values: Sequence[np.ndarray], length: float) -> np.ndarray:
    """Say which slope is large for a function of such values; at most one."""
    sizes = [np.where(np.isfinite(v), np.abs(v), 0.0) for v in values]
    return np.minimum(np.max(sizes, axis=0) / length, 1.0)


def is_nearer(far: Slope, near: Slope, step: float) -> np.ndarray:
    """Say for each component whether short steps tell more than long ones.

    Long steps have more digits, but they can agree on what is not the slope at the point: past a
    pole, or many waves away.

    Args:
        far: the slope from long steps.
        near: the slope from short ones.
        step: the longest of these.
    """
    with np.errstate(all="ignore"):
        # A value that does not move may hide in the last digit of a one: (1 + x) - 1.
        error = near.error + np.where(near.value == 0, EPS / step, 0.0)
        gap = np.abs(near.value - far.value)
        same = (near.value == far.value) | (np.isnan(near.value) & np.isnan(far.value))
        apart = ~same & ~(gap <= _APART * (error + far.error))
        # What grew without end was followed to the smallest step.
        return (apart | (_APART * error < far.error)) & ~np.isinf(far.value)


def _nearer(far: Slope, near: Slope, step: float) -> Slope:
    """Choose for each component between long steps and short ones."""
    chosen = is_nearer(far, near, step)
    return Slope(np.where(chosen, near.value, far.value), np.where(chosen, near.error, far.error))


def _rounding(one: np.ndarray, two: np.ndarray, step: float) -> np.ndarray:
    """Estimate what rounding of two values does to their difference quotient."""
    return EPS * (np.abs(one) + np.abs(two)) / step


def second_slope(
    surface: Callable[[float, float], np.ndarray],
    size: tuple[float, float],
    smallest: tuple[float, float],
) -> Slope:
    """Differentiate `y(s, t)` once in s and once in t at (0, 0).

    Args:
        surface: `y(s, t)`, a flat array; nan where it is not defined.
        size: the lengths in s and t over which the surface may be expected to change.
        smallest: the smallest lengths in s and t that matter.

    Returns:
        The mixed second derivative with its error.
    """
    far = _second_approach(surface, size)
    near = min(smallest[0], 1.0), min(smallest[1], 1.0)
    if near[0] < NEAR * size[0] or near[1] < NEAR * size[1]:
        return _nearer(far, _second_approach(surface, near), FIRST_STEP**2 * near[0] * near[1])
    return far


def _second_approach(
    surface: Callable[[float, float], np.ndarray], size: tuple[float, float]
) -> Slope:
    """Halve both steps until the derivative stays."""
    table = Tableau(2)
    first, scale = (FIRST_STEP * size[0], FIRST_STEP * size[1]), np.zeros(0)
    with np.errstate(all="ignore"):
        for level in range(20):
            s, t = first[0] / 2.0**level, first[1] / 2.0**level
            corners = surface(s, t), surface(s, -t), surface(-s, t), surface(-s, -t)
            area = 4.0 * s * t
            difference = (corners[0] - corners[1] - corners[2] + corners[3]) / area
            rounding = EPS * np.sum(np.abs(corners), axis=0) / area
            table.add(difference, rounding)
            if level == 0:
                scale = _slope_scale(corners, size[0] * size[1])
            if table.converged(SMOOTH, scale):
                break
    return table.slope()


def combine(slopes: Slopes) -> Slope:
    """Make one derivative of the three.

    - smooth point: the two-sided slope.
    - kink: the middle of the one-sided slopes, and half their distance as the error, so
      that value +- error is the interval of all slopes in between.
    - edge of the domain: the slope of the side on which the curve exists.
    - vertical tangent: +-inf when both sides agree on it, else nan (a jump or a cusp).

    Returns:
        The derivative with its error, which is inf where the value is not finite.
    """
    central, right, left = slopes
    with np.errstate(all="ignore"):
        distance = np.abs(right.value - left.value)
        doubt = 10.0 * (right.error + left.error) + 1e-5 * (1.0 + np.abs(central.value))
        kink = distance > doubt
        value = np.where(kink, (right.value + left.value) / 2.0, central.value)
        error = np.where(kink, distance / 2.0, central.error)
        vertical = np.isinf(right.value) | np.isinf(left.value)
        agreed = np.where(right.value == left.value, right.value, np.nan)
        value = np.where(vertical, agreed, value)
        for inner, outer in ((right, left), (left, right)):
            edge = np.isnan(outer.value) & np.isnan(central.value)
            value = np.where(edge, inner.value, value)
            error = np.where(edge, inner.error, error)
    return Slope(value, np.where(np.isfinite(value), error, np.inf))
