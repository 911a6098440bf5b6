"""Read elements by their indices: `take`, with one meaning in every mode of differentiation."""

from __future__ import annotations

import operator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._errors import ArgumentTypeError, ArgumentValueError, explain
from ._bounds import place, refuse_empty_axis
from ._gathering import fill, flattened, gather

MODES = ("error", "clip", "fill", "wrap")


def take(
    x: Any,
    indices: Any,
    axis: int | None = None,
    mode: str = "error",
    *,
    fill_value: Any = None,
) -> jax.Array:
    """Return elements of an array along an axis, as `numpy.take` does.

    What an index means is decided before anything is read, so value, forward mode, reverse
    mode and finite differences agree, in every order and under `jit`, `vmap` and `scan`. (In
    JAX itself `x[[0, 5]].sum()` on three elements reads the last one, its forward derivative
    is that of the last one, and its gradient is none.) An index that is given twice counts
    twice in the gradient.

    | `mode` | an index out of range |
    | --- | --- |
    | `"error"` | raises |
    | `"clip"` | reads the first or the last element |
    | `"wrap"` | counts on from the other end, modulo the size |
    | `"fill"` | reads nothing and gives `fill_value`, whose derivative for `x` is zero |

    In "error" and "fill", `-1` is the last element, and what is below `-size` is out of range.
    In "clip" and "wrap" the rule is all there is, as in NumPy: `-1` is clipped to 0.

    Mode "error" raises `IndexOutOfBoundsError` where the indices are known, also while a
    program is traced. A compiled program raises JAX's runtime error with the same text. The
    check runs wherever the read does: under `vmap`, `jax.lax.cond` runs both of its branches
    for all lanes, so choose with `pb.cond` and hand the index to the branch.

    Args:
        x: array of any dtype, PRNG keys included, shape (..., size, ...).
        indices: integer or array of integers of any shape and width, nested lists included.
            The first element is 0.
        axis: the axis to read along; None flattens `x` first, row by row.
        mode: "error", "clip", "fill" or "wrap".
        fill_value: for "fill", a number that `x`'s dtype holds. By default NaN, for integers
            the least number, for unsigned ones the largest, for bools True, as in `jnp.take`.

    Returns:
        Array of `x`'s dtype, where the shape of the indices takes the place of the axis:
        shape (..., *indices.shape, ...).

    Raises:
        IndexOutOfBoundsError: the mode is "error" and an index is out of range, or the axis
            has size 0 and there are indices, except with "fill".
        ArgumentTypeError: `x` is no array, the indices are no integers, or `fill_value` does not
            fit the dtype.
        ArgumentValueError: there is no such axis or mode, or `fill_value` is no single number
            or has no mode "fill" to go with.

    Example:
        >>> import jax
        >>> import jax.numpy as jnp
        >>> import pybridge as pb
        >>> f = lambda x: pb.take(x, [0, 5], mode="clip").sum()
        >>> x = jnp.array([1.0, 2.0, 3.0])
        >>> print(f(x), jax.grad(f)(x), jax.jacfwd(f)(x))
        4.0 [1. 0. 1.] [1. 0. 1.]

    The Julia twin is `PyBridge.take(x, indices; dims, mode, fill)`, which counts from 1 and
    has no negative indices. The rules are those of `numpy.take`.
    """
    check_mode("pb.take", mode, fill_value)
    x = as_array("pb.take", x)
    indices = as_indices("pb.take", indices)
    number = _check_axis(axis, x.ndim)
    if axis is None:
        x = flattened(x)
    at = number or 0
    size = x.shape[at]
    if size == 0 and 0 not in np.shape(indices):
        if mode != "fill":
            refuse_empty_axis("pb.take", number)
        shape = (*x.shape[:at], *np.shape(indices), *x.shape[at + 1 :])
        return jnp.full(shape, as_fill("pb.take", fill_value, x.dtype), x.dtype)
    positions, valid = place(indices, size, mode, where="pb.take", axis=number)
    y = gather(x, (slice(None),) * at + (positions,))
    if valid is None:
        return y
    return fill(y, valid, at, as_fill("pb.take", fill_value, x.dtype))


def as_array(where: str, x: Any) -> jax.Array:
    """Return what is read as an array of JAX.

    Raises:
        ArgumentTypeError: it is none.
    """
    try:
        return jnp.asarray(x)
    except (TypeError, ValueError) as error:  # of None, a ragged list
        raise ArgumentTypeError(
            explain(
                where,
                expected="an array, or lists of numbers",
                got=f"a {type(x).__name__}",
                fix="Convert it first, for example with `numpy.asarray(x, float)`.",
            )
        ) from error


def as_indices(where: str, indices: Any) -> Any:
    """Return indices as an array of NumPy or JAX.

    Raises:
        ArgumentTypeError: they are no integers.
    """
    array = indices if isinstance(indices, jax.Array | np.ndarray) else _from_list(where, indices)
    whole = jnp.issubdtype(array.dtype, jnp.integer)
    if array.dtype == object:
        whole = all(isinstance(i, int) and not isinstance(i, bool) for i in np.ravel(array))
    if not whole:
        fix = "Convert them first, for example with `astype(int)`."
        if array.dtype == bool:
            fix = "A mask selects with `x[mask]`, or with `pb.at(x)[mask].get()`."
        raise ArgumentTypeError(
            explain(
                where,
                expected="integers as indices",
                got=f"indices of dtype {array.dtype}",
                fix=fix,
            )
        )
    return array


def _from_list(where: str, indices: Any) -> Any:
    if hasattr(indices, "__jax_array__"):
        return jnp.asarray(indices)
    if any(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(indices)):
        return jnp.asarray(indices)
    try:
        array = np.asarray(indices)
    except ValueError as error:
        raise ArgumentTypeError(
            explain(
                where,
                expected="indices of one shape",
                got=f"a {type(indices).__name__} that is no array ({error})",
                fix="Give all rows the same length.",
            )
        ) from None
    # An empty list has no numbers that could be of a wrong kind.
    empty = array.size == 0 and isinstance(indices, list | tuple)
    return array.astype(np.int32) if empty else array


def check_mode(where: str, mode: Any, fill_value: Any) -> None:
    """Refuse a mode that there is not, and a fill value that would be ignored.

    Raises:
        ArgumentValueError: either is the case.
    """
    if not isinstance(mode, str) or mode not in MODES:
        raise ArgumentValueError(
            explain(
                where,
                expected=f"a mode of {', '.join(MODES)}",
                got=repr(mode),
                fix='Use "error" if every index should be in range.',
            )
        )
    if fill_value is not None and mode != "fill":
        raise ArgumentValueError(
            explain(
                where,
                expected='mode="fill" next to a fill_value',
                got=f"mode={mode!r}",
                fix='Add mode="fill", or leave the fill_value out.',
            )
        )


def _check_axis(axis: Any, ndim: int) -> int | None:
    """Return the axis counted from 0, None for a flattened array."""
    if axis is None:
        return None
    try:
        number = operator.index(axis)
    except TypeError:
        number = None
    if number is None or isinstance(axis, bool | np.bool_) or not -ndim <= number < ndim:
        dimensions = f"an axis from {-ndim} to {ndim - 1}" if ndim else "no axis for a scalar"
        raise ArgumentValueError(
            explain(
                "pb.take",
                expected=f"{dimensions}, or None",
                got=f"axis={axis!r}",
                fix="None reads from the flattened array.",
            )
        )
    return number % ndim


def as_fill(where: str, value: Any, dtype: Any) -> Any:
    """Return what stands for an index out of range, as a scalar of a dtype.

    Raises:
        ArgumentTypeError: the dtype cannot hold it, or has nothing to fill with.
        ArgumentValueError: it is no single value.
    """
    if np.ndim(value) != 0:
        raise ArgumentValueError(
            explain(
                where,
                expected="a single number as fill_value",
                got=f"an array of shape {np.shape(value)}",
                fix="Choose between arrays with jnp.where.",
            )
        )
    if value is None:
        value = _default_fill(where, dtype)
    if type(value) in _NUMBERS:
        fits = _NUMBERS.index(type(value)) <= _kind(dtype)
        if fits and type(value) is int and jnp.issubdtype(dtype, jnp.integer):
            info = jnp.iinfo(dtype)
            fits = info.min <= value <= info.max
    else:
        fits = getattr(value, "dtype", None) == dtype
    if not fits:
        got = getattr(value, "dtype", None)
        raise ArgumentTypeError(
            explain(
                where,
                expected=f"a fill_value of dtype {dtype}",
                got=repr(value) if got is None else f"one of dtype {got}",
                fix="Convert the array or the value first.",
            )
        )
    return np.asarray(value, dtype) if type(value) in _NUMBERS else jnp.asarray(value)


# Each holds those before it.
_NUMBERS = (bool, int, float, complex)


def _kind(dtype: Any) -> int:
    """Return the place of a dtype among the kinds of numbers; -1 for keys, which are none."""
    kinds = (np.bool_, jnp.integer, jnp.floating, jnp.complexfloating)
    return next((i for i, kind in enumerate(kinds) if jnp.issubdtype(dtype, kind)), -1)


def _default_fill(where: str, dtype: Any) -> Any:
    if jnp.issubdtype(dtype, jax.dtypes.prng_key):
        raise ArgumentTypeError(
            explain(
                where,
                expected="a fill_value for PRNG keys",
                got="none",
                fix="Give a key as fill_value: no key stands for one that is missing.",
            )
        )
    if jnp.issubdtype(dtype, jnp.inexact):
        return float("nan")
    if dtype == jnp.bool_:
        return True
    info = jnp.iinfo(dtype)
    return int(info.min if jnp.issubdtype(dtype, jnp.signedinteger) else info.max)
