"""The report of `pb.check` as JSON and as Markdown."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from typing import Any

from ..._version import package_version
from .._wording import join, sentence
from ..findings import Finding, Report
from ._check_words import (
    BESIDE,
    MEANINGS,
    SYMBOLS,
    absences,
    cell_text,
    compared,
    line,
    measured,
    place,
    summary,
    title,
)
from ._grid import modes, overview
from ._scenario_export import as_json, escape, row, system_as_json

# Raised when a field changes its meaning or goes away; new fields do not raise it.
SCHEMA = 1


def check_to_json(report: Report) -> str:
    """Write a report as JSON.

    Numbers that JSON has none for are the strings `"NaN"`, `"Infinity"` and `"-Infinity"`.

    Returns:
        An object with `pybridge` (the version), `schema`, `name`, `ok`, `summary` (counts by
        severity), `systems`, `probes`, `answers`, `findings`, `curves` and `sources`; the last
        five have the fields of `Probe`, `SystemAnswer`, `Finding`, `SlopeCurve` and `Report`.
    """
    document = {
        "pybridge": package_version(),
        "schema": SCHEMA,
        "name": report.name,
        "ok": report.ok,
        "summary": dict(report.counts()),
        "systems": [system_as_json(system) for system in report.systems],
        "probes": _fields(report.probes),
        "answers": _fields(report.answers),
        "findings": _fields(report.findings),
        "curves": _fields(report.curves),
        "sources": dict(report.sources),
    }
    return json.dumps(document, indent=2, allow_nan=False)


def check_to_markdown(report: Report) -> str:
    """Write a report as Markdown: a table of systems and modes, and the findings below."""
    table, asked = overview(report), modes(report)
    lines = [f"**{code(title(report))}**: {escape(sentence(summary(report)))}"]
    if report.systems:
        lines += ["", row("system", *asked), row(*["---"] * (len(asked) + 1))]
        for system in report.systems:
            cells = [cell_text(table.get((system.name, mode))) for mode in asked]
            lines.append(row(escape(system.name), *map(escape, cells)))
        used = {cell.status for cell in table.values()}
        legend = ", ".join(f"{SYMBOLS[s]} {m}" for s, m in MEANINGS.items() if s in used)
        lines += ["", f"{legend}. {BESIDE}" if legend else BESIDE]
    for finding in report.findings:
        lines += ["", *finding_to_markdown(finding)]
    if not report.findings:
        lines += ["", "Nothing found."]
    for names, reason in absences(report):
        lines += ["", f"**{escape(join(names))}**: absent. {escape(reason.splitlines()[0])}"]
    return "\n".join([*lines, "", escape(compared(report))])


def code(text: str) -> str:
    """Write text as code, whatever backticks are in it."""
    text = text.replace("\n", " ")
    fence = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    space = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{space}{text}{space}{fence}" if text else ""


def finding_to_markdown(finding: Finding) -> list[str]:
    """Write a finding as an item of a list, in lines."""
    symbol = SYMBOLS[finding.severity]
    lines = [f"- {symbol} **{escape(finding.title)}** ({finding.kind}): {escape(place(finding))}."]
    lines += [f"  {code(part)}" for part in (line(finding), measured(finding)) if part]
    if finding.advice:
        lines.append(f"  {escape(sentence(finding.advice))}")
    return [f"{part}  " for part in lines[:-1]] + lines[-1:]  # two blanks break a line


def _fields(rows: tuple[Any, ...]) -> list[dict[str, Any]]:
    return [as_json(_shallow(part)) for part in rows]


def _shallow(part: Any) -> dict[str, Any]:
    """Take the fields of a dataclass without copying what is in them; a location's as well."""
    values = dict(vars(part))
    location = values.get("location")
    return {**values, "location": asdict(location)} if location is not None else values
