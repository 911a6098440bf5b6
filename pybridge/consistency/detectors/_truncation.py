"""Casts to single precision in a function of double precision."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr

from ...jaxprs import Location, equations, jax_function, user_line
from ..findings import Finding
from ..subject import Subject, coarsest, rounding_of

_DOUBLE = (np.float64, np.complex128)


def detect_truncation(subject: Subject) -> list[Finding]:
    """Note the first cast of double precision to a narrower one in the user's own code."""
    if subject.is_julia:
        is_double = any(np.asarray(x).dtype in _DOUBLE for x in subject.given)
        seen = subject.sightings.first("narrow") if is_double else None
        found = (seen.name.lower(), seen.location) if seen is not None else None
        systems, primitive = (), seen.name if seen is not None else None
    else:
        is_double = any(getattr(x, "dtype", None) in _DOUBLE for x in subject.given)
        found = _find_cast(subject.jaxpr) if is_double and subject.jaxpr is not None else None
        systems, primitive = ("jax",), "convert_element_type"
    if found is None:
        return []
    dtype, location = found
    digits = int(-np.log10(float(jnp.finfo(dtype).eps)))
    return [
        Finding(
            "precision",
            "note",
            f"the arguments are in double precision, and a cast to {dtype} leaves {digits} digits",
            systems=systems,
            mode="value",
            location=location,
            primitive=primitive,
            numbers={"digits": digits},
            advice="Differences see these digits alone, and the table shows them. Leave the cast "
            "out, or cast to the dtype of the argument.",
        )
    ]


def _find_cast(closed: ClosedJaxpr) -> tuple[str, Location] | None:
    """Find the first cast of the user's own, with the narrower dtype."""
    if coarsest(closed) <= np.finfo(np.float64).eps:
        return None
    for eqn in equations(closed):
        line = user_line(eqn)
        if eqn.primitive.name != "convert_element_type" or line is None or jax_function(eqn):
            continue
        before, after = eqn.invars[0].aval, eqn.outvars[0].aval
        if before.dtype in _DOUBLE and rounding_of(after) > 1e-15:
            return str(after.dtype), line
    return None
