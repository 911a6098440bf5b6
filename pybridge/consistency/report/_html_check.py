"""The report of `pb.check` as one HTML page that needs no other file."""

from __future__ import annotations

import itertools
import math
import os
from html import escape
from pathlib import Path

from .._rendering import renders
from .._wording import sentence
from ..findings import KINDS, Finding, Report, SlopeCurve
from ._check_grid import Case, Cell, cases, cell
from ._check_texts import absences, cell_text, compared, line, place, summary, title
from ._html_kinks import curve_html
from ._html_page import (
    heat_cell_html,
    heat_map_html,
    legend_html,
    mark_html,
    page,
    prose,
    reasons_html,
    writable,
    write,
)
from ._numbers import brief
from ._vocabulary import CHECK_CAPTION, IN_CHECK, legend

# From these deviations on a cell is coloured more strongly.
_HEAT = (1e-9, 1e-6, 1e-3, 1e-1)

# Programs with more lines than this have to be opened.
_LONG = 40


@renders(Report, "html")
def check_to_html(report: Report) -> str:
    """Write a report as a page: heat map, findings with curves, points and programs.

    Light or dark as the reader's system is; nothing is loaded from elsewhere.
    """
    heading = f"Check of {title(report)}"
    drawn = [_curve_of(report, finding) for finding in report.findings]
    rest = [curve for curve in report.curves if not any(curve is d for d in drawn)]
    body = "\n".join(
        [
            f"<h1>Check of <code>{escape(title(report))}</code></h1>",
            f'<p class="total">{_verdict(report)}</p>',
            f"<p>{escape(compared(report))}</p>",
            *reasons_html(absences(report)),
            *_heat_map(report),
            *(["<h2>Findings</h2>"] if report.findings else []),
            *(_finding(*row) for row in zip(itertools.count(), report.findings, drawn)),
            *(["<h2>Derivatives at kinks</h2>"] if rest else []),
            *(f'<section class="card">{curve_html(curve)}</section>' for curve in rest),
            *_programs(report),
            *_points(report),
        ]
    )
    return page(heading, body, ("report.css", "check.css"))


@renders(Report, "notebook")
def notebook(report: Report) -> str:
    """Write the page for a notebook: in a frame, so that its style stays inside."""
    inside = escape(check_to_html(report), quote=True)
    return (
        f'<iframe srcdoc="{inside}" sandbox="" title="{escape(title(report))}" '
        'style="width: 100%; height: 36rem; border: 0"></iframe>'
    )


def _verdict(report: Report) -> str:
    if not report.findings:
        return "Nothing found."
    return escape(sentence(summary(report)))


def _heat_map(report: Report) -> list[str]:
    rows = cases(report)
    if not rows or not report.systems:
        return []
    cells = {case: [cell(report, case, system) for system in report.systems] for case in rows}
    columns = [
        f"{escape(system.name)} <small>{escape(system.version or 'absent')}</small>"
        for system in report.systems
    ]

    def row(case: Case) -> tuple[str, str]:
        return _label(case), "".join(_cell(report, found) for found in cells[case])

    by_probe = itertools.groupby(rows, lambda case: case.probe)
    groups = ((_at(probe), map(row, group)) for probe, group in by_probe)
    used = {found.status for found in itertools.chain(*cells.values()) if found is not None}
    return [
        "<h2>Disagreement</h2>",
        legend_html(legend(IN_CHECK, used)),
        f'<p class="dim">{CHECK_CAPTION} The stronger the colour, the larger the difference.</p>',
        heat_map_html("heat check", columns, groups),
    ]


def _at(probe: str) -> str:
    return "At the given point" if probe == "given" else f"At: {escape(probe)}"


def _label(case: Case) -> str:
    argument = f" <code>{escape(case.argument)}</code>" if case.argument else ""
    return f"{'second order' if case.mode == 'second' else case.mode}{argument}"


def _cell(report: Report, found: Cell | None) -> str:
    if found is None:
        return '<td class="none"></td>'
    told = [IN_CHECK[found.status].meaning, found.error or ""]
    told += [report.findings[number].title for number in found.findings]
    text = escape(cell_text(found))
    if found.findings:
        text = f'<a href="#finding-{found.findings[0] + 1}">{text}</a>'
    return heat_cell_html(f"{IN_CHECK[found.status].look} heat-{_heat(found)}", text, told)


def _heat(found: Cell) -> int:
    """Choose how strong the colour is, from 0 to 4; an error is always strong."""
    if found.status == "error" or (found.deviation is not None and math.isnan(found.deviation)):
        return len(_HEAT)
    if found.deviation is None:
        return 2
    return sum(found.deviation >= bound for bound in _HEAT)


def _finding(number: int, finding: Finding, curve: SlopeCurve | None) -> str:
    parts = [
        f"<header><h3>{mark_html(IN_CHECK[finding.severity])} {prose(finding.title)}</h3> "
        f'<small title="{escape(KINDS.get(finding.kind, ""))}">{escape(finding.severity)}, '
        f"{escape(finding.kind)}</small></header>",
        f"<p>{escape(place(finding))}</p>",
    ]
    if line(finding):
        parts.append(f"<pre>{escape(line(finding))}</pre>")
    if finding.numbers:
        parts.append(_numbers(finding))
    if curve is not None:
        parts.append(curve_html(curve))
    if finding.advice:
        parts.append(f'<p class="advice">{prose(sentence(finding.advice))}</p>')
    body = "\n".join(parts)
    return f'<section class="card" id="finding-{number + 1}">\n{body}\n</section>'


def _numbers(finding: Finding) -> str:
    names = "".join(f"<th>{escape(str(name))}</th>" for name in finding.numbers)
    values = "".join(f"<td>{escape(brief(value))}</td>" for value in finding.numbers.values())
    return (
        f'<div class="numbers"><table><thead><tr>{names}</tr></thead>'
        f"<tbody><tr>{values}</tr></tbody></table></div>"
    )


def _curve_of(report: Report, finding: Finding) -> SlopeCurve | None:
    """Find the drawing that belongs to a finding."""
    if finding.kind not in ("kink", "special-case"):
        return None
    for curve in report.curves:
        place = curve.probe, curve.argument, curve.element
        if place == (finding.probe, finding.argument, finding.element or ()):
            return curve
    return None


def _programs(report: Report) -> list[str]:
    if not report.sources:
        return []
    blocks = "\n".join(
        f"<details{_open(source)}><summary>{escape(name)}</summary><pre>{escape(source)}</pre>"
        "</details>"
        for name, source in report.sources.items()
    )
    return ["<h2>The program as each language sees it</h2>", blocks]


def _open(source: str) -> str:
    return " open" if source.count("\n") < _LONG else ""


def _points(report: Report) -> list[str]:
    if not report.probes:
        return []
    rows = "".join(
        f"<tr><th>{escape(probe.name)}</th>"
        f'<td class="answer">{escape(", ".join(map(brief, probe.args)))}</td></tr>\n'
        for probe in report.probes
    )
    return ["<h2>Points</h2>", f'<table class="answers points"><tbody>\n{rows}</tbody></table>']


@renders(Report, "page")
def write_page(report: Report, path: str | os.PathLike[str]) -> Path:
    """Write a report to a file, which is replaced as a whole or not at all."""
    found = writable(path, "Report.to_html")
    write(found, check_to_html(report))
    return found
