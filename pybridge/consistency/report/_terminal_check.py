"""The report of `pb.check` on the terminal and as plain text."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import TYPE_CHECKING

from .._rendering import renders
from .._wording import join, sentence
from ..findings import Finding, Report
from ._check_grid import Cell, cases, cell, modes, overview
from ._check_texts import absences, cell_text, compared, line, measured, place, summary, title
from ._numbers import brief
from ._vocabulary import CHECK_CAPTION, IN_CHECK, STYLES, legend

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table
    from rich.text import Text

_TEXT_WIDTH = 100


def print_check(report: Report, console: Console, *, verbose: bool = False) -> None:
    """Print table, legend, findings and summary.

    Args:
        report: what `pb.check` returned.
        console: a rich console.
        verbose: also every point and argument, and the program as each language sees it.
    """
    for part in parts(report, verbose=verbose):
        console.print(part, highlight=False)


@renders(Report, "terminal")
def parts(report: Report, *, verbose: bool = False) -> Iterator[RenderableType]:
    """Yield what `print_check` prints, one thing a line or block."""
    yield _text(title(report), "bold")
    yield ""
    if report.systems:
        yield _overview(report)
        yield ""
        yield from _legend(report)
        yield ""
    if verbose:
        yield from _details(report)
    for finding in report.findings:
        yield from finding_parts(finding)
    for names, reason in absences(report):
        yield _text(f"{join(names)} {'is' if len(names) == 1 else 'are'} absent:", "bold")
        yield _text(reason, "dim")
        yield ""
    yield _text(compared(report), "dim")
    counted = summary(report) if report.findings else "Nothing found"
    yield _text(counted, "bold green" if report.ok else "bold red")


@renders(Report, "text")
def as_text(report: Report) -> str:
    """Write what `print_check` prints as plain text."""
    console = _plain_console()
    print_check(report, console)
    return _taken(console)


@renders(Report, "table")
def as_table(report: Report) -> str:
    """Write the table of systems and modes as plain text."""
    console = _plain_console()
    console.print(_overview(report))
    return _taken(console)


def _plain_console() -> Console:
    from rich.console import Console

    # No colours whatever the surroundings ask for: the text may go into a file.
    return Console(file=io.StringIO(), width=_TEXT_WIDTH, color_system=None, force_terminal=False)


def _taken(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return "\n".join(text.rstrip() for text in console.file.getvalue().splitlines())


def _overview(report: Report) -> Table:
    asked, cells = modes(report), overview(report)
    table = plain_table("system", "version", *asked)
    for system in report.systems:
        row = [_styled(cells.get((system.name, mode))) for mode in asked]
        table.add_row(system.name, _text(system.version or "absent", "dim"), *row)
    return table


def plain_table(*columns: str, left: int = 1, right: int = 1, no_wrap: bool = False) -> Table:
    """Make a table with a line below its head, and so many blanks at both sides of a cell."""
    from rich import box
    from rich.table import Table

    padding = (0, right, 0, left)
    table = Table(box=box.SIMPLE_HEAD, padding=padding, show_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, no_wrap=no_wrap)
    return table


def _styled(found: Cell | None) -> Text:
    return _text("") if found is None else _text(cell_text(found), _style(found.status))


def _style(status: str) -> str:
    return STYLES[IN_CHECK[status].look]


def _legend(report: Report) -> Iterator[RenderableType]:
    from rich.columns import Columns
    from rich.text import Text

    used = {found.status for found in overview(report).values()}
    entries = [
        Text.assemble((status.symbol, STYLES[status.look]), f" {status.meaning}")
        for status in legend(IN_CHECK, used)
    ]
    yield Columns(entries, padding=(0, 3))
    yield _text(CHECK_CAPTION, "dim")


def finding_parts(finding: Finding) -> Iterator[RenderableType]:
    """Write a finding: title, place, line, numbers, advice."""
    from rich.padding import Padding
    from rich.text import Text

    head = f"{IN_CHECK[finding.severity].symbol} {finding.title}", _style(finding.severity)
    yield Text.assemble(head, (f" ({finding.kind})", "dim"))
    lines = [(place(finding), ""), (line(finding), "italic"), (measured(finding), "cyan")]
    for text, look in [*lines, (sentence(finding.advice), "")]:
        if text:
            yield Padding(_text(text, look), (0, 0, 0, 4))
    yield ""


def _details(report: Report) -> Iterator[RenderableType]:
    from rich.padding import Padding
    from rich.syntax import Syntax

    table = plain_table("case", *(system.name for system in report.systems))
    for probe in report.probes:
        table.add_section()
        table.add_row(_text(probe.name, "bold"))
        for case in cases(report):
            if case.probe == probe.name:
                row = [_styled(cell(report, case, system)) for system in report.systems]
                table.add_row(_text(f"  {case.mode} {case.argument}"), *row)
    yield table
    yield ""
    for probe in report.probes:
        yield _text(f"{probe.name}: {', '.join(map(brief, probe.args))}")
    yield ""
    for name, source in report.sources.items():
        language = "julia" if name.lower().startswith("julia") else "python"
        yield _text(name, "bold")
        code = Syntax(source, language, background_color="default", word_wrap=True)
        yield Padding(code, (0, 0, 1, 4))


def _text(text: str, style: str = "") -> Text:
    """Make text of which no part is read as markup."""
    from rich.text import Text

    return Text(text, style)
