"""The report as JSON and as Markdown."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np

from .._version import package_version
from ._runner import Answer, Run
from ._scenarios import Scenario
from ._words import BESIDE, MEANINGS, SYMBOLS, absences, cell, groups, join, notes, summary


def to_json(run: Run) -> str:
    """Write a run as JSON.

    Numbers that JSON has none for are the strings `"NaN"`, `"Infinity"` and `"-Infinity"`.

    Returns:
        An object with `pybridge` (the version), `ok`, `summary` (counts by status),
        `systems` and `scenarios`; each scenario has `expected` and `answers` by system.
    """
    document = {
        "pybridge": package_version(),
        "ok": run.ok,
        "summary": dict(run.counts()),
        "systems": [
            {
                "name": system.name,
                "language": system.language,
                "mode": system.mode,
                "package": system.package,
                "version": system.version,
                "available": system.available,
                "reason": system.reason,
                "summary": dict(run.counts(system.name)),
            }
            for system in run.systems
        ],
        "scenarios": [_scenario(run, scenario) for scenario in run.scenarios],
    }
    return json.dumps(document, indent=2, allow_nan=False)


def to_markdown(run: Run) -> str:
    """Write a run as a Markdown table with explanations below."""
    names = [system.name for system in run.systems]
    lines = [_row("scenario", *names), _row(*["---"] * (len(names) + 1))]
    for heading, scenarios in groups(run):
        lines.append(_row(f"**{heading}**", *[""] * len(names)))
        for scenario in scenarios:
            cells = [cell(scenario, answer) for answer in run.row(scenario)]
            lines.append(_row(f"`{scenario.name}`", *map(_escape, cells)))
    used = [status for status in MEANINGS if run.counts()[status]]
    legend = ", ".join(f"{SYMBOLS[status]} {MEANINGS[status]}" for status in used)
    lines += ["", f"{legend}. {BESIDE}"]
    lines.append("")
    for note in notes(run):
        where = ", ".join(f"`{name}`" for name in note.scenarios)
        who = ", ".join(note.systems)
        lines.append(f"- {SYMBOLS[note.status]} {where} - {who}: {_escape(note.reason)}")
    for systems, reason in absences(run):
        first = reason.splitlines()[0]
        lines += ["", f"**{join(systems)}**: absent. {_escape(first)}"]
    return "\n".join([*lines, "", f"{summary(run)}."])


def _scenario(run: Run, scenario: Scenario) -> dict[str, Any]:
    return {
        "name": scenario.name,
        "title": scenario.title,
        "group": scenario.group,
        "shows": scenario.shows,
        "thread": scenario.thread,
        "expected": {
            "plain_value": _numbers(scenario.plain_value),
            "value": _numbers(scenario.value),
            "derivative": _numbers(scenario.derivative),
            "subdifferential": _numbers(scenario.subdifferential),
        },
        "answers": {answer.system: _answer(answer) for answer in run.row(scenario)},
    }


def _answer(answer: Answer) -> dict[str, Any]:
    return {
        "status": answer.status,
        "plain_value": _numbers(answer.plain_value),
        "seconds": round(answer.seconds, 3),
        "modes": {
            mode.mode: {
                "status": mode.status,
                "value": _numbers(mode.value),
                "derivative": _numbers(mode.derivative),
                "error": mode.error,
                "message": mode.message,
                "reason": mode.reason,
                "surprise": mode.surprise,
            }
            for mode in answer.modes
        },
    }


def _numbers(value: Any) -> Any:
    if value is None:
        return None
    if isinstance(value, tuple | list):
        return [_numbers(part) for part in value]
    if isinstance(value, np.ndarray):
        return _numbers(value.tolist())
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _row(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |"


def _escape(text: str) -> str:
    """Keep Markdown from reading numbers and operators as markup, outside of `code`."""
    parts = text.replace("\n", " ").split("`")
    for i in range(0, len(parts), 2):
        for character in "\\|*_<":
            parts[i] = parts[i].replace(character, f"\\{character}")
    return "`".join(parts)
