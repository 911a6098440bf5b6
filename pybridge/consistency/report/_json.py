"""Reports as JSON.

Numbers that JSON has none for are the strings `"NaN"`, `"Infinity"` and `"-Infinity"`.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from ..._version import package_version
from .._rendering import renders
from ..findings import Report
from ..suites import Answer, LibraryResult, Run, Scenario
from ._numbers import as_json

# Raised when a field changes its meaning or goes away; new fields do not raise it.
SCHEMA = 1

# What a row of the table of AD systems says of itself.
_SYSTEM = ("name", "language", "mode", "package", "version", "available", "reason")
# What an answer in one mode says.
_MODE = ("status", "value", "derivative", "error", "message", "reason", "surprise")


@renders(Report, "json")
def check_to_json(report: Report) -> str:
    """Write a report as `Report.to_json` describes it."""
    return _text(_check_document(report))


def _check_document(report: Report) -> dict[str, Any]:
    return {
        "pybridge": package_version(),
        "schema": SCHEMA,
        "name": report.name,
        "ok": report.ok,
        "summary": dict(report.counts()),
        "systems": [_some(system, *_SYSTEM) for system in report.systems],
        "probes": _fields(report.probes),
        "answers": _fields(report.answers),
        "findings": _fields(report.findings),
        "curves": _fields(report.curves),
        "sources": dict(report.sources),
    }


@renders(Run, "json")
def run_to_json(run: Run) -> str:
    """Write a run as JSON.

    Returns:
        An object with `pybridge` (the version), `ok`, `summary` (counts by status),
        `systems` and `scenarios`; each scenario has `expected` and `answers` by system.
    """
    document = {
        "pybridge": package_version(),
        "ok": run.ok,
        "summary": dict(run.counts()),
        "systems": [
            {**_some(system, *_SYSTEM), "summary": dict(run.counts(system.name))}
            for system in run.systems
        ],
        "scenarios": [_scenario(run, scenario) for scenario in run.scenarios],
    }
    return _text(document)


@renders(LibraryResult, "json")
def library_to_json(result: LibraryResult) -> str:
    """Write all reports, by function, and what was not asked."""
    reports = {name: _check_document(report) for name, report in result.reports.items()}
    return _text({"reports": reports, "refused": result.refused})


def _text(document: dict[str, Any]) -> str:
    return json.dumps(document, indent=2, allow_nan=False)


def _fields(rows: tuple[Any, ...]) -> list[dict[str, Any]]:
    return [as_json(_shallow(part)) for part in rows]


def _shallow(part: Any) -> dict[str, Any]:
    """Take the fields of a dataclass without copying what is in them; a location's as well."""
    values = dict(vars(part))
    location = values.get("location")
    return {**values, "location": asdict(location)} if location is not None else values


def _scenario(run: Run, scenario: Scenario) -> dict[str, Any]:
    return {
        **_some(scenario, "name", "title", "group", "shows", "thread"),
        "expected": _some(scenario, "plain_value", "value", "derivative", "subdifferential"),
        "answers": {answer.system: _answer(answer) for answer in run.row(scenario)},
    }


def _answer(answer: Answer) -> dict[str, Any]:
    return {
        **_some(answer, "status", "plain_value"),
        "seconds": round(answer.seconds, 3),
        "modes": {mode.mode: _some(mode, *_MODE) for mode in answer.modes},
    }


def _some(part: Any, *names: str) -> dict[str, Any]:
    """Write some fields of a part."""
    return {name: as_json(getattr(part, name)) for name in names}
