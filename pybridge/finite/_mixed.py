"""The mixed second derivative of a surface `y(s, t)`."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ._differences import is_nearer
from ._tableau import Estimate, Tableau
from ._tolerances import EPS, TOLERANCES, Tolerances

Surface = Callable[[float, float], np.ndarray]

# The area of the smallest cell is then 2**-44 of the unit, and rounding leaves nothing of it.
_MOST_HALVINGS = 20


def mixed_derivative(
    surface: Surface,
    size: tuple[float, float],
    smallest: tuple[float, float],
    tolerances: Tolerances = TOLERANCES,
) -> Estimate:
    """Differentiate `y(s, t)` once in s and once in t at (0, 0).

    Args:
        surface: a flat array; nan where it is not defined.
        size: the lengths in s and t over which the surface may be expected to change.
        smallest: the smallest lengths in s and t that matter.
        tolerances: see `Tolerances`.

    Returns:
        The mixed second derivative with its error.
    """
    far = _approach(surface, size, tolerances)
    if not any(s < tolerances.near * length for s, length in zip(smallest, size, strict=True)):
        return far
    near = _approach(surface, smallest, tolerances)
    area = tolerances.first_step**2 * smallest[0] * smallest[1]
    return far.replaced(is_nearer(far, near, area, tolerances), near)


def _approach(surface: Surface, size: tuple[float, float], tolerances: Tolerances) -> Estimate:
    """Halve both steps until the derivative stays."""
    table, scale = Tableau(2, tolerances), np.zeros(0)
    first = [tolerances.first_step * length for length in size]
    with np.errstate(all="ignore"):
        for level in range(_MOST_HALVINGS):
            s, t = first[0] / 2.0**level, first[1] / 2.0**level
            corners = surface(s, t), surface(s, -t), surface(-s, t), surface(-s, -t)
            area = 4.0 * s * t
            difference = (corners[0] - corners[1] - corners[2] + corners[3]) / area
            table.add(difference, EPS * np.sum(np.abs(corners), axis=0) / area)
            if level == 0:
                finite = np.where(np.isfinite(corners), np.abs(corners), 0.0)
                scale = np.minimum(np.max(finite, axis=0) / (size[0] * size[1]), 1.0)
            if table.has_converged(tolerances.central, scale):
                break
    return table.estimate()
