"""The table of every report: AD systems against what they were asked, in groups of rows."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..._backends import Backend
from ..findings import Report
from ..suites import Answer, LayerAnswer, LayerRow, Run, Scenario
from ._check_cells import Verdict, cases, cell, modes, overview
from ._numbers import size
from ._suite_texts import describe, groups, special
from ._vocabulary import (
    CHECK_CAPTION,
    IN_CHECK,
    IN_SUITES,
    LAYER_CAPTION,
    SUITE_CAPTION,
    Status,
    legend,
)

# From these deviations on a cell of `pb.check` is coloured more strongly.
_HEAT = (1e-9, 1e-6, 1e-3, 1e-1)


@dataclass(frozen=True)
class Cell:
    """An answer as a table has it.

    Attributes:
        status: its symbol and colour.
        detail: what stands beside the symbol.
        hints: what is said of it where there is room, for example beside the pointer.
        target: the address of more, on the same page.
        heat: how strong the colour is, from 0 to 4; None where all are alike.
    """

    status: Status
    detail: str = ""
    hints: tuple[str, ...] = ()
    target: str = ""
    heat: int | None = None

    def text(self, room: int | None = None) -> str:
        """Write the symbol, and the detail if it has at most so many characters."""
        fits = room is None or len(self.detail) <= room
        return f"{self.status.symbol} {self.detail if fits else ''}".rstrip()


@dataclass(frozen=True)
class Row:
    """A line of a table.

    Attributes:
        labels: what it is about, one text for each of the grid's `heads`.
        cells: a cell for each column; None where nothing was asked.
        argument: which argument it is about; may be empty.
        note: a remark, which a narrow table leaves out.
        target: the address of more about it, on the same page.
    """

    labels: tuple[str, ...]
    cells: Sequence[Cell | None]
    argument: str = ""
    note: str = ""
    target: str = ""


@dataclass(frozen=True)
class Grid:
    """A table.

    Attributes:
        heads: the heads of the labels.
        columns: the heads of the cells, each with a remark such as the version.
        groups: headings, each with its rows; an empty heading is none.
        caption: what stands in the cells, in sentences.
        legend: the statuses that occur.
        notes: the head of the remarks on rows; None where there are none.
    """

    heads: tuple[str, ...]
    columns: Sequence[tuple[str, str]]
    groups: Iterable[tuple[str, Iterable[Row]]]
    caption: str
    legend: Sequence[Status] = ()
    notes: str | None = None


def overview_grid(report: Report) -> Grid:
    """Make the table of systems and modes, the worst of all points in each cell."""
    asked, verdicts = modes(report), overview(report)
    rows = [
        Row(
            (system.name,),
            [_check_cell(report, verdicts.get((system.name, mode))) for mode in asked],
            note=_version(system),
        )
        for system in report.systems
    ]
    used = legend(IN_CHECK, {verdict.status for verdict in verdicts.values()})
    columns = [(mode, "") for mode in asked]
    return Grid(("system",), columns, [("", rows)], CHECK_CAPTION, used, "version")


def case_grid(report: Report) -> Grid:
    """Make the table of points, modes and arguments against systems."""
    verdicts = {
        case: [cell(report, case, system) for system in report.systems] for case in cases(report)
    }
    groups = [
        (
            probe.name,
            [
                Row((case.mode,), [_check_cell(report, v) for v in row], case.argument)
                for case, row in verdicts.items()
                if case.probe == probe.name
            ],
        )
        for probe in report.probes
    ]
    used = {verdict.status for verdict in itertools.chain(*verdicts.values()) if verdict}
    return Grid(("case",), _heads(report.systems), groups, CHECK_CAPTION, legend(IN_CHECK, used))


def scenario_grid(run: Run) -> Grid:
    """Make the table of scenarios against systems."""
    rows = [
        (
            heading,
            [
                Row(
                    (scenario.name,),
                    [_scenario_cell(scenario, answer) for answer in run.row(scenario)],
                    note=scenario.title,
                    target=f"#{scenario.name}",
                )
                for scenario in scenarios
            ],
        )
        for heading, scenarios in groups(run)
    ]
    used = legend(IN_SUITES, run.counts())
    return Grid(("scenario",), _heads(run.systems), rows, SUITE_CAPTION, used, "")


def layer_grid(rows: Iterable[LayerRow], systems: Sequence[Backend]) -> Grid:
    """Make the table of layers against systems; a row is taken when it is wanted."""
    lines = (
        Row((case.title, dtype), [_layer_cell(answers[system.name]) for system in systems])
        for case, dtype, answers in rows
    )
    return Grid(("layer", "dtype"), _heads(systems), [("", lines)], LAYER_CAPTION)


def _heads(systems: Sequence[Backend]) -> list[tuple[str, str]]:
    return [(system.name, _version(system)) for system in systems]


def _version(system: Backend) -> str:
    return system.version or "absent"


def _check_cell(report: Report, verdict: Verdict | None) -> Cell | None:
    if verdict is None:
        return None
    status, error, detail = IN_CHECK[verdict.status], verdict.error or "", ""
    if verdict.deviation is not None:
        detail = size(verdict.deviation)
    elif verdict.status == "failed":
        detail = error.split(":")[0]
    hints = status.meaning, error, *(report.findings[n].title for n in verdict.findings)
    target = f"#finding-{verdict.findings[0] + 1}" if verdict.findings else ""
    return Cell(status, detail, hints, target, _heat(verdict))


def _heat(verdict: Verdict) -> int:
    """Choose how strong the colour is; an error is always strong."""
    deviation = verdict.deviation
    if verdict.status == "error" or (deviation is not None and math.isnan(deviation)):
        return len(_HEAT)
    return 2 if deviation is None else sum(deviation >= bound for bound in _HEAT)


def _scenario_cell(scenario: Scenario, answer: Answer) -> Cell:
    told = [
        " ".join(filter(None, (f"{mode.mode}:", describe(scenario, mode), mode.reason)))
        for mode in answer.modes
    ]
    status = IN_SUITES[answer.status]
    return Cell(status, special(scenario, answer), (status.meaning, *told))


def _layer_cell(answer: LayerAnswer) -> Cell:
    without = answer.status == "absent" or (answer.reason and not answer.gradient)
    detail = "" if without else f"{answer.value:.0e} {answer.gradient:.0e}"
    return Cell(IN_SUITES[answer.status], detail)
