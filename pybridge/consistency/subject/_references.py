"""The derivatives of a function by finite differences, along lines through one point."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...finite import Curve, DirectionalDerivative, Sample, directional_derivative, noise_level
from ._probes import Line
from ._subject import Arrays, Subject
from ._systems import Weighted

# Gives the outputs at a point, along a direction, at several distances.
Values = Callable[[Arrays, Arrays, np.ndarray], np.ndarray]


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
        noise = noise_along(self._sample(line), self.origin, line, self._xs, self._subject.eps)
        self._noise[line] = noise
        self._known.pop((line, 1.0), None)
        return True

    def values_along(self, line: Line, ts: np.ndarray) -> np.ndarray:
        """Return the weighted sum of the outputs at several distances."""
        return self._sample(line)(ts) @ self._weights

    def is_finite(self) -> bool:
        """Say whether the value is, where it counts."""
        return bool(np.all(np.isfinite(self.origin[self._weights != 0])))

    def _differentiate(self, line: Line, factor: float) -> DirectionalDerivative:
        sample, eps, xs = self._sample(line), self._subject.eps, self._xs
        noise = self._noise.get(line)
        if noise is not None:
            return closely(sample, self.origin, self._weights, line, xs, eps, factor, noise)
        curve = Curve(sample, self.origin, smallest=line.smallest(xs), eps=eps)
        return directional_derivative(curve, self._weights, factor=factor)

    def _sample(self, line: Line) -> Sample:
        return lambda ts: self._values(self._xs, line.vs, ts.astype(self._subject.dtype))


def noise_along(
    sample: Sample, origin: np.ndarray, line: Line, xs: Arrays, eps: float
) -> np.ndarray:
    """Measure the noise of samples along a line, see `noise_level`."""
    return noise_level(Curve(sample, origin, smallest=line.shortest(xs, unit=np.inf), eps=eps))


def closely(
    sample: Sample,
    origin: np.ndarray,
    weights: np.ndarray,
    line: Line,
    xs: Arrays,
    eps: float,
    factor: float,
    noise: np.ndarray,
) -> DirectionalDerivative:
    """Differentiate along a line where there is a doubt, see `difference_quotients`."""
    smallest, blur = line.shortest(xs), line.blur(xs)
    curve = Curve(sample, origin, smallest=smallest, eps=eps, noise=noise, blur=blur)
    return directional_derivative(curve, weights, factor=factor, doubtful=True)
