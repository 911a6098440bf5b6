"""Compare a function's plain value with the value that it has under differentiation."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import ShapedArray
from jax.extend.core import ClosedJaxpr, Primitive, jaxpr_as_fun
from jax.interpreters import ad, batching, mlir

from ...jaxprs import RULED_CALLS, Location, called_program, contains, substitute
from ...primitives import within_gradient_p
from ..subject import Arrays, Seen, walk

RULES = frozenset(RULED_CALLS)
ASKS = frozenset({within_gradient_p.name})

# A value may differ by this many units in the last place, and by as many of what rounding the
# arguments does to it: compiled programs add up in another order.
_ULPS = 64.0


class RuleFault(NamedTuple):
    """A custom rule whose value is not its function's.

    Attributes:
        name: of the function that has the rule.
        primitive: `"custom_jvp_call"` or `"custom_vjp_call"`.
        line: where it is called.
        plain: the value without the rule, where they differ most.
        inside: the value with it.
        difference: by how much they differ, relative to the largest value.
    """

    name: str
    primitive: str
    line: Location | None
    plain: float
    inside: float
    difference: float


def tolerance(ys: Arrays, eps: float, sensitivity: float) -> list[np.ndarray]:
    """Say by how much each output may differ for no other reason than rounding.

    Args:
        ys: the outputs.
        eps: the relative rounding error of their precision.
        sensitivity: the sum of |derivative times argument|, for one output.

    Returns:
        One array for each output.
    """
    return [_ULPS * eps * (np.abs(np.asarray(y, np.complex128)) + sensitivity) for y in ys]


def worst(one: Arrays, two: Arrays, tolerances: Sequence[np.ndarray]) -> tuple[float, int, Any]:
    """Find where two values differ most, in units of the tolerance.

    Returns:
        The ratio, the number of the output, and the index in it. NaN agrees with NaN.
    """
    best: tuple[float, int, Any] = 0.0, 0, ()
    with np.errstate(all="ignore"):
        for number, (a, b, allowed) in enumerate(zip(one, two, tolerances, strict=True)):
            a, b = np.asarray(a), np.asarray(b)
            if a.shape != b.shape or not a.size:
                continue
            same = (a == b) | (np.isnan(a) & np.isnan(b))
            ratio = np.where(same, 0.0, np.abs(a - b) / (allowed + np.finfo(float).tiny))
            ratio = np.where(np.isnan(ratio), np.inf, ratio)
            place = np.unravel_index(int(np.argmax(ratio)), ratio.shape)
            if ratio[place] > best[0]:
                best = float(ratio[place]), number, tuple(map(int, place))
    return best


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
            fault = _compare_rule(seen, eps)
            if fault is not None:
                key = fault.name, fault.line
                if key not in found or found[key].difference < fault.difference:
                    found[key] = fault

    walk(closed, xs, RULES, visit)
    return sorted(found.values(), key=lambda fault: -fault.difference)


def _compare_rule(seen: Seen, eps: float) -> RuleFault | None:
    name = seen.eqn.primitive.name
    moving = [i for i, x in enumerate(seen.ins) if jnp.issubdtype(jnp.result_type(x), np.inexact)]

    def run(*xs: Any) -> list[Any]:
        return seen.run_with(moving, xs)

    point = [jnp.asarray(seen.ins[i]) for i in moving]
    if name == "custom_jvp_call":
        inside, _ = jax.jvp(run, point, [jnp.zeros_like(x) for x in point])
    else:
        inside, _ = jax.vjp(run, *point)
    # Op by op on both sides: what XLA would fuse differently is no fault of the rule.
    plain = seen.outs
    best = None
    largest_in = max((float(np.max(np.abs(x), initial=0.0)) for x in map(np.asarray, point)),
                     default=0.0)  # fmt: skip
    for a, b in zip(plain, inside, strict=True):
        a, b = np.asarray(a), np.asarray(b)
        if not jnp.issubdtype(a.dtype, np.inexact) or not a.size:
            continue
        with np.errstate(all="ignore"):
            size = np.max(np.abs(a[np.isfinite(a)]), initial=0.0)
            size = max(float(size), 1e-3 * largest_in if eps else 0.0)
            same = (a == b) | (np.isnan(a) & np.isnan(b))
            gap = np.where(same, 0.0, np.abs(a - b) / (size + np.finfo(float).tiny))
        gap = np.where(np.isnan(gap), np.inf, gap)
        place = np.unravel_index(int(np.argmax(gap)), gap.shape)
        if gap[place] > eps and (best is None or gap[place] > best.difference):
            best = RuleFault(rule_name(seen.eqn), name, seen.line,
                             _number(a[place]), _number(b[place]), float(gap[place]))  # fmt: skip
    return best


def _number(x: Any) -> float:
    return float(x.real) if np.iscomplexobj(x) else float(x)


def rule_name(eqn: Any) -> str:
    """Find the name of the function that a rule belongs to."""
    inner = called_program(eqn)
    name = inner.jaxpr.debug_info.func_name if inner is not None else ""
    return name.rpartition(".")[2] or "a function"


# --- within_gradient -----------------------------------------------------------------------

# The question with the answer True, whoever asks.
_answered_p = Primitive("within_gradient_answered")
_answered_p.def_impl(lambda *operands: np.True_)
_answered_p.def_abstract_eval(lambda *avals: ShapedArray((), np.dtype(np.bool_)))
mlir.register_lowering(
    _answered_p, mlir.lower_fun(lambda *operands: np.True_, multiple_results=False)
)
ad.primitive_jvps[_answered_p] = lambda primals, tangents: (
    np.True_,
    ad.Zero(ShapedArray((), np.dtype(np.bool_)).to_tangent_aval()),
)
batching.primitive_batchers[_answered_p] = lambda operands, dims: (
    _answered_p.bind(*operands),
    None,
)


def asks_within_gradient(closed: ClosedJaxpr | None) -> bool:
    """Say whether a program asks `within_gradient` anywhere."""
    return closed is not None and contains(closed, ASKS)


def as_if_differentiated(closed: ClosedJaxpr) -> Callable[..., tuple[Any, ...]]:
    """Make the function that a program is when each of its questions is answered with True."""
    run = jaxpr_as_fun(substitute(closed, within_gradient_p.name, _answered_p))
    return lambda xs: tuple(run(*xs))
