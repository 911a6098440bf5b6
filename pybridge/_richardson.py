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

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

FIRST_STEP = 0.125
SMALLEST_STEP = 1e-9
COLUMNS = 7
SMOOTH = 1e-11
ONE_SIDED = 1e-6
EPS = float(np.finfo(np.float64).eps)

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

    def converged(self, tolerance: float) -> bool:
        """Say whether every component's error is below the relative tolerance."""
        return bool(np.all(self.error <= tolerance * (1.0 + np.abs(self.value))))

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
    central, right, left = Tableau(2), Tableau(1), Tableau(1)
    last_step = SMALLEST_STEP * smallest
    # Steps that are powers of two add and divide without rounding.
    step = 2.0 ** np.round(np.log2(FIRST_STEP * size))
    with np.errstate(all="ignore"):
        while True:
            ahead, behind = curve(step), curve(-step)
            central.add((ahead - behind) / (2.0 * step), _rounding(ahead, behind, step))
            right.add((ahead - origin) / step, _rounding(ahead, origin, step))
            left.add((origin - behind) / step, _rounding(origin, behind, step))
            step /= 2.0
            done = central.converged(SMOOTH) and (
                right.converged(ONE_SIDED) and left.converged(ONE_SIDED)
            )
            if done or step < last_step:
                return Slopes(central.slope(), right.slope(), left.slope())


def _rounding(one: np.ndarray, two: np.ndarray, step: float) -> np.ndarray:
    """Estimate what rounding of two values does to their difference quotient."""
    return EPS * (np.abs(one) + np.abs(two)) / step


def second_slope(surface: Callable[[float, float], np.ndarray], size: tuple[float, float]) -> Slope:
    """Differentiate `y(s, t)` once in s and once in t at (0, 0).

    Args:
        surface: `y(s, t)`, a flat array; nan where it is not defined.
        size: the lengths in s and t over which the surface may be expected to change.

    Returns:
        The mixed second derivative with its error.
    """
    table = Tableau(2)
    first = FIRST_STEP * size[0], FIRST_STEP * size[1]
    with np.errstate(all="ignore"):
        for level in range(20):
            s, t = first[0] / 2.0**level, first[1] / 2.0**level
            corners = surface(s, t), surface(s, -t), surface(-s, t), surface(-s, -t)
            area = 4.0 * s * t
            difference = (corners[0] - corners[1] - corners[2] + corners[3]) / area
            rounding = EPS * np.sum(np.abs(corners), axis=0) / area
            table.add(difference, rounding)
            if table.converged(SMOOTH):
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
