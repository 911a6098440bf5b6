"""Ask every AD system every scenario and judge the answers."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..._backends import Backend
from ..._errors import BackendNotLoadedError, JuliaError, JuliaUnavailableError
from ...finite import double_precision
from ...interop import from_julia
from ...transforms import jvp, value_and_grad
from .._rendering import Rendered
from ._scenarios import Known, Scenario

# From good to bad; the status of an answer is the worst of its modes.
STATUSES = ("right", "convention", "known", "unsupported", "absent", "wrong", "error")
BAD = ("wrong", "error")

_STATUS_OF_KIND = {
    "fails": "known",
    "convention": "convention",
    "unsupported": "unsupported",
}

# Relative to 1 + |expected|. Finite differences of the scenarios have about nine digits.
_TOLERANCE = {"finite": 1e-6}
_DEFAULT_TOLERANCE = 1e-9


@dataclass(frozen=True)
class ModeAnswer:
    """What a system answers in one mode.

    Attributes:
        mode: `"forward"` or `"reverse"`.
        status: one of `STATUSES`.
        value: the value under differentiation; None after an exception.
        derivative: with respect to the first argument; None after an exception.
        error: the type of the exception, else None.
        message: its text.
        reason: why the answer is not simply right; may be empty.
        surprise: how the table has to change, if the answer is right against the table.
    """

    mode: str
    status: str
    value: np.ndarray | None = None
    derivative: np.ndarray | None = None
    error: str | None = None
    message: str = ""
    reason: str = ""
    surprise: str = ""


@dataclass(frozen=True)
class Answer:
    """What a system answers to a scenario, in every mode that it has.

    Attributes:
        scenario: the scenario's name.
        system: the AD system's name.
        status: one of `STATUSES`.
        plain_value: the value of a plain call; None after an exception.
        modes: an answer for each mode; empty where the system is absent.
        seconds: how long it took, compilation included.
    """

    scenario: str
    system: str
    status: str
    plain_value: np.ndarray | None = None
    modes: tuple[ModeAnswer, ...] = ()
    seconds: float = 0.0

    @property
    def surprises(self) -> list[str]:
        """What the table documents and is no longer so."""
        return [mode.surprise for mode in self.modes if mode.surprise]


@dataclass(frozen=True)
class Run(Rendered):
    """All answers of one run.

    Attributes:
        systems: the AD systems, present or not.
        scenarios: what was asked.
        answers: by the names of scenario and system.
    """

    systems: tuple[Backend, ...]
    scenarios: tuple[Scenario, ...]
    answers: dict[tuple[str, str], Answer]

    def row(self, scenario: Scenario) -> list[Answer]:
        """List the answers to one scenario in the order of the systems."""
        return [self.answers[scenario.name, system.name] for system in self.systems]

    def counts(self, system: str | None = None) -> Counter[str]:
        """Count answers by status, of one system or of all."""
        answers = self.answers.values()
        return Counter(a.status for a in answers if system in (None, a.system))

    @property
    def ok(self) -> bool:
        """Whether every answer is right, a convention, or documented."""
        return not any(answer.status in BAD for answer in self.answers.values())

    @property
    def absent(self) -> bool:
        """Whether a system is absent that was asked."""
        return bool(self.counts()["absent"])


def run_scenarios(
    scenarios: Iterable[Scenario],
    systems: Sequence[Backend],
    progress: Callable[[str], None] = lambda text: None,
) -> Run:
    """Ask AD systems the scenarios.

    Args:
        scenarios: what is asked.
        systems: AD systems as `prepare` returns them.
        progress: gets a line of text before each question.

    Returns:
        The answers. Those of a system that is not available are absent.
    """
    scenarios, systems = tuple(scenarios), tuple(systems)
    answers = {}
    for number, scenario in enumerate(scenarios, 1):
        for system in systems:
            progress(f"{number}/{len(scenarios)} {scenario.name}: {system.name}")
            answers[scenario.name, system.name] = ask(scenario, system)
    return Run(systems, scenarios, answers)


def ask(scenario: Scenario, backend: Backend) -> Answer:
    """Ask one AD system one scenario.

    Args:
        scenario: the question.
        backend: a system as `prepare` returns it.

    Returns:
        The answer, judged. In JAX and in float64, whatever the caller's setting.
    """
    absent = Answer(scenario.name, backend.name, "absent")
    if not backend.available:
        return absent
    start = time.perf_counter()
    modes = ("reverse", "forward") if backend.mode == "both" else (backend.mode,)
    plain = None
    with double_precision(), np.errstate(all="ignore"):
        try:
            function = _function(scenario, backend)
            plain = np.asarray(function(*scenario.args), float)
        except (JuliaUnavailableError, BackendNotLoadedError):
            return absent
        except Exception as error:
            answers = [_failed(mode, error) for mode in modes]
        else:
            answers = [_answer(function, scenario.args, backend, mode) for mode in modes]
    judged = tuple(judge(scenario, backend.name, plain, answer) for answer in answers)
    status = max((answer.status for answer in judged), key=STATUSES.index)
    seconds = time.perf_counter() - start
    return Answer(scenario.name, backend.name, status, plain, judged, seconds)


def _answer(f: Any, args: tuple[Any, ...], backend: Backend, mode: str) -> ModeAnswer:
    """Differentiate a function; the status is not known yet."""
    # A system with one mode has its own way to the gradient.
    by_columns = mode == "forward" and backend.mode == "both"
    try:
        if by_columns:
            value, derivative = _forward(f, args, backend.name)
        else:
            value, derivative = value_and_grad(f, backend=backend.name)(*args)
        return ModeAnswer(mode, "error", np.asarray(value, float), np.asarray(derivative, float))
    except Exception as error:
        return _failed(mode, error)


def _failed(mode: str, error: Exception) -> ModeAnswer:
    name = error.julia_type if isinstance(error, JuliaError) else type(error).__name__
    return ModeAnswer(mode, "error", error=name, message=str(error))


def judge(
    scenario: Scenario, system: str, plain: np.ndarray | None, answer: ModeAnswer
) -> ModeAnswer:
    """Compare an answer with the expected one and with what is documented.

    Args:
        scenario: the question.
        system: the AD system's name.
        plain: the value of a plain call.
        answer: an answer without a verdict.

    Returns:
        The answer with status, reason and surprise.
    """
    tolerance = scenario.tolerance or _TOLERANCE.get(system, _DEFAULT_TOLERANCE)
    known = scenario.known_answer(system, answer.mode)
    expected = Known(system, "", "")
    if _agrees(scenario, expected, plain, answer, tolerance):
        kink = scenario.subdifferential is not None
        surprise = ""
        if known is not None:
            surprise = f'right, but the table says "{known.kind}": {known.reason}'
        return replace(
            answer,
            status="convention" if kink else "right",
            reason="a derivative between the one-sided ones" if kink else "",
            surprise=surprise,
        )
    if known is not None and _agrees(scenario, known, plain, answer, tolerance):
        return replace(answer, status=_STATUS_OF_KIND[known.kind], reason=known.reason)
    documented = "" if known is None else f"the table documents another: {known.reason}"
    if answer.error is not None:
        return replace(answer, status="error", reason=documented)
    return replace(answer, status="wrong", reason=documented)


def _agrees(
    scenario: Scenario,
    claim: Known,
    plain: np.ndarray | None,
    answer: ModeAnswer,
    tolerance: float,
) -> bool:
    """Compare with a claim, which stands on the scenario where it says nothing."""
    if claim.errors or answer.error is not None:
        return answer.error in claim.errors

    def close(got: np.ndarray | None, said: np.ndarray | None, otherwise: Any) -> bool:
        want = otherwise if said is None else said
        return (
            got is not None
            and got.shape == want.shape
            and np.allclose(got, want, rtol=tolerance, atol=tolerance, equal_nan=True)
        )

    values = close(plain, claim.plain_value, scenario.plain_value) and close(
        answer.value, claim.value, scenario.value
    )
    derivative = answer.derivative
    if claim.derivative is not None or scenario.subdifferential is None:
        return values and close(derivative, claim.derivative, scenario.derivative)
    low, high = scenario.subdifferential
    return (
        values
        and derivative is not None
        and derivative.shape == low.shape
        and bool(np.all((derivative >= low - tolerance) & (derivative <= high + tolerance)))
    )


def _function(scenario: Scenario, backend: Backend) -> Callable[..., Any]:
    """Build the scenario's function in the language of the system."""
    if backend.language == "julia":
        return from_julia(scenario.julia)
    scope: dict[str, Any] = {"jax": jax, "jnp": jnp, "np": np, "pb": sys.modules["pybridge"]}
    exec(compile(scenario.python, f"<scenario {scenario.name}>", "exec"), scope)
    return scope["f"]


def _forward(f: Any, args: tuple[Any, ...], system: str) -> tuple[Any, Any]:
    """Build the gradient from one forward pass for each element of the first argument."""
    first, rest = np.asarray(args[0]), args[1:]
    zeros = tuple(np.zeros(np.shape(x)) for x in rest)
    value, derivatives = None, []
    for unit in np.eye(first.size).reshape((first.size, *first.shape)):
        if system == "jax":
            # The other arguments are closed over: a tangent of 0 would be a tangent.
            value, derivative = jax.jvp(lambda x: f(x, *rest), (first,), (unit,))
        else:
            value, derivative = jvp(f, (first, *rest), (unit, *zeros), backend=system)
        derivatives.append(float(derivative))
    return value, np.reshape(derivatives, first.shape)
