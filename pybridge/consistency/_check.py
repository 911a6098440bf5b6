"""`pb.check`: run a function under every AD system, and say where they disagree."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from .._backends import NAMES, Backend, row
from .._config import setting
from .._errors import ArgumentValueError, BridgeError, explain, first_line
from ..interop import JuliaFunction
from ..julia import load
from ..primitives import listen
from ._ask import JaxSystem, JuliaSystem, Weighted, plain_values, robust
from ._bounds import find_out_of_bounds
from ._compare import judge
from ._findings import Finding, Probe, Report, SystemAnswer
from ._flat import find_flat
from ._inside import compare_with_inside, find_inside
from ._iterations import SolverAccuracy
from ._merge import merge_findings
from ._narrow import find_truncation, judge_truncation
from ._nonfinite import VALUE_NOT_FINITE, judge_non_finite, judge_value_not_finite
from ._plain import Own, ask_own, judge_own, judge_values
from ._point import Allowed, Point
from ._present import has_julia
from ._probes import check_names, count, first_lines, points, weights_for
from ._repetition import judge_repetition
from ._rounding import double_results, judge_rounding, own_results
from ._second import judge_second
from ._subject import Arrays, Subject, named

_LONGEST_SOURCE = 200


def check(
    f: Callable[..., Any],
    *args: Any,
    backends: Sequence[str] | None = None,
    probes: Sequence[str] = ("given",),
    seed: int = 0,
    rtol: float = 0.0,
    atol: float = 0.0,
    progress: Callable[[str], None] | None = None,
) -> Report:
    """Run a function under every AD system and by differences, and report what differs.

    The function is run in float64 whatever the caller's setting, and its value in the caller's
    own precision too. Only floating-point leaves of the arguments are differentiated. A value
    that is not a single number is summed up with random weights, so that every output takes
    part. Up to 40 numbers are moved one by one; of more, random directions are compared, and the
    element is searched for where something differs.

    Args:
        f: a Python function that JAX can differentiate, or one from `pb.from_julia`.
        *args: its arguments: the point at which it is checked.
        backends: the AD systems to ask. None: all of them for a function from `pb.from_julia`; for
            a Python function JAX and, through `pb.lower`, those of Julia if there is a Julia on
            this machine (`PYBRIDGE_CHECK_BACKENDS` says otherwise). Julia's compiler then takes
            some seconds for each; `backends=["jax"]` answers at once. Julia's systems are asked
            for second order if they are named. Finite differences are always the reference.
        probes: the points: `"given"` always, and `"large"` and `"small"` (1000 times and a
            thousandth of the arguments), `"zeros"`, `"ties"` (all elements of a leaf equal) and
            `"random"` on request.
        seed: of the random directions, weights and points.
        rtol: derivatives may differ by this part of their size, whatever their accuracy is by
            differences: for functions that are known to be no more exact.
        atol: and by this much.
        progress: gets a line of text before each step.

    Returns:
        A `Report`. Its `findings` are sorted, the gravest first; `ok` says whether none is an
        error. At a kink, or where the function asks `within_gradient`, there are notes.

    Raises:
        ArgumentTypeError: `f` is not callable, or nothing in its arguments or its value is
            floating-point.
        ArgumentValueError: `f` raises at the given point, `probes` names none, `backends` is
            empty, or `rtol` or `atol` is negative.
        UnknownBackendError: `backends` names no AD system.

    Example:
        >>> import jax.numpy as jnp
        >>> import pybridge as pb
        >>> pb.check(lambda x: jnp.sin(x) ** 2, 0.5).ok
        True
        >>> report = pb.check(jnp.abs, 0.0)
        >>> [(finding.kind, finding.severity) for finding in report.findings]
        [('kink', 'note')]

    Differences are extrapolated after Richardson and Ridders (Advances in Engineering Software
    4, 1982). There is no twin in Julia: Julia functions are checked from here.
    """
    say = progress or (lambda text: None)
    chosen = check_names(probes)
    allowed = Allowed(rtol, atol)
    rows = _backends(f, backends)
    say("calling the function")
    run = _Run(Subject(f, args), rows, seed, say, backends is not None, allowed)
    return run.report(chosen)


def _backends(f: Any, names: Sequence[str] | None) -> tuple[Backend, ...]:
    """Find the systems that can differentiate the function, absent ones with the reason."""
    if isinstance(names, str):
        names = (names,)
    if names is None:
        names = NAMES if isinstance(f, JuliaFunction) else _present()
    elif not names:
        raise ArgumentValueError(
            explain(
                "pb.check",
                expected="at least one AD system",
                got="backends without any",
                fix="Name some, or leave backends out for all of them. Finite differences are "
                "always the reference.",
            )
        )
    rows = []
    for name in dict.fromkeys((*names, "finite")):
        found = row(name)
        try:
            rows.append(load(name))
        except BridgeError as error:
            rows.append(replace(found, reason=str(error)))
    return tuple(rows)


def _present() -> Sequence[str]:
    """Name the systems that a Python function is checked with where none are named."""
    setting_name = "PYBRIDGE_CHECK_BACKENDS"
    chosen = setting(setting_name).value
    if isinstance(chosen, str):
        names = [name.strip() for name in chosen.split(",")]
        return [row(name, argument=setting_name).name for name in names]
    # Nothing is downloaded for a check.
    found = has_julia()
    return [name for name in NAMES if found or row(name).language == "python"]


class _Run:
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
        self.heard = False  # whether within_gradient was answered with True
        self.jax = JaxSystem(subject, self.weighted)
        self.systems = self._systems()
        self.solver: SolverAccuracy | None = None
        if subject.traced and not subject.is_julia:
            gradient = lambda *xs: self.jax.reverse(xs)[1]  # noqa: E731
            self.solver = SolverAccuracy(subject.jaxpr, self.weighted.total, gradient)
        size = self.weighted.flat_weights.size
        if subject.is_julia:
            self.plain: Callable[[Arrays], Any] = lambda xs: subject.call(xs)
            self.values = plain_values(subject, self.weighted)
        else:
            self.plain = self.jax.plain
            self.values = robust(self.jax.values, size)

    def report(self, names: Sequence[str]) -> Report:
        """Check all points."""
        subject = self.subject
        self.say("calling the function again")
        changing = judge_repetition(subject, self.rows)
        self.findings += changing
        stable = not changing
        for probe, xs in points(subject, names, self.weights, self.seed):
            self.probes.append(probe)
            with subject.precision(), np.errstate(all="ignore"):
                self._check_point(probe, xs, stable)
        self._judge_precision(stable)
        self.findings += self._truncations()
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
        found: list[Any] = []
        for backend in self.rows:
            if not backend.available or backend.name == "finite":
                continue
            if backend.name == "jax":
                found.append(self.jax)
            else:
                parts = backend.name, self.subject, self.weighted
                found.append(JuliaSystem(*parts, second=self.thorough))
        return found

    def _check_point(self, probe: Probe, xs: tuple[np.ndarray, ...], stable: bool) -> None:
        """Ask and judge at one point."""
        subject = self.subject
        lines = first_lines(xs, np.random.default_rng([self.seed, count(xs)]))
        together = None
        if self.jax in self.systems and not subject.is_julia:
            with listen() as heard:
                together = self.jax.ask_at_once(xs, [line.vs for line in lines])
            self.heard |= any(heard)
        try:
            plain = together.plain if together is not None else self.plain(xs)
            plain = tuple(np.asarray(y) for y in plain)
        except Exception as error:
            self._note_failure(probe, error)
            return
        point = Point(subject, self.weighted, self.systems, probe, xs, self.values, plain, lines)
        point.together, point.solver, point.allowed = together, self.solver, self.allowed
        with listen() as heard:
            point.ask(self.say)
        self.heard |= any(heard)
        if self.inside is None:
            self.inside = find_inside(subject, self.systems, self.heard, self.weighted)
        if self.inside is not None:
            compared = compare_with_inside(point, self.inside)
            self.findings += compared
            stable = stable and not any(f.kind == "random" for f in compared)
        self.say(f"{probe.name}: comparing")
        found: list[Finding] = list(point.findings)
        if not point.is_finite():
            found.append(judge_value_not_finite(point))
        else:
            if stable:
                found += judge_values(point, self.inside)
                found += judge_non_finite(point)
                found += _flat(point)
                judgement = judge(point, subject.jaxpr)
                found += judgement.findings
                self.curves += judgement.curves
                first_order = judgement.has_wrong or any(f.severity == "error" for f in found)
                # What the accuracy of a solver hides in the gradient it hides in its derivative.
                first_order |= bool(point.inexact)
                for system in self.systems if not first_order else ():
                    if "second" in system.modes and not _failed(point, system.name):
                        self.say(f"{probe.name}: {system.name}, second order")
                        more, answers = judge_second(point, system, self.seed)
                        found += more
                        point.answers += answers
        if subject.is_julia:
            from ._in_julia import explain_in_julia
            from ._zeros import find_zeros

            found = explain_in_julia(found, point)
            wrong = {name for f in found if f.severity == "error" for name in f.systems}
            names = [system.name for system in self.systems if system.name not in wrong]
            found += find_zeros(subject, xs, names, probe.name)
        elif subject.jaxpr is not None:
            try:
                found += find_out_of_bounds(subject.jaxpr, xs, probe.name)
            except Exception as error:
                self.say(f"{probe.name}: indices could not be followed: {error}")
        self.findings += found
        self.answers += [_with_deviation(answer, point) for answer in point.answers]
        self.answers.append(_differences(point))
        if probe.name == "given":
            self._given = point

    # --- parts of the judgement ---------------------------------------------------------------

    def _judge_precision(self, stable: bool) -> None:
        """Compare values in the caller's own precision, where that is another."""
        point = getattr(self, "_given", None)
        subject = self.subject
        if point is None or not stable or not subject.wide:
            return
        if not any(b.name == "jax" for b in self.rows):
            return
        modes = [mode for name, mode in point.slopes if name == "jax"]
        own = ask_own(subject, self.weighted, modes)
        lost = self._judge_rounding(point, own)
        if lost and any(f.mode == "value" for f in lost):
            # That the value is not finite is said with the reason.
            self.findings = [f for f in self.findings if f.title != VALUE_NOT_FINITE]
        self.findings += lost
        if any(f.kind == "value" for f in self.findings) or self.inside is not None:
            return
        if own is not None and not any(
            f.kind in ("non-finite", "precision") for f in self.findings
        ):
            self.findings += judge_own(point, own)

    def _judge_rounding(self, point: Point, own: Own | None) -> list[Finding]:
        """Compare the caller's own precision with extended precision."""
        if not self.subject.traced or self.subject.is_julia:
            return []
        self.say("given: in extended precision")
        if own is not None:
            return judge_rounding(self.subject, self.weighted, own_results(own))
        with self.subject.precision():
            return judge_rounding(self.subject, self.weighted, double_results(point))

    def _truncations(self) -> list[Finding]:
        """Note a cast to single precision in a function of double precision."""
        subject = self.subject
        if subject.is_julia:
            is_double = any(
                np.asarray(x).dtype in (np.float64, np.complex128) for x in subject.given
            )
            seen = subject.sightings.first("narrow") if is_double else None
            if seen is None:
                return []
            return judge_truncation(seen.name.lower(), seen.location, (), seen.name)
        found = find_truncation(subject.jaxpr, subject.given) if subject.jaxpr else None
        if found is None:
            return []
        line, dtype = found
        return judge_truncation(dtype, line, ("jax",), "convert_element_type")

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


def _flat(point: Point) -> list[Finding]:
    """Note arguments that only flat operations lead from."""
    known = [(who[0], gs) for who, gs in point.gradients.items()]
    if point.subject.jaxpr is None or not known:
        return []
    names = tuple(dict.fromkeys(name for name, _ in known))
    paths, gradients = point.subject.paths, known[0][1]
    return find_flat(point.subject.jaxpr, paths, gradients, names, point.probe.name)


def _failed(point: Point, name: str) -> bool:
    """Say whether a system gave no derivative at all."""
    return not any(who[0] == name for who in point.slopes)


def _with_deviation(answer: SystemAnswer, point: Point) -> SystemAnswer:
    """Add the largest difference from finite differences, where these know the slope."""
    slopes = point.slopes.get((answer.system, answer.mode))
    if slopes is None or not point.is_finite():
        return answer
    gaps = [
        abs(slope - one.slope) / (1.0 + abs(one.slope))
        for slope, one in zip(slopes, map(point.along, point.lines), strict=True)
        if one.kind in ("smooth", "edge") and np.isfinite(one.slope)
    ]
    return replace(answer, deviation=max(gaps)) if gaps else answer


def _differences(point: Point) -> SystemAnswer:
    """Put finite differences among the answers."""
    derivative = None
    if point.is_finite():
        found = [point.along(line).slope for line in point.lines]
        derivative = point._assemble(found)
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
