"""Calls of inner programs, and functions with a derivative rule of their own."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

from ..jaxprs import CALLS, RULED_CALLS, called_program, closed_over
from ._emit import Equation, Form
from ._registry import emits


@emits(*CALLS)
def _call(eqn: Any) -> str:
    name = str(eqn.params.get("name", "") or "checkpointed")
    return f"{eqn.function(_inner(eqn), name)}({', '.join(eqn.args)})"


def _inner(eqn: Any) -> ClosedJaxpr:
    inner = called_program(eqn.eqn)
    if inner is None:
        raise eqn.refuse(f"the call {eqn.name!r} without a program", "Report this.")
    return inner


@emits(*RULED_CALLS)
def _custom(eqn: Any) -> str:
    inner = _inner(eqn)
    information = getattr(inner.jaxpr, "debug_info", None)
    name = getattr(information, "func_name", None) or "custom"
    function = eqn.function(inner, re.sub(r"\W", "_", str(name)))
    if eqn.source.custom_rules == "inline":
        return f"{function}({', '.join(eqn.args)})"
    if any(eqn.moving[: closed_over(eqn.eqn)]):
        return f"{eqn.call('closed_over', function)}({', '.join(eqn.args)})"
    with eqn.source.within_rule():
        return ruled(eqn, function, forward=eqn.name == "custom_jvp_call")


def ruled(eqn: Any, function: str, *, forward: bool) -> str:
    """Write a call of a function whose derivative is JAX's own rule of the equation.

    Args:
        eqn: the equation; JAX's rules of its primitive are traced.
        function: the Julia function of its value.
        forward: whether there is a rule for forward mode.
    """
    fun = _as_function(eqn)
    avals = [atom.aval for atom in eqn.eqn.invars]
    structs = [jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in avals]
    inexact = [jnp.issubdtype(aval.dtype, np.inexact) for aval in avals]
    # What the function closes over is constant, and JAX's rules have no derivative by it.
    constants = closed_over(eqn.eqn)
    given = [i and n >= constants for n, i in enumerate(inexact)]
    held = sum(inexact[:constants])
    outs = len(eqn.eqn.outvars)
    moving = [s for s, i in zip(structs, inexact, strict=True) if i]
    out_inexact = [jnp.issubdtype(v.aval.dtype, np.inexact) for v in eqn.eqn.outvars]
    if not any(given) or not any(out_inexact):
        return f"{function}({', '.join(eqn.args)})"

    def with_moving(xs: Any) -> Callable[..., Any]:
        def of_moving(*moved: Any) -> list[Any]:
            queue = iter(moved)
            return list(fun(*(next(queue) if i else x for x, i in zip(xs, given, strict=True))))

        return of_moving

    def moved(xs: Any) -> list[Any]:
        return [x for x, i in zip(xs, given, strict=True) if i]

    def kept(outs: Any) -> list[Any]:
        return [y for y, i in zip(outs, out_inexact, strict=True) if i]

    push = "nothing"
    if forward:

        def pushing(xs: list[Any], dots: list[Any]) -> tuple[list[Any], list[Any]]:
            values, tangents = jax.jvp(with_moving(xs), tuple(moved(xs)), tuple(dots[held:]))
            return values, kept(tangents)

        traced = jax.make_jaxpr(pushing)(structs, moving)
        form = Form((len(structs), len(moving)), ((outs, True), (sum(out_inexact), False)))
        push = eqn.source.function(traced, f"{function}_push", form=form)
    trees: list[Any] = []

    def running(*xs: Any) -> tuple[list[Any], list[Any]]:
        values, pull = jax.vjp(with_moving(xs), *moved(xs))
        leaves, tree = jax.tree.flatten(pull)
        trees.append(tree)
        return values, leaves

    traced = jax.make_jaxpr(running)(*structs)
    kept_avals = traced.out_avals[outs:]
    form = Form(None, ((outs, True), (len(kept_avals), False)))
    value = eqn.source.function(traced, f"{function}_value", form=form)

    def pulling(leaves: list[Any], cts: list[Any]) -> list[Any]:
        queue = iter(cts)
        all_cts = [
            next(queue) if i else np.zeros(v.aval.shape, jax.dtypes.float0)
            for v, i in zip(eqn.eqn.outvars, out_inexact, strict=True)
        ]
        zeros = [jnp.zeros(s.shape, s.dtype) for s in moving[:held]]
        return [*zeros, *jax.tree.unflatten(trees[-1], leaves)(all_cts)]

    back = jax.make_jaxpr(pulling)(
        [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in kept_avals],
        [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in kept(eqn.eqn.outvars)],
    )
    form = Form((len(kept_avals), sum(out_inexact)), ((len(moving), False),))
    pull = eqn.source.function(back, f"{function}_back", form=form)
    return f"{eqn.call('ruled', function, value, push, pull)}({', '.join(eqn.args)})"


def _as_function(eqn: Equation) -> Callable[..., list[Any]]:
    """Make a function that evaluates the equation, with the primitive's derivative rules."""
    if not eqn.eqn.primitive.name.startswith("custom"):

        def bound(*xs: Any) -> list[Any]:
            out = eqn.eqn.primitive.bind(*xs, **eqn.params)
            return list(out) if eqn.eqn.primitive.multiple_results else [out]

        return bound
    # The inner program's own variables stand in for the operands, of which some are numbers.
    inner = _inner(eqn).jaxpr
    alone = eqn.eqn.replace(invars=list(inner.invars))
    return jaxpr_as_fun(
        ClosedJaxpr(
            inner.replace(
                constvars=[], outvars=eqn.eqn.outvars, eqns=[alone], effects=eqn.eqn.effects
            ),
            (),
        )
    )
