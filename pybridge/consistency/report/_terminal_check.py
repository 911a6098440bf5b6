"""The report of `pb.check` on the terminal and as plain text."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator

from rich.console import Console, RenderableType
from rich.text import Text

from .._rendering import renders
from .._wording import sentence
from ..findings import Finding, Report
from ._check_texts import absences, compared, line, measured, place, summary, title
from ._grid import case_grid, overview_grid
from ._numbers import brief
from ._terminal import absence_parts, grid_table, indented, legend_parts, program, verdict
from ._vocabulary import IN_CHECK, STYLES

_TEXT_WIDTH = 100


@renders(Report, "terminal")
def check_parts(
    report: Report, width: int = _TEXT_WIDTH, *, verbose: bool = False
) -> Iterator[RenderableType]:
    """Yield table, legend, findings and summary, one thing a line or block.

    Args:
        report: what `pb.check` returned.
        width: of the terminal; all that is here wraps.
        verbose: also every point and argument, and the program as each language sees it.
    """
    yield Text(title(report), "bold")
    yield ""
    if report.systems:
        grid = overview_grid(report)
        yield from (grid_table(grid), "", *legend_parts(grid), "")
    if verbose:
        yield from _details(report)
    for finding in report.findings:
        yield from finding_parts(finding)
    yield from absence_parts(absences(report))
    yield Text(compared(report), "dim")
    yield verdict(summary(report) if report.findings else "Nothing found", report.ok)


@renders(Report, "text")
def as_text(report: Report) -> str:
    """Write what is printed on a terminal as plain text."""
    return _plain_text(check_parts(report))


@renders(Report, "table")
def as_table(report: Report) -> str:
    """Write the table of systems and modes as plain text."""
    return _plain_text([grid_table(overview_grid(report))])


def _plain_text(parts: Iterable[RenderableType]) -> str:
    # No colours whatever the surroundings ask for: the text may go into a file.
    text = io.StringIO()
    console = Console(file=text, width=_TEXT_WIDTH, color_system=None, force_terminal=False)
    console.print(*parts, sep="\n")
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines())


def finding_parts(finding: Finding) -> Iterator[RenderableType]:
    """Write a finding: title, place, line, numbers, advice."""
    status = IN_CHECK[finding.severity]
    head = f"{status.symbol} {finding.title}", STYLES[status.look]
    yield Text.assemble(head, (f" ({finding.kind})", "dim"))
    lines = [(place(finding), ""), (line(finding), "italic"), (measured(finding), "cyan")]
    for text, look in [*lines, (sentence(finding.advice), "")]:
        if text:
            yield indented(Text(text, look))
    yield ""


def _details(report: Report) -> Iterator[RenderableType]:
    yield from (grid_table(case_grid(report), versions=False), "")
    for probe in report.probes:
        yield Text(f"{probe.name}: {', '.join(map(brief, probe.args))}")
    yield ""
    for name, source in report.sources.items():
        yield Text(name, "bold")
        yield program(source, "julia" if name.lower().startswith("julia") else "python", below=1)
