"""Operations that NumPy does not have, run by JAX: as they are, or in float64."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from ....finite import double_precision
from ....jaxprs import bound_equation
from ._precisions import double_dtype, is_inexact, is_key, widened

# Linear in what they move: what extended precision adds can be moved alone.
_MOVES = frozenset({"gather", "scatter", "scatter-add", "scatter_add"})


def run_natively(eqn: Any, ins: list[Any]) -> list[Any]:
    """Let JAX run an operation as it is, in the dtypes that it declares."""
    dtypes = [v.aval.dtype for v in eqn.invars]
    args = [x if is_key(d) else jnp.asarray(np.asarray(x), d)
            for x, d in zip(ins, dtypes, strict=True)]  # fmt: skip
    return _as_numpy(bound_equation(eqn)(*args))


def run_in_double(eqn: Any, ins: list[Any]) -> list[Any]:
    """Let JAX run an operation on numbers of extended precision, rounded to float64.

    What only moves or adds numbers is run twice, the second time on what a double leaves of them.
    """
    if eqn.primitive.name == "bitcast_convert_type":
        return run_natively(eqn, ins)
    are_inexact = [is_inexact(v.aval.dtype) for v in eqn.invars]
    highs = [x.astype(double_dtype(x.dtype)) if inexact else x
             for x, inexact in zip(ins, are_inexact, strict=True)]  # fmt: skip
    outs = _run_in_double(eqn, highs)
    if eqn.primitive.name not in _MOVES:
        return outs
    lows = [
        np.where(np.isfinite(high), x - high, 0.0).astype(high.dtype) if inexact else x
        for x, high, inexact in zip(ins, highs, are_inexact, strict=True)
    ]
    return [
        np.where(np.isfinite(low), widened(high) + low, high)
        for high, low in zip(outs, _run_in_double(eqn, lows), strict=True)
    ]


def _run_in_double(eqn: Any, ins: list[Any]) -> list[Any]:
    """Run an operation in float64, whatever its parameters say about dtypes."""
    params = {
        name: double_dtype(value)
        if isinstance(value, np.dtype | type) and is_inexact(value)
        else value
        for name, value in eqn.params.items()
    }
    with double_precision():
        args = [x if is_key(v.aval.dtype) else jnp.asarray(x)
                for x, v in zip(ins, eqn.invars, strict=True)]  # fmt: skip
        if eqn.primitive.name.startswith("scatter"):
            # The program of its updates is of the declared dtype.
            scatter = getattr(lax, eqn.primitive.name.replace("-", "_"))
            kept = ("dimension_numbers", "indices_are_sorted", "unique_indices", "mode")
            return _as_numpy([scatter(*args, **{name: params[name] for name in kept})])
        return _as_numpy(bound_equation(eqn.replace(params=params))(*args))


def _as_numpy(outs: list[Any]) -> list[Any]:
    return [y if is_key(y.dtype) else np.asarray(y) for y in outs]
