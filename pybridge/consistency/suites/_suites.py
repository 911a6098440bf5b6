"""The suites of `pybridge check --suite`: lists of cases that are run on every AD system."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from ..._backends import Backend
from ..._errors import ArgumentValueError, explain
from ._library_suite import run_cases, select_cases
from ._scenario_run import run_scenarios
from ._scenarios import select_scenarios

if TYPE_CHECKING:
    from rich.console import Console

Progress = Callable[[str], None]


class SuiteResult(Protocol):
    """What a suite answers; it can be written in four ways."""

    @property
    def ok(self) -> bool:
        """Whether no answer is wrong."""
        ...

    @property
    def absent(self) -> bool:
        """Whether a system is absent that was asked."""
        ...

    def print(self, console: Console, *, verbose: bool = False) -> None:
        """Print tables and explanations on a terminal."""
        ...

    def to_json(self) -> str:
        """Write a JSON object."""
        ...

    def to_markdown(self) -> str:
        """Write Markdown without headings."""
        ...

    def to_html(self) -> str:
        """Write a page that needs no other file."""
        ...


@dataclass(frozen=True)
class Suite:
    """A list of cases.

    Attributes:
        title: one line, without a full stop, that says what it is about.
        select: gets names or None, returns the cases whose names begin so, or all; each has a
            `name` and a `title`. A name that fits nothing is an `ArgumentValueError`.
        run: gets the cases, AD systems as `prepare` returns them, and a function that wants a
            line of text before each case.
        julia: whether Julia's AD systems are asked.
    """

    title: str
    select: Callable[[list[str] | None], Sequence[Any]]
    run: Callable[[Sequence[Any], Sequence[Backend], Progress], SuiteResult]
    julia: bool = True


def _select_conventions(names: list[str] | None) -> Sequence[Any]:
    return select_scenarios(names, "conventions")


def _run_scenarios(
    cases: Sequence[Any], systems: Sequence[Backend], progress: Progress
) -> SuiteResult:
    return run_scenarios(cases, systems, progress)


def _library(library: str, *, julia: bool = False) -> Suite:
    def run(cases: Sequence[Any], systems: Sequence[Backend], progress: Progress) -> SuiteResult:
        return run_cases(cases, systems, progress, julia=julia)

    return Suite(f"every function of {library}, with pb.check", select_cases(library), run, julia)


# In the order in which they run.
SUITES: dict[str, Suite] = {
    "scenarios": Suite(
        "hard cases with an answer that is known from mathematics",
        lambda names: select_scenarios(names),
        _run_scenarios,
    ),
    "conventions": Suite(
        "what each system does at kinks, ties and singular points",
        _select_conventions,
        _run_scenarios,
    ),
    "jax.nn": _library("jax.nn"),
    "jax.scipy.special": _library("jax.scipy.special"),
    "optax.losses": _library("optax.losses"),
    "nnlib": _library("NNlib", julia=True),
}


def suite(name: str) -> Suite:
    """Look a suite up.

    Raises:
        ArgumentValueError: there is no such suite; the message lists those that there are.
    """
    if name in SUITES:
        return SUITES[name]
    raise ArgumentValueError(
        explain(
            "pybridge check --suite",
            expected=f"one of {', '.join(SUITES)}",
            got=name,
            fix="Without a name all of them are run.",
        )
    )
