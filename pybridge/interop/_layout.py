"""How array axes map between the languages."""

from __future__ import annotations

from .._errors import ArgumentValueError, explain


def check_layout(where: str, layout: str) -> None:
    """Refuse what is no layout.

    Args:
        where: the public name that was called.
        layout: how array axes map.

    Raises:
        ArgumentValueError: it is neither of the two.
    """
    if layout not in ("logical", "reversed"):
        raise ArgumentValueError(
            explain(
                where,
                expected='layout "logical" or "reversed"',
                got=repr(layout),
                fix='"logical" keeps the order of the axes, "reversed" is Flux\'s convention.',
            )
        )
