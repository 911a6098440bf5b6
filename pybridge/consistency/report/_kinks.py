"""A function around a kink as a drawing: both one-sided derivatives, and what each system chose.

This module says where the lines are; the template `kink.html.j2` makes an SVG of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from .._wording import join
from ..findings import SlopeCurve
from ._check_texts import element
from ._numbers import size

# How far to both sides a system's line goes, of the plot's half width.
_REACH = 0.55

# From this derivative on, of the plot's own, a line is upright.
_UPRIGHT = 1e6

# The style sheet has this many colours for choices.
_COLOURS = 5


@dataclass(frozen=True)
class Plot:
    """The drawing of a curve; lengths are in SVG's units, y grows downwards.

    Systems with the same derivative share a line. One that is infinite is upright; one that is NaN
    is only listed.

    Attributes:
        curve: what is drawn.
        width: of the inner picture, which cuts off what leaves it.
        height: of the same.
    """

    curve: SlopeCurve
    width: float = 360
    height: float = 196

    @property
    def name(self) -> str:
        """The element that moves: `args[0][1, 2]`."""
        return f"{self.curve.argument}{element(self.curve.element)}"

    @property
    def keys(self) -> list[tuple[str, str]]:
        """What each line is, by its class in the style sheet."""
        choices = (
            (look, f"{join(names)}: {self._told(derivative)}")
            for look, derivative, names in self._choices()
        )
        return [
            ("curve", "the function"),
            ("left-derivative", f"derivative from the left: {size(self.curve.left)}"),
            ("right-derivative", f"derivative from the right: {size(self.curve.right)}"),
            *choices,
        ]

    @property
    def path(self) -> str:
        """The function, as SVG's `d`; where it is not finite the line is interrupted."""
        parts, pen = [], "M"
        for step, value in zip(self.curve.steps, self.curve.values, strict=True):
            if math.isfinite(value):
                parts.append(f"{pen}{self.x(step):.1f} {self.y(value):.1f}")
            pen = "L" if math.isfinite(value) else "M"
        return " ".join(parts)

    @property
    def lines(self) -> Iterator[tuple[str, tuple[float, ...]]]:
        """The class and the ends of each straight line: x1, y1, x2, y2."""
        first, last = self.steps
        derivatives = [("left-derivative", self.curve.left, first, 0.0)]
        derivatives += [("right-derivative", self.curve.right, 0.0, last)]
        reach = first * _REACH, last * _REACH
        derivatives += [(look, derivative, *reach) for look, derivative, _ in self._choices()]
        for look, derivative, begin, end in derivatives:
            if not math.isnan(derivative) and math.isfinite(self.middle):
                yield look, self._ends(derivative, begin, end)

    def _ends(self, derivative: float, begin: float, end: float) -> tuple[float, ...]:
        (first, last), (low, high) = self.steps, self.range
        if abs(derivative) * (last - first) <= _UPRIGHT * (high - low):
            start, stop = (self.middle + derivative * step for step in (begin, end))
            return self.x(begin), self.y(start), self.x(end), self.y(stop)
        top, bottom = (0, self.height) if begin < 0 < end else (0, self.y(self.middle))
        if (begin >= 0 and derivative < 0) or (end <= 0 and derivative > 0):
            top, bottom = self.y(self.middle), self.height
        return self.x(0), top, self.x(0), bottom

    @property
    def steps(self) -> tuple[float, float]:
        """The first and the last step."""
        return float(self.curve.steps[0]), float(self.curve.steps[-1])

    @cached_property
    def range(self) -> tuple[float, float]:
        """The lowest and the highest value shown."""
        values = np.asarray(self.curve.values, float)
        known = np.clip(values[np.isfinite(values)], -1e300, 1e300)
        if not known.size:
            return -1.0, 1.0
        low, high = float(known.min()), float(known.max())
        room = 0.12 * (high - low) or 0.5 * abs(high) or 1.0
        return low - room, high + room

    @property
    def middle(self) -> float:
        """The value at the point."""
        return float(self.curve.values[np.argmin(np.abs(self.curve.steps))])

    def x(self, step: float) -> float:
        """Place a step."""
        first, last = self.steps
        return (step - first) / ((last - first) or 1.0) * self.width

    def y(self, value: float) -> float:
        """Place a value."""
        low, high = self.range
        return (high - value) / (high - low) * self.height

    def _choices(self) -> list[tuple[str, float, list[str]]]:
        """Put systems together whose derivatives look the same; each group with its class."""
        found: dict[str, tuple[float, list[str]]] = {}
        for name, derivative in self.curve.choices.items():
            found.setdefault(f"{derivative:.6g}", (derivative, []))[1].append(name)
        return [(f"choice c{i % _COLOURS}", *group) for i, group in enumerate(found.values())]

    def _told(self, derivative: float) -> str:
        """Say what a choice is, and whether it lies between the one-sided derivatives."""
        if math.isnan(derivative):
            return "NaN, which cannot be drawn"
        low, high = sorted((self.curve.left, self.curve.right))
        slack = 1e-6 * (1 + max(map(abs, filter(math.isfinite, (low, high))), default=0.0))
        if math.isnan(low) or math.isnan(high) or low - slack <= derivative <= high + slack:
            return size(derivative)
        return f"{size(derivative)}, not between the two"
