"""The report as JSON and as Markdown."""

from __future__ import annotations

import json
import math
from typing import Any

from .._backends import Backend
from .._version import package_version
from ._runner import Answer, Run
from ._scenarios import Scenario
from ._words import (
    BESIDE,
    MEANINGS,
    SYMBOLS,
    absences,
    as_array,
    cell,
    groups,
    join,
    notes,
    summary,
)


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
            {**system_as_json(system), "summary": dict(run.counts(system.name))}
            for system in run.systems
        ],
        "scenarios": [_scenario(run, scenario) for scenario in run.scenarios],
    }
    return json.dumps(document, indent=2, allow_nan=False)


_SYSTEM = ("name", "language", "mode", "package", "version", "available", "reason")


def system_as_json(system: Backend) -> dict[str, Any]:
    """Write a row of the table of AD systems as JSON has it."""
    return {name: getattr(system, name) for name in _SYSTEM}


def as_json(value: Any) -> Any:
    """Write a value as JSON has it; what JSON has nothing for becomes a string.

    Arrays and tuples become lists, complex numbers objects with `real` and `imag`; NaN is
    `"NaN"`, any other object what `repr` says.
    """
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, dict):
        return {str(key): as_json(part) for key, part in value.items()}
    if isinstance(value, tuple | list):
        return [as_json(part) for part in value]
    if isinstance(value, complex):
        return {"real": as_json(value.real), "imag": as_json(value.imag)}
    if not isinstance(value, float):
        array = as_array(value)
        return repr(value) if array is None else as_json(array.tolist())
    if math.isfinite(value):
        return float(value)
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def to_markdown(run: Run) -> str:
    """Write a run as a Markdown table with explanations below."""
    names = [system.name for system in run.systems]
    lines = [row("scenario", *names), row(*["---"] * (len(names) + 1))]
    for heading, scenarios in groups(run):
        lines.append(row(f"**{heading}**", *[""] * len(names)))
        for scenario in scenarios:
            cells = [cell(scenario, answer) for answer in run.row(scenario)]
            lines.append(row(f"`{scenario.name}`", *map(escape, cells)))
    used = [status for status in MEANINGS if run.counts()[status]]
    legend = ", ".join(f"{SYMBOLS[status]} {MEANINGS[status]}" for status in used)
    lines += ["", f"{legend}. {BESIDE}"]
    lines.append("")
    for note in notes(run):
        where = ", ".join(f"`{name}`" for name in note.scenarios)
        who = ", ".join(note.systems)
        lines.append(f"- {SYMBOLS[note.status]} {where} - {who}: {escape(note.reason)}")
    for systems, reason in absences(run):
        first = reason.splitlines()[0]
        lines += ["", f"**{join(systems)}**: absent. {escape(first)}"]
    return "\n".join([*lines, "", f"{summary(run)}."])


def _scenario(run: Run, scenario: Scenario) -> dict[str, Any]:
    return {
        "name": scenario.name,
        "title": scenario.title,
        "group": scenario.group,
        "shows": scenario.shows,
        "thread": scenario.thread,
        "expected": {
            "plain_value": as_json(scenario.plain_value),
            "value": as_json(scenario.value),
            "derivative": as_json(scenario.derivative),
            "subdifferential": as_json(scenario.subdifferential),
        },
        "answers": {answer.system: _answer(answer) for answer in run.row(scenario)},
    }


def _answer(answer: Answer) -> dict[str, Any]:
    return {
        "status": answer.status,
        "plain_value": as_json(answer.plain_value),
        "seconds": round(answer.seconds, 3),
        "modes": {
            mode.mode: {
                "status": mode.status,
                "value": as_json(mode.value),
                "derivative": as_json(mode.derivative),
                "error": mode.error,
                "message": mode.message,
                "reason": mode.reason,
                "surprise": mode.surprise,
            }
            for mode in answer.modes
        },
    }


def row(*cells: str) -> str:
    """Write a row of a Markdown table."""
    return "| " + " | ".join(cells) + " |"


def escape(text: str) -> str:
    """Keep Markdown from reading numbers and operators as markup, outside of `code`."""
    parts = text.replace("\n", " ").split("`")
    if len(parts) % 2 == 0:  # a backtick without a partner begins no code
        parts[-2:] = ["'".join(parts[-2:])]
    for i in range(0, len(parts), 2):
        for character in "\\|*_<":
            parts[i] = parts[i].replace(character, f"\\{character}")
    return "`".join(parts)
