"""What JAX gives in the caller's own precision, where that is not double precision."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ._compilation import compiled
from ._subject import Arrays, Subject
from ._systems import Weighted


@dataclass(frozen=True)
class OwnPrecision:
    """What JAX gives in the caller's own precision.

    Attributes:
        eps: the relative rounding error of that precision.
        xs: the leaves.
        plain: the plain value.
        values: the value under differentiation, by mode.
        gradients: the gradients; empty where there are none.
    """

    eps: float
    xs: tuple[Any, ...]
    plain: tuple[np.ndarray, ...]
    values: dict[str, tuple[np.ndarray, ...]]
    gradients: tuple[np.ndarray, ...]


def ask_in_own_precision(
    subject: Subject, weighted: Weighted, modes: Sequence[str]
) -> OwnPrecision | None:
    """Ask JAX at the given point in the caller's own precision, all in one program.

    Args:
        subject: what is checked.
        weighted: the weights of its outputs.
        modes: those that worked in double precision.

    Returns:
        The answers; None where double precision is the caller's own.
    """
    xs = tuple(jnp.asarray(x) for x in subject.given)
    if subject.is_julia or all(x.real.dtype == subject.dtype for x in xs):
        return None

    def all_of_it(xs: Arrays) -> Any:
        found: dict[str, Any] = {"plain": subject.call(xs)}
        if "reverse" in modes:
            found["reverse"], found["gradients"] = weighted.value_and_gradient(xs)
        if "forward" in modes:
            zeros = tuple(jnp.zeros_like(x) for x in xs)
            found["forward"], _ = subject.value_and_tangent(xs, zeros)
        return found

    with contextlib.suppress(Exception):
        found = (compiled(all_of_it, subject.jaxpr) if subject.traced else all_of_it)(xs)
        found = jax.tree.map(np.asarray, found)
        largest = max(float(jnp.finfo(x.dtype).eps) for x in xs)
        values = {mode: found[mode] for mode in ("reverse", "forward") if mode in found}
        return OwnPrecision(largest, xs, found["plain"], values, found.get("gradients", ()))
    return None
