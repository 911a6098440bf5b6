"""Casts to single precision in a function of double precision."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr

from ...jaxprs import Location, equations, jax_function, user_line
from ..findings import Finding
from ..subject import Subject, coarsest, rounding_of


def detect_truncation(subject: Subject) -> list[Finding]:
    """Note a cast to single precision in a function of double precision."""
    if subject.is_julia:
        is_double = any(np.asarray(x).dtype in (np.float64, np.complex128) for x in subject.given)
        seen = subject.sightings.first("narrow") if is_double else None
        if seen is None:
            return []
        return _note(seen.name.lower(), seen.location, (), seen.name)
    found = find_truncation(subject.jaxpr, subject.given) if subject.jaxpr else None
    if found is None:
        return []
    line, dtype = found
    return _note(dtype, line, ("jax",), "convert_element_type")


def find_truncation(closed: ClosedJaxpr, xs: Sequence[Any]) -> tuple[Location, str] | None:
    """Find the first cast of double precision to a narrower one in the user's own code.

    Args:
        closed: the program.
        xs: its arguments, of which one at least is to be in double precision.

    Returns:
        The line and the narrower dtype; None where there is none.
    """
    if coarsest(closed) <= np.finfo(np.float64).eps:
        return None
    if not any(getattr(x, "dtype", None) in (np.float64, np.complex128) for x in xs):
        return None
    for eqn in equations(closed):
        line = user_line(eqn)
        if eqn.primitive.name != "convert_element_type" or line is None or jax_function(eqn):
            continue
        before, after = eqn.invars[0].aval, eqn.outvars[0].aval
        if before.dtype in (np.float64, np.complex128) and rounding_of(after) > 1e-15:
            return line, str(after.dtype)
    return None


def _note(
    dtype: str, line: Location | None, systems: tuple[str, ...], primitive: str
) -> list[Finding]:
    """Say that a function of double precision computes a part of itself in a narrower one."""
    digits = int(-np.log10(float(jnp.finfo(dtype).eps)))
    return [
        Finding(
            "precision",
            "note",
            f"the arguments are in double precision, and a cast to {dtype} leaves {digits} digits",
            systems=systems,
            mode="value",
            location=line,
            primitive=primitive,
            numbers={"digits": digits},
            advice="Differences see these digits alone, and the table shows them. Leave the cast "
            "out, or cast to the dtype of the argument.",
        )
    ]
