"""The derivatives of a function by finite differences, along lines through one point."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...finite import (
    TOLERANCES,
    Curve,
    DirectionalDerivative,
    Sample,
    directional_derivative,
    noise_level,
    steady_length,
    steady_quotients,
)
from ._probes import Line
from ._subject import Arrays, Subject
from ._systems import Weighted

# Gives the outputs at a point, along a direction, at several distances.
Values = Callable[[Arrays, Arrays, np.ndarray], np.ndarray]

# Says by how much rounding on the way changes the leaves of a function's value at a point; None
# where that is not known.
Rounding = Callable[[Callable[..., Any], Arrays], "Sequence[np.ndarray] | None"]


class Section(NamedTuple):
    """A function along a line through a point.

    Attributes:
        sample: its values at an array of distances.
        origin: the value at the point.
        line: the line.
        xs: the point.
        eps: the relative rounding error of the values.
        resolution: see `Curve`.
    """

    sample: Sample
    origin: np.ndarray
    line: Line
    xs: Arrays
    eps: float
    resolution: float = 0.0

    def differentiate(self, weights: np.ndarray, factor: float) -> DirectionalDerivative:
        """Differentiate the weighted sum of the values, see `directional_derivative`."""
        smallest = self.line.smallest(self.xs)
        curve = Curve(
            self.sample,
            self.origin,
            smallest=smallest,
            eps=self.eps,
            resolution=self.resolution,
        )
        return directional_derivative(curve, weights, factor=factor)

    def differentiate_closely(
        self, weights: np.ndarray, factor: float, noise: np.ndarray, *, is_exact: bool = False
    ) -> DirectionalDerivative:
        """The same where there is a doubt: with known noise, and from very near as well.

        Args:
            weights: of the values.
            factor: of the steps.
            noise: of the values.
            is_exact: whether that is all that rounding does to them. Nothing that moves is then
                added to a larger number on the way.
        """
        curve = Curve(
            self.sample,
            self.origin,
            smallest=self.line.shortest(self.xs),
            eps=self.eps,
            noise=noise,
            blur=self.line.blur(self.xs),
            shift=0.0 if is_exact else 1.0,
            resolution=self.resolution,
        )
        return directional_derivative(curve, weights, factor=factor, doubtful=True)

    def differentiate_within(
        self, length: float, weights: np.ndarray, factor: float
    ) -> DirectionalDerivative:
        """The same with steps that are short against a length."""
        return directional_derivative(self._curve(length), weights, factor=factor)

    def steady_quotients(self) -> np.ndarray:
        """List the difference quotients of each value that stay the same over several steps."""
        return steady_quotients(self._curve(self.line.shortest(self.xs)))

    def steady_length(self) -> float:
        """Find the distance up to which the one value is as it is at the point."""
        return steady_length(self._curve(self.line.shortest(self.xs)))

    def _curve(self, size: float) -> Curve:
        blur = self.line.blur(self.xs)
        return Curve(
            self.sample, self.origin, size, smallest=size, eps=self.eps, blur=blur, shift=0.0
        )

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
        self,
        subject: Subject,
        weighted: Weighted,
        xs: Arrays,
        values: Values,
        plain: Arrays,
        rounding: Rounding | None = None,
    ):
        """Keep the function along lines, and its value at the point; nothing is called yet."""
        self.origin = np.asarray(weighted.flat(plain), float)
        self._subject, self._xs, self._values = subject, xs, values
        self._weights = weighted.flat_weights
        self._known: dict[tuple[Line, float], DirectionalDerivative] = {}
        self._noise: dict[Line, np.ndarray] = {}
        self._rounding, self._weighted = rounding, weighted
        self._looked_through: set[Line] = set()
        self._exact: set[Line] = set()

    def along(self, line: Line, factor: float = 1.0) -> DirectionalDerivative:
        """Differentiate along a line, with steps of the usual lengths times a factor."""
        key = line, factor
        if key not in self._known:
            reference = self._differentiate(line, factor)
            if reference.kind != "smooth" and self.look_closely(line):
                reference = self._differentiate(line, factor)
            if reference.kind == "kink":
                reference = self._beside_kink(line, factor, reference)
            self._known[key] = reference
        return self._known[key]

    def look_closely(self, line: Line) -> bool:
        """Measure the noise along a line from now on; say whether it was not measured already."""
        if line in self._noise:
            return False
        self._noise[line] = self._section(line).noise()
        self._known.pop((line, 1.0), None)
        return True

    def measure_rounding(self, line: Line) -> bool:
        """Add to the noise along a line what rounding on the way does to the values.

        A value that is made of the last digits of a larger number is a staircase. Over less than
        one of its steps it stands still, and no noise is seen in the values alone.

        Returns:
            Whether that is known, and was not before.
        """
        if line in self._looked_through:
            return False
        self._looked_through.add(line)
        noise = self.rounding_along(line, self._subject.call)
        if noise is None:
            return False
        self._noise[line] = np.maximum(self._noise.get(line, 0.0), noise)
        self._exact.add(line)
        self._known = {key: found for key, found in self._known.items() if key[0] is not line}
        return True

    def rounding_along(self, line: Line, function: Callable[..., Any]) -> np.ndarray | None:
        """Say by how much rounding changes a function's value near the point, as a real vector."""
        nearest = TOLERANCES.noise_lengths[0] * line.shortest(self._xs)
        errors = []
        for t in (0.0, nearest, nearest / np.e, -nearest, -nearest / np.e):
            found = self.rounding_at(line.at(self._xs, t), function)
            if found is None:
                return None
            errors.append(found)
        return np.max(errors, axis=0)

    def rounding_at(self, xs: Arrays, function: Callable[..., Any]) -> np.ndarray | None:
        """Say by how much rounding changes a function's value at a point, as a real vector."""
        found = None if self._rounding is None else self._rounding(function, xs)
        if found is None:
            return None
        return np.nan_to_num(np.abs(self._weighted.flat(found)), nan=0.0, posinf=0.0)

    def steady_quotients(self, line: Line) -> np.ndarray:
        """List the difference quotients along a line that stay the same over several steps."""
        return self._total(line).steady_quotients()[:, 0]

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
        return section.differentiate_closely(
            self._weights, factor, self._noise[line], is_exact=line in self._exact
        )

    def _beside_kink(
        self, line: Line, factor: float, kink: DirectionalDerivative
    ) -> DirectionalDerivative:
        """Differentiate with steps that do not reach a kink, if it is beside the point.

        Next to a kink the derivative is that of one side; at it, differences to both sides give
        the middle however short they are. A kink is at the point as well where the caller's own
        numbers do not tell the two apart.
        """
        section = self._section(line)
        length = self._total(line).steady_length()
        if length <= section.resolution:
            return kink
        beside = section.differentiate_within(length, self._weights, factor)
        doubt = TOLERANCES.estimates * beside.error + TOLERANCES.kink * abs(kink.high - kink.low)
        is_other = abs(beside.value - kink.value) > doubt
        return beside if beside.kind == "smooth" and is_other else kink

    def _total(self, line: Line) -> Section:
        """Give the weighted sum of the outputs along a line."""
        section = self._section(line)
        return section._replace(
            sample=lambda ts: (section.sample(ts) @ self._weights)[:, None],
            origin=self.origin @ self._weights[:, None],
        )

    def _section(self, line: Line) -> Section:
        def sample(ts: np.ndarray) -> np.ndarray:
            return self._values(self._xs, line.vs, ts.astype(self._subject.dtype))

        rounding = self._subject.given_eps * line.blur(self._xs)
        resolution = TOLERANCES.resolution * rounding
        return Section(sample, self.origin, line, self._xs, self._subject.eps, resolution)
