"""Rules for `jax.experimental.jet`, which pushes Taylor series through a program."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.jet import JetTracer, jet, jet_rules

from .._errors import UnsupportedModeError, explain
from ..jaxprs import CALLS, RULED_CALLS, Evaluator, Primitive
from ._detection import within_gradient_p
from ._filling import filler_p, first_place_p
from ._masking import concrete_index, guard, guard_p, lane_any_p
from ._order import order_p
from ._switch_primitive import bind_switch, nth_branch, switch_p

if TYPE_CHECKING:
    from jax.extend.core import ClosedJaxpr

_Series = list[Any]


def _within_gradient(primals: Any, series: Any) -> tuple[Any, _Series]:
    return np.True_, [np.False_] * len(series[0])  # of the answer nothing moves


def _switch(primals: Any, series: Any, *, branches: Any) -> tuple[Any, Any]:
    index, *xs = primals
    known = concrete_index(index)
    if known is not None:
        branches = (nth_branch(branches, known),)
    factors = _factors(len(series[0]))
    # Of whole numbers and keys nothing moves.
    moving = [jnp.issubdtype(x.dtype, np.inexact) for x in map(jax.typeof, xs)]
    terms = [
        [term / f for term, f in zip(of_x, factors, strict=True)]
        for of_x, m in zip(series[1:], moving, strict=True)
        if m
    ]
    leaves, tree = jax.tree.flatten((xs, terms))
    trees: list[Any] = []

    def with_series(branch: Any) -> Any:
        def function(*leaves: Any) -> list[Any]:
            xs, terms = jax.tree.unflatten(tree, leaves)

            def of_moving(*moved: Any) -> list[Any]:
                remaining = iter(moved)
                mixed = [next(remaining) if m else x for x, m in zip(xs, moving, strict=True)]
                return _evaluate_inlined(branch, mixed)

            moved = [x for x, m in zip(xs, moving, strict=True) if m]
            outs, tree_out = jax.tree.flatten(jet(of_moving, moved, terms))
            trees.append(tree_out)
            return outs

        return jax.make_jaxpr(function)(*leaves)

    flat = bind_switch(index, tuple(map(with_series, branches)), leaves)
    outs, terms = jax.tree.unflatten(trees[-1], flat)
    return outs, [[term * f for term, f in zip(x, factors, strict=True)] for x in terms]


def call_under_jet(function: Callable[..., Any], *args: Any) -> Any:
    """Call a function that holds `custom_jvp` or `custom_vjp` functions.

    JAX's jet means to ignore their rules, and fails in the functions. Where an argument carries
    a Taylor series they are inlined; elsewhere this is a call.

    Args:
        function: of pytrees of arrays.
        *args: its arguments.

    Returns:
        What the function returns.
    """
    leaves = jax.tree.leaves(args)
    if not any(isinstance(leaf, JetTracer) for leaf in leaves):
        return function(*args)
    program, shapes = jax.make_jaxpr(function, return_shape=True)(*args)
    return jax.tree.unflatten(jax.tree.structure(shapes), _evaluate_inlined(program, leaves))


class _Inlining(Evaluator[Any, None]):
    """Evaluates a program without the rules of its `custom_jvp` and `custom_vjp` functions."""

    enters = frozenset({*CALLS, *RULED_CALLS})


def _evaluate_inlined(closed: ClosedJaxpr, operands: list[Any]) -> list[Any]:
    return _Inlining().run(closed, operands, None)


_probe_p = Primitive("pybridge_probe")


@functools.cache
def _factors(orders: int) -> tuple[float, ...]:
    """Return what rules of this version of JAX get for derivatives that are 1.

    `jet` takes and returns derivatives. Between its rules they are those, or the coefficients
    of Taylor's series, which are divided by factorials.
    """
    seen: list[float] = []

    def rule(primals: Any, series: Any) -> Any:
        # Not the number itself, which is that of single precision.
        orders = enumerate(series[0], start=1)
        seen.extend(1.0 if term == 1 else 1 / math.factorial(k) for k, term in orders)
        return primals[0], series[0]

    jet_rules[_probe_p] = rule
    with jax.ensure_compile_time_eval():
        jet(_probe_p.bind, (np.float32(0),), ([np.float32(1)] * orders,))
    return tuple(seen)


def _guard(primals: Any, series: Any, *, with_zero: bool) -> tuple[Any, _Series]:
    mask, x = primals
    moved = [guard(mask, term, with_zero=True) for term in series[1]]
    return guard(mask, x, with_zero=with_zero), moved


def refused_under_jet(where: str, **parts: str) -> Callable[..., Any]:
    """Return a rule that refuses Taylor series.

    Args:
        where: the public name that was called.
        **parts: of the message: `expected`, `got` and `fix`.
    """

    def rule(primals: Any, series: Any, **params: Any) -> Any:
        raise UnsupportedModeError(explain(where, **parts))

    return rule


_refuse_lanes = refused_under_jet(
    "pb.cond",
    expected="a scalar predicate under jax.experimental.jet",
    got="one that differs between lanes or elements, for which JAX's jet has no conditional",
    fix="Take jax.vmap of jet instead, or nest jax.jvp.",
)
_refuse_order = refused_under_jet(
    "pb.differentiation_order",
    expected="derivatives that are nested, as in jax.grad(jax.grad(f))",
    got="jax.experimental.jet, which takes several at once",
    fix="Ask pb.within_gradient, or nest jax.jvp.",
)

jet_rules[within_gradient_p] = _within_gradient
jet_rules[order_p] = _refuse_order
jet_rules[switch_p] = _switch
jet_rules[guard_p] = _guard
for lanes_p in (first_place_p, filler_p, lane_any_p):
    jet_rules[lanes_p] = _refuse_lanes
