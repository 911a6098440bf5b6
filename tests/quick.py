"""Which cases of a parametrised test, and how many of a property, the quick run takes."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

LONG = "PYBRIDGE_LONG_TESTS"  # an environment variable, which processes of a run share


def examples(count: int) -> int:
    """Return how many examples of a property a run takes: all of `count` in the long one."""
    return count if LONG in os.environ else max(count // 4, 4)


def left_for_the_night(items: Iterable[Any]) -> list[Any]:
    """Choose the cases that only the long run takes: those that combine what others have.

    A test with several parameters has a case for each combination of their values. The quick run
    takes, for each test, cases that have every value of every parameter (each-choice coverage:
    Ammann and Offutt, Introduction to Software Testing, 6.2), as few as a greedy cover finds. So a
    test with one parameter, or a list of cases that is written out, loses none.

    Args:
        items: collected tests, without those of the long run.

    Returns:
        The cases to leave out of the quick run.
    """
    tests: dict[Any, list[Any]] = defaultdict(list)
    for item in items:
        if hasattr(item, "callspec"):
            tests[item.path, item.cls, item.originalname].append(item)
    return [case for cases in tests.values() for case in _beyond_cover(cases)]


def _beyond_cover(cases: list[Any]) -> list[Any]:
    values = [_values(case) for case in cases]
    missing, left = set().union(*values), list(range(len(cases)))
    while missing:
        best = max(left, key=lambda i: len(values[i] & missing))
        missing -= values[best]
        left.remove(best)
    return [cases[i] for i in left]


def _values(case: Any) -> set[tuple[Any, ...]]:
    """List a case's values: one for each fixture, and one for each list of cases it comes from."""
    params = case.callspec.params
    marked = [mark.args[0] for mark in case.iter_markers("parametrize")]
    together = [re.split(r"[, ]+", m) if isinstance(m, str) else list(m) for m in marked]
    alone = [[name] for name in params if not any(name in names for names in together)]
    # Those of one list are the same objects.
    return {(tuple(names), *(id(params[name]) for name in names)) for names in together + alone}
