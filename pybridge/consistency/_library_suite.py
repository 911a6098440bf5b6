"""Check every function of a library that others wrote."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape as escape_html
from typing import TYPE_CHECKING, Any

import numpy as np

from .._backends import Backend
from .._errors import ArgumentValueError, BridgeError, explain
from ._check import check
from ._check_export import check_to_json, finding_to_markdown
from ._check_html import check_to_html
from ._check_report import finding_parts
from ._check_words import SYMBOLS, summary
from ._export import escape, row
from ._findings import SEVERITIES, Report
from ._libraries import LIBRARIES, LibraryCase, library_cases, nnlib_cases
from ._words import count

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True)
class LibraryResult:
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

    def print(self, console: Console, *, verbose: bool = False) -> None:
        """Print the functions with findings, then those without, then those not asked."""
        for name, report in self._found(verbose):
            console.print(f"[bold]{name}[/]  [dim]{summary(report)}[/]", highlight=False)
            for finding in report.findings:
                console.print(*finding_parts(finding), sep="\n", highlight=False)
        console.print(self._without(), *self._not_asked(), self._total(), sep="\n", markup=False)

    def to_json(self) -> str:
        """Write all reports, by function, and what was not asked."""
        reports = {name: json.loads(check_to_json(r)) for name, r in self.reports.items()}
        return json.dumps({"reports": reports, "refused": self.refused}, indent=2)

    def to_markdown(self) -> str:
        """Write a table of counts, then every finding."""
        lines = [row("function", *(f"{severity}s" for severity in SEVERITIES))]
        lines.append(row(*["---"] * (1 + len(SEVERITIES))))
        for name, report in self._found(verbose=False):
            counts = [str(report.counts()[severity] or "") for severity in SEVERITIES]
            lines.append(row(f"`{name}`", *counts))
        for name, report in self._found(verbose=False):
            lines += ["", f"`{name}`:", ""]
            for finding in report.findings:
                lines += finding_to_markdown(finding)
        texts = (self._without(), *self._not_asked(), self._total())
        return "\n\n".join(["\n".join(lines), *map(escape, texts)])

    def to_html(self) -> str:
        """Write one page with the page of each function inside."""
        frames = [
            f"<details><summary>{escape_html(name)}: {summary(report)}</summary>"
            f'<iframe sandbox srcdoc="{escape_html(check_to_html(report), quote=True)}" '
            'style="width: 100%; height: 80vh; border: 0"></iframe></details>'
            for name, report in self._found(verbose=True)
        ]
        from ._page import page

        texts = (*self._not_asked(), self._total())
        body = [f"<h1>{escape_html(self._total())}</h1>", *frames]
        body += [f"<p>{escape_html(text)}</p>" for text in texts]
        return page("What was found", "\n".join(body))

    def _found(self, verbose: bool) -> list[tuple[str, Report]]:
        return [(name, r) for name, r in self.reports.items() if verbose or r.findings]

    def _without(self) -> str:
        names = [name for name, report in self.reports.items() if not report.findings]
        return f"{SYMBOLS['right']} Nothing found in: {', '.join(names) or 'none'}."

    def _not_asked(self) -> list[str]:
        return [f"Not asked: {name}: {reason}." for name, reason in self.refused.items()]

    def _total(self) -> str:
        found = [finding for report in self.reports.values() for finding in report.findings]
        parts = [
            count(sum(f.severity == severity for f in found), severity) for severity in SEVERITIES
        ]
        return f"{count(len(self.reports), 'function')}: {', '.join(parts)}."


def select_cases(library: str) -> Callable[[list[str] | None], Sequence[LibraryCase]]:
    """Make the function that picks cases of a library by the beginnings of their names."""

    def select(names: list[str] | None) -> Sequence[LibraryCase]:
        cases = list(library_cases(library) if library in LIBRARIES else nnlib_cases())
        if names is None:
            return cases
        for name in names:
            if not any(_begins(case, name) for case in cases):
                raise ArgumentValueError(
                    explain(
                        f"the suite of {library}",
                        expected="the name of a function, or its beginning",
                        got=repr(name),
                        fix="There are: " + ", ".join(case.name for case in cases) + ".",
                    )
                )
        return [case for case in cases if any(_begins(case, name) for name in names)]

    return select


def _begins(case: LibraryCase, name: str) -> bool:
    return case.name.startswith(name) or case.name.rpartition(".")[2].startswith(name)


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
