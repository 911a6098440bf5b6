"""Reports as Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from ..._backends import Backend
from .._rendering import renders
from .._wording import join, sentence
from ..findings import SEVERITIES, Finding, Report
from ..suites import LibraryResult, Run
from ._check_grid import modes, overview
from ._check_texts import absences as check_absences
from ._check_texts import cell_text, compared, line, measured, place, title
from ._check_texts import summary as check_summary
from ._layer_answers import LayerRow, layer_cell, layer_summary, reasons
from ._library_texts import asked_functions, not_asked, total, without_findings
from ._scenario_answers import absences, cell, groups, notes, summary
from ._vocabulary import (
    CHECK_CAPTION,
    IN_CHECK,
    IN_SUITES,
    LAYER_CAPTION,
    SUITE_CAPTION,
    Status,
    legend,
)


@renders(Report, "markdown")
def check_to_markdown(report: Report) -> str:
    """Write a report as Markdown: a table of systems and modes, and the findings below."""
    table, asked = overview(report), modes(report)
    lines = [f"**{code(title(report))}**: {escape(sentence(check_summary(report)))}"]
    if report.systems:
        lines += ["", *head("system", *asked)]
        for system in report.systems:
            cells = [cell_text(table.get((system.name, mode))) for mode in asked]
            lines.append(row(escape(system.name), *map(escape, cells)))
        used = legend(IN_CHECK, {cell.status for cell in table.values()})
        lines += ["", f"{meanings(used)}. {CHECK_CAPTION}" if used else CHECK_CAPTION]
    for finding in report.findings:
        lines += ["", *finding_to_markdown(finding)]
    if not report.findings:
        lines += ["", "Nothing found."]
    for names, reason in check_absences(report):
        lines += ["", f"**{escape(join(names))}**: absent. {escape(reason.splitlines()[0])}"]
    return "\n".join([*lines, "", escape(compared(report))])


def finding_to_markdown(finding: Finding) -> list[str]:
    """Write a finding as an item of a list, in lines."""
    symbol = IN_CHECK[finding.severity].symbol
    lines = [f"- {symbol} **{escape(finding.title)}** ({finding.kind}): {escape(place(finding))}."]
    lines += [f"  {code(part)}" for part in (line(finding), measured(finding)) if part]
    if finding.advice:
        lines.append(f"  {escape(sentence(finding.advice))}")
    return [f"{part}  " for part in lines[:-1]] + lines[-1:]  # two blanks break a line


@renders(Run, "markdown")
def to_markdown(run: Run) -> str:
    """Write a run as a Markdown table with explanations below."""
    names = [system.name for system in run.systems]
    lines = head("scenario", *names)
    for heading, scenarios in groups(run):
        lines.append(row(f"**{heading}**", *[""] * len(names)))
        for scenario in scenarios:
            cells = [cell(scenario, answer) for answer in run.row(scenario)]
            lines.append(row(f"`{scenario.name}`", *map(escape, cells)))
    lines += ["", f"{meanings(legend(IN_SUITES, run.counts()))}. {SUITE_CAPTION}", ""]
    for note in notes(run):
        where = ", ".join(f"`{name}`" for name in note.scenarios)
        who = ", ".join(note.systems)
        lines.append(f"- {IN_SUITES[note.status].symbol} {where} - {who}: {escape(note.reason)}")
    for systems, reason in absences(run):
        first = reason.splitlines()[0]
        lines += ["", f"**{join(systems)}**: absent. {escape(first)}"]
    return "\n".join([*lines, "", f"{summary(run)}."])


@renders(LibraryResult, "markdown")
def library_to_markdown(result: LibraryResult) -> str:
    """Write a table of counts, then every finding."""
    lines = head("function", *(f"{severity}s" for severity in SEVERITIES))
    for name, report in asked_functions(result, verbose=False):
        counts = [str(report.counts()[severity] or "") for severity in SEVERITIES]
        lines.append(row(f"`{name}`", *counts))
    for name, report in asked_functions(result, verbose=False):
        lines += ["", f"`{name}`:", ""]
        for finding in report.findings:
            lines += finding_to_markdown(finding)
    texts = (without_findings(result), *not_asked(result), total(result))
    return "\n\n".join(["\n".join(lines), *map(escape, texts)])


def layers_to_markdown(rows: Iterable[LayerRow], systems: Sequence[Backend]) -> Iterator[str]:
    """Yield the lines of a Markdown table, each row as soon as it is there, then the summary."""
    names = [system.name for system in systems]
    yield from head("layer", "dtype", *names)
    seen = []
    for case, dtype, answers in rows:
        yield row(case.title, dtype, *(layer_cell(answers[name]) for name in names))
        seen.append((case, dtype, answers))
    items = [f"- {line}" for line in reasons(seen)]
    yield from ("", LAYER_CAPTION, "", *items, "", layer_summary(seen))


def code(text: str) -> str:
    """Write text as code, whatever backticks are in it."""
    text = text.replace("\n", " ")
    fence = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    space = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{space}{text}{space}{fence}" if text else ""


def row(*cells: str) -> str:
    """Write a row of a Markdown table."""
    return "| " + " | ".join(cells) + " |"


def head(*names: str) -> list[str]:
    """Write the first lines of a Markdown table."""
    return [row(*names), row(*["---"] * len(names))]


def meanings(statuses: Iterable[Status]) -> str:
    """Say what symbols mean."""
    return ", ".join(f"{status.symbol} {status.meaning}" for status in statuses)


def escape(text: str) -> str:
    """Keep Markdown from reading numbers and operators as markup, outside of `code`."""
    parts = text.replace("\n", " ").split("`")
    if len(parts) % 2 == 0:  # a backtick without a partner begins no code
        parts[-2:] = ["'".join(parts[-2:])]
    for i in range(0, len(parts), 2):
        for character in "\\|*_<":
            parts[i] = parts[i].replace(character, f"\\{character}")
    return "`".join(parts)
