"""The precision in which a program really computes, whatever its arguments have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr

from ..jaxprs import Flow, Location, equations, inner_jaxprs, jax_function, user_line
from ._findings import Finding


def coarsest(closed: ClosedJaxpr) -> float:
    """Find the largest rounding error of the floating-point numbers between arguments and value.

    Numbers that do not depend on the arguments, such as constants in single precision, do not
    count: they are the same at every point.

    Args:
        closed: the program.

    Returns:
        The relative rounding error; 0 where nothing is floating-point.
    """
    dependence = _Dependence()
    dependence.run(closed, [True] * len(closed.jaxpr.invars))
    return dependence.largest


def find_truncation(closed: ClosedJaxpr, xs: Sequence[Any]) -> tuple[Location, str] | None:
    """Find the first cast of double precision to a narrower one in the user's own code.

    Args:
        closed: the program.
        xs: its arguments, of which one at least is to be in double precision.

    Returns:
        The line and the narrower dtype; None where there is none.
    """
    if coarsest(closed) <= np.finfo(np.float64).eps:
        return None
    if not any(getattr(x, "dtype", None) in (np.float64, np.complex128) for x in xs):
        return None
    for eqn in equations(closed):
        line = user_line(eqn)
        if eqn.primitive.name != "convert_element_type" or line is None or jax_function(eqn):
            continue
        before, after = eqn.invars[0].aval.dtype, eqn.outvars[0].aval.dtype
        double = before in (np.float64, np.complex128)
        if double and jnp.issubdtype(after, np.inexact) and _rounding(eqn.outvars[0].aval) > 1e-15:
            return line, str(after)
    return None


def judge_truncation(
    dtype: str, line: Location | None, systems: tuple[str, ...], primitive: str
) -> list[Finding]:
    """Note that a function of double precision computes a part of itself in a narrower one.

    Args:
        dtype: the narrower one.
        line: where it is cast to that.
        systems: those that it is about.
        primitive: the cast.
    """
    digits = int(-np.log10(float(jnp.finfo(dtype).eps)))
    return [
        Finding(
            "precision",
            "note",
            f"the arguments are in double precision, and a cast to {dtype} leaves {digits} digits",
            systems=systems,
            mode="value",
            location=line,
            primitive=primitive,
            numbers={"digits": digits},
            advice="Differences see these digits alone, and the table shows them. Leave the cast "
            "out, or cast to the dtype of the argument.",
        )
    ]


class _Dependence(Flow[bool]):
    """Tells what depends on arguments, and the largest rounding error of what does."""

    def __init__(self) -> None:
        self.largest = 0.0

    def constant(self, atom: Any) -> bool:
        return False

    def join(self, first: bool, second: bool) -> bool:
        return first or second

    def through(self, eqn: Any, facts: list[bool]) -> list[bool]:
        if any(facts):
            for inner in inner_jaxprs(eqn):
                size = len(inner.jaxpr.invars)
                self.run(inner, facts if size == len(facts) else [True] * size)
        return [any(facts)] * len(eqn.outvars)

    def chosen(self, eqn: Any, index: bool, facts: list[bool]) -> list[bool]:
        return [fact or index for fact in facts]

    def kept(self, var: Any, fact: bool) -> bool:
        if fact:
            self.largest = max(self.largest, _rounding(var.aval))
        return fact


def _rounding(aval: Any) -> float:
    dtype = getattr(aval, "dtype", None)
    if dtype is None or not jnp.issubdtype(dtype, np.inexact):
        return 0.0
    return float(jnp.finfo(dtype).eps)
