"""Functions whose value changes from call to call."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..._backends import Backend
from ..findings import Finding
from ..subject import Subject


def detect_randomness(subject: Subject, rows: Sequence[Backend]) -> list[Finding]:
    """Call twice with the same arguments, and compare bit by bit; or compare two traces."""
    first, again = subject.repeat()
    same = len(again) == len(first) and all(
        a.shape == b.shape and np.array_equal(a, b, equal_nan=True)
        for a, b in zip(first, again, strict=True)
    )
    if same:
        return []
    changes = [
        (float(np.max(np.abs(a - b), initial=0.0)), path)
        for a, b, path in zip(first, again, subject.outputs, strict=False)
        if a.shape == b.shape
    ]
    largest, path = max(changes, default=(float("nan"), "value"))
    # Sums that are split among threads differ in the last digits: that is no randomness.
    return [
        Finding(
            "random",
            "error",
            f"two calls with the same arguments differ by {largest:.4g} in {path}",
            systems=tuple(b.name for b in rows if b.available),
            mode="value",
            numbers={"difference": largest},
            advice="Pass a key, or whatever else it depends on, as an argument. Derivatives "
            "were not compared: none is defined.",
        )
    ]
