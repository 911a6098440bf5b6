"""What was found in a library, on the terminal, as JSON, Markdown and HTML."""

from __future__ import annotations

import json
from html import escape as escape_html
from typing import TYPE_CHECKING

from .._wording import count
from ..findings import SEVERITIES, Report
from ..suites import LibraryResult
from ._check_export import check_to_json, finding_to_markdown
from ._check_html import check_to_html
from ._check_terminal import finding_parts
from ._check_words import SYMBOLS, summary
from ._scenario_export import escape, row

if TYPE_CHECKING:
    from rich.console import Console


def print_library(result: LibraryResult, console: Console, *, verbose: bool = False) -> None:
    """Print the functions with findings, then those without, then those not asked."""
    for name, report in _found(result, verbose):
        console.print(f"[bold]{name}[/]  [dim]{summary(report)}[/]", highlight=False)
        for finding in report.findings:
            console.print(*finding_parts(finding), sep="\n", highlight=False)
    console.print(_without(result), *_not_asked(result), _total(result), sep="\n", markup=False)


def library_to_json(result: LibraryResult) -> str:
    """Write all reports, by function, and what was not asked."""
    reports = {name: json.loads(check_to_json(r)) for name, r in result.reports.items()}
    return json.dumps({"reports": reports, "refused": result.refused}, indent=2)


def library_to_markdown(result: LibraryResult) -> str:
    """Write a table of counts, then every finding."""
    lines = [row("function", *(f"{severity}s" for severity in SEVERITIES))]
    lines.append(row(*["---"] * (1 + len(SEVERITIES))))
    for name, report in _found(result, verbose=False):
        counts = [str(report.counts()[severity] or "") for severity in SEVERITIES]
        lines.append(row(f"`{name}`", *counts))
    for name, report in _found(result, verbose=False):
        lines += ["", f"`{name}`:", ""]
        for finding in report.findings:
            lines += finding_to_markdown(finding)
    texts = (_without(result), *_not_asked(result), _total(result))
    return "\n\n".join(["\n".join(lines), *map(escape, texts)])


def library_to_html(result: LibraryResult) -> str:
    """Write one page with the page of each function inside."""
    frames = [
        f"<details><summary>{escape_html(name)}: {summary(report)}</summary>"
        f'<iframe sandbox srcdoc="{escape_html(check_to_html(report), quote=True)}" '
        'style="width: 100%; height: 80vh; border: 0"></iframe></details>'
        for name, report in _found(result, verbose=True)
    ]
    from ..report import page

    texts = (*_not_asked(result), _total(result))
    body = [f"<h1>{escape_html(_total(result))}</h1>", *frames]
    body += [f"<p>{escape_html(text)}</p>" for text in texts]
    return page("What was found", "\n".join(body))


def _found(result: LibraryResult, verbose: bool) -> list[tuple[str, Report]]:
    return [(name, r) for name, r in result.reports.items() if verbose or r.findings]


def _without(result: LibraryResult) -> str:
    names = [name for name, report in result.reports.items() if not report.findings]
    return f"{SYMBOLS['right']} Nothing found in: {', '.join(names) or 'none'}."


def _not_asked(result: LibraryResult) -> list[str]:
    return [f"Not asked: {name}: {reason}." for name, reason in result.refused.items()]


def _total(result: LibraryResult) -> str:
    found = [finding for report in result.reports.values() for finding in report.findings]
    parts = [count(sum(f.severity == severity for f in found), severity) for severity in SEVERITIES]
    return f"{count(len(result.reports), 'function')}: {', '.join(parts)}."
