"""The suites of `pybridge check --suite`: lists of cases that are run on every AD system."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ..._backends import Backend
from ..._errors import ArgumentValueError, explain
from .._rendering import Rendered
from ._library_suite import run_cases, select_cases
from ._scenario_run import run_scenarios
from ._scenarios import select_scenarios

Progress = Callable[[str], None]


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
    run: Callable[[Sequence[Any], Sequence[Backend], Progress], Rendered]
    julia: bool = True


def _library(library: str, *, julia: bool = False) -> Suite:
    title = f"every function of {library}, with pb.check"
    return Suite(title, partial(select_cases, library), partial(run_cases, julia=julia), julia)


# In the order in which they run.
SUITES: dict[str, Suite] = {
    "scenarios": Suite(
        "hard cases with an answer that is known from mathematics",
        select_scenarios,
        run_scenarios,
    ),
    "conventions": Suite(
        "what each system does at kinks, ties and singular points",
        partial(select_scenarios, table="conventions"),
        run_scenarios,
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
