"""Reports as Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from ..._backends import Backend
from .._rendering import renders
from .._wording import join, sentence
from ..findings import SEVERITIES, Finding, Report
from ..suites import LayerRow, LibraryResult, Run
from . import _check_texts, _suite_texts
from ._check_texts import compared, line, measured, place, title
from ._grid import Grid, layer_grid, overview_grid, scenario_grid
from ._suite_texts import asked_functions, not_asked, notes, total, without_findings
from ._vocabulary import IN_CHECK, IN_SUITES

_CELL_WIDTH = 12


@renders(Report, "markdown")
def check_to_markdown(report: Report) -> str:
    """Write a report as Markdown: a table of systems and modes, and the findings below."""
    counted = sentence(_check_texts.summary(report))
    lines = [f"**{code(title(report))}**: {escape(counted)}"]
    if report.systems:
        grid = overview_grid(report)
        lines += ["", *grid_lines(grid), "", _key(grid)]
    for finding in report.findings:
        lines += ["", *finding_lines(finding)]
    if not report.findings:
        lines += ["", "Nothing found."]
    lines += _absence_lines(_check_texts.absences(report))
    return "\n".join([*lines, "", escape(compared(report))])


@renders(Run, "markdown")
def run_to_markdown(run: Run) -> str:
    """Write a run as a Markdown table with explanations below."""
    grid = scenario_grid(run)
    lines = [*grid_lines(grid, _CELL_WIDTH), "", _key(grid), ""]
    for note in notes(run):
        where = ", ".join(f"`{name}`" for name in note.scenarios)
        who = ", ".join(note.systems)
        lines.append(f"- {IN_SUITES[note.status].symbol} {where} - {who}: {escape(note.reason)}")
    lines += _absence_lines(_suite_texts.absences(run))
    return "\n".join([*lines, "", f"{_suite_texts.summary(run)}."])


@renders(LibraryResult, "markdown")
def library_to_markdown(result: LibraryResult) -> str:
    """Write a table of counts, then every finding."""
    lines = _head("function", *(f"{severity}s" for severity in SEVERITIES))
    for name, report in asked_functions(result, verbose=False):
        counts = [str(report.counts()[severity] or "") for severity in SEVERITIES]
        lines.append(_row(f"`{name}`", *counts))
    for name, report in asked_functions(result, verbose=False):
        lines += ["", f"`{name}`:", ""]
        for finding in report.findings:
            lines += finding_lines(finding)
    texts = (without_findings(result), *not_asked(result), total(result))
    return "\n\n".join(["\n".join(lines), *map(escape, texts)])


def layers_to_markdown(rows: Iterable[LayerRow], systems: Sequence[Backend]) -> Iterator[str]:
    """Yield the lines of a Markdown table, each row as soon as it is there, then the summary."""
    seen: list[LayerRow] = []
    grid = layer_grid((seen.append(row) or row for row in rows), systems)
    yield from grid_lines(grid)
    items = [f"- {line}" for line in _suite_texts.layer_reasons(seen)]
    yield from ("", grid.caption, "", *items, "", _suite_texts.layer_summary(seen))


def finding_lines(finding: Finding) -> list[str]:
    """Write a finding as an item of a list, in lines."""
    symbol = IN_CHECK[finding.severity].symbol
    lines = [f"- {symbol} **{escape(finding.title)}** ({finding.kind}): {escape(place(finding))}."]
    lines += [f"  {code(part)}" for part in (line(finding), measured(finding)) if part]
    if finding.advice:
        lines.append(f"  {escape(sentence(finding.advice))}")
    return [f"{part}  " for part in lines[:-1]] + lines[-1:]  # two blanks break a line


def grid_lines(grid: Grid, room: int | None = None) -> Iterator[str]:
    """Yield the lines of a table, each as soon as it is there.

    Args:
        grid: what is in it.
        room: leave details out of cells that have more characters.
    """
    names = [name for name, _ in grid.columns]
    yield from _head(*grid.heads, *names)
    for heading, rows in grid.groups:
        if heading:
            yield _row(f"**{heading}**", *[""] * len(names))
        for row in rows:
            # What has an address of its own is a name for the command line.
            labels = [f"`{label}`" if row.target else escape(label) for label in row.labels]
            cells = [escape(cell.text(room)) if cell else "" for cell in row.cells]
            yield _row(*labels, *cells)


def _key(grid: Grid) -> str:
    """Say what symbols mean, and what stands beside them."""
    meanings = ", ".join(f"{status.symbol} {status.meaning}" for status in grid.legend)
    return f"{meanings}. {grid.caption}" if meanings else grid.caption


def _absence_lines(absences: Iterable[tuple[list[str], str]]) -> Iterator[str]:
    for names, reason in absences:
        yield from ("", f"**{escape(join(names))}**: absent. {escape(reason.splitlines()[0])}")


def _row(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |"


def _head(*names: str) -> list[str]:
    return [_row(*names), _row(*["---"] * len(names))]


def code(text: str) -> str:
    """Write text as code, whatever backticks are in it."""
    text = text.replace("\n", " ")
    fence = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    space = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{space}{text}{space}{fence}" if text else ""


def escape(text: str) -> str:
    """Keep Markdown from reading numbers and operators as markup, outside of `code`."""
    parts = text.replace("\n", " ").split("`")
    if len(parts) % 2 == 0:  # a backtick without a partner begins no code
        parts[-2:] = ["'".join(parts[-2:])]
    for i in range(0, len(parts), 2):
        for character in "\\|*_<":
            parts[i] = parts[i].replace(character, f"\\{character}")
    return "`".join(parts)
