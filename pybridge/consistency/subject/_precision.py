"""The precision in which a program really computes, whatever its arguments have."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr

from ...jaxprs import Flow, inner_jaxprs


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
            self.largest = max(self.largest, rounding_of(var.aval))
        return fact


def rounding_of(aval: Any) -> float:
    """Give the relative rounding error of the numbers of a variable; 0 if they are not floating."""
    dtype = getattr(aval, "dtype", None)
    if dtype is None or not jnp.issubdtype(dtype, np.inexact):
        return 0.0
    return float(jnp.finfo(dtype).eps)
