"""Check every function of a library that others wrote."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..._backends import Backend
from ..._errors import BridgeError
from .._check import check
from .._rendering import Rendered
from ..findings import Report
from ._library_cases import LibraryCase, libraries, library_cases, nnlib_cases
from ._selection import select_by_name


@dataclass(frozen=True)
class LibraryResult(Rendered):
    """What was found in a library.

    Attributes:
        reports: a report for each function that was asked.
        refused: for each other one its name, and why it was not.
    """

    reports: dict[str, Report]
    refused: dict[str, str]

    @property
    def ok(self) -> bool:
        """Whether no finding is an error."""
        return all(report.ok for report in self.reports.values())

    @property
    def absent(self) -> bool:
        """Whether a system is absent that was asked, or all of the library is."""
        rows = [system for report in self.reports.values() for system in report.systems]
        return not self.reports or not all(system.available for system in rows)


def select_cases(library: str, names: Sequence[str] | None = None) -> Sequence[LibraryCase]:
    """Pick cases of a library by the beginnings of their names.

    Raises:
        ArgumentValueError: a name fits no function; the message lists all.
    """
    cases = list(library_cases(library) if library in libraries() else nnlib_cases())
    return select_by_name(cases, names, f"the suite of {library}", "function")


def run_cases(
    cases: Iterable[Any],
    systems: Sequence[Backend],
    progress: Callable[[str], None],
    *,
    julia: bool,
) -> LibraryResult:
    """Check functions.

    Args:
        cases: what `select_cases` picks.
        systems: AD systems.
        progress: gets a line of text before each function.
        julia: whether Julia's AD systems are asked.

    Returns:
        The reports. A function that raises is among those refused.
    """
    reports, refused = {}, {}
    cases = list(cases)
    names = [s.name for s in systems if s.available and (julia or s.language == "python")]
    for number, case in enumerate(cases, 1):
        progress(f"{number}/{len(cases)} {case.name}")
        if case.reason:
            refused[case.name] = case.reason
            continue
        try:
            with np.errstate(all="ignore"), warnings.catch_warnings():
                # Deprecated functions are asked as well.
                warnings.simplefilter("ignore", DeprecationWarning)
                reports[case.name] = check(case.function, *case.args, backends=names)
        except BridgeError as error:
            refused[case.name] = f"it failed: {str(error).splitlines()[0]}"
    return LibraryResult(reports, refused)
