"""Extrapolation of differences at steps h, h/2, h/4, ... to h = 0.

They form the first column of a Neville tableau, which removes the error terms h^p, h^2p, ... one
after the other (Richardson; the choice of the best entry follows Ridders, Advances in Engineering
Software 4, 1982). One-sided differences also try Aitken's formula, for error terms with powers that
are not whole. Every component of y picks the entry that is best for itself.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ._tolerances import TOLERANCES, Tolerances


class Estimate(NamedTuple):
    """A derivative per component of y, with an estimate of its error.

    Attributes:
        value: the derivative; +-inf where it diverges, nan where it does not exist.
        error: the estimated absolute error; inf where the value is not finite.
    """

    value: np.ndarray
    error: np.ndarray

    def times(self, scale: np.ndarray | float) -> Estimate:
        """Give the estimate in other units."""
        return Estimate(self.value * scale, self.error * scale)

    def replaced(self, where: np.ndarray, other: Estimate) -> Estimate:
        """Take another estimate for some components."""
        return Estimate(*(np.where(where, b, a) for a, b in zip(self, other, strict=True)))


class Tableau:
    """A Neville tableau that keeps, per component, the best entry seen so far."""

    def __init__(self, order: int, tolerances: Tolerances = TOLERANCES):
        """Start an empty tableau.

        Args:
            order: the first power of h in the error, and the distance between powers.
            tolerances: the number of columns, and what counts as divergence.
        """
        self._tolerances = tolerances
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
        for above in self._row[: self._tolerances.columns - 1]:
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
        shrinking = (np.abs(ratio) < self._tolerances.diverging_ratio) & (ratio != 0)
        limit = np.where(shrinking, third + (third - second) * ratio / (1 - ratio), np.nan)
        gap = np.abs(limit - self._limit) + rounding / np.abs(1 - ratio) ** 2
        better = gap < self.error
        self.value = np.where(better, limit, self.value)
        self.error = np.where(better, gap, self.error)
        self._limit = limit

    def has_converged(self, tolerance: float, scale: np.ndarray | float = 1.0) -> bool:
        """Say whether every component's error is below the relative tolerance.

        Args:
            tolerance: of the derivative.
            scale: a derivative to which the tolerance of a lesser one is relative.
        """
        return bool(np.all(self.error <= tolerance * (scale + np.abs(self.value))))

    def estimate(self) -> Estimate:
        """Read the result, with divergence turned into +-inf."""
        value, error = self.value, self.error
        halvings, ratio = self._tolerances.diverging_halvings, self._tolerances.diverging_ratio
        column = np.stack(self._first_column[-halvings - 1 :])
        if len(column) > halvings and not np.iscomplexobj(column):
            moves = np.diff(column, axis=0)
            steady = np.all(np.sign(moves) == np.sign(moves[0]), axis=0) & (moves[0] != 0)
            growing = np.abs(moves[1:]) >= ratio * np.abs(moves[:-1])
            # A last digit that never changes back, divided by h, grows as well.
            seen = np.abs(moves[-1]) > self._tolerances.diverging_rounding * self._rounding
            diverging = steady & np.all(growing, axis=0) & seen
            value = np.where(diverging, np.copysign(np.inf, moves[0]), value)
            error = np.where(diverging, np.inf, error)
        return Estimate(value, np.where(np.isnan(value), np.inf, error))
