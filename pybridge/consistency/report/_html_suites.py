"""Suites as one HTML page that needs no other file."""

from __future__ import annotations

from html import escape

from ..._backends import Backend
from .._rendering import renders
from .._wording import count, numbers, sentence
from ..suites import STATUSES, Answer, LibraryResult, ModeAnswer, Run, Scenario
from ._check_texts import summary as check_summary
from ._html_check import check_to_html
from ._html_page import (
    heat_cell_html,
    heat_map_html,
    legend_html,
    mark_html,
    page,
    prose,
    reasons_html,
)
from ._library_texts import asked_functions, not_asked, total
from ._scenario_answers import absences, cell, describe, expected, groups, link, summary, surprises
from ._vocabulary import IN_SUITES, legend

_TITLE = "What AD systems answer"
_CELL_WIDTH = 16


@renders(Run, "html")
def to_html(run: Run) -> str:
    """Write a run as a page: overview, heat map, and every scenario in full.

    Light or dark as the reader's system is; nothing is loaded from elsewhere.
    """
    body = "\n".join(
        [
            f"<h1>{_TITLE}</h1>",
            f"<p>{_introduction(run)}</p>",
            f'<p class="total">{escape(sentence(summary(run)))}</p>',
            _systems(run),
            *reasons_html(absences(run)),
            *(f"<p>Better than documented: {escape(text)}</p>" for text in surprises(run)),
            "<h2>All answers</h2>",
            _legend(run),
            _heat_map(run),
            *(_group(run, heading, scenarios) for heading, scenarios in groups(run)),
        ]
    )
    return page(_TITLE, body)


def _introduction(run: Run) -> str:
    return (
        f"{count(len(run.scenarios), 'hard case')}, each written the same way in Python "
        "and in Julia, asked of "
        f"{count(len(run.systems), 'automatic-differentiation system')}. "
        "Every case has an answer that is known from mathematics. Where a system answers "
        "something else, the page says what and why."
    )


def _systems(run: Run) -> str:
    return f'<div class="systems">\n{"".join(_system(run, s) for s in run.systems)}</div>'


def _system(run: Run, system: Backend) -> str:
    counts = run.counts(system.name)
    spans = "".join(
        f'<span class="{status}" style="flex: {counts[status]}"></span>'
        for status in STATUSES
        if counts[status]
    )
    what = f"{system.package} {system.version}" if system.available else "absent"
    mode = {"both": "both modes"}.get(system.mode, f"{system.mode} mode")
    right = f"{counts['right']} of {counts.total()} right"
    return (
        f'<div class="system"><strong>{system.name}</strong>'
        f"<small>{escape(what)}, {mode}</small>"
        f'<div class="bar" role="img" aria-label="{right}">{spans}</div>'
        f"<small>{right if system.available else 'no answers'}</small></div>\n"
    )


def _legend(run: Run) -> str:
    return (
        f'{legend_html(legend(IN_SUITES, run.counts()))}\n<p class="dim">Beside the symbol: the '
        "derivative that the system gives, or <code>f=</code> the value.</p>"
    )


def _heat_map(run: Run) -> str:
    def row(scenario: Scenario) -> tuple[str, str]:
        cells = "".join(_cell(scenario, answer) for answer in run.row(scenario))
        return f'<a href="#{scenario.name}">{scenario.name}</a>', cells

    rows = ((escape(heading), map(row, scenarios)) for heading, scenarios in groups(run))
    return heat_map_html("heat", [system.name for system in run.systems], rows)


def _cell(scenario: Scenario, answer: Answer) -> str:
    told = [
        " ".join(filter(None, (f"{mode.mode}:", describe(scenario, mode), mode.reason)))
        for mode in answer.modes
    ]
    text = escape(cell(scenario, answer, _CELL_WIDTH))
    return heat_cell_html(answer.status, text, [IN_SUITES[answer.status].meaning, *told])


def _group(run: Run, heading: str, scenarios: list[Scenario]) -> str:
    cards = "\n".join(_card(run, scenario) for scenario in scenarios)
    return f"<h2>{escape(heading)}</h2>\n{cards}"


def _card(run: Run, scenario: Scenario) -> str:
    rows = "".join(_answer_rows(scenario, answer) for answer in run.row(scenario))
    plain = ""
    if numbers(scenario.plain_value) != numbers(scenario.value):
        plain = f", and {numbers(scenario.plain_value)} for a plain call"
    return f"""<section class="card" id="{scenario.name}">
<header><h3>{prose(scenario.title)}</h3> <code class="dim">{scenario.name}</code>
{_thread(scenario)}</header>
<p>{prose(scenario.shows)}</p>
<div class="sources">
<div><small>Python</small><pre>{escape(scenario.python)}</pre></div>
<div><small>Julia</small><pre>{escape(scenario.julia)}</pre></div>
</div>
<p>At <code>{escape(_arguments(scenario))}</code> the value is
<code>{numbers(scenario.value)}</code>{plain}; the derivative is
<code>{escape(expected(scenario))}</code>.</p>
<table class="answers"><tbody>
{rows}</tbody></table>
</section>"""


def _thread(scenario: Scenario) -> str:
    parts = []
    for thread in filter(None, scenario.thread.split(", ")):
        address = link(thread)
        text = escape(thread)
        parts.append(f'<a href="{address}">{text}</a>' if address else text)
    return f"<small>{', '.join(parts)}</small>" if parts else ""


def _arguments(scenario: Scenario) -> str:
    return ", ".join(numbers(arg) for arg in scenario.args)


def _answer_rows(scenario: Scenario, answer: Answer) -> str:
    if not answer.modes:
        mark = mark_html(IN_SUITES["absent"])
        return f"<tr><th>{mark} {answer.system}</th><td>absent</td><td></td></tr>\n"
    modes = answer.modes
    same = len(modes) > 1 and len({_said(scenario, mode) for mode in modes}) == 1
    rows = []
    for mode in modes[:1] if same else modes:
        name = answer.system if same or len(modes) == 1 else f"{answer.system}, {mode.mode}"
        mark = mark_html(IN_SUITES[mode.status])
        rows.append(
            f'<tr><th>{mark} {name}</th><td class="answer">'
            f"{escape(describe(scenario, mode))}</td>"
            f"<td>{prose(sentence(mode.reason))}</td></tr>\n"
        )
    return "".join(rows)


def _said(scenario: Scenario, mode: ModeAnswer) -> tuple[str, ...]:
    return mode.status, describe(scenario, mode), mode.reason


@renders(LibraryResult, "html")
def library_to_html(result: LibraryResult) -> str:
    """Write one page with the page of each function inside."""
    frames = [
        f"<details><summary>{escape(name)}: {check_summary(report)}</summary>"
        f'<iframe sandbox srcdoc="{escape(check_to_html(report), quote=True)}" '
        'style="width: 100%; height: 80vh; border: 0"></iframe></details>'
        for name, report in asked_functions(result, verbose=True)
    ]
    texts = (*not_asked(result), total(result))
    body = [f"<h1>{escape(total(result))}</h1>", *frames]
    body += [f"<p>{escape(text)}</p>" for text in texts]
    return page("What was found", "\n".join(body))
