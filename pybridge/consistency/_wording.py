"""Names, counts and numbers in English, the same in every finding and report."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from .._backends import Backend


def sentence(text: str) -> str:
    """Give a text a capital and a full stop; nothing stays nothing."""
    text = text[:1].upper() + text[1:]
    return text if not text or text.endswith(".") else text + "."


def count(number: int, noun: str) -> str:
    """Write `1 case` or `2 cases`."""
    return f"{number} {noun}" + ("" if number == 1 else "s")


def join(names: Sequence[str]) -> str:
    """Write `a`, `a and b` or `a, b and c`."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def gives(names: Sequence[str]) -> str:
    """Choose the verb after `join(names)`."""
    return "gives" if len(names) == 1 else "give"


def numbers(array: np.ndarray | float | None) -> str:
    """Write numbers with four digits: `0.25`, `[1, nan]`, `[[1, 2], [3, 4]]`."""
    if array is None:
        return "none"
    array = np.asarray(array)
    if array.ndim == 0:
        # Adding 0 turns -0 into 0.
        return f"{float(array) + 0.0:.4g}"
    return "[" + ", ".join(map(numbers, array)) + "]"


def as_array(value: Any) -> np.ndarray | None:
    """Make an array of numbers or truth values of what can be one; None of the rest."""
    try:
        array = np.asarray(value)
    except Exception:  # of an array that has no numbers, such as a random key
        return None
    return array if array.dtype.kind in "biufc" else None


def reasons_of(absent: Iterable[Backend]) -> list[tuple[list[str], str]]:
    """List why systems are absent, each reason with those that share it."""
    reasons: dict[str, list[str]] = {}
    for system in absent:
        reasons.setdefault(system.reason or "It went away.", []).append(system.name)
    return [(names, reason) for reason, names in reasons.items()]
