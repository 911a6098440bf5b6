"""Reports as HTML pages that need no other file, by the templates beside this module.

Light or dark as the reader's system is; nothing is loaded from elsewhere.
"""

from __future__ import annotations

import functools
import math
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._rendering import Rendered, render, renders
from .._wording import count, join, numbers, sentence
from ..findings import KINDS, Finding, Report, SlopeCurve
from ..suites import STATUSES, Answer, LibraryResult, Run, Scenario
from . import _check_texts, _suite_texts
from ._grid import case_grid, scenario_grid
from ._kinks import Plot
from ._numbers import brief
from ._page_file import writable, write
from ._vocabulary import IN_CHECK, IN_SUITES

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup


@functools.cache
def _templates() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    templates = Environment(
        loader=PackageLoader(__package__ or ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    filters = (brief, count, numbers, prose, sentence)
    templates.filters |= {function.__name__: function for function in filters}
    templates.filters |= {"listed": join, "drawing": curve_html}
    templates.tests["finite"] = math.isfinite
    templates.globals |= {"IN_CHECK": IN_CHECK, "IN_SUITES": IN_SUITES}
    return templates


def prose(text: str) -> Markup:
    """Escape text, with code in backticks as code."""
    from markupsafe import Markup, escape

    # A plain string: Markup would escape what is put in.
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))


def _page(template: str, **values: Any) -> str:
    return _templates().get_template(template).render(**values)


def to_html(data: Rendered) -> str:
    """Write what was found as the text of a page."""
    return render(data, "html")


@renders(Report, "html")
def check_to_html(report: Report) -> str:
    """Write a report: heat map, findings with curves, points and programs."""
    drawn = [_curve_of(report, finding) for finding in report.findings]
    return _page(
        "check.html.j2",
        report=report,
        texts=_check_texts,
        grid=case_grid(report),
        findings=list(zip(report.findings, drawn, strict=True)),
        rest=[curve for curve in report.curves if not any(curve is d for d in drawn)],
        kinds=KINDS,
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


def curve_html(curve: SlopeCurve) -> Markup:
    """Draw a curve as inline SVG, with its numbers as a list below."""
    from markupsafe import Markup

    return Markup(_page("kink.html.j2", plot=Plot(curve)))


@renders(Report, "notebook")
def notebook(report: Report) -> str:
    """Write the page for a notebook: in a frame, so that its style stays inside."""
    name = _check_texts.title(report)
    return _page("notebook.html.j2", title=name, page=check_to_html(report))


@renders(Run, "html")
def run_to_html(run: Run) -> str:
    """Write a run: overview, heat map, and every scenario in full."""
    return _page(
        "scenarios.html.j2",
        run=run,
        texts=_suite_texts,
        grid=scenario_grid(run),
        answers=_answer_rows,
        statuses=STATUSES,
    )


def _answer_rows(scenario: Scenario, answer: Answer) -> list[tuple[str, str, str, str]]:
    """List status, name, numbers and reason: of all modes at once where they say the same."""
    said = [
        (mode.status, _suite_texts.describe(scenario, mode), mode.reason) for mode in answer.modes
    ]
    if len(set(said)) == 1:
        status, told, reason = said[0]
        return [(status, answer.system, told, reason)]
    return [
        (status, f"{answer.system}, {mode.mode}", told, reason)
        for mode, (status, told, reason) in zip(answer.modes, said, strict=True)
    ]


@renders(LibraryResult, "html")
def library_to_html(result: LibraryResult) -> str:
    """Write one page with the page of each function inside."""
    frames = [
        (name, _check_texts.summary(report), check_to_html(report))
        for name, report in _suite_texts.asked_functions(result, verbose=True)
    ]
    return _page("library.html.j2", result=result, texts=_suite_texts, frames=frames)


@renders(Report, "page")
@renders(Run, "page")
@renders(LibraryResult, "page")
def write_page(data: Rendered, path: str | os.PathLike[str]) -> Path:
    """Write a page to a file, which is replaced as a whole or not at all."""
    found = writable(path, f"{type(data).__name__}.to_html")
    write(found, to_html(data))
    return found
