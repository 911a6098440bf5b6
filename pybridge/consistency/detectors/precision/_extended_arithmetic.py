"""JAX's operations in NumPy, for numbers of any precision, extended precision among them.

`numpy.longdouble` has 11 bits more than float64 on x86-64, and exponents up to 16384: enough to
see which digits float64 loses, and what overflows there. JAX has no such type, so what a program
does is done here again. Operations that are missing are run by JAX in float64, see
`_extended_run`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

Apply = Callable[..., Any]

# Products of matrices with more multiplications than this are computed in float64.
_MOST_PRODUCTS = 3_000_000


def _round(x: Any, rounding_method: Any) -> Any:
    if int(rounding_method) == 1:  # to even
        return np.rint(x)
    return np.trunc(x + np.copysign(x.dtype.type(0.5), x))


def _select(which: Any, *cases: Any) -> Any:
    which = np.asarray(which)
    if which.dtype == bool and len(cases) == 2:
        return np.where(which, cases[1], cases[0])
    return np.choose(which, cases)


def _divide(x: Any, y: Any) -> Any:
    if np.issubdtype(np.result_type(x), np.integer):
        quotient = np.where(y == 0, 0, np.abs(x) // np.where(y == 0, 1, np.abs(y)))
        return quotient * np.sign(x) * np.sign(y)
    return x / y


def _integer_power(x: Any, y: int) -> Any:
    # NumPy's power of an integer base refuses negative exponents.
    return np.power(x, y) if y >= 0 else 1 / np.power(x, -y)


def _iota(dtype: Any, shape: Any, dimension: int, **_: Any) -> Any:
    line = np.arange(shape[dimension], dtype=dtype)
    wanted = [1] * len(shape)
    wanted[dimension] = shape[dimension]
    return np.broadcast_to(line.reshape(wanted), shape)


def _broadcast(x: Any, *_: Any, shape: Any, broadcast_dimensions: Any, **__: Any) -> Any:
    sizes = [1] * len(shape)
    for axis, size in zip(broadcast_dimensions, np.shape(x), strict=True):
        sizes[axis] = size
    return np.broadcast_to(np.reshape(x, sizes), shape)


def _slice(x: Any, start_indices: Any, limit_indices: Any, strides: Any, **_: Any) -> Any:
    steps = strides or (1,) * len(start_indices)
    return x[tuple(slice(*ends) for ends in zip(start_indices, limit_indices, steps, strict=True))]


def _pad(x: Any, filler: Any, padding_config: Any, **_: Any) -> Any:
    low, high, interior = (np.array(part, int) for part in zip(*padding_config, strict=True)) \
        if padding_config else (np.zeros(0, int),) * 3  # fmt: skip
    sizes = np.array(np.shape(x), int)
    spread = np.maximum(sizes + np.maximum(sizes - 1, 0) * interior, 0)
    out = np.full(spread, filler, np.asarray(x).dtype)
    out[tuple(slice(None, None, int(i) + 1) for i in interior)] = x
    ends = [(max(int(a), 0), max(int(b), 0)) for a, b in zip(low, high, strict=True)]
    out = np.pad(out, ends, constant_values=np.asarray(filler)[()]) if ends else out
    cut = [slice(max(-int(a), 0), n - max(-int(b), 0))
           for a, b, n in zip(low, high, out.shape, strict=True)]  # fmt: skip
    return out[tuple(cut)]


def _reduction(function: Callable[..., Any]) -> Apply:
    return lambda x, axes, **_: function(x, axis=tuple(axes))


def _arg(function: Callable[..., Any]) -> Apply:
    def apply(x: Any, axes: Any, index_dtype: Any, **_: Any) -> Any:
        return function(x, axis=axes[0]).astype(index_dtype)

    return apply


def _cumulative(function: Callable[..., Any]) -> Apply:
    def apply(x: Any, axis: int, reverse: bool, **_: Any) -> Any:
        if not reverse:
            return function(x, axis=axis)
        return np.flip(function(np.flip(x, axis), axis=axis), axis)

    return apply


def _dot(x: Any, y: Any, dimension_numbers: Any, **_: Any) -> Any:
    """Multiply and sum over contracted axes; batched axes come first, as in JAX."""
    (cx, cy), (bx, by) = dimension_numbers
    free_x = [a for a in range(np.ndim(x)) if a not in (*cx, *bx)]
    free_y = [a for a in range(np.ndim(y)) if a not in (*cy, *by)]
    batch = [np.shape(x)[a] for a in bx]
    inner = math.prod(np.shape(x)[a] for a in cx)
    rows, columns = [np.shape(x)[a] for a in free_x], [np.shape(y)[a] for a in free_y]
    left = np.transpose(x, (*bx, *free_x, *cx)).reshape(*batch, math.prod(rows), inner)
    right = np.transpose(y, (*by, *cy, *free_y)).reshape(*batch, inner, math.prod(columns))
    work = math.prod((*batch, *rows, *columns, inner))
    if work > _MOST_PRODUCTS and left.dtype.kind in "fc" and left.dtype.itemsize > 8:
        kind = np.complex128 if left.dtype.kind == "c" else np.float64
        left, right = left.astype(kind), right.astype(kind)
    return np.matmul(left, right).reshape((*batch, *rows, *columns))


def _split(x: Any, sizes: Any, axis: int, **_: Any) -> list[Any]:
    return np.split(x, np.cumsum(sizes)[:-1], axis=axis)


def _dynamic_slice(x: Any, *starts: Any, slice_sizes: Any, **_: Any) -> Any:
    return x[_window(np.shape(x), starts, slice_sizes)]


def _dynamic_update_slice(x: Any, update: Any, *starts: Any, **_: Any) -> Any:
    out = np.array(x)
    out[_window(np.shape(x), starts, np.shape(update))] = update
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


# Operations on numbers that NumPy has: under the same name, or under its own.
_SAME = (
    *("abs", "add", "ceil", "conj", "floor", "imag", "real", "sign", "square"),
    *("cbrt", "cos", "cosh", "exp", "exp2", "expm1", "log", "log1p", "sin", "sinh", "sqrt"),
    *("tan", "tanh"),
)
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

# Operations on numbers, element by element; of their parameters only those in `_PARAMETERS` matter.
ELEMENTWISE: dict[str, Apply] = {
    **{name: getattr(np, name) for name in _SAME},
    **{name: getattr(np, other) for name, other in _RENAMED.items()},
    **dict.fromkeys(_KEPT, lambda x: x),
    "div": _divide,
    "integer_pow": _integer_power,
    "round": _round,
    "logistic": lambda x: 1 / (1 + np.exp(-x)),
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "complex": lambda x, y: x + 1j * y,
    "clamp": lambda low, x, high: np.minimum(np.maximum(x, low), high),
    "select_n": _select,
    "optimization_barrier": lambda *xs: list(xs),
}

# Operations on arrays as a whole.
STRUCTURAL: dict[str, Apply] = {
    "iota": _iota,
    "broadcast_in_dim": _broadcast,
    "reshape": lambda x, new_sizes, **_: np.reshape(x, new_sizes),
    "squeeze": lambda x, dimensions, **_: np.squeeze(x, tuple(dimensions)),
    "expand_dims": lambda x, dimensions, **_: np.expand_dims(x, tuple(dimensions)),
    "transpose": lambda x, permutation, **_: np.transpose(x, permutation),
    "rev": lambda x, dimensions, **_: np.flip(x, tuple(dimensions)),
    "concatenate": lambda *xs, dimension, **_: np.concatenate(xs, axis=dimension),
    "slice": _slice,
    "pad": _pad,
    "split": _split,
    "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _dynamic_update_slice,
    "reduce_sum": _reduction(np.sum),
    "reduce_prod": _reduction(np.prod),
    "reduce_max": _reduction(np.max),
    "reduce_min": _reduction(np.min),
    "reduce_and": _reduction(np.all),
    "reduce_or": _reduction(np.any),
    "argmax": _arg(np.argmax),
    "argmin": _arg(np.argmin),
    "cumsum": _cumulative(np.cumsum),
    "cumprod": _cumulative(np.cumprod),
    "cummax": _cumulative(np.maximum.accumulate),
    "cummin": _cumulative(np.minimum.accumulate),
    "sort": _sort,
    "dot_general": _dot,
}

# The parameters of operations on numbers that say what is computed.
_PARAMETERS = {"integer_pow": ("y",), "round": ("rounding_method",)}


def apply(name: str, ins: list[Any], params: dict[str, Any]) -> list[Any] | None:
    """Run an operation on NumPy's arrays; None for one that is not here."""
    function = ELEMENTWISE.get(name)
    if function is not None:
        params = {key: params[key] for key in _PARAMETERS.get(name, ())}
    else:
        function = STRUCTURAL.get(name)
    if function is None:
        return None
    outs = function(*ins, **params)
    return outs if isinstance(outs, list) else [outs]
