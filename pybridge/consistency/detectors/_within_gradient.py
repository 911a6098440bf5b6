"""Functions that ask `within_gradient`: what they are inside a gradient."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.core import ShapedArray
from jax.extend.core import ClosedJaxpr, Primitive, jaxpr_as_fun
from jax.interpreters import ad, batching, mlir

from ...finite import DirectionalDerivative
from ...jaxprs import contains, substitute
from ...primitives import within_gradient_p
from ..findings import Finding
from ..subject import (
    Arrays,
    JuliaSystem,
    Line,
    Point,
    References,
    Subject,
    Weighted,
    Who,
    at_many,
    one_by_one,
    own_mode,
    robust,
    system_names,
)
from ._context import Context
from ._primal_values import ASKS, asking_place, mode_dependent

Inside = Callable[[Arrays], Any]

# The question with the answer True, whoever asks.
_answered_p = Primitive("within_gradient_answered")
_BOOL = ShapedArray((), np.dtype(np.bool_))
_answered_p.def_impl(lambda *operands: np.True_)
_answered_p.def_abstract_eval(lambda *avals: _BOOL)
mlir.register_lowering(
    _answered_p, mlir.lower_fun(lambda *operands: np.True_, multiple_results=False)
)
ad.primitive_jvps[_answered_p] = lambda primals, tangents: (
    np.True_,
    ad.Zero(_BOOL.to_tangent_aval()),
)
batching.primitive_batchers[_answered_p] = lambda operands, dims: (
    _answered_p.bind(*operands),
    None,
)


def find_inside(
    subject: Subject, systems: Sequence[Any], heard: bool, weighted: Weighted
) -> Inside | None:
    """Find the function as it is inside a gradient, if it asks where it is.

    Args:
        subject: what is checked.
        systems: the AD systems.
        heard: whether JAX answered the question with True while it differentiated the function.
        weighted: the weights of its outputs.
    """
    if subject.is_julia:
        return _find_inside_julia(subject, weighted)
    if subject.jaxpr is not None:
        # Of what is not differentiated, JAX's answer is False everywhere.
        unheard = not heard and any(system.name == "jax" for system in systems)
        asks = contains(subject.jaxpr, ASKS) and not unheard
        return _as_if_differentiated(subject.jaxpr) if asks else None
    if not heard:
        return None

    def inside(xs: Arrays) -> Any:
        arrays = tuple(map(jnp.asarray, xs))
        return subject.value_and_tangent(arrays, tuple(map(jnp.zeros_like, arrays)))[0]

    return inside


def _as_if_differentiated(closed: ClosedJaxpr) -> Inside:
    """Make the function that a program is when each of its questions is answered with True."""
    run = jaxpr_as_fun(substitute(closed, within_gradient_p.name, _answered_p))
    return lambda xs: tuple(run(*xs))


def _find_inside_julia(subject: Subject, weighted: Weighted) -> Inside | None:
    """Call a Julia function that was heard to ask with ForwardDiff's numbers, or under Zygote."""
    if subject.sightings.asks is None:
        return None
    if subject.sightings.is_stopped:
        zygote = JuliaSystem("zygote", subject, weighted, second=False)
        return lambda xs: zygote.reverse(xs)[0]
    forward = JuliaSystem("forwarddiff", subject, weighted, second=False)
    return lambda xs: forward.forward(xs, tuple(map(np.zeros_like, xs)))[0]


def differentiate_inside(point: Point, inside: Inside) -> Point | None:
    """Return the point with differences of the function as it is inside a gradient.

    Returns:
        The point; None if two calls inside a gradient do not give the same value.
    """
    subject, weighted = point.subject, point.weighted

    def flat(xs: Arrays) -> Any:
        return weighted.flat(inside(xs))

    size = weighted.flat_weights.size
    values = one_by_one(flat, size) if subject.is_julia else robust(at_many(flat, subject), size)
    answered, again = (tuple(map(np.asarray, inside(point.xs))) for _ in range(2))
    if not all(map(np.array_equal, answered, again, [True] * len(again))):
        return None
    return replace(point, references=References(subject, weighted, point.xs, values, answered))


def detect_mode_dependence(context: Context) -> list[Finding]:
    """Find out what asking `within_gradient` does.

    Returns:
        A note where the derivative is another inside, and the value the same. An error where a
        system takes the value from outside and the derivative from inside. A warning where calls
        inside differ.
    """
    point = context.point
    if context.inside is None:
        return []
    if not context.repeats_inside:
        return [_random(point)]
    if not np.allclose(point.origin, point.weighted.flat(point.plain), rtol=1e-10):
        return _find_mixed(point, context.outside)  # the values tell
    for line, outside in zip(point.lines[:3], context.outside, strict=False):
        within = point.along(line)
        if _differ(outside, within.value):
            numbers = {"plain": outside.value, "inside": within.value}
            title = "the function asks within_gradient, and has another derivative inside"
            names = system_names(point.derivatives)
            return [mode_dependent(point, title, numbers, names)]
    return []


def _random(point: Point) -> Finding:
    return point.finding(
        "random",
        "warning",
        "two calls inside a gradient give different numbers",
        system_names(point.derivatives),
        place=asking_place(point),
        advice="Derivatives were not compared: none is defined. Give the layer a fixed mask, or a "
        "key as PyBridge.dropout takes one.",
    )


def _differ(reference: DirectionalDerivative, derivative: float) -> bool:
    return bool(
        np.isfinite(reference.value) and not np.isclose(reference.value, derivative, rtol=1e-6)
    )


def _find_mixed(point: Point, outside: Sequence[DirectionalDerivative]) -> list[Finding]:
    """Report a derivative whose value is that of the function outside of a gradient.

    The value is then the plain one, although it is another inside, and the gradient is not that of
    the plain function. What is asked of values that are not differentiated gives neither.
    """
    flat = point.weighted.flat
    plain = np.asarray(flat(point.plain), float)
    if np.allclose(point.origin, plain, rtol=1e-6):
        return []
    for who, ys in point.answers.values.items():
        if not ys or not np.allclose(flat(ys), plain, rtol=1e-6):
            continue
        for line, reference in zip(point.lines, outside, strict=True):
            derivative = point.derivative(who, line)
            gap = abs(derivative - reference.value)
            if reference.kind == "smooth" and point.tolerance(reference, derivative, line) < gap:
                return [_mixed(point, who, line, derivative, reference)]
    return []


def _mixed(
    point: Point, who: Who, line: Line, derivative: float, outside: DirectionalDerivative
) -> Finding:
    unit, weights = point.unit(line), point.weighted.flat_weights
    value = float(np.asarray(point.weighted.flat(point.plain), float) @ weights)
    inside = float(point.origin @ weights)
    return point.finding(
        "mode-dependent",
        "error",
        f"the value {value:.6g} is that outside of a gradient, and the derivative "
        f"{derivative / unit:.6g} is not: no function has both",
        [who[0]],
        line=line,
        place=asking_place(point),
        mode=own_mode([who]),
        numbers={
            "value": value,
            "value inside": inside,
            who[0]: derivative / unit,
            "derivative outside": outside.value / unit,
            "derivative inside": point.along(line).value / unit,
        },
        advice="The value was computed before the derivative was asked for: by lax.custom_root, "
        "jax.export, a checkpointed loop of another library. Give the mode explicitly there, "
        "training=True for a layer, so that both have the same.",
    )
