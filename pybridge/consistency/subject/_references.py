"""The derivatives of a function by finite differences, along lines through one point."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ...finite import Curve, DirectionalDerivative, Sample, directional_derivative, noise_level
from ._probes import Line
from ._subject import Arrays, Subject
from ._systems import Weighted

# Gives the outputs at a point, along a direction, at several distances.
Values = Callable[[Arrays, Arrays, np.ndarray], np.ndarray]


class Section(NamedTuple):
    """A function along a line through a point.

    Attributes:
        sample: its values at an array of distances.
        origin: the value at the point.
        line: the line.
        xs: the point.
        eps: the relative rounding error of the values.
    """

    sample: Sample
    origin: np.ndarray
    line: Line
    xs: Arrays
    eps: float

    def differentiate(self, weights: np.ndarray, factor: float) -> DirectionalDerivative:
        """Differentiate the weighted sum of the values, see `directional_derivative`."""
        smallest = self.line.smallest(self.xs)
        curve = Curve(self.sample, self.origin, smallest=smallest, eps=self.eps)
        return directional_derivative(curve, weights, factor=factor)

    def differentiate_closely(
        self, weights: np.ndarray, factor: float, noise: np.ndarray
    ) -> DirectionalDerivative:
        """The same where there is a doubt: with known noise, and from very near as well."""
        curve = Curve(
            self.sample,
            self.origin,
            smallest=self.line.shortest(self.xs),
            eps=self.eps,
            noise=noise,
            blur=self.line.blur(self.xs),
        )
        return directional_derivative(curve, weights, factor=factor, doubtful=True)

    def noise(self) -> np.ndarray:
        """Measure the noise of the values, see `noise_level`."""
        smallest = self.line.shortest(self.xs, unit=np.inf)
        return noise_level(Curve(self.sample, self.origin, smallest=smallest, eps=self.eps))


class References:
    """Finite differences along lines through one point; each is taken once.

    Attributes:
        origin: the value at the point, as one real vector.
    """

    def __init__(
        self, subject: Subject, weighted: Weighted, xs: Arrays, values: Values, plain: Arrays
    ):
        """Keep the function along lines, and its value at the point; nothing is called yet."""
        self.origin = np.asarray(weighted.flat(plain), float)
        self._subject, self._xs, self._values = subject, xs, values
        self._weights = weighted.flat_weights
        self._known: dict[tuple[Line, float], DirectionalDerivative] = {}
        self._noise: dict[Line, np.ndarray] = {}

    def along(self, line: Line, factor: float = 1.0) -> DirectionalDerivative:
        """Differentiate along a line, with steps of the usual lengths times a factor."""
        key = line, factor
        if key not in self._known:
            reference = self._differentiate(line, factor)
            if reference.kind != "smooth" and self.look_closely(line):
                reference = self._differentiate(line, factor)
            self._known[key] = reference
        return self._known[key]

    def look_closely(self, line: Line) -> bool:
        """Measure the noise along a line from now on; say whether it was not measured already."""
        if line in self._noise:
            return False
        self._noise[line] = self._section(line).noise()
        self._known.pop((line, 1.0), None)
        return True

    def values_along(self, line: Line, ts: np.ndarray) -> np.ndarray:
        """Return the weighted sum of the outputs at several distances."""
        return self._section(line).sample(ts) @ self._weights

    def is_finite(self) -> bool:
        """Say whether the value is, where it counts."""
        return bool(np.all(np.isfinite(self.origin[self._weights != 0])))

    def _differentiate(self, line: Line, factor: float) -> DirectionalDerivative:
        section = self._section(line)
        if line not in self._noise:
            return section.differentiate(self._weights, factor)
        return section.differentiate_closely(self._weights, factor, self._noise[line])

    def _section(self, line: Line) -> Section:
        def sample(ts: np.ndarray) -> np.ndarray:
            return self._values(self._xs, line.vs, ts.astype(self._subject.dtype))

        return Section(sample, self.origin, line, self._xs, self._subject.eps)
