"""Which broadcasts need not be made, because Julia's elementwise calls broadcast themselves."""

from __future__ import annotations

from typing import Any

from jax.extend.core import Literal

from ._elementwise import SAME

_BROADCASTING = frozenset((*SAME, "add_any", "select_n"))


def lazy_broadcasts(jaxpr: Any) -> set[Any]:
    """Find results of broadcast_in_dim that are used by elementwise operations alone.

    Each of these has another operand of the full shape.
    """
    made = {eqn.outvars[0]: eqn for eqn in jaxpr.eqns if eqn.primitive.name == "broadcast_in_dim"}
    lazy = {var for var in made if var not in jaxpr.outvars}
    for eqn in jaxpr.eqns:
        operands: list[Any] = [atom for atom in eqn.invars if not isinstance(atom, Literal)]
        mine = [atom for atom in operands if atom in lazy]
        if not mine:
            continue
        if eqn.primitive.name not in _BROADCASTING:
            lazy.difference_update(mine)
            continue
        shape = eqn.outvars[0].aval.shape
        cases = operands[1:] if eqn.primitive.name == "select_n" else operands
        if not any(a not in made and tuple(a.aval.shape) == tuple(shape) for a in cases):
            lazy.difference_update(mine)
    return lazy
