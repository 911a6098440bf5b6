"""Forward rules that are not linear in the tangent, so that they give no derivative."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr

from ...jaxprs import contains
from ..findings import Finding
from ..subject import Arrays, Place, Seen, walk
from ._context import Context
from ._custom_rules import is_users_rule, moves, rule_name

_FORWARD_RULES = frozenset({"custom_jvp_call"})
# A linear map of a tangent times a power of two is exact, but for what XLA fuses.
_FACTORS = (-1.0, 2.0**6, -(2.0**6), 2.0**-6)
_ULPS = 64.0


def detect_nonlinear_rules(context: Context) -> Iterator[Finding]:
    """Compare what each forward rule of the user's gives for a tangent and for multiples of it."""
    point, closed = context.point, context.point.subject.jaxpr
    if closed is None or point.subject.is_julia or not contains(closed, _FORWARD_RULES):
        return
    for name, place, numbers in _nonlinear_rules(closed, point.xs, point.eps):
        one, *others = (f"{number:.6g} for {tangent}" for tangent, number in numbers.items())
        yield point.finding(
            "finite",
            "error",
            f"the rule of {name} is not linear in the tangent: it gives {one} and {others[0]}",
            ["jax"],
            mode="forward",
            place=place,
            numbers=numbers,
            advice=f"A derivative along v is linear in v. Write the rule of {name} as the tangent "
            "times what depends on the primals alone; reverse mode transposes it.",
        )


def _nonlinear_rules(
    closed: ClosedJaxpr, xs: Arrays, eps: float
) -> list[tuple[str, Place, dict[str, float]]]:
    found: dict[Any, tuple[str, Place, dict[str, float]]] = {}

    def visit(seen: Seen) -> None:
        place = Place(seen.line, seen.eqn.primitive.name)
        key = rule_name(seen.eqn), place.location
        if key in found or not is_users_rule(seen.eqn):
            return
        with contextlib.suppress(Exception):  # a rule that fails is told elsewhere
            numbers = _compare_tangents(seen, eps)
            if numbers:
                found[key] = (key[0], place, numbers)

    walk(closed, xs, _FORWARD_RULES, visit)
    return list(found.values())


def _compare_tangents(seen: Seen, eps: float) -> dict[str, float]:
    """Give what a rule makes of a tangent and of a multiple, where that shows it is not linear."""
    moving = [i for i, x in enumerate(seen.ins) if moves(x)]
    point = tuple(jnp.asarray(seen.ins[i]) for i in moving)
    rng = np.random.default_rng(0)
    speeds = [rng.standard_normal(x.shape) * np.maximum(1.0, np.abs(x)) for x in point]

    def tangents(factor: float) -> list[np.ndarray]:
        vs = tuple(jnp.asarray(factor * v, x.dtype) for v, x in zip(speeds, point, strict=True))
        outs = jax.jvp(lambda *xs: seen.run_with(moving, xs), point, vs)[1]
        return [np.asarray(y) for y in outs if moves(y) and np.size(y)]

    of_one = tangents(1.0)
    for factor in _FACTORS:
        for one, other in zip(of_one, tangents(factor), strict=True):
            gap = np.abs(other - factor * one)
            known = np.all(np.isfinite(gap))
            if known and np.max(gap) > _ULPS * eps * abs(factor) * np.max(np.abs(one)):
                worst = np.unravel_index(int(np.argmax(gap)), gap.shape)
                numbers = (float(np.real(y[worst])) for y in (one, other))
                return dict(zip(("v", f"{factor:g} v"), numbers, strict=True))
    return {}
