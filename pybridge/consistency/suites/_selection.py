"""Pick the cases of a suite by the beginnings of their names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from ..._errors import ArgumentValueError, explain

Case = TypeVar("Case", bound=Any)  # it has a name


def select_by_name(
    cases: Sequence[Case], names: Sequence[str] | None, where: str, what: str
) -> tuple[Case, ...]:
    """Pick cases, in their order.

    Args:
        cases: all of them.
        names: names, or the beginnings of names; None for all cases. What stands before the last
            dot of a case's name may be left out.
        where: who asks, for the error.
        what: whose name it is, for the error.

    Raises:
        ArgumentValueError: a name fits none; the message lists all.
    """
    for name in names or ():
        if not any(_begins(case, name) for case in cases):
            raise ArgumentValueError(
                explain(
                    where,
                    expected=f"the name of a {what}, or its beginning",
                    got=repr(name),
                    fix="There are: " + ", ".join(case.name for case in cases) + ".",
                )
            )
    return tuple(c for c in cases if names is None or any(_begins(c, name) for name in names))


def _begins(case: Any, name: str) -> bool:
    return case.name.startswith(name) or case.name.rpartition(".")[2].startswith(name)
