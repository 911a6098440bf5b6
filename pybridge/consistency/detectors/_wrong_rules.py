"""Find the custom rule whose derivative is wrong, by calling each one alone."""

from __future__ import annotations

import contextlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr

from ...finite import Curve, directional_derivative
from ...jaxprs import (
    Location,
    closed_over,
    contains,
    equations,
    inner_jaxprs,
    is_of_jax,
    jax_function,
    user_line,
)
from ..subject import Arrays, Seen, walk
from ._rule_values import RULES, rule_name

_CALLS = 20


def wrong_rule(
    closed: ClosedJaxpr | None, xs: Arrays, eps: float
) -> tuple[str, Location | None, str] | None:
    """Find the first custom rule that differs from differences of its own function.

    Args:
        closed: the program.
        xs: its arguments.
        eps: the relative rounding error of its numbers.

    Returns:
        The function's name, where it is called, and the operation; None if all rules are right.
    """
    if closed is None or not contains(closed, RULES):
        return None
    found: list[tuple[str, Location | None, str]] = []
    calls = 0

    def visit(seen: Seen) -> None:
        nonlocal calls
        calls += 1
        if found or calls > _CALLS:
            return
        with contextlib.suppress(Exception):
            if _is_wrong(seen, eps):
                found.append((rule_name(seen.eqn), seen.line, seen.eqn.primitive.name))

    walk(closed, xs, RULES, visit)
    return found[0] if found else None


def rule_line(closed: ClosedJaxpr | None) -> tuple[Location | None, str | None]:
    """Find the first function with a custom rule of the user's own; JAX's are not meant."""
    for eqn in equations(closed) if closed is not None else ():
        inner = next(inner_jaxprs(eqn), None)
        if eqn.primitive.name in RULES and inner is not None:
            if not is_of_jax(inner) and not jax_function(eqn):
                return user_line(eqn), eqn.primitive.name
    return None, None


def _is_wrong(seen: Seen, eps: float) -> bool:
    """Compare a rule with differences along a random direction, and a weighted sum of results."""
    rng = np.random.default_rng(0)
    constants = closed_over(seen.eqn)
    moving = [i for i, x in enumerate(seen.ins) if i >= constants and _moves(x)]
    kept = [i for i, y in enumerate(seen.outs) if _moves(y)]
    point = [np.asarray(seen.ins[i]) for i in moving]
    vs = [np.asarray(rng.standard_normal(x.shape) * np.maximum(1.0, np.abs(x)), x.dtype)
          for x in point]  # fmt: skip
    weights = [np.asarray(rng.uniform(0.5, 1.5, np.shape(seen.outs[i]))) for i in kept]

    def total(*xs: Any) -> Any:
        outs = seen.run_with(moving, xs)
        return sum(
            jnp.sum((outs[i] * jnp.asarray(w, outs[i].dtype)).real)
            for i, w in zip(kept, weights, strict=True)
        )

    compiled = jax.jit(total)

    def sample(ts: np.ndarray) -> np.ndarray:
        rows = [compiled(*[np.asarray(x + t * v, x.dtype) for x, v in zip(point, vs, strict=True)])
                for t in ts]  # fmt: skip
        return np.asarray(rows, float)[:, None]

    origin = np.asarray(compiled(*point), float)[None]
    reference = directional_derivative(Curve(sample, origin, eps=eps), np.ones(1))
    if reference.kind != "smooth":
        return False
    slack = 10.0 * reference.error + 1e-6 * abs(reference.value)
    derivatives = []
    with contextlib.suppress(Exception):
        gs = jax.grad(total, argnums=tuple(range(len(point))))(*map(jnp.asarray, point))
        pairs = zip(gs, vs, strict=True)
        derivatives.append(float(sum(np.sum(np.real(np.asarray(g) * v)) for g, v in pairs)))
    with contextlib.suppress(Exception):
        arrays = tuple(map(jnp.asarray, point))
        derivatives.append(float(jax.jvp(total, arrays, tuple(map(jnp.asarray, vs)))[1]))
    return any(abs(derivative - reference.value) > slack for derivative in derivatives)


def _moves(x: Any) -> bool:
    return bool(jnp.issubdtype(jnp.result_type(x), np.inexact))
