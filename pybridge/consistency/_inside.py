"""Functions that ask `within_gradient`: what they are inside a gradient."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ._ask import at_many, robust
from ._findings import Finding
from ._plain import mode_dependent
from ._point import Point
from ._subject import Arrays, Subject
from ._values import as_if_differentiated, asks_within_gradient

Inside = Callable[[Arrays], Any]

# Julia source that does something else inside a gradient says so.
_JULIA_ASKS = re.compile(r"within_gradient|is_differentiating|[Dd]ropout|BatchNorm|batchnorm")


def find_inside(subject: Subject, systems: Sequence[Any], heard: bool) -> Inside | None:
    """Find the function as it is inside a gradient, if it asks where it is.

    Args:
        subject: what is checked.
        systems: the AD systems; a Julia function is called with ForwardDiff's numbers.
        heard: whether JAX answered the question with True while it ran the function.
    """
    if subject.is_julia:
        forward = [s for s in systems if s.name == "forwarddiff"]
        if not forward or not _JULIA_ASKS.search(subject.name):
            return None
        return lambda xs: forward[0].forward(xs, tuple(map(np.zeros_like, xs)))[0]
    if subject.jaxpr is not None:
        asks = asks_within_gradient(subject.jaxpr)
        return as_if_differentiated(subject.jaxpr) if asks else None
    if not heard:
        return None

    def inside(xs: Arrays) -> Any:
        arrays = tuple(map(jnp.asarray, xs))
        zeros = tuple(map(jnp.zeros_like, arrays))
        return jax.jvp(lambda *ys: subject.call(ys), arrays, zeros)[0]

    return inside


def compare_with_inside(point: Point, inside: Inside) -> list[Finding]:
    """Take differences of the function as it is inside a gradient from here on.

    Returns:
        A note where the slope is another there, and the value the same.
    """
    subject, weighted = point.subject, point.weighted

    def flat(xs: Arrays) -> Any:
        return weighted.flat(inside(xs))

    def one_by_one(xs: Arrays, vs: Arrays, ts: np.ndarray) -> np.ndarray:
        moved = ([np.asarray(x + t * v) for x, v in zip(xs, vs, strict=True)] for t in ts)
        return np.stack([np.asarray(flat(tuple(ys))) for ys in moved])

    many = one_by_one if subject.is_julia else at_many(flat, subject)
    before = [point.along(line) for line in point.lines[:3]]
    point.see(robust(many, weighted.flat_weights.size), tuple(map(np.asarray, inside(point.xs))))
    if not np.allclose(point.origin, weighted.flat(point.plain), rtol=1e-10):
        return []  # the values tell
    for line, outside in zip(point.lines, before, strict=False):
        within = point.along(line)
        if np.isfinite(outside.slope) and not np.isclose(outside.slope, within.slope, rtol=1e-6):
            numbers = {"plain": outside.slope, "inside": within.slope}
            title = "the function asks within_gradient, and has another slope inside"
            names = tuple(dict.fromkeys(name for name, _ in point.slopes))
            return [mode_dependent(point, title, numbers, names)]
    return []
