"""A point at which a function is checked: its answers beside finite differences."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from ..._errors import ArgumentValueError, explain
from ...finite import TOLERANCES, DirectionalDerivative, is_closer
from ..findings import Finding, Probe
from ._answers import Answers, Who, is_mode
from ._places import NOWHERE, Place
from ._probes import Line
from ._references import References
from ._solver_accuracy import SolverAccuracy
from ._subject import Subject
from ._systems import Weighted

# An iterate and its limit differ by what a few iterations more change, to a factor.
_SOLVER = 2.0

# So many points beside the given one, each number so many eps of itself away from it.
_NUDGED = 4
_NUDGE = 4.0

# How a derivative compares with differences: alike as far as can be known, within the accuracy of
# the function's own loops, or another one for sure.
Verdict = Literal["alike", "inexact", "wrong"]


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


@dataclass(frozen=True, eq=False)
class Point:
    """One point: what all systems answer there, and the derivatives by differences.

    Attributes:
        subject: what is checked.
        weighted: the weights of its outputs.
        probe: the name of the point, its weights and its direction.
        xs: the point.
        plain: the plain value.
        lines: the directions that are compared.
        answers: what the systems say.
        references: finite differences.
        solver: how exactly loops of the program give it; None where that is not asked.
        allowed: by how much derivatives may differ because the caller says so.
    """

    subject: Subject
    weighted: Weighted
    probe: Probe
    xs: tuple[np.ndarray, ...]
    plain: tuple[np.ndarray, ...]
    lines: list[Line]
    answers: Answers
    references: References
    solver: SolverAccuracy | None = None
    allowed: Allowed = field(default_factory=Allowed)

    @property
    def eps(self) -> float:
        """The relative rounding error of the numbers that the value passes through."""
        return self.subject.eps

    @property
    def origin(self) -> np.ndarray:
        """The value that is differentiated, as one real vector."""
        return self.references.origin

    @property
    def derivatives(self) -> dict[Who, list[float]]:
        """What each system, in each mode, gives for each line."""
        return self.answers.derivatives

    @property
    def gradients(self) -> dict[Who, tuple[np.ndarray, ...]]:
        """The gradients, where a mode gives one."""
        return self.answers.gradients

    def arguments_without_gradient(self) -> list[str]:
        """List the arguments by which the gradient is zero everywhere, as the first system says."""
        gradient = next(iter(self.gradients.values()), ())
        pairs = zip(self.subject.paths, gradient, strict=False)
        return [path for path, g in pairs if g.size and not np.any(g != 0)]

    def derivative(self, who: Who, line: Line) -> float:
        """Give the derivative of a system along any direction."""
        return self.answers.derivative(who, line)

    def along(self, line: Line, factor: float = 1.0) -> DirectionalDerivative:
        """Differentiate along a line by differences."""
        return self.references.along(line, factor)

    def finding(
        self,
        kind: str,
        severity: str,
        title: str,
        systems: Iterable[str] = (),
        *,
        line: Line | None = None,
        place: Place = NOWHERE,
        **fields: Any,
    ) -> Finding:
        """Write a finding about this point.

        Args:
            kind: see `Finding`, as `severity` and `title`.
            severity: see there.
            title: see there.
            systems: their names.
            line: the direction that it is about: argument and element.
            place: the operation at fault.
            **fields: other fields of a `Finding`.
        """
        if line is not None:
            argument = self.subject.paths[line.leaf] if line.leaf is not None else ""
            fields |= {"argument": argument, "element": line.element or None}
        return Finding(
            kind,
            severity,
            title,
            tuple(systems),
            probe=self.probe.name,
            location=place.location,
            primitive=place.primitive,
            **fields,
        )

    def shown(self, line: Line, unit: float | None = None) -> dict[Who, float]:
        """List what systems give along a line in modes that have a name, in the unit shown."""
        unit = self.unit(line) if unit is None else unit
        return {who: self.derivative(who, line) / unit for who in self.derivatives if is_mode(who)}

    def deviates(self, who: Who, line: Line) -> bool:
        """Say whether a derivative is wrong for sure."""
        return self.compare(who, line) == "wrong"

    def compare(self, who: Who, line: Line) -> Verdict:
        """Compare a derivative with differences, where the function is smooth along the line.

        A difference that is larger than the tolerance is looked at again, with other steps.
        """
        derivative = self.derivative(who, line)
        if not np.isfinite(derivative):
            return "alike"
        if self._agrees(derivative, self.along(line), line):
            return "alike"
        self.references.look_closely(line)
        found = []
        for factor in TOLERANCES.factors:
            reference = self.along(line, factor)
            if not _is_known(reference) or self._agrees(derivative, reference, line):
                return "alike"
            found.append(reference.value)
        spread, gap = max(found) - min(found), abs(derivative - float(np.median(found)))
        if gap <= TOLERANCES.spread * spread:
            return "alike"
        if self.solver is not None and gap <= _SOLVER * self.solver.find(self.xs, line):
            return "inexact"
        if gap <= TOLERANCES.estimates * max(
            self._wavers(who, line), self._rounded_away(who, line)
        ):
            return "alike"
        steady = self.references.steady_quotients(line)
        if is_closer(np.asarray(derivative), np.median(found), steady):
            return "alike"  # the function varies over shorter lengths than the differences see
        # With more noise the differences are others.
        return self.compare(who, line) if self.references.measure_rounding(line) else "wrong"

    def _wavers(self, who: Who, line: Line) -> float:
        """Say by how much the last digits of the arguments change what a system gives.

        The point itself is left out, so that a shortcut at this very point does not count.
        """
        rng, found = np.random.default_rng(0), []
        for _ in range(_NUDGED):
            signs = [_NUDGE * self.eps * rng.choice([-1.0, 1.0], np.shape(x)) for x in self.xs]
            xs = tuple(np.asarray(x + x * s, x.dtype) for x, s in zip(self.xs, signs, strict=True))
            with contextlib.suppress(Exception):
                found.append(self.answers.derivative_at(who, xs, line))
        return float(np.nan_to_num(np.ptp(found), nan=0.0, posinf=0.0)) if found else 0.0

    def _rounded_away(self, who: Who, line: Line) -> float:
        """Say by how much rounding changes the derivative that JAX gives in a mode."""
        programs: dict[Who, Callable[..., Any]] = {
            ("jax", "reverse"): lambda xs: self.weighted.along(
                self.weighted.value_and_gradient(xs)[1], line.vs
            ),
            ("jax", "forward"): lambda xs: self.weighted.total(
                self.subject.value_and_tangent(xs, line.vs)[1]
            ),
        }
        if who not in programs:
            return 0.0
        found = self.references.rounding_at(self.xs, lambda xs: [programs[who](xs)])
        return 0.0 if found is None else float(found[0])

    def _agrees(self, derivative: float, reference: DirectionalDerivative, line: Line) -> bool:
        gap = abs(derivative - reference.value)
        return reference.kind in ("smooth", "edge") and gap <= self.tolerance(
            reference, derivative, line
        )

    def unit(self, line: Line) -> float:
        """Say what a derivative along a line is divided by, to be shown as a derivative."""
        return line.scale * (self.along(line).lead if line.leaf is not None else 1.0)

    def tolerance(self, reference: DirectionalDerivative, derivative: float, line: Line) -> float:
        """Say by how much a right derivative may differ from the one by differences."""
        relative = TOLERANCES.relative(self.eps, TOLERANCES.agreement)
        size = abs(derivative) + abs(reference.value)
        if line.leaf is None:
            for gs in self.gradients.values():
                parts = [np.abs(g * v) for g, v in zip(gs, line.vs, strict=True)]
                total = float(sum(np.sum(p[np.isfinite(p)]) for p in parts))
                size = max(size, total)
                break
        own = (
            TOLERANCES.estimates * reference.error
            + relative * size
            + self.hidden(reference)
            + np.finfo(float).tiny
        )
        return max(own, self.allowed.rtol * size + self.allowed.atol * line.scale)

    def hidden(self, reference: DirectionalDerivative) -> float:
        """Say which derivatives a value that stays the same to the last digit hides.

        The variance of numbers that are equal but for rounding is such a value: its gradients
        are made of rounding and do not move as they should. The loss of a model that is sure is
        another: it is lost in the last digit of a one, over the longest step as well.
        """
        hidden = max(TOLERANCES.lost * self.eps**2, self.eps / TOLERANCES.first_step)
        return hidden if reference.value == 0.0 else 0.0


def _is_known(reference: DirectionalDerivative) -> bool:
    return reference.kind in ("smooth", "edge") and bool(np.isfinite(reference.value))
