"""The answers of the table of layers in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ..suites import BAD, LayerAnswer, LayerCase
from ._vocabulary import IN_SUITES

LayerRow = tuple[LayerCase, str, dict[str, LayerAnswer]]


def layer_cell(answer: LayerAnswer) -> str:
    """Write an answer as a cell of the table."""
    symbol = IN_SUITES[answer.status].symbol
    if answer.status == "absent" or (answer.reason and not answer.gradient):
        return symbol
    return f"{symbol} {answer.value:.0e} {answer.gradient:.0e}"


def reasons(rows: Sequence[LayerRow]) -> list[str]:
    """List what is not right, with the reason."""
    return list(
        dict.fromkeys(
            f"{case.title}, {dtype}, {system}: {answer.reason or answer.status}"
            for case, dtype, answers in rows
            for system, answer in answers.items()
            if answer.status in ("known", *BAD)
        )
    )


def layer_summary(rows: Sequence[LayerRow]) -> str:
    """Count the answers."""
    counts = Counter(a.status for _, _, answers in rows for a in answers.values())
    return ", ".join(
        f"{counts[name]} {status.meaning}" for name, status in IN_SUITES.items() if counts[name]
    )


def layers_ok(rows: Sequence[LayerRow]) -> bool:
    """Whether no answer is wrong and nothing failed."""
    return not any(a.status in BAD for _, _, answers in rows for a in answers.values())
