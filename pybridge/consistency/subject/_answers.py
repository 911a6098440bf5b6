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


def is_mode(who: Who) -> bool:
    """Say whether a system is asked in a mode that has a name."""
    return who[1] in ("forward", "reverse")


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

    def ask(self, progress: Callable[[str], None]) -> None:
        """Ask every system in its reverse and its forward mode."""
        for system in self.systems:
            for mode in ("reverse", "forward"):
                if mode in system.modes:
                    progress(f"{self.probe}: {system.name}, {mode}")
                    self._ask(system, mode)

    def system(self, name: str) -> Any:
        """Find a system by its name."""
        return next(system for system in self.systems if system.name == name)

    def _ask(self, system: Any, mode: str) -> None:
        start = time.perf_counter()
        said: dict[str, Any] = {}
        try:
            ask = self._ask_reverse if mode == "reverse" else self._ask_forward
            ys, derivative = ask(system, self._together if system.name == "jax" else None)
            values = tuple(np.asarray(y) for y in ys or ())
            self.values[system.name, mode] = values
            # Forward mode without any direction was not asked for the value either.
            said["value"] = named(self.subject.outputs, values) if values else None
            said["derivative"] = derivative
        except Exception as error:
            self.failures.append((system.name, mode, error))
            said = {"error": first_line(error)}
        seconds = time.perf_counter() - start
        self.rows.append(SystemAnswer(system.name, mode, self.probe, **said, seconds=seconds))

    def _ask_reverse(self, system: Any, known: AtOnce | None) -> tuple[Any, Any]:
        ys, gs = known.reverse if known else system.reverse(self.xs)
        return ys, self._keep_gradient((system.name, "reverse"), gs)

    def _ask_forward(self, system: Any, known: AtOnce | None) -> tuple[Any, Any]:
        ys, found = None, []
        for number, line in enumerate(self.lines):
            if known is not None and known.forward is not None:
                ys, tangent = known.forward[0], known.forward[1][number]
            else:
                ys, tangent = system.forward(self.xs, line.vs)
            found.append(self._total(tangent))
        self.derivatives[system.name, "forward"] = found
        derivative = self.assemble(found)
        if system.seeded:
            turned = [self._turn_seeds(system, self.xs, line) for line in self.lines]
            self.derivatives[system.name, "negative seeds"] = turned
        if system.chunked:
            _, gs = system.reverse(self.xs)
            chunks = self._keep_gradient((system.name, "chunks"), gs)
            derivative = derivative if derivative is not None else chunks
        return ys, derivative

    def _keep_gradient(self, who: Who, gs: Arrays) -> dict[str, np.ndarray]:
        self.gradients[who] = gs = tuple(map(np.asarray, gs))
        self.derivatives[who] = [derivative_along(gs, line) for line in self.lines]
        return named(self.subject.paths, gs)

    def _turn_seeds(self, system: Any, xs: Arrays, line: Line) -> float:
        _, tangent = system.forward(xs, tuple(-v for v in line.vs))
        return -self._total(tangent)

    def derivative(self, who: Who, line: Line) -> float:
        """Give the derivative of a system along any direction."""
        if who in self.gradients:
            return derivative_along(self.gradients[who], line)
        number = self._number(line)
        if number is not None:
            return self.derivatives[who][number]
        return self.derivative_at(who, self.xs, line)

    def derivative_at(self, who: Who, xs: Arrays, line: Line) -> float:
        """Ask a system about a direction at another point."""
        (name, mode), number = who, self._number(line)
        system = self.system(name)
        if self._together is not None and name == "jax" and number is not None:
            # That program is compiled already.
            known = system.ask_at_once(xs, [asked.vs for asked in self.lines])
            if known is not None and mode == "reverse":
                return derivative_along(known.reverse[1], line)
            if known is not None and known.forward is not None:
                return self._total(known.forward[1][number])
        if who in self.gradients:
            return derivative_along(tuple(map(np.asarray, system.reverse(xs)[1])), line)
        if mode == "negative seeds":
            return self._turn_seeds(system, xs, line)
        return self._total(system.forward(xs, line.vs)[1])

    def _number(self, line: Line) -> int | None:
        """Find a direction among those that every system was asked about."""
        return next((i for i, asked in enumerate(self.lines) if asked is line), None)

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
