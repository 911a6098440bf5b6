"""What rounding on the way does to the results of a program in double precision."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from ...subject import Arrays
from ._extended_run import NotFollowedError, run_extended
from ._precisions import IS_EXTENDED, double_dtype, widened


def rounding_errors(function: Callable[..., Any], xs: Arrays) -> list[np.ndarray] | None:
    """Run a function in its own precision and in extended precision beside it.

    Args:
        function: of a list of arrays.
        xs: the arrays.

    Returns:
        By how much the two differ, for each leaf of its value; None where the function cannot be
        followed in extended precision, or where that is double precision.
    """
    if not IS_EXTENDED:
        return None
    try:
        closed = jax.make_jaxpr(lambda *xs: function(xs))(*xs)
    except Exception:  # whatever the function raises
        return None
    try:
        run = run_extended(closed, [np.asarray(x) for x in xs], beside=True)
    except NotFollowedError:
        return None
    pairs = ([widened(x) for x in run.values[place]] for place in run.outputs)
    with np.errstate(all="ignore"):
        return [(own - exact).astype(double_dtype(own.dtype)) for own, exact in pairs]
