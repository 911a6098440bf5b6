"""Functions with a custom rule: whether each one's value and derivative are the function's."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

from ...finite import TOLERANCES, Curve, directional_derivative
from ...jaxprs import (
    RULED_CALLS,
    SOLVERS,
    called_name,
    called_program,
    closed_over,
    contains,
    is_of_jax,
    jax_function,
)
from ..subject import Arrays, Place, Seen, first_place, moved, walk
from .precision import NotFollowedError, run_by_steps

RULES = RULED_CALLS

# A solver has rules as well: the caller says how the transposed system is solved.
_WITH_RULES = RULES | SOLVERS

# So many calls of rules are compared with differences.
_CALLS = 20


class RuleFault(NamedTuple):
    """A custom rule whose value is not its function's.

    Attributes:
        name: of the function that has the rule.
        place: where it is called.
        plain: the value without the rule, where they differ most.
        inside: the value with it.
        difference: by how much they differ, relative to the largest value.
    """

    name: str
    place: Place
    plain: float
    inside: float
    difference: float


def rule_place(closed: ClosedJaxpr | None) -> Place:
    """Find the first function with a custom rule of the user's own; JAX's are not meant."""
    return first_place(closed, is_users_rule)


def is_users_rule(eqn: Any) -> bool:
    """Tell whether an equation calls a function with a rule that is not JAX's own."""
    inner = called_program(eqn) if eqn.primitive.name in RULES else None
    return inner is not None and not is_of_jax(inner) and not jax_function(eqn)


def rule_name(eqn: Any) -> str:
    """Find the name of the function that a rule belongs to."""
    if eqn.primitive.name in SOLVERS:
        return f"lax.{eqn.primitive.name}"
    inner = called_program(eqn)
    name = called_name(eqn).rpartition(".")[2]
    if inner is not None and is_of_jax(inner):
        name = name.lstrip("_")  # lax.custom_root calls _custom_root
    return name or "a function"


def largest_gap(a: Any, b: Any, unit: np.ndarray | float) -> tuple[float, tuple[int, ...]]:
    """Find where two arrays differ most, in a unit for each element; NaN agrees with NaN."""
    with np.errstate(all="ignore"):
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        gap = np.where(same, 0.0, np.abs(a - b) / (unit + np.finfo(float).tiny))
    gap = np.where(np.isnan(gap), np.inf, gap)
    place = np.unravel_index(int(np.argmax(gap)), gap.shape)
    return float(gap[place]), tuple(map(int, place))


# --- values ---------------------------------------------------------------------------------------


def faulty_rules(closed: ClosedJaxpr, xs: Arrays, eps: float) -> list[RuleFault]:
    """Call every custom rule of a program with the operands that it meets there.

    Args:
        closed: the program.
        xs: its arguments.
        eps: the relative difference that is reported; 0 for any.

    Returns:
        The rules whose value differs from their function's, the largest difference first.
    """
    found: dict[Any, RuleFault] = {}
    if not contains(closed, RULES):
        return []

    def visit(seen: Seen) -> None:
        with contextlib.suppress(Exception):
            fault = _compare_value(seen, eps)
            if fault is not None:
                key = fault.name, fault.place.location
                if key not in found or found[key].difference < fault.difference:
                    found[key] = fault

    walk(closed, xs, RULES, visit)
    return sorted(found.values(), key=lambda fault: -fault.difference)


def _compare_value(seen: Seen, eps: float) -> RuleFault | None:
    moving = [i for i, x in enumerate(seen.ins) if moves(x)]
    point = [jnp.asarray(seen.ins[i]) for i in moving]

    def run(*xs: Any) -> list[Any]:
        return seen.run_with(moving, xs)

    def plain_and_inside(*xs: Any) -> Any:
        if seen.eqn.primitive.name == "custom_jvp_call":
            inside, _ = jax.jvp(run, xs, tuple(map(jnp.zeros_like, xs)))
        else:
            inside, _ = jax.vjp(run, *xs)
        return run(*xs), inside

    # Op by op on both sides: what XLA would fuse differently is no fault of the rule.
    both = jax.make_jaxpr(plain_and_inside)(*point)
    try:
        results = run_by_steps(both, point)
    except NotFollowedError:
        results = list(map(np.asarray, jaxpr_as_fun(both)(*point)))
    plain, inside = results[: len(results) // 2], results[len(results) // 2 :]
    best = None
    sizes = [float(np.max(np.abs(x), initial=0.0)) for x in map(np.asarray, point)]
    smallest = 1e-3 * max(sizes, default=0.0) if eps else 0.0
    for a, b in zip(plain, inside, strict=True):
        if not moves(a) or not a.size:
            continue
        with np.errstate(all="ignore"):
            size = max(float(np.max(np.abs(a[np.isfinite(a)]), initial=0.0)), smallest)
        gap, at = largest_gap(a, b, size)
        if gap > eps and (best is None or gap > best.difference):
            place = Place(seen.line, seen.eqn.primitive.name)
            numbers = float(np.real(a[at])), float(np.real(b[at]))
            best = RuleFault(rule_name(seen.eqn), place, *numbers, gap)
    return best


# --- derivatives ----------------------------------------------------------------------------------


def wrong_rule(closed: ClosedJaxpr | None, xs: Arrays, eps: float) -> tuple[str, Place] | None:
    """Find the first custom rule that differs from differences of its own function.

    Args:
        closed: the program.
        xs: its arguments.
        eps: the relative rounding error of its numbers.

    Returns:
        The function's name, and where it is called; None if all rules are right.
    """
    if closed is None or not contains(closed, _WITH_RULES):
        return None
    found: list[tuple[str, Place]] = []
    calls = 0

    def visit(seen: Seen) -> None:
        nonlocal calls
        calls += 1
        if found or calls > _CALLS:
            return
        with contextlib.suppress(Exception):
            if _is_wrong(seen, eps):
                found.append((rule_name(seen.eqn), Place(seen.line, seen.eqn.primitive.name)))

    walk(closed, xs, _WITH_RULES, visit)
    return found[0] if found else None


def _is_wrong(seen: Seen, eps: float) -> bool:
    """Compare a rule with differences along a random direction, and a weighted sum of results."""
    rng = np.random.default_rng(0)
    constants = closed_over(seen.eqn)
    if seen.eqn.primitive.name in SOLVERS:
        constants = len(seen.ins) - len(seen.eqn.outvars)  # all but the right-hand side
    moving = [i for i, x in enumerate(seen.ins) if i >= constants and moves(x)]
    results = [v.aval for v in seen.eqn.outvars]
    kept = [i for i, y in enumerate(results) if moves(y)]
    point = [np.asarray(seen.ins[i]) for i in moving]
    vs = [
        np.asarray(_draw(rng.standard_normal, x) * np.maximum(1.0, np.abs(x)), x.dtype)
        for x in point
    ]
    weights = [_draw(partial(rng.uniform, 0.5, 1.5), results[i]) for i in kept]

    def total(*xs: Any) -> Any:
        outs = seen.run_with(moving, xs)
        pairs = zip([outs[i] for i in kept], weights, strict=True)
        return sum(jnp.sum((y * jnp.asarray(w, y.dtype)).real) for y, w in pairs)

    compiled = jax.jit(total)

    def sample(ts: np.ndarray) -> np.ndarray:
        return np.asarray([compiled(*moved(point, vs, t)) for t in ts], float)[:, None]

    origin = np.asarray(compiled(*point), float)[None]
    reference = directional_derivative(Curve(sample, origin, eps=eps), np.ones(1))
    if reference.kind != "smooth":
        return False
    slack = TOLERANCES.estimates * reference.error + 1e-6 * abs(reference.value)
    arrays, tangents = tuple(map(jnp.asarray, point)), tuple(map(jnp.asarray, vs))

    def reverse() -> float:
        gs = jax.grad(total, argnums=tuple(range(len(point))))(*arrays)
        return sum(np.sum(np.real(np.asarray(g) * v)) for g, v in zip(gs, vs, strict=True))

    def forward() -> Any:
        return jax.jvp(total, arrays, tangents)[1]

    return any(_differs(mode, reference.value, slack) for mode in (reverse, forward))


def _draw(real: Callable[..., Any], like: Any) -> Any:
    """Draw numbers of a shape; complex ones for complex numbers, whose rule may be half right."""
    x = real(size=like.shape)
    is_complex = jnp.issubdtype(like.dtype, np.complexfloating)
    return x + 1j * real(size=like.shape) if is_complex else x


def _differs(derivative: Callable[[], Any], reference: float, slack: float) -> bool:
    """Say whether a derivative is another one; one that cannot be had is not."""
    with contextlib.suppress(Exception):
        return abs(float(derivative()) - reference) > slack
    return False


def moves(x: Any) -> bool:
    """Tell whether a value has tangents: whether it is of real or complex numbers."""
    return bool(jnp.issubdtype(jnp.result_type(x), np.inexact))
