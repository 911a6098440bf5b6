"""What the systems and finite differences say at one point."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..._errors import ArgumentValueError, explain, first_line
from ...finite import Curve, DirectionalDerivative, Sample, directional_derivative, noise_level
from ..findings import Probe, SystemAnswer
from ._probes import Line
from ._solver_accuracy import SolverAccuracy
from ._subject import Arrays, Subject, named
from ._systems import AtOnce, Weighted

# Steps of other lengths: estimates that err differently, for a second opinion.
_FACTORS = (1.0, 0.77, 0.59)

# An iterate and its limit differ by what a few iterations more change, to a factor.
_SOLVER = 2.0

Values = Callable[[Arrays, Arrays, np.ndarray], np.ndarray]
Who = tuple[str, str]


@dataclass(frozen=True)
class Allowed:
    """By how much derivatives may differ because the caller says so.

    Attributes:
        rtol: relative to their size.
        atol: absolute.
    """

    rtol: float = 0.0
    atol: float = 0.0

    def __post_init__(self) -> None:
        """Refuse what is no tolerance."""
        for name in ("rtol", "atol"):
            value = getattr(self, name)
            if not isinstance(value, int | float) or not 0 <= value < np.inf:
                raise ArgumentValueError(
                    explain(
                        f"{name} of pb.check",
                        expected="a number of at least 0",
                        got=repr(value),
                        fix="0, which is the default, lets nothing pass.",
                    )
                )


class Point:
    """One point: the answers of all systems there, and the derivatives by differences.

    Attributes:
        subject: what is checked.
        probe: the name of the point, its weights and its direction.
        xs: the point.
        lines: the directions that are compared.
        together: JAX's answers, where one program gave all of them.
        derivatives: what each system, in each mode, gives for each line.
        gradients: the gradients, where a mode gives one.
        values: the value under differentiation.
        plain: the plain value.
        answers: for the report.
        failures: for each exception the system, the mode and the error.
        solver: how exactly loops of the program give it; None where that is not asked.
        allowed: by how much derivatives may differ because the caller says so.
        inexact: the derivatives that differ within that accuracy, with their lines.
    """

    def __init__(
        self,
        subject: Subject,
        weighted: Weighted,
        systems: Sequence[Any],
        probe: Probe,
        xs: tuple[np.ndarray, ...],
        values: Values,
        plain: tuple[np.ndarray, ...],
        lines: list[Line],
    ):
        """Keep the parts; `ask` asks."""
        self.subject, self.weighted, self.systems = subject, weighted, systems
        self.probe, self.xs, self.plain = probe, xs, plain
        self._values_along = values
        self.origin = np.asarray(weighted.flat(plain), float)
        self.eps = max(float(np.finfo(subject.dtype).eps), subject.rounding)
        self.lines = lines
        self.together: AtOnce | None = None
        self.derivatives: dict[Who, list[float]] = {}
        self.gradients: dict[Who, tuple[np.ndarray, ...]] = {}
        self.values: dict[Who, tuple[np.ndarray, ...]] = {}
        self.answers: list[SystemAnswer] = []
        self.failures: list[tuple[str, str, Exception]] = []
        self.solver: SolverAccuracy | None = None
        self.allowed = Allowed()
        self.inexact: dict[Any, tuple[Line, float]] = {}
        self._accuracies: dict[int, float] = {}
        self._forwards: dict[str, Any] = {}
        self._elsewhere: dict[Any, AtOnce | None] = {}
        self._known: dict[tuple[int, float], DirectionalDerivative] = {}
        self._noise: dict[int, np.ndarray] = {}

    # --- the systems ------------------------------------------------------------------------

    def ask(self, progress: Callable[[str], None]) -> None:
        """Ask every system in its reverse and its forward mode."""
        for system in self.systems:
            for mode in ("reverse", "forward"):
                if mode in system.modes:
                    progress(f"{self.probe.name}: {system.name}, {mode}")
                    self._ask(system, mode)

    def _ask(self, system: Any, mode: str) -> None:
        start = time.perf_counter()
        who = system.name, mode
        derivative = None
        together = self.together if system.name == "jax" else None
        try:
            if mode == "reverse":
                ys, gs = together.reverse if together else system.reverse(self.xs)
                gs = tuple(np.asarray(g) for g in gs)
                self.gradients[who] = gs
                self.derivatives[who] = [derivative_along(gs, line) for line in self.lines]
                derivative = named(self.subject.paths, gs)
            else:
                ys, found = None, []
                known = together.forward if together else None
                for number, line in enumerate(self.lines):
                    if known is not None:
                        ys, tangent = known[0], known[1][number]
                    else:
                        ys, tangent = system.forward(self.xs, line.vs)
                    found.append(self._total(tangent))
                self.derivatives[who] = found
                self._forwards[system.name] = system
                derivative = self._assemble(found)
                if getattr(system, "seeded", False):
                    self._turn_seeds(system)
                if getattr(system, "chunked", False):
                    derivative = self._ask_in_chunks(system, derivative)
            self.values[who] = tuple(np.asarray(y) for y in ys or ())
            # Forward mode without any direction was not asked for the value either.
            value = named(self.subject.outputs, self.values[who]) if self.values[who] else None
        except Exception as error:
            self.failures.append((system.name, mode, error))
            self.answers.append(
                SystemAnswer(system.name, mode, self.probe.name, error=first_line(error),
                             seconds=time.perf_counter() - start)
            )  # fmt: skip
            return
        self.answers.append(
            SystemAnswer(system.name, mode, self.probe.name, value, derivative,
                         seconds=time.perf_counter() - start)
        )  # fmt: skip

    def _turn_seeds(self, system: Any) -> None:
        turned = []
        for line in self.lines:
            _, tangent = system.forward(self.xs, tuple(-v for v in line.vs))
            turned.append(-self._total(tangent))
        self.derivatives[system.name, "negative seeds"] = turned

    def _ask_in_chunks(self, system: Any, derivative: Any) -> Any:
        _, gs = system.reverse(self.xs)
        gs = tuple(np.asarray(g) for g in gs)
        self.gradients[system.name, "chunks"] = gs
        self.derivatives[system.name, "chunks"] = [
            derivative_along(gs, line) for line in self.lines
        ]
        return derivative if derivative is not None else named(self.subject.paths, gs)

    def derivative(self, who: Who, line: Line) -> float:
        """Give the derivative of a system along any direction."""
        if who in self.gradients:
            return derivative_along(self.gradients[who], line)
        number = self._number(line)
        if number is not None:
            return self.derivatives[who][number]
        return self.derivative_at(self._forwards[who[0]], who[1], self.xs, line)

    def derivative_at(self, system: Any, mode: str, xs: Arrays, line: Line) -> float:
        """Ask a system about a direction at another point."""
        number = self._number(line)
        if self.together is not None and system.name == "jax" and number is not None:
            found = self._at(xs)
            if found is not None and mode == "reverse":
                return derivative_along(tuple(map(np.asarray, found.reverse[1])), line)
            if found is not None and found.forward is not None:
                return self._total(found.forward[1][number])
        if (system.name, mode) in self.gradients:
            return derivative_along(tuple(map(np.asarray, system.reverse(xs)[1])), line)
        sign = -1.0 if mode == "negative seeds" else 1.0
        _, tangent = system.forward(xs, tuple(sign * v for v in line.vs))
        return sign * self._total(tangent)

    def _number(self, line: Line) -> int | None:
        """Find a direction among those that every system was asked about."""
        return next((i for i, asked in enumerate(self.lines) if asked is line), None)

    def _at(self, xs: Arrays) -> AtOnce | None:
        """Ask JAX for everything at another point: that program is compiled already."""
        key = tuple(np.asarray(x).tobytes() for x in xs)
        if key not in self._elsewhere:
            jax = next(system for system in self.systems if system.name == "jax")
            self._elsewhere[key] = jax.ask_at_once(xs, [line.vs for line in self.lines])
        return self._elsewhere[key]

    def _total(self, tangent: Any) -> float:
        flat = np.asarray(self.weighted.flat(tangent), float)
        weights = self.weighted.flat_weights
        return float(np.sum(flat[weights != 0] * weights[weights != 0]))

    def _assemble(self, derivatives: list[float]) -> dict[str, np.ndarray] | None:
        """Build the derivative out of the derivatives of all elements."""
        if any(line.leaf is None for line in self.lines):
            return None
        parts = [np.zeros(np.shape(x), x.dtype) for x in self.xs]
        for line, derivative in zip(self.lines, derivatives, strict=True):
            assert line.leaf is not None
            unit = line.vs[line.leaf][line.element] / line.scale
            parts[line.leaf][line.element] += derivative / line.scale * np.conj(unit)
        return named(self.subject.paths, parts)

    def see(self, values: Values, plain: tuple[np.ndarray, ...]) -> None:
        """Compare with differences of another function from here on."""
        self._values_along, self._known, self._noise = values, {}, {}
        self.origin = np.asarray(self.weighted.flat(plain), float)

    # --- finite differences -----------------------------------------------------------------

    def along(self, line: Line, factor: float = 1.0) -> DirectionalDerivative:
        """Differentiate along a line by differences."""
        key = id(line), factor
        if key not in self._known:
            reference = self._differentiate(line, factor)
            if reference.kind != "smooth" and self._doubt(line):
                reference = self._differentiate(line, factor)
            self._known[key] = reference
            self._kept = [*getattr(self, "_kept", []), line]  # so that no id is used twice
        return self._known[key]

    def _doubt(self, line: Line) -> bool:
        """Look at a line more closely from now on; say whether it was not already."""
        if id(line) in self._noise:
            return False
        sample = self._sample(line)
        self._noise[id(line)] = noise_along(sample, self.origin, line, self.xs, self.eps)
        return True

    def _differentiate(self, line: Line, factor: float) -> DirectionalDerivative:
        sample, weights = self._sample(line), self.weighted.flat_weights
        noise = self._noise.get(id(line))
        if noise is not None:
            return closely(sample, self.origin, weights, line, self.xs, self.eps, factor, noise)
        curve = Curve(sample, self.origin, smallest=line.smallest(self.xs), eps=self.eps)
        return directional_derivative(curve, weights, factor=factor)

    def _sample(self, line: Line) -> Sample:
        return lambda ts: self._values_along(self.xs, line.vs, ts.astype(self.subject.dtype))

    def deviates(self, who: Who, line: Line, derivative: float | None = None) -> bool:
        """Say whether a derivative is wrong for sure, where the function is smooth along the line.

        A difference that is larger than the tolerance is looked at again, with other steps.
        """
        derivative = self.derivative(who, line) if derivative is None else derivative
        if not np.isfinite(derivative):
            return False
        reference = self.along(line)
        if reference.kind in ("smooth", "edge") and abs(
            derivative - reference.value
        ) <= self.tolerance(reference, derivative, line):
            return False
        if self._doubt(line):
            self._known.pop((id(line), 1.0))
        found = []
        for factor in _FACTORS:
            reference = self.along(line, factor)
            if reference.kind not in ("smooth", "edge") or not np.isfinite(reference.value):
                return False
            if abs(derivative - reference.value) <= self.tolerance(reference, derivative, line):
                return False
            found.append(reference.value)
        spread, gap = max(found) - min(found), abs(derivative - float(np.median(found)))
        if gap <= 5.0 * spread:
            return False
        if self.solver is not None and gap <= _SOLVER * self._accuracy(line):
            self.inexact[who, id(line)] = line, derivative
            return False
        return True

    def _accuracy(self, line: Line) -> float:
        """Say how exactly an iterative solver gives the derivative along a line."""
        key = id(line)
        if key not in self._accuracies:
            self._accuracies[key] = self.solver.find(self.xs, line.vs) if self.solver else 0.0
        return self._accuracies[key]

    def unit(self, line: Line) -> float:
        """Say what a derivative along a line is divided by, to be shown as a derivative."""
        return line.scale * (self.along(line).lead if line.leaf is not None else 1.0)

    def tolerance(self, reference: DirectionalDerivative, derivative: float, line: Line) -> float:
        """Say by how much a right derivative may differ from the one by differences."""
        relative = max(1e-8, 10.0 * self.eps ** (2 / 3))
        size = abs(derivative) + abs(reference.value)
        if line.leaf is None:
            for gs in self.gradients.values():
                parts = [np.abs(g * v) for g, v in zip(gs, line.vs, strict=True)]
                total = float(sum(np.sum(p[np.isfinite(p)]) for p in parts))
                size = max(size, total)
                break
        own = (
            10.0 * reference.error + relative * size + self.hidden(reference) + np.finfo(float).tiny
        )
        return max(own, self.allowed.rtol * size + self.allowed.atol * line.scale)

    def hidden(self, reference: DirectionalDerivative) -> float:
        """Say which derivatives a value that stays the same to the last digit hides.

        The variance of numbers that are equal but for rounding is such a value: its gradients
        are made of rounding and do not move as they should.
        """
        return 1e3 * self.eps**2 if reference.value == 0.0 else 0.0

    def is_finite(self) -> bool:
        """Say whether the value is."""
        used = self.weighted.flat_weights != 0
        return bool(np.all(np.isfinite(self.origin[used])))


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


def derivative_along(gs: Sequence[np.ndarray], line: Line) -> float:
    """Multiply a gradient (df/dx - i df/dy for complex numbers) with a direction."""
    total = 0.0
    with np.errstate(all="ignore"):
        for g, v in zip(gs, line.vs, strict=True):
            used = v != 0
            total += float(np.sum(np.real(g[used] * v[used]))) if used.any() else 0.0
    return total
