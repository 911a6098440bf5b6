"""JAX's operations in NumPy, for numbers of any precision, extended precision among them.

`numpy.longdouble` has 11 bits more than float64 on x86-64, and exponents up to 16384: enough to
see which digits float64 loses, and what overflows there. JAX has no such type, so what a program
does is done here again. Operations that are missing are run by JAX, in float64 for extended
precision.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np

from ....jaxprs import DRAWING
from ._extended_by_jax import run_in_double, run_natively
from ._precisions import is_inexact, rounded

# Products of matrices with more multiplications than this are computed in float64.
_MOST_PRODUCTS = 3_000_000


def run_equation(eqn: Any, ins: list[Any], is_wide: bool) -> list[Any]:
    """Run an operation in extended precision, or else in the precision that it declares."""
    name = eqn.primitive.name
    if operation := ELEMENTWISE.get(name) or STRUCTURAL.get(name):
        outs = operation(*map(_unpacked, ins), **eqn.params)
        outs = outs if isinstance(outs, list) else [outs]
    elif is_wide and name not in DRAWING and any(is_inexact(v.aval.dtype) for v in eqn.invars):
        outs = run_in_double(eqn, ins)
    else:
        outs = run_natively(eqn, ins)
    return [rounded(y, v.aval.dtype, is_wide) for y, v in zip(outs, eqn.outvars, strict=True)]


def _unpacked(x: Any) -> np.ndarray:
    """Widen numbers of 16 bits: as XLA does, they are computed with in 32 and rounded then."""
    x = np.asarray(x)
    return x.astype(np.float32) if is_inexact(x.dtype) and x.dtype.itemsize == 2 else x


# --- operations on numbers, element by element --------------------------------------------------


def _round(x: Any, rounding_method: Any, **_: Any) -> Any:
    if int(rounding_method) == 1:  # to even
        return np.rint(x)
    return np.trunc(x + np.copysign(x.dtype.type(0.5), x))


def _select(which: Any, *cases: Any) -> Any:
    if which.dtype == bool and len(cases) == 2:
        return np.where(which, cases[1], cases[0])
    return np.choose(which, cases)


def _divide(x: Any, y: Any) -> Any:
    if np.issubdtype(x.dtype, np.integer):
        quotient = np.where(y == 0, 0, np.abs(x) // np.where(y == 0, 1, np.abs(y)))
        return quotient * np.sign(x) * np.sign(y)
    return x / y


def _of_numbers(function: Callable[..., Any]) -> Callable[..., Any]:
    """Ignore parameters: they say nothing about the numbers."""
    return lambda *xs, **_: function(*xs)


# Under the same name in NumPy, or under its own.
_SAME = """abs add cbrt ceil conj cos cosh exp exp2 expm1 floor imag log log1p log2 real sign sin
    sinh sqrt square tan tanh""".split()
_RENAMED = {
    **{"add_any": "add", "sub": "subtract", "mul": "multiply", "neg": "negative", "rem": "fmod"},
    **{"max": "maximum", "min": "minimum", "pow": "power", "is_finite": "isfinite"},
    **{"asin": "arcsin", "acos": "arccos", "atan": "arctan", "atan2": "arctan2"},
    **{"asinh": "arcsinh", "acosh": "arccosh", "atanh": "arctanh"},
    **{"lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal"},
    **{"eq": "equal", "ne": "not_equal"},
    **{"and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor", "not": "invert"},
}
# Those that give back what they are given, in another dtype or none.
_KEPT = ("stop_gradient", "copy", "copy_p", "convert_element_type", "reduce_precision")

ELEMENTWISE: dict[str, Callable[..., Any]] = {
    **{name: _of_numbers(getattr(np, name)) for name in _SAME},
    **{name: _of_numbers(getattr(np, other)) for name, other in _RENAMED.items()},
    **dict.fromkeys(_KEPT, _of_numbers(lambda x: x)),
    "clamp": _of_numbers(lambda low, x, high: np.minimum(np.maximum(x, low), high)),
    "complex": _of_numbers(lambda x, y: x + 1j * y),
    "div": _of_numbers(_divide),
    # NumPy's power of an integer base refuses negative exponents.
    "integer_pow": lambda x, y, **_: np.power(x, y) if y >= 0 else 1 / np.power(x, -y),
    "logistic": _of_numbers(lambda x: 1 / (1 + np.exp(-x))),
    "one_minus_square": _of_numbers(lambda x: (1 + x) * (1 - x)),
    "optimization_barrier": lambda *xs, **_: list(xs),
    "polynomial": _of_numbers(lambda x, *c: reduce(lambda y, a: y * x + a, c[::-1])),
    "round": _round,
    "rsqrt": _of_numbers(lambda x: 1 / np.sqrt(x)),
    "select_n": _of_numbers(_select),
}


# --- operations on arrays as a whole ------------------------------------------------------------


def _broadcast(x: Any, *_: Any, shape: Any, broadcast_dimensions: Any, **__: Any) -> Any:
    sizes = [1] * len(shape)
    for axis, size in zip(broadcast_dimensions, x.shape, strict=True):
        sizes[axis] = size
    return np.broadcast_to(x.reshape(sizes), shape)


def _iota(dtype: Any, shape: Any, dimension: int, **_: Any) -> Any:
    line = np.arange(shape[dimension], dtype=dtype)
    return _broadcast(line, shape=shape, broadcast_dimensions=(dimension,))


def _slice(x: Any, start_indices: Any, limit_indices: Any, strides: Any, **_: Any) -> Any:
    steps = strides or (1,) * len(start_indices)
    return x[tuple(map(slice, start_indices, limit_indices, steps))]


def _pad(x: Any, filler: Any, padding_config: Any, **_: Any) -> Any:
    sizes, kept, places = [], [], []
    for n, (low, high, interior) in zip(x.shape, padding_config, strict=True):
        sizes.append(max(low + high + n + max(n - 1, 0) * interior, 0))
        along = low + (interior + 1) * np.arange(n)
        inside = (along >= 0) & (along < sizes[-1])
        kept.append(np.flatnonzero(inside))
        places.append(along[inside])
    out = np.full(sizes, filler, x.dtype)
    out[np.ix_(*places)] = x[np.ix_(*kept)]
    return out


def _reduction(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, axes, **_: function(x, axis=tuple(axes))


def _arg(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, axes, **_: function(x, axis=axes[0])


def _cumulative(function: Callable[..., Any]) -> Callable[..., Any]:
    def apply(x: Any, axis: int, reverse: bool, **_: Any) -> Any:
        if not reverse:
            return function(x, axis=axis)
        return np.flip(function(np.flip(x, axis), axis=axis), axis)

    return apply


def _dot(x: Any, y: Any, dimension_numbers: Any, **_: Any) -> Any:
    """Multiply and sum over contracted axes; batched axes come first, as in JAX."""
    (cx, cy), (bx, by) = dimension_numbers
    free_x = [a for a in range(x.ndim) if a not in (*cx, *bx)]
    free_y = [a for a in range(y.ndim) if a not in (*cy, *by)]
    batch = [x.shape[a] for a in bx]
    inner = math.prod(x.shape[a] for a in cx)
    rows, columns = [x.shape[a] for a in free_x], [y.shape[a] for a in free_y]
    left = np.transpose(x, (*bx, *free_x, *cx)).reshape(*batch, math.prod(rows), inner)
    right = np.transpose(y, (*by, *cy, *free_y)).reshape(*batch, inner, math.prod(columns))
    work = math.prod((*batch, *rows, *columns, inner))
    if work > _MOST_PRODUCTS and left.dtype.kind in "fc" and left.dtype.itemsize > 8:
        dtype = np.complex128 if left.dtype.kind == "c" else np.float64
        left, right = left.astype(dtype), right.astype(dtype)
    return np.matmul(left, right).reshape((*batch, *rows, *columns))


def _split(x: Any, sizes: Any, axis: int, **_: Any) -> list[Any]:
    return np.split(x, np.cumsum(sizes)[:-1], axis=axis)


def _dynamic_slice(x: Any, *starts: Any, slice_sizes: Any, **_: Any) -> Any:
    return x[_window(x.shape, starts, slice_sizes)]


def _dynamic_update_slice(x: Any, update: Any, *starts: Any, **_: Any) -> Any:
    out = np.array(x)
    out[_window(x.shape, starts, update.shape)] = update
    return out


def _window(shape: Any, starts: Any, sizes: Any) -> tuple[slice, ...]:
    begins = [
        min(max(int(s), 0), n - k) for s, n, k in zip(starts, shape, sizes, strict=True)
    ]  # JAX moves the window inside
    return tuple(slice(s, s + k) for s, k in zip(begins, sizes, strict=True))


def _sort(*xs: Any, dimension: int, num_keys: int, **_: Any) -> list[Any]:
    order = np.argsort(xs[0], axis=dimension, kind="stable")
    if num_keys > 1:
        order = np.lexsort(xs[num_keys - 1 :: -1], axis=dimension)
    return [np.take_along_axis(x, order, axis=dimension) for x in xs]


STRUCTURAL: dict[str, Callable[..., Any]] = {
    "argmax": _arg(np.argmax),
    "argmin": _arg(np.argmin),
    "broadcast_in_dim": _broadcast,
    "concatenate": lambda *xs, dimension, **_: np.concatenate(xs, axis=dimension),
    "cummax": _cumulative(np.maximum.accumulate),
    "cummin": _cumulative(np.minimum.accumulate),
    "cumprod": _cumulative(np.cumprod),
    "cumsum": _cumulative(np.cumsum),
    "dot_general": _dot,
    "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _dynamic_update_slice,
    "expand_dims": lambda x, dimensions, **_: np.expand_dims(x, tuple(dimensions)),
    "iota": _iota,
    "pad": _pad,
    "reduce_and": _reduction(np.all),
    "reduce_max": _reduction(np.max),
    "reduce_min": _reduction(np.min),
    "reduce_or": _reduction(np.any),
    "reduce_prod": _reduction(np.prod),
    "reduce_sum": _reduction(np.sum),
    "reshape": lambda x, new_sizes, **_: np.reshape(x, new_sizes),
    "rev": lambda x, dimensions, **_: np.flip(x, tuple(dimensions)),
    "slice": _slice,
    "sort": _sort,
    "split": _split,
    "squeeze": lambda x, dimensions, **_: np.squeeze(x, tuple(dimensions)),
    "transpose": lambda x, permutation, **_: np.transpose(x, permutation),
}
