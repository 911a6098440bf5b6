"""Suites and the table of layers on the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console, RenderableType
from rich.text import Text

from ..._backends import Backend
from .._rendering import renders
from .._wording import numbers
from ..suites import LayerRow, LibraryResult, Run
from ._check_texts import summary as check_summary
from ._grid import layer_grid, scenario_grid
from ._suite_texts import (
    absences,
    asked_functions,
    describe,
    expected,
    layer_reasons,
    layer_summary,
    layers_ok,
    not_asked,
    notes,
    summary,
    surprises,
    total,
    without_findings,
)
from ._terminal import absence_parts, grid_table, indented, legend_parts, marked, program, verdict
from ._terminal_check import finding_parts
from ._vocabulary import IN_SUITES

# From this width on there is room for the scenarios' titles.
_WIDE = 130
_TITLE_WIDTH = 48
_CELL_WIDTH = 16


@renders(Run, "terminal")
def run_parts(run: Run, width: int, *, verbose: bool = False) -> Iterator[RenderableType]:
    """Yield table, legend, explanations and summary.

    Args:
        run: the answers.
        width: of the terminal.
        verbose: every scenario with its sources and every answer with its numbers.
    """
    grid = scenario_grid(run)
    titles = width >= _WIDE
    names = max(len(scenario.name) for scenario in run.scenarios) + 2
    # Each column costs two blanks, and each answer a symbol and a blank.
    left = width - names - 1 - (_TITLE_WIDTH + 2 if titles else 0)
    room = min(left // len(run.systems) - 4, _CELL_WIDTH)
    yield grid_table(grid, right=0, no_wrap=True, notes=titles, room=room)
    yield from ("", *legend_parts(grid), "")
    if verbose:
        yield from _details(run)
    if found := notes(run):
        yield marked(
            (
                IN_SUITES[note.status],
                Text.assemble(
                    (", ".join(note.scenarios), "bold"),
                    " - ",
                    (", ".join(note.systems), "italic"),
                    f": {note.reason}",
                ),
            )
            for note in found
        )
        yield ""
    yield from absence_parts(absences(run))
    for surprise in surprises(run):
        yield Text.assemble(("Better than documented:", "yellow"), f" {surprise}")
    yield verdict(summary(run), run.ok)


def _details(run: Run) -> Iterator[RenderableType]:
    for scenario in run.scenarios:
        thread = f" {scenario.thread}" if scenario.thread else ""
        yield Text.assemble((scenario.name, "bold"), f": {scenario.title}", (thread, "dim"))
        yield indented(scenario.shows, 2)
        for language in ("python", "julia"):
            yield program(getattr(scenario, language), language)
        yield indented(
            f"expected: value {numbers(scenario.value)}, derivative {expected(scenario)}; "
            f"value of a plain call {numbers(scenario.plain_value)}",
            2,
        )
        yield marked(
            (
                IN_SUITES[mode.status],
                Text(f"{answer.system} ({mode.mode}): {describe(scenario, mode)}"),
            )
            for answer in run.row(scenario)
            for mode in answer.modes
        )
        yield ""


@renders(LibraryResult, "terminal")
def library_parts(
    result: LibraryResult, width: int, *, verbose: bool = False
) -> Iterator[RenderableType]:
    """Yield the functions with findings, or all, then those without and those not asked."""
    for name, report in asked_functions(result, verbose):
        yield Text.assemble((name, "bold"), (f"  {check_summary(report)}", "dim"))
        for finding in report.findings:
            yield from finding_parts(finding)
    yield from map(Text, (without_findings(result), *not_asked(result), total(result)))


def print_layers(rows: Sequence[LayerRow], systems: Sequence[Backend], console: Console) -> None:
    """Print table, legend, reasons and summary on a terminal."""
    grid = layer_grid(rows, systems)
    parts = [grid_table(grid, right=0, no_wrap=True), "", Text(grid.caption, "dim")]
    parts += [*map(Text, layer_reasons(rows)), verdict(layer_summary(rows), layers_ok(rows))]
    for part in parts:
        console.print(part, highlight=False)
