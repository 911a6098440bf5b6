"""Gradients that are zero everywhere, because an operation in between is flat."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Literal

from ...jaxprs import Location, inner_jaxprs, is_of_jax, jax_function, user_line
from ..findings import Finding
from ..subject import system_names
from ._context import Context

# The derivative of these is 0 wherever there is one.
_FLAT = frozenset({"ceil", "floor", "round", "sign"})
_WORDS = {
    "convert_element_type": "a cast to whole numbers",
    "argmax": "argmax",
    "argmin": "argmin",
}
_COMPARISONS = frozenset({"eq", "ge", "gt", "le", "lt", "ne"})
_BRANCHES = ("cond", "pybridge_switch")


FLAT_ADVICE = (
    "The derivative of a step function is 0, and no optimiser moves this argument. Leave the "
    "operation out where it is differentiated, replace it by a smooth one, or give it a rule (a "
    "straight-through estimator)."
)


class Flow(NamedTuple):
    """How a number depends on an argument.

    Attributes:
        is_smooth: whether with a derivative.
        primitive: the flat operation on the way; empty where it is smooth.
        line: its line.
    """

    is_smooth: bool
    primitive: str = ""
    line: Location | None = None


_SMOOTH = Flow(True)


def detect_zero_gradients(context: Context) -> Iterator[Finding]:
    """Note arguments whose gradient is zero because only flat operations lead to the value."""
    point, closed = context.point, context.point.subject.jaxpr
    if not context.is_comparable or closed is None or not point.gradients:
        return
    paths, gradients = point.subject.paths, next(iter(point.gradients.values()))
    for number, (path, gradient) in enumerate(zip(paths, gradients, strict=True)):
        if not gradient.size or np.any(gradient != 0):
            continue
        start: list[Flow | None] = [None] * len(paths)
        start[number] = _SMOOTH
        outs = [flow for flow in _follow(closed, start, None) if flow is not None]
        if not outs or any(flow.is_smooth for flow in outs):
            continue
        primitive, line = outs[0].primitive, outs[0].line
        what = _WORDS.get(primitive, primitive)
        if primitive in _COMPARISONS:
            what = f"a comparison ({primitive})"
        yield Finding(
            "zero",
            "note",
            f"the gradient is zero everywhere: the value depends on {path} only through {what}",
            systems=system_names(point.gradients),
            probe=point.probe.name,
            argument=path,
            location=line,
            primitive=primitive,
            advice=FLAT_ADVICE,
        )


def flat_line(closed: ClosedJaxpr) -> tuple[Location | None, str | None]:
    """Find the first flat operation that the user's own code asks for: `round`, a cast."""
    for eqn in closed.jaxpr.eqns:
        for inner in inner_jaxprs(eqn):
            line, primitive = flat_line(inner)
            if primitive is not None:
                return (user_line(eqn) if is_of_jax(inner) else line), primitive
        ins = [v.aval.dtype for v in eqn.invars]
        casts = eqn.primitive.name == "convert_element_type" and not jnp.issubdtype(
            eqn.outvars[0].aval.dtype, np.inexact
        )
        moves = any(jnp.issubdtype(dtype, np.inexact) for dtype in ins)
        if moves and (eqn.primitive.name in _FLAT or casts) and not jax_function(eqn):
            return user_line(eqn), eqn.primitive.name
    return None, None


def _follow(
    closed: ClosedJaxpr, given: Sequence[Flow | None], outer: Location | None
) -> list[Flow | None]:
    """Follow an argument through a program; None for what does not depend on it."""
    jaxpr = closed.jaxpr
    flows: dict[Any, Flow | None] = dict(zip(jaxpr.invars, given, strict=True))

    def read(atom: Any) -> Flow | None:
        return None if isinstance(atom, Literal) else flows.get(atom)

    for eqn in jaxpr.eqns:
        ins = [read(atom) for atom in eqn.invars]
        if any(flow is not None for flow in ins):
            outs = _through(eqn, ins, user_line(eqn) or outer, outer)
            flows.update(zip(eqn.outvars, outs, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _through(
    eqn: Any, ins: list[Flow | None], line: Location | None, outer: Location | None
) -> list[Flow | None]:
    """Say how the results of an equation depend on the argument."""
    inner = list(inner_jaxprs(eqn))
    if inner:
        found = _inside(eqn, inner, ins, line)
        if found is not None:
            return found
    through = _join(*ins)
    name = eqn.primitive.name
    if through is None or not through.is_smooth:
        return [through] * len(eqn.outvars)
    return [
        _SMOOTH
        if name not in _FLAT and jnp.issubdtype(v.aval.dtype, np.inexact)
        else Flow(False, name, line)
        for v in eqn.outvars
    ]


def _inside(
    eqn: Any, inner: list[ClosedJaxpr], ins: list[Flow | None], line: Location | None
) -> list[Flow | None] | None:
    """Follow into a call, a loop or branches; None where their operands are not known."""
    name = eqn.primitive.name
    if name in _BRANCHES:
        outs = [_enter(part, ins[1:], line) for part in inner]
        found = [_join(*column) for column in zip(*outs, strict=True)]
        # A choice between values is a step as well.
        chosen = ins[0] if ins[0] is None or not ins[0].is_smooth else Flow(False, name, line)
        return [_join(flow, chosen) for flow in found]
    if name == "scan":
        first, carries = eqn.params["num_consts"], eqn.params["num_carry"]
        return _loop(inner[0], ins, first, carries, line)
    if name == "while":
        asks, first = eqn.params["cond_nconsts"], eqn.params["body_nconsts"]
        body, carries = eqn.params["body_jaxpr"], len(eqn.outvars)
        return _loop(body, ins[asks:], first, carries, line)
    if len(inner) == 1 and len(inner[0].jaxpr.invars) == len(ins):
        return _enter(inner[0], ins, line)
    return None


def _loop(
    body: ClosedJaxpr, ins: list[Flow | None], first: int, carries: int, line: Location | None
) -> list[Flow | None]:
    while True:
        outs = _enter(body, ins, line)
        carried = [_join(a, b) for a, b in zip(ins[first : first + carries], outs, strict=False)]
        again = [*ins[:first], *carried, *ins[first + carries :]]
        if again == ins:
            return outs
        ins = again


def _enter(
    inner: ClosedJaxpr, ins: Sequence[Flow | None], line: Location | None
) -> list[Flow | None]:
    """Follow into a program; what is inside a function of JAX's has the line that calls it."""
    outs = _follow(inner, ins, line)
    if not is_of_jax(inner):
        return outs
    return [flow if flow is None or flow.is_smooth else flow._replace(line=line)
            if flow not in ins else flow for flow in outs]  # fmt: skip


def _join(*flows: Flow | None) -> Flow | None:
    """Take the smoothest of several."""
    known = [flow for flow in flows if flow is not None]
    return next((flow for flow in known if flow.is_smooth), known[0] if known else None)
