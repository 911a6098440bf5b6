"""The precision in which a program really computes, whatever its arguments have."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Literal

from ..._jaxprs import inner_jaxprs


def coarsest(closed: ClosedJaxpr) -> float:
    """Find the largest rounding error of the floating-point numbers between arguments and value.

    Numbers that do not depend on the arguments, such as constants in single precision, do not
    count: they are the same at every point.

    Args:
        closed: the program.

    Returns:
        The relative rounding error; 0 where nothing is floating-point.
    """
    largest, _ = _follow(closed, [True] * len(closed.jaxpr.invars))
    return largest


def _follow(closed: ClosedJaxpr, moving: list[bool]) -> tuple[float, list[bool]]:
    """Follow what depends on arguments; say which results do."""
    jaxpr, largest = closed.jaxpr, 0.0
    moves = {v for v, is_moving in zip(jaxpr.invars, moving, strict=True) if is_moving}

    def is_read(v: Any) -> bool:
        return not isinstance(v, Literal) and v in moves

    for eqn in jaxpr.eqns:
        ins = [is_read(v) for v in eqn.invars]
        if not any(ins):
            continue
        outs = [True] * len(eqn.outvars)
        for inner in inner_jaxprs(eqn):
            found, results = _enter(eqn, inner, ins)
            largest = max(largest, found)
            # Of other operations with programs inside, all results are taken to move.
            if len(results) == len(outs) and eqn.primitive.name in ("jit", "pjit", "scan"):
                outs = results
        for v, is_moving in zip(eqn.outvars, outs, strict=True):
            if is_moving:
                moves.add(v)
                largest = max(largest, rounding_of(v.aval))
    return largest, [is_read(v) for v in jaxpr.outvars]


def _enter(eqn: Any, inner: ClosedJaxpr, ins: list[bool]) -> tuple[float, list[bool]]:
    """Follow an inner program, as often as its carried values need."""
    size = len(inner.jaxpr.invars)
    if eqn.primitive.name == "scan":
        first, carries = eqn.params["num_consts"], eqn.params["num_carry"]
        while True:
            largest, results = _follow(inner, ins)
            carried = [a or b for a, b in zip(ins[first:], results[:carries], strict=False)]
            again = [*ins[:first], *carried, *ins[first + carries :]]
            if again == ins:
                return largest, results
            ins = again
    if eqn.primitive.name in ("cond", "pybridge_switch") and size == len(ins) - 1:
        return _follow(inner, ins[1:])
    return _follow(inner, ins if size == len(ins) else [True] * size)


def rounding_of(aval: Any) -> float:
    dtype = getattr(aval, "dtype", None)
    if dtype is None or not jnp.issubdtype(dtype, np.inexact):
        return 0.0
    return float(jnp.finfo(dtype).eps)
