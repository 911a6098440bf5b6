"""The statuses of answers: their symbols, meanings and looks, the same on every kind of report."""

from __future__ import annotations

from collections.abc import Container
from typing import NamedTuple


class Status(NamedTuple):
    """A status.

    Attributes:
        symbol: one character.
        meaning: a few words, for the legend.
        look: how it is coloured: a key of `STYLES` and a class of the style sheet.
    """

    symbol: str
    meaning: str
    look: str


# In the order in which a legend lists them.
IN_CHECK = {
    "right": Status("✓", "agrees", "right"),
    "reference": Status("○", "the reference", "absent"),
    "apart": Status("~", "differs, see elsewhere", "known"),
    "note": Status("≈", "a choice, no error", "convention"),
    "warning": Status("△", "may surprise", "known"),
    "error": Status("✘", "wrong", "wrong"),
    "unsupported": Status("/", "unsupported", "unsupported"),
    "failed": Status("!", "an exception", "error"),
    "absent": Status("·", "absent", "absent"),
}
IN_SUITES = {
    "right": Status("✓", "right", "right"),
    "convention": Status("≈", "a convention, no error", "convention"),
    "known": Status("✗", "fails, as documented", "known"),
    "unsupported": Status("/", "refuses, as documented", "unsupported"),
    "wrong": Status("✘", "wrong", "wrong"),
    "error": Status("!", "failed with an exception", "error"),
    "absent": Status("·", "the system is absent", "absent"),
}


def legend(vocabulary: dict[str, Status], used: Container[str]) -> list[Status]:
    """List the statuses that are used, as a legend has them."""
    return [status for name, status in vocabulary.items() if name in used]


# The terminal's own colours, so that its theme decides how they look.
STYLES = {
    "right": "green",
    "convention": "cyan",
    "known": "yellow",
    "unsupported": "magenta",
    "absent": "dim",
    "wrong": "bold red",
    "error": "bold red",
}

# What stands in a cell beside the symbol.
CHECK_CAPTION = (
    "Beside the symbol: the largest difference from the reference, relative to 1 + its size. "
    "Value: the value under differentiation."
)
SUITE_CAPTION = "Beside the symbol: the derivative that the system gives, or f= the value."
LAYER_CAPTION = (
    "Beside the symbol: the largest difference from JAX's layer, relative to the largest number, "
    "of outputs and states, and of gradients, in training and in test mode. Column finite: JAX's "
    "gradient against finite differences."
)
