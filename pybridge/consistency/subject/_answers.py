"""What the systems say at one point."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from ..._errors import first_line
from ..findings import SystemAnswer
from ._probes import Line
from ._subject import Arrays, Subject, named
from ._systems import AtOnce, Weighted

# A system and the mode that it is asked in: `"forward"`, `"reverse"`, or a way of its own.
Who = tuple[str, str]


def system_names(whos: Iterable[Who]) -> tuple[str, ...]:
    """Name the systems, each once."""
    return tuple(dict.fromkeys(name for name, _ in whos))


def own_mode(whos: Iterable[Who]) -> str | None:
    """Name the mode that all are about; None where there are several, or it has no name."""
    modes = {mode for _, mode in whos}
    return modes.pop() if len(modes) == 1 and modes <= {"forward", "reverse"} else None


class Answers:
    """What each system gives in each mode, along the same lines through one point.

    Attributes:
        systems: those that are asked.
        derivatives: what each system, in each mode, gives for each line.
        gradients: the gradients, where a mode gives one.
        values: the value under differentiation.
        rows: the same for the report.
        failures: for each exception the system, the mode and the error.
    """

    def __init__(
        self,
        subject: Subject,
        weighted: Weighted,
        systems: Sequence[Any],
        probe: str,
        xs: Arrays,
        lines: Sequence[Line],
        together: AtOnce | None = None,
    ):
        """Keep the parts; `ask` asks, JAX only where `together` are not its answers already."""
        self.subject, self.weighted, self.systems = subject, weighted, systems
        self.probe, self.xs, self.lines = probe, xs, lines
        self.derivatives: dict[Who, list[float]] = {}
        self.gradients: dict[Who, tuple[np.ndarray, ...]] = {}
        self.values: dict[Who, tuple[np.ndarray, ...]] = {}
        self.rows: list[SystemAnswer] = []
        self.failures: list[tuple[str, str, Exception]] = []
        self._together = together
        self._forwards: dict[str, Any] = {}
        self._elsewhere: dict[Any, AtOnce | None] = {}

    def ask(self, progress: Callable[[str], None]) -> None:
        """Ask every system in its reverse and its forward mode."""
        for system in self.systems:
            for mode in ("reverse", "forward"):
                if mode in system.modes:
                    progress(f"{self.probe}: {system.name}, {mode}")
                    self._ask(system, mode)

    def _ask(self, system: Any, mode: str) -> None:
        start = time.perf_counter()
        who = system.name, mode
        derivative = None
        together = self._together if system.name == "jax" else None
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
                derivative = self.assemble(found)
                if getattr(system, "seeded", False):
                    self._turn_seeds(system)
                if getattr(system, "chunked", False):
                    derivative = self._ask_in_chunks(system, derivative)
            self.values[who] = tuple(np.asarray(y) for y in ys or ())
            # Forward mode without any direction was not asked for the value either.
            value = named(self.subject.outputs, self.values[who]) if self.values[who] else None
        except Exception as error:
            self.failures.append((system.name, mode, error))
            self.rows.append(
                SystemAnswer(system.name, mode, self.probe, error=first_line(error),
                             seconds=time.perf_counter() - start)
            )  # fmt: skip
            return
        self.rows.append(
            SystemAnswer(system.name, mode, self.probe, value, derivative,
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
        if self._together is not None and system.name == "jax" and number is not None:
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

    def assemble(self, derivatives: list[float]) -> dict[str, np.ndarray] | None:
        """Build the derivative out of the derivatives of all elements."""
        if any(line.leaf is None for line in self.lines):
            return None
        parts = [np.zeros(np.shape(x), x.dtype) for x in self.xs]
        for line, derivative in zip(self.lines, derivatives, strict=True):
            assert line.leaf is not None
            unit = line.vs[line.leaf][line.element] / line.scale
            parts[line.leaf][line.element] += derivative / line.scale * np.conj(unit)
        return named(self.subject.paths, parts)


def derivative_along(gs: Sequence[np.ndarray], line: Line) -> float:
    """Multiply a gradient (df/dx - i df/dy for complex numbers) with a direction."""
    total = 0.0
    with np.errstate(all="ignore"):
        for g, v in zip(gs, line.vs, strict=True):
            used = v != 0
            total += float(np.sum(np.real(g[used] * v[used]))) if used.any() else 0.0
    return total
