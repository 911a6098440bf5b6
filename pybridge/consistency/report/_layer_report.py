"""The table of layers, on the terminal and as Markdown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from ..._backends import Backend
from ..suites import BAD, LayerAnswer, LayerCase
from ._scenario_terminal import STYLES
from ._scenario_words import MEANINGS, SYMBOLS

if TYPE_CHECKING:
    from rich.console import Console

Row = tuple[LayerCase, str, dict[str, LayerAnswer]]

BESIDE = (
    "Beside the symbol: the largest difference from JAX's layer, relative to the largest number, "
    "of outputs and states, and of gradients, in training and in test mode. Column finite: JAX's "
    "gradient against finite differences."
)


def layer_cell(answer: LayerAnswer) -> str:
    """Write an answer as a cell of the table."""
    symbol = SYMBOLS[answer.status]
    if answer.status == "absent" or (answer.reason and not answer.gradient):
        return symbol
    return f"{symbol} {answer.value:.0e} {answer.gradient:.0e}"


def print_layers(rows: Sequence[Row], systems: Sequence[Backend], console: Console) -> None:
    """Print table, legend, reasons and summary on a terminal."""
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 0, 0, 1), show_edge=False, header_style="bold")
    table.add_column("layer", no_wrap=True)
    table.add_column("dtype", no_wrap=True)
    for system in systems:
        table.add_column(f"{system.name}\n[dim not bold]{system.version or 'absent'}[/]")
    for case, dtype, answers in rows:
        cells = [
            f"[{STYLES[answer.status]}]{escape(layer_cell(answer))}[/]"
            for answer in answers.values()
        ]
        table.add_row(escape(case.title), dtype, *cells)
    console.print(table, "", f"[dim]{BESIDE}[/]", sep="\n", highlight=False)
    for line in reasons(rows):
        console.print(escape(line), highlight=False)
    style = "bold green" if layers_ok(rows) else "bold red"
    console.print(f"[{style}]{layer_summary(rows)}[/]", highlight=False)


def layers_to_markdown(rows: Iterable[Row], systems: Sequence[Backend]) -> Iterator[str]:
    """Yield the lines of a Markdown table, each row as soon as it is there, then the summary."""
    names = [system.name for system in systems]
    yield "| layer | dtype | " + " | ".join(names) + " |"
    yield "| --- " * (2 + len(names)) + "|"
    seen = []
    for case, dtype, answers in rows:
        cells = " | ".join(layer_cell(answers[name]) for name in names)
        yield f"| {case.title} | {dtype} | {cells} |"
        seen.append((case, dtype, answers))
    yield from ("", BESIDE, "", *(f"- {line}" for line in reasons(seen)), "", layer_summary(seen))


def reasons(rows: Sequence[Row]) -> list[str]:
    """List what is not right, with the reason."""
    return list(
        dict.fromkeys(
            f"{case.title}, {dtype}, {system}: {answer.reason or answer.status}"
            for case, dtype, answers in rows
            for system, answer in answers.items()
            if answer.status in ("known", *BAD)
        )
    )


def layer_summary(rows: Sequence[Row]) -> str:
    """Count the answers."""
    counts = Counter(a.status for _, _, answers in rows for a in answers.values())
    return ", ".join(
        f"{counts[status]} {MEANINGS[status]}" for status in MEANINGS if counts[status]
    )


def layers_ok(rows: Sequence[Row]) -> bool:
    """Whether no answer is wrong and nothing failed."""
    return not any(a.status in BAD for _, _, answers in rows for a in answers.values())
