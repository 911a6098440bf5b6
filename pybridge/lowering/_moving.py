"""Which values carry a derivative: the static half of `within_gradient`.

Zygote and Yota say of every value inside a gradient that it is differentiated. JAX's answer is
exact for each value, and so is a lowered program's: where no derivative can arrive, the question is
answered while the program is written.

A custom rule asks too: JAX knows no derivative by what its function closes over.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from .._jaxprs import closed_over, inner_jaxprs

_QUESTIONS = frozenset(("within_gradient", "differentiation_order"))
_STOPS = _QUESTIONS.union(
    "stop_gradient pybridge_first_place pybridge_filler pybridge_lane_any".split()
)
CALLS = frozenset("jit pjit closed_call core_call checkpoint remat remat2".split())

Flags = tuple[bool, ...]


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
    jaxpr = closed.jaxpr
    found = {var for var, flag in zip(jaxpr.invars, arguments, strict=True) if flag}
    for eqn in jaxpr.eqns:
        flags = tuple(not isinstance(atom, Literal) and atom in found for atom in eqn.invars)
        for var, flag in zip(eqn.outvars, results(eqn, flags), strict=True):
            if flag and jnp.issubdtype(var.aval.dtype, np.inexact):
                found.add(var)
    return found


def inner_flags(eqn: Any, flags: Flags) -> Flags:
    """Say which arguments of an equation's inner programs carry a derivative."""
    name, p = eqn.primitive.name, eqn.params
    if name in ("cond", "pybridge_switch"):
        return flags[1:]
    if name == "scan":
        return _loop(p["jaxpr"], flags, p["num_consts"], p["num_carry"])
    if name == "while":
        m, n = p["cond_nconsts"], p["body_nconsts"]
        return _loop(p["body_jaxpr"], flags[m:], n, len(flags) - m - n)
    return flags


def results(eqn: Any, flags: Flags) -> Flags:
    """Say which results of an equation carry a derivative."""
    name, p = eqn.primitive.name, eqn.params
    n = len(eqn.outvars)
    if name in _STOPS or not any(flags):
        return (False,) * n
    inside = inner_flags(eqn, flags)
    if name in ("cond", "pybridge_switch"):
        each = [_of(branch, inside) for branch in p["branches"]]
        return tuple(map(any, zip(*each, strict=True)))
    if name == "scan":
        return _of(p["jaxpr"], inside)
    if name == "while":
        return _of(p["body_jaxpr"], inside)
    if name in CALLS:
        inner = p.get("jaxpr", p.get("call_jaxpr"))
        if isinstance(inner, Jaxpr):
            inner = ClosedJaxpr(inner, ())
        return _of(inner, inside)
    return (True,) * n


def _of(closed: ClosedJaxpr, arguments: Flags) -> Flags:
    found = moving_variables(closed, arguments)
    outs = closed.jaxpr.outvars
    return tuple(not isinstance(atom, Literal) and atom in found for atom in outs)


def _loop(body: ClosedJaxpr, flags: Sequence[bool], consts: int, carries: int) -> Flags:
    """A carry that carries a derivative after some turn has one, in effect, from the start."""
    now = tuple(flags)
    while True:
        after = _of(body, now)[:carries]
        wider = (
            *now[:consts],
            *(a or b for a, b in zip(now[consts : consts + carries], after, strict=True)),
            *now[consts + carries :],
        )
        if wider == now:
            return now
        now = wider
