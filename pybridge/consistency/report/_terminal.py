"""What the reports share on the terminal. No text is read as markup."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rich import box
from rich.columns import Columns
from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from .._wording import join
from ._grid import Cell, Grid
from ._vocabulary import STYLES, Status

_NOTE_WIDTH = 48


def grid_table(
    grid: Grid,
    *,
    right: int = 1,
    no_wrap: bool = False,
    notes: bool = True,
    versions: bool = True,
    room: int | None = None,
) -> Table:
    """Make a table with a line below its head.

    Args:
        grid: what is in it.
        right: so many blanks at the right of each cell.
        no_wrap: keep labels in one line, and cells if `room` is given.
        notes: show the remarks on rows as well.
        versions: show the remarks on columns as well.
        room: leave details out of cells that have more characters.
    """
    notes = notes and grid.notes is not None
    groups = [(heading, list(rows)) for heading, rows in grid.groups]
    indent = "  " if any(heading for heading, _ in groups) else ""
    table = Table(
        box=box.SIMPLE_HEAD, padding=(0, right, 0, 1), show_edge=False, header_style="bold"
    )
    labels = [row.labels[0] for _, rows in groups for row in rows]
    least = len(indent) + max(map(len, labels), default=0) if room is not None else None
    for head in grid.heads:
        table.add_column(head, no_wrap=no_wrap, min_width=least)
    if notes:
        table.add_column(grid.notes or "", style="dim", max_width=_NOTE_WIDTH, no_wrap=no_wrap)
    for name, remark in grid.columns:
        below = (f"\n{remark}", "dim not bold") if remark and versions else ""
        table.add_column(Text.assemble(name, below), no_wrap=no_wrap and room is not None)
    for heading, rows in groups:
        if heading:
            table.add_section()
            table.add_row(Text(heading, "bold"))
        for row in rows:
            labels = [Text(f"{indent}{label} {row.argument}".rstrip()) for label in row.labels]
            remark = [Text(row.note)] if notes else []
            table.add_row(*labels, *remark, *(_cell_text(cell, room) for cell in row.cells))
    return table


def _cell_text(cell: Cell | None, room: int | None) -> Text:

    return Text("") if cell is None else Text(cell.text(room), STYLES[cell.status.look])


def legend_parts(grid: Grid) -> Iterator[RenderableType]:
    """Say what symbols mean, and what stands beside them."""
    entries = [
        Text.assemble((status.symbol, STYLES[status.look]), f" {status.meaning}")
        for status in grid.legend
    ]
    yield Columns(entries, padding=(0, 3))
    yield Text(grid.caption, "dim")


def absence_parts(absences: Iterable[tuple[list[str], str]]) -> Iterator[RenderableType]:
    """Say which systems are absent, and why."""
    for names, reason in absences:
        verb = "is" if len(names) == 1 else "are"
        yield Text.assemble((join(names), "bold"), f" {verb} absent:")
        yield Text(reason, "dim")
        yield ""


def verdict(text: str, ok: bool) -> Text:
    """Write the last line, in the colour of what it says."""
    return Text(text, "bold green" if ok else "bold red")


def marked(rows: Iterable[tuple[Status, Text]]) -> Table:
    """Put the symbol of a status in front of each text."""
    table = Table.grid(padding=(0, 1, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for status, text in rows:
        table.add_row(Text.assemble("  ", (status.symbol, STYLES[status.look])), text)
    return table


def indented(content: RenderableType | str, columns: int = 4, below: int = 0) -> Padding:
    """Move a block to the right."""
    content = Text(content) if isinstance(content, str) else content
    return Padding(content, (0, 0, below, columns))


def program(source: str, language: str, below: int = 0) -> Padding:
    """Write a program in the colours of its language."""
    from rich.syntax import Syntax  # loads what it needs for every language

    code = Syntax(source, language, background_color="default", word_wrap=True)
    return indented(code, below=below)
