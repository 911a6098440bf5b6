"""Which values carry a derivative: the static half of `within_gradient`.

Zygote and Yota say of every value inside a gradient that it is differentiated. JAX's answer is
exact for each value, and so is a lowered program's: where no derivative can arrive, the question is
answered while the program is written.

A custom rule asks too: JAX knows no derivative by what its function closes over.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr

from ..jaxprs import BRANCHES, CALLS, LOOPS, Flow, closed_over, inner_jaxprs

_QUESTIONS = frozenset(("within_gradient", "differentiation_order"))
_STOPS = _QUESTIONS.union(
    "stop_gradient pybridge_first_place pybridge_filler pybridge_lane_any".split()
)

Flags = tuple[bool, ...]


class _CarriedDerivatives(Flow[bool]):
    """Tells of each value whether it carries a derivative."""

    # A custom rule may give any of its results a derivative.
    enters = frozenset({*CALLS, *BRANCHES, *LOOPS})

    def constant(self, atom: Any) -> bool:
        return False

    def join(self, first: bool, second: bool) -> bool:
        return first or second

    def through(self, eqn: Any, facts: list[bool]) -> list[bool]:
        carried = any(facts) and eqn.primitive.name not in _STOPS
        return [carried] * len(eqn.outvars)

    def kept(self, var: Any, fact: bool) -> bool:
        return fact and bool(jnp.issubdtype(var.aval.dtype, np.inexact))


_FLOW = _CarriedDerivatives()


def asks(jaxpr: Any) -> bool:
    """Tell whether it matters for a program which of its arguments carry a derivative."""
    return any(
        eqn.primitive.name in _QUESTIONS
        or closed_over(eqn)
        or any(asks(inner.jaxpr) for inner in inner_jaxprs(eqn))
        for eqn in jaxpr.eqns
    )


def moving_variables(closed: ClosedJaxpr, arguments: Flags) -> set[Any]:
    """Find the variables of a program that carry a derivative, where some arguments do."""
    return {var for var, carried in _FLOW.facts(closed, arguments).items() if carried}


def inner_flags(eqn: Any, flags: Flags) -> Flags:
    """Say which arguments of an equation's inner programs carry a derivative."""
    return tuple(_FLOW.entering(eqn, flags))
