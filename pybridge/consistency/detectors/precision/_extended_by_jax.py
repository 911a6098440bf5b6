"""Operations that NumPy does not have, run by JAX: as they are, or in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ....finite import double_precision

_SCATTERS: dict[str, Callable[..., Any]] = {
    "scatter": lax.scatter,
    "scatter-add": lax.scatter_add,
    "scatter_add": lax.scatter_add,
    "scatter-mul": lax.scatter_mul,
    "scatter_mul": lax.scatter_mul,
    "scatter-min": lax.scatter_min,
    "scatter_min": lax.scatter_min,
    "scatter-max": lax.scatter_max,
    "scatter_max": lax.scatter_max,
}
# Linear in what they move: what extended precision adds can be moved alone.
_MOVES = frozenset({"gather", "scatter", "scatter-add", "scatter_add"})


def run_natively(eqn: Any, ins: list[Any]) -> list[Any]:
    """Let JAX run an operation as it is, in the dtypes that it declares."""
    functions, params = _bound(eqn)
    dtypes = [v.aval.dtype for v in eqn.invars]
    args = [x if is_key(d) else jnp.asarray(np.asarray(x), d)
            for x, d in zip(ins, dtypes, strict=True)]  # fmt: skip
    outs = eqn.primitive.bind(*functions, *args, **params)
    outs = outs if eqn.primitive.multiple_results else [outs]
    return [y if is_key(y.dtype) else np.asarray(y) for y in outs]


def run_in_double(eqn: Any, ins: list[Any]) -> list[Any]:
    """Let JAX run an operation on numbers of extended precision, rounded to float64.

    What only moves or adds numbers is run twice, the second time on what a double leaves of them.
    """
    if eqn.primitive.name == "bitcast_convert_type":
        return run_natively(eqn, ins)
    if eqn.primitive.name in _MOVES:
        highs = [_double(x) for x in ins]
        lows = [_rest(x, high) for x, high in zip(ins, highs, strict=True)]
        pairs = zip(_in_double(eqn, highs), _in_double(eqn, lows), strict=True)
        return [_joined(high, low) for high, low in pairs]
    return _in_double(eqn, [_double(x) for x in ins])


def is_inexact(dtype: Any) -> bool:
    """Tell whether a dtype is of real or complex floating-point numbers."""
    return bool(jnp.issubdtype(dtype, np.inexact))


def is_key(dtype: Any) -> bool:
    """Tell whether a dtype is that of keys, which NumPy does not know."""
    return bool(jnp.issubdtype(dtype, jax.dtypes.extended))


def _bound(eqn: Any) -> tuple[Any, dict[str, Any]]:
    """Read functions and parameters; older versions of JAX pass functions apart."""
    bound = eqn.primitive.get_bind_params(eqn.params)
    return bound if isinstance(bound, tuple | list) else ((), bound)  # pyright: ignore


def _double(x: Any) -> Any:
    if not hasattr(x, "dtype") or is_key(x.dtype) or not is_inexact(x.dtype):
        return x
    return np.asarray(x).astype(np.complex128 if np.iscomplexobj(x) else np.float64)


def _rest(x: Any, high: Any) -> Any:
    """Take what a double leaves of an extended number; indices and keys stay."""
    if high is x:
        return x
    return _double(np.where(np.isfinite(high), x - high, 0.0))


def _joined(high: Any, low: Any) -> Any:
    if not is_inexact(high.dtype):
        return high
    kind = np.clongdouble if np.iscomplexobj(high) else np.longdouble
    return np.where(np.isfinite(low), high.astype(kind) + low, high)


def _in_double(eqn: Any, ins: list[Any]) -> list[Any]:
    """Run an operation in float64, whatever its parameters say about dtypes."""
    functions, params = _bound(eqn)
    params = {name: _doubled(value) for name, value in params.items()}
    with double_precision():
        args = [x if is_key(getattr(x, "dtype", None)) else jnp.asarray(x) for x in ins]
        if scatter := _SCATTERS.get(eqn.primitive.name):
            # The program of its updates is of the declared dtype.
            kept = ("dimension_numbers", "indices_are_sorted", "unique_indices", "mode")
            outs = scatter(*args, **{name: params[name] for name in kept})
        else:
            outs = eqn.primitive.bind(*functions, *args, **params)
        outs = outs if eqn.primitive.multiple_results else [outs]
        return [y if is_key(y.dtype) else np.asarray(y) for y in outs]


def _doubled(value: Any) -> Any:
    """Put double precision in the place of a narrower dtype."""
    if isinstance(value, np.dtype | type) and not isinstance(value, bool):
        try:
            dtype = np.dtype(value)
        except TypeError:
            return value
        if is_inexact(dtype):
            is_complex = jnp.issubdtype(dtype, np.complexfloating)
            return np.dtype(np.complex128 if is_complex else np.float64)
    return value
