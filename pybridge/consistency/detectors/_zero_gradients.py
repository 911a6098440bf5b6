"""Gradients that are zero everywhere, because an operation in between is flat."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr

from ...jaxprs import Flow, Location, inner_jaxprs, is_of_jax, jax_function, user_line
from ..findings import Finding
from ..subject import NOWHERE, Place, place_of, system_names
from ._context import Context

# The derivative of these is 0 wherever there is one.
_FLAT = frozenset({"ceil", "floor", "round", "sign"})
_WORDS = {
    "convert_element_type": "a cast to whole numbers",
    "argmax": "argmax",
    "argmin": "argmin",
}
_COMPARISONS = frozenset({"eq", "eq_to", "ge", "gt", "le", "le_to", "lt", "lt_to", "ne"})


FLAT_ADVICE = (
    "The derivative of a step function is 0, and no optimiser moves this argument. Leave the "
    "operation out where it is differentiated, replace it by a smooth one, or give it a rule (a "
    "straight-through estimator)."
)


class Dependence(NamedTuple):
    """How a number depends on an argument.

    Attributes:
        is_smooth: whether with a derivative.
        primitive: the flat operation on the way; empty where it is smooth.
        line: its line.
    """

    is_smooth: bool
    primitive: str = ""
    line: Location | None = None


_SMOOTH = Dependence(True)


def detect_zero_gradients(context: Context) -> Iterator[Finding]:
    """Note arguments whose gradient is zero because only flat operations lead to the value."""
    point, closed = context.point, context.point.subject.jaxpr
    if not context.is_comparable or closed is None:
        return
    for path in point.arguments_without_gradient():
        start = [_SMOOTH if other == path else None for other in point.subject.paths]
        outs = [found for found in _Dependences().run(closed, start) if found is not None]
        if not outs or any(found.is_smooth for found in outs):
            continue
        primitive = outs[0].primitive
        what = _WORDS.get(primitive, primitive)
        if primitive in _COMPARISONS:
            what = f"a comparison ({primitive})"
        yield point.finding(
            "zero",
            "note",
            f"the gradient is zero everywhere: the value depends on {path} only through {what}",
            system_names(point.gradients),
            argument=path,
            place=Place(outs[0].line, primitive),
            advice=FLAT_ADVICE,
        )


def flat_place(closed: ClosedJaxpr) -> Place:
    """Find the first flat operation that the user's own code asks for: `round`, a cast."""
    for eqn in closed.jaxpr.eqns:
        for inner in inner_jaxprs(eqn):
            place = flat_place(inner)
            if place != NOWHERE:
                return place._replace(location=user_line(eqn)) if is_of_jax(inner) else place
        ins = [v.aval.dtype for v in eqn.invars]
        casts = eqn.primitive.name == "convert_element_type" and not jnp.issubdtype(
            eqn.outvars[0].aval.dtype, np.inexact
        )
        moves = any(jnp.issubdtype(dtype, np.inexact) for dtype in ins)
        if moves and (eqn.primitive.name in _FLAT or casts) and not jax_function(eqn):
            return place_of(eqn)
    return NOWHERE


class _Dependences(Flow[Dependence | None]):
    """Follows an argument through a program; None stands for what does not depend on it."""

    def __init__(self) -> None:
        self._around: Location | None = None  # the line of the call that is followed

    def constant(self, atom: Any) -> None:
        return None

    def join(self, first: Dependence | None, second: Dependence | None) -> Dependence | None:
        """Take the smoother one."""
        if first is None or (second is not None and second.is_smooth and not first.is_smooth):
            return second
        return first

    def through(self, eqn: Any, facts: list[Dependence | None]) -> Sequence[Dependence | None]:
        inner = list(inner_jaxprs(eqn))
        if len(inner) == 1 and len(inner[0].jaxpr.invars) == len(facts):
            return self.enter(eqn, inner[0], facts)
        through = reduce(self.join, facts, None)
        if through is None or not through.is_smooth:
            return [through] * len(eqn.outvars)
        name = eqn.primitive.name
        flat = Dependence(False, name, user_line(eqn) or self._around)
        smooth = [jnp.issubdtype(v.aval.dtype, np.inexact) for v in eqn.outvars]
        return [_SMOOTH if kept and name not in _FLAT else flat for kept in smooth]

    def chosen(
        self, eqn: Any, index: Dependence | None, facts: list[Dependence | None]
    ) -> Sequence[Dependence | None]:
        """A choice between values is a step as well."""
        if index is not None and index.is_smooth:
            index = Dependence(False, eqn.primitive.name, user_line(eqn) or self._around)
        return [self.join(fact, index) for fact in facts]

    def results(self, eqn: Any, facts: list[Dependence | None]) -> Sequence[Dependence | None]:
        if eqn.primitive.name == "while":  # what a loop gives that does not run is not meant
            return self.enter(eqn, eqn.params["body_jaxpr"], self.entering(eqn, facts))
        return super().results(eqn, facts)

    def enter(
        self, eqn: Any, program: ClosedJaxpr, facts: Sequence[Dependence | None]
    ) -> list[Dependence | None]:
        """Follow into a program; what is in a function of JAX's has the line that calls it."""
        around = self._around
        self._around = line = user_line(eqn) or around
        outs = self.run(program, facts)
        self._around = around
        if not is_of_jax(program):
            return outs
        return [
            out if out is None or out.is_smooth or out in facts else out._replace(line=line)
            for out in outs
        ]
