"""Suites and the table of layers on the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..._backends import Backend
from .._rendering import renders
from .._wording import join, numbers
from ..suites import LibraryResult, Run
from ._check_texts import summary as check_summary
from ._layer_answers import LayerRow, layer_cell, layer_summary, layers_ok, reasons
from ._library_texts import asked_functions, not_asked, total, without_findings
from ._scenario_answers import absences, cell, describe, expected, groups, notes, summary, surprises
from ._terminal_check import finding_parts, plain_table
from ._vocabulary import IN_SUITES, LAYER_CAPTION, STYLES, SUITE_CAPTION, legend

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

# From this width on there is room for the scenarios' titles.
_WIDE = 130
_TITLE_WIDTH = 48
_CELL_WIDTH = 16


@renders(Run, "terminal")
def print_report(run: Run, console: Console, *, verbose: bool = False) -> None:
    """Print table, legend, explanations and summary.

    Args:
        run: the answers.
        console: a rich console.
        verbose: every scenario with its sources and every answer with its numbers.
    """
    parts = _table(run, console.width), "", _legend(run), ""
    console.print(*parts, sep="\n", highlight=False)
    if verbose:
        _print_details(run, console)
    _print_notes(run, console)
    for names, reason in absences(run):
        verb = "is" if len(names) == 1 else "are"
        console.print(f"[bold]{join(names)}[/] {verb} absent:", highlight=False)
        console.print(_plain(reason), "", style="dim", sep="\n", highlight=False)
    for surprise in surprises(run):
        console.print(f"[yellow]Better than documented:[/] {_plain(surprise)}")
    style = "bold green" if run.ok else "bold red"
    console.print(f"[{style}]{summary(run)}[/]", highlight=False)


def _table(run: Run, width: int) -> Table:
    titles = width >= _WIDE
    names = max(len(scenario.name) for scenario in run.scenarios) + 2
    # Each column costs two blanks, and each answer a symbol and a blank.
    left = width - names - 1 - (_TITLE_WIDTH + 2 if titles else 0)
    room = min(left // len(run.systems) - 4, _CELL_WIDTH)

    table = plain_table(right=0)
    table.add_column("scenario", no_wrap=True, min_width=names)
    if titles:
        table.add_column("", style="dim", max_width=_TITLE_WIDTH, no_wrap=True)
    for system in run.systems:
        table.add_column(_head(system), no_wrap=True)
    for heading, scenarios in groups(run):
        table.add_section()
        table.add_row(f"[bold]{heading}[/]")
        for scenario in scenarios:
            cells = [_styled(a.status, cell(scenario, a, room)) for a in run.row(scenario)]
            label = [_plain(scenario.title)] if titles else []
            table.add_row(f"  {scenario.name}", *label, *cells)
    return table


def _head(system: Backend) -> str:
    return f"{system.name}\n[dim not bold]{system.version or 'absent'}[/]"


def _styled(status: str, text: str) -> str:
    return f"[{STYLES[status]}]{_plain(text)}[/]"


def _legend(run: Run) -> str:
    parts = [
        f"[{STYLES[status.look]}]{status.symbol}[/] {status.meaning}"
        for status in legend(IN_SUITES, run.counts())
    ]
    return "   ".join(parts) + f"\n[dim]{SUITE_CAPTION}[/]"


def _print_notes(run: Run, console: Console) -> None:
    rows = []
    for note in notes(run):
        where = f"[bold]{', '.join(note.scenarios)}[/]"
        who = f"[italic]{', '.join(note.systems)}[/]"
        rows.append((note.status, f"{where} - {who}: {_plain(note.reason)}"))
    if rows:
        console.print(_marked(rows), "", sep="\n", highlight=False)


def _print_details(run: Run, console: Console) -> None:
    from rich.padding import Padding
    from rich.syntax import Syntax

    def indent(content: RenderableType, columns: int) -> Padding:
        return Padding(content, (0, 0, 0, columns))

    for scenario in run.scenarios:
        thread = f" [dim]{_plain(scenario.thread)}[/]" if scenario.thread else ""
        console.print(f"[bold]{scenario.name}[/]: {_plain(scenario.title)}{thread}")
        console.print(indent(_plain(scenario.shows), 2))
        for language in ("python", "julia"):
            source = getattr(scenario, language)
            code = Syntax(source, language, background_color="default", word_wrap=True)
            console.print(indent(code, 4))
        wanted = (
            f"expected: value {numbers(scenario.value)}, derivative {expected(scenario)}; "
            f"value of a plain call {numbers(scenario.plain_value)}"
        )
        console.print(indent(_plain(wanted), 2), highlight=False)
        rows = [
            (mode.status, f"{answer.system} ({mode.mode}): {_plain(describe(scenario, mode))}")
            for answer in run.row(scenario)
            for mode in answer.modes
        ]
        console.print(_marked(rows), "", sep="\n", highlight=False)


def _marked(rows: list[tuple[str, str]]) -> Table:
    """Put the symbol of a status in front of each text."""
    from rich.table import Table

    table = Table.grid(padding=(0, 1, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for status, text in rows:
        table.add_row(f"  [{STYLES[status]}]{IN_SUITES[status].symbol}[/]", text)
    return table


def _plain(text: str) -> str:
    """Keep rich from reading `[1, 0]` as markup."""
    from rich.markup import escape

    return escape(text)


@renders(LibraryResult, "terminal")
def print_library(result: LibraryResult, console: Console, *, verbose: bool = False) -> None:
    """Print the functions with findings, then those without, then those not asked."""
    for name, report in asked_functions(result, verbose):
        console.print(f"[bold]{name}[/]  [dim]{check_summary(report)}[/]", highlight=False)
        for finding in report.findings:
            console.print(*finding_parts(finding), sep="\n", highlight=False)
    console.print(
        without_findings(result), *not_asked(result), total(result), sep="\n", markup=False
    )


def print_layers(rows: Sequence[LayerRow], systems: Sequence[Backend], console: Console) -> None:
    """Print table, legend, reasons and summary on a terminal."""
    table = plain_table("layer", "dtype", right=0, no_wrap=True)
    for system in systems:
        table.add_column(_head(system))
    for case, dtype, answers in rows:
        cells = [_styled(answer.status, layer_cell(answer)) for answer in answers.values()]
        table.add_row(_plain(case.title), dtype, *cells)
    console.print(table, "", f"[dim]{LAYER_CAPTION}[/]", sep="\n", highlight=False)
    for line in reasons(rows):
        console.print(_plain(line), highlight=False)
    style = "bold green" if layers_ok(rows) else "bold red"
    console.print(f"[{style}]{layer_summary(rows)}[/]", highlight=False)
