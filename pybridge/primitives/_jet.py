"""Rules for `jax.experimental.jet`, which pushes Taylor series through a program."""

from __future__ import annotations

import functools
from typing import Any

import jax
import numpy as np
from jax.experimental.jet import jet, jet_rules

from .._errors import UnsupportedModeError, explain
from .._jaxprs import Primitive, jaxpr_as_fun
from ._detection import within_gradient_p
from ._filling import any_taken_p
from ._masking import guard, guard_p, lane_any_p
from ._order import order_p
from ._switch_primitive import bind_switch, switch_p

_Series = list[Any]


def _within_gradient(primals: Any, series: Any) -> tuple[Any, _Series]:
    return np.True_, [np.False_] * len(series[0])  # of the answer nothing moves


def _switch(primals: Any, series: Any, *, branches: Any) -> tuple[Any, Any]:
    index, *xs = primals
    factors = _factors(len(series[0]))
    terms = [[term / f for term, f in zip(x, factors, strict=True)] for x in series[1:]]
    leaves, tree = jax.tree.flatten((xs, terms))
    trees: list[Any] = []

    def with_series(branch: Any) -> Any:
        def function(*leaves: Any) -> list[Any]:
            xs, terms = jax.tree.unflatten(tree, leaves)
            outs, tree_out = jax.tree.flatten(jet(jaxpr_as_fun(branch), xs, terms))
            trees.append(tree_out)
            return outs

        return jax.make_jaxpr(function)(*leaves)

    flat = bind_switch(index, tuple(map(with_series, branches)), leaves)
    outs, terms = jax.tree.unflatten(trees[-1], flat)
    return outs, [[term * f for term, f in zip(x, factors, strict=True)] for x in terms]


_probe_p = Primitive("pybridge_probe")


@functools.cache
def _factors(orders: int) -> tuple[float, ...]:
    """Return what rules of this version of JAX get for derivatives that are 1.

    `jet` takes and returns derivatives. Between its rules they are those, or the coefficients
    of Taylor's series, which are divided by factorials.
    """
    seen: list[float] = []

    def rule(primals: Any, series: Any) -> Any:
        seen.extend(float(term) for term in series[0])
        return primals[0], series[0]

    jet_rules[_probe_p] = rule
    with jax.ensure_compile_time_eval():
        jet(_probe_p.bind, (np.float32(0),), ([np.float32(1)] * orders,))
    return tuple(seen)


def _guard(primals: Any, series: Any, *, with_zero: bool) -> tuple[Any, _Series]:
    mask, x = primals
    moved = [guard(mask, term, with_zero=True) for term in series[1]]
    return guard(mask, x, with_zero=with_zero), moved


def _refuse(primals: Any, series: Any, **params: Any) -> Any:
    raise UnsupportedModeError(
        explain(
            "pb.cond",
            expected="a scalar predicate under jax.experimental.jet",
            got="one that differs between lanes or elements, for which JAX's jet has no "
            "conditional",
            fix="Take jax.vmap of jet instead, or nest jax.jvp.",
        )
    )


def _refuse_order(primals: Any, series: Any) -> Any:
    raise UnsupportedModeError(
        explain(
            "pb.differentiation_order",
            expected="derivatives that are nested, as in jax.grad(jax.grad(f))",
            got="jax.experimental.jet, which takes several at once",
            fix="Ask pb.within_gradient, or nest jax.jvp.",
        )
    )


jet_rules[within_gradient_p] = _within_gradient
jet_rules[order_p] = _refuse_order
jet_rules[switch_p] = _switch
jet_rules[guard_p] = _guard
jet_rules[any_taken_p] = _refuse
jet_rules[lane_any_p] = _refuse
