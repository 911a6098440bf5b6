"""Functions that ask `within_gradient`: what they are inside a gradient."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...finite import DirectionalDerivative
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
    own_mode,
    robust,
    system_names,
)
from ._context import Context
from ._primal_values import mode_dependent
from ._rule_values import as_if_differentiated, asks_within_gradient

Inside = Callable[[Arrays], Any]


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
        asks = asks_within_gradient(subject.jaxpr) and not unheard
        return as_if_differentiated(subject.jaxpr) if asks else None
    if not heard:
        return None

    def inside(xs: Arrays) -> Any:
        arrays = tuple(map(jnp.asarray, xs))
        zeros = tuple(map(jnp.zeros_like, arrays))
        return jax.jvp(lambda *ys: subject.call(ys), arrays, zeros)[0]

    return inside


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

    def one_by_one(xs: Arrays, vs: Arrays, ts: np.ndarray) -> np.ndarray:
        moved = ([np.asarray(x + t * v) for x, v in zip(xs, vs, strict=True)] for t in ts)
        return np.stack([np.asarray(flat(tuple(ys))) for ys in moved])

    many = one_by_one if subject.is_julia else at_many(flat, subject)
    answered, again = (tuple(map(np.asarray, inside(point.xs))) for _ in range(2))
    if not all(map(np.array_equal, answered, again, [True] * len(again))):
        return None
    values = robust(many, weighted.flat_weights.size)
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
    note = mode_dependent(point, "", {}, system_names(point.derivatives))
    return replace(
        note,
        kind="random",
        severity="warning",
        title="two calls inside a gradient give different numbers",
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
    plain = np.asarray(point.weighted.flat(point.plain), float)
    for who, ys in point.answers.values.items():
        if not ys or not np.allclose(point.weighted.flat(ys), plain, rtol=1e-6):
            continue
        if np.allclose(point.origin, plain, rtol=1e-6):
            continue
        for line, reference in zip(point.lines, outside, strict=True):
            derivative = point.derivative(who, line)
            if reference.kind == "smooth" and point.tolerance(reference, derivative, line) < abs(
                derivative - reference.value
            ):
                return [_mixed(point, who, line, derivative, reference)]
    return []


def _mixed(
    point: Point, who: Who, line: Line, derivative: float, outside: DirectionalDerivative
) -> Finding:
    unit, weights = point.unit(line), point.weighted.flat_weights
    value = float(np.asarray(point.weighted.flat(point.plain), float) @ weights)
    inside = float(point.origin @ weights)
    note = mode_dependent(point, "", {}, (who[0],))
    return replace(
        note,
        severity="error",
        title=f"the value {value:.6g} is that outside of a gradient, and the derivative "
        f"{derivative / unit:.6g} is not: no function has both",
        mode=own_mode([who]),
        **point.place_of(line),
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
