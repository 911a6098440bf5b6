"""What was found in a library, in words."""

from __future__ import annotations

from .._wording import count
from ..findings import SEVERITIES, Report
from ..suites import LibraryResult
from ._vocabulary import IN_CHECK


def asked_functions(result: LibraryResult, verbose: bool) -> list[tuple[str, Report]]:
    return [(name, r) for name, r in result.reports.items() if verbose or r.findings]


def without_findings(result: LibraryResult) -> str:
    names = [name for name, report in result.reports.items() if not report.findings]
    return f"{IN_CHECK['right'].symbol} Nothing found in: {', '.join(names) or 'none'}."


def not_asked(result: LibraryResult) -> list[str]:
    return [f"Not asked: {name}: {reason}." for name, reason in result.refused.items()]


def total(result: LibraryResult) -> str:
    found = [finding for report in result.reports.values() for finding in report.findings]
    parts = [count(sum(f.severity == severity for f in found), severity) for severity in SEVERITIES]
    return f"{count(len(result.reports), 'function')}: {', '.join(parts)}."
