"""One call of `pb.check`: the points, the systems that are asked there, and the detectors."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from .._backends import Backend
from .._errors import first_line
from ..primitives import listen
from .detectors import (
    Cause,
    Context,
    detect_at_point,
    detect_once,
    detect_randomness,
    detect_truncation,
    differentiate_inside,
    find_inside,
    merge_findings,
    rounding_errors,
)
from .findings import Finding, Probe, Report, SystemAnswer
from .nan import find_cause
from .subject import (
    Allowed,
    Answers,
    Arrays,
    JaxInOwnPrecision,
    JaxSystem,
    JuliaSystem,
    Point,
    References,
    SolverAccuracy,
    Subject,
    Weighted,
    count,
    first_lines,
    named,
    one_by_one,
    points,
    robust,
    weights_for,
)

_LONGEST_SOURCE = 200


class CheckRun:
    """One call of `check`."""

    def __init__(
        self,
        subject: Subject,
        rows: tuple[Backend, ...],
        seed: int,
        say: Callable[[str], None],
        named: bool,
        allowed: Allowed,
    ):
        self.subject, self.rows, self.seed, self.say = subject, rows, seed, say
        self.allowed = allowed
        # Second order of a lowered function takes Julia's compiler half a minute.
        self.thorough = named or subject.is_julia
        self.weights = weights_for(subject, seed)
        self.weighted = Weighted(subject, self.weights)
        self.findings: list[Finding] = []
        self.answers: list[SystemAnswer] = []
        self.curves: list[Any] = []
        self.probes: list[Probe] = []
        self.inside: Callable[[Arrays], Any] | None = None
        self.given: Context | None = None
        self.heard = False  # whether within_gradient was answered with True
        self.jax = JaxSystem(subject, self.weighted)
        self.own: JaxInOwnPrecision | None = None
        self.systems = self._systems()
        self.solver: SolverAccuracy | None = None
        if subject.traced and not subject.is_julia:
            self.solver = SolverAccuracy(
                subject.jaxpr,
                self.weighted.total,
                lambda *xs: self.weighted.value_and_gradient(xs)[1],
                subject.most_iterations,
            )
        size = self.weighted.flat_weights.size
        if subject.is_julia:
            self.plain: Callable[[Arrays], Any] = subject.call
            self.values = one_by_one(lambda xs: self.weighted.flat(subject.call(xs)), size)
        else:
            self.plain, self.values = self.jax.plain, robust(self.jax.values, size)

    def report(self, names: Sequence[str]) -> Report:
        """Check all points."""
        subject = self.subject
        self.say("calling the function again")
        changing = detect_randomness(subject, self.rows)
        self.findings += changing
        stable = not changing
        if stable and subject.wide and any(backend.name == "jax" for backend in self.rows):
            self.own = JaxInOwnPrecision(subject, self.weighted)
            self.own.expect()
        for probe, xs in points(subject, names, self.weights, self.seed):
            self.probes.append(probe)
            with subject.precision(), np.errstate(all="ignore"):
                self._check_point(probe, xs, stable)
        self._check_precision()
        self.findings += detect_truncation(subject)
        return Report(
            subject.name,
            self.rows,
            tuple(self.probes),
            tuple(self.answers),
            merge_findings(self.findings),
            tuple(self.curves),
            _sources(subject),
        )

    def _systems(self) -> list[Any]:
        names = [backend.name for backend in self.rows if backend.available]
        return [
            self.jax
            if name == "jax"
            else JuliaSystem(name, self.subject, self.weighted, second=self.thorough)
            for name in names
            if name != "finite"
        ]

    def _check_point(self, probe: Probe, xs: tuple[np.ndarray, ...], stable: bool) -> None:
        """Ask at one point, and run the detectors."""
        subject = self.subject
        lines = first_lines(xs, np.random.default_rng([self.seed, count(xs)]))
        together = None
        if self.jax in self.systems and not subject.is_julia:
            self.jax.expect_second(xs, tuple(probe.direction[path] for path in subject.paths))
            with listen() as heard:
                together = self.jax.ask_at_once(xs, [line.vs for line in lines])
            self.heard |= any(heard)
        try:
            plain = together.plain if together is not None else self.plain(xs)
            plain = tuple(np.asarray(y) for y in plain)
        except Exception as error:
            self._note_failure(probe, error)
            return
        parts = subject, self.weighted
        answers = Answers(*parts, self.systems, probe.name, xs, lines, together)
        with listen() as heard:
            answers.ask(self.say)
        self.heard |= any(heard)
        rounding = rounding_errors if subject.traced and not subject.is_julia else None
        references = References(*parts, xs, self.values, plain, rounding)
        point = Point(
            *parts, probe, xs, plain, lines, answers, references, self.solver, self.allowed
        )
        context = self._context(point, stable)
        self.say(f"{probe.name}: comparing")
        found = detect_at_point(context)
        self.findings += found.findings
        self.curves += found.curves
        rows = [*answers.rows, *found.answers]
        self.answers += [_with_deviation(answer, context.point) for answer in rows]
        self.answers.append(_differences(context.point))
        if probe.name == "given":
            self.given = context

    def _context(self, point: Point, stable: bool) -> Context:
        """Put together what detectors may look at, with the function as it is inside a gradient."""
        if self.inside is None:
            self.inside = find_inside(self.subject, self.systems, self.heard, self.weighted)
        context = Context(
            point, self.seed, (), stable, self.inside, find_cause=_find_cause, say=self.say
        )
        if self.inside is None:
            return context
        outside = tuple(map(point.along, point.lines))
        inside = differentiate_inside(point, self.inside)
        return replace(
            context, point=inside or point, outside=outside, repeats_inside=inside is not None
        )

    def _check_precision(self) -> None:
        """Compare values in the caller's own precision, where that is another."""
        if self.given is None or self.own is None:
            return
        modes = [mode for name, mode in self.given.point.derivatives if name == "jax"]
        context = replace(
            self.given,
            own=self.own.ask(modes),
            inside=self.inside,
            findings=tuple(self.findings),
        )
        self.findings += detect_once(context)

    def _note_failure(self, probe: Probe, error: Exception) -> None:
        self.findings.append(
            Finding(
                "exception",
                "error" if probe.name == "given" else "note",
                f"the function raises {first_line(error)}",
                mode="value",
                probe=probe.name,
                advice="It was not differentiated here.",
            )
        )


def _find_cause(point: Point, in_own_precision: bool = False) -> Cause | None:
    """Ask `explain_nan` where a number comes from; None where it cannot tell."""
    subject = point.subject
    if subject.is_julia:
        return None  # of the one operation that calls Julia
    # It runs the user's function in ways of its own, and what it says is an addition.
    with contextlib.suppress(Exception):
        if in_own_precision:
            return find_cause(subject.f, subject.args)
        with subject.precision():
            return find_cause(subject.f, subject.args_at(point.xs))
    return None


def _with_deviation(answer: SystemAnswer, point: Point) -> SystemAnswer:
    """Add the largest difference from finite differences, where these know the derivative."""
    derivatives = point.derivatives.get((answer.system, answer.mode))
    if derivatives is None or not point.references.is_finite():
        return answer
    gaps = [
        abs(derivative - reference.value) / (1.0 + abs(reference.value))
        for derivative, reference in zip(derivatives, map(point.along, point.lines), strict=True)
        if reference.kind in ("smooth", "edge") and np.isfinite(reference.value)
    ]
    return replace(answer, deviation=max(gaps)) if gaps else answer


def _differences(point: Point) -> SystemAnswer:
    """Put finite differences among the answers."""
    derivative = None
    if point.references.is_finite():
        found = [point.along(line).value for line in point.lines]
        derivative = point.answers.assemble(found)
    value = named(point.subject.outputs, point.plain)
    return SystemAnswer("finite", "forward", point.probe.name, value, derivative, 0.0)


def _sources(subject: Subject) -> dict[str, str]:
    """Show the program as each language sees it."""
    if subject.is_julia:
        return {"Julia": subject.name}
    if subject.jaxpr is None:
        return {}
    lines = str(subject.jaxpr).splitlines()
    if len(lines) > _LONGEST_SOURCE:
        rest = len(lines) - _LONGEST_SOURCE
        lines = [*lines[:_LONGEST_SOURCE], f"... and {rest} more lines"]
    return {"jaxpr": "\n".join(lines)}
