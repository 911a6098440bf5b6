"""Bring indices into range before anything is read, and raise where they are not.

JAX reads something at an index that is out of bounds, and its derivatives disagree about what
that was. Here an index is mapped into range first, by one rule for each mode, so the gather
behind it and its transpose, a scatter-add, mean the same element.

Mode "error" raises under `jit`, too. `in_bounds` is the identity on indices. Lowered it is a
conditional on "is any of them out of bounds?", whose taken branch calls back to Python, where
an exception ends the program. No other branch holds anything, so the check costs a comparison
for each index. Its result is what the gather and the scatter-add read, so no derivative can
lose it, and a rule keeps it where nobody needs what was read.
"""

from __future__ import annotations

import functools
import logging
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import Tracer
from jax.interpreters import ad, batching, mlir

from .._errors import IndexOutOfBoundsError, explain
from ..jaxprs import Primitive, register_dead_code_rule
from ._filling import first_true, number

_LARGEST = np.iinfo(np.int32).max


def known_values(indices: Any) -> np.ndarray | None:
    """Return indices whose values can be looked at, None for those of a program being traced."""
    if isinstance(indices, Tracer):
        return None
    if isinstance(indices, jax.Array) and not indices.is_fully_addressable:
        return None
    known = np.asarray(indices)
    # NumPy has no integers of 4 bits of its own.
    return known if known.dtype.kind in "biuO" else known.astype(np.int64)


def place(
    indices: Any, size: int, mode: str, *, where: str, axis: int | None
) -> tuple[Any, Any | None]:
    """Map indices into range.

    Args:
        indices: integers of any width, an array of NumPy or JAX; Python integers that no
            64 bits hold come in an array of objects.
        size: the size of the axis; not 0 unless there are no indices or the mode is "fill".
        mode: "error", "clip", "fill" or "wrap".
        where: the public name that was called, for the error.
        axis: the axis, from 0; None for a flattened array.

    Returns:
        The indices, from 0 to `size - 1`, as int32, or int64 for an axis that needs it; and
        for "fill" where they were in range before, else None.

    Raises:
        IndexOutOfBoundsError: the mode is "error", the values are known, and one is out of
            range.
    """
    # Only an error has to wait for values that a device still computes.
    waits = mode == "error" or not isinstance(indices, jax.Array)
    known = known_values(indices) if waits and isinstance(size, int) else None
    if known is not None:
        if mode == "error":
            refuse_outside(known, size, where, axis)
        return _place_known(known, size, mode)
    indices = _widened(jnp.asarray(indices), size)
    if mode == "error":
        indices = in_bounds_p.bind(indices, size=size, where=where, axis=axis)
    # All of the arithmetic is in the indices' own width, where `size` fits.
    length = number(size, indices.dtype)
    last = number(max(size - 1, 0), indices.dtype)
    valid = None
    if mode == "wrap":
        indices = indices if size == 0 else jnp.mod(indices, length)
    elif mode != "clip":
        if mode == "fill":
            valid = ~_is_outside(indices, size)
        if jnp.issubdtype(indices.dtype, jnp.signedinteger):
            indices = jnp.where(indices < 0, indices + length, indices)
    inside = lax.clamp(number(0, indices.dtype), indices, last)
    return lax.convert_element_type(inside, _position_dtype(size)), valid


def _place_known(indices: np.ndarray, size: int, mode: str) -> tuple[np.ndarray, Any | None]:
    """Map NumPy's integers into range; those of any width, also Python's own."""
    if indices.dtype != object:
        # In 64 bits, where the size fits.
        indices = indices.astype(np.uint64 if indices.dtype.kind == "u" else np.int64)
    valid = None
    if mode == "wrap":
        indices = indices % size if size else indices
    elif mode != "clip":
        valid = ~_outside_known(indices, size)
        if indices.dtype.kind != "u":
            indices = np.where(indices < 0, indices + size, indices)
    inside = np.minimum(np.maximum(indices, 0), max(size - 1, 0))
    return inside.astype(_position_dtype(size)), valid if mode == "fill" else None


def _is_large(size: Any) -> bool:
    """Tell whether 32 bits do not hold a size; those of exported programs have 32 bits."""
    return isinstance(size, int) and size - 1 > _LARGEST


def _position_dtype(size: Any) -> Any:
    return np.int64 if _is_large(size) else np.int32


def _widened(indices: Any, size: int) -> Any:
    """Return indices in a dtype of 32 or 64 bits that also holds the size of the axis."""
    dtype = indices.dtype
    if dtype.itemsize < 4:
        dtype = np.dtype(np.int32)
    if _is_large(size + 1) and dtype.itemsize < 8:
        dtype = np.dtype(np.int64)
    return lax.convert_element_type(indices, dtype)


def _is_outside(indices: Any, size: int) -> Any:
    outside = indices >= number(size, indices.dtype)
    if jnp.issubdtype(indices.dtype, jnp.signedinteger):
        outside |= indices < number(-size, indices.dtype)
    return outside


def _outside_known(indices: np.ndarray, size: int) -> np.ndarray:
    return np.asarray((indices >= size) | (indices < -size), bool)


# ------------------------------------------------------------------------ the error


def refuse_outside(indices: np.ndarray, size: int, where: str, axis: int | None) -> None:
    """Raise if an index is out of range.

    Raises:
        IndexOutOfBoundsError: with the first such index, its position and the axis.
    """
    outside = _outside_known(indices, size)
    if not outside.any():
        return
    first = np.unravel_index(np.argmax(outside), outside.shape)
    position = f" at position {tuple(map(int, first))} of the indices" if first else ""
    raise IndexOutOfBoundsError(outside_text(int(indices[first]), size, where, axis, position))


def outside_text(index: object, size: int, where: str, axis: int | None, position: str) -> str:
    """Say which index is out of range, and what to do."""
    place = "the flattened array" if axis is None else f"axis {axis}"
    expected = f"indices from {-size} to {size - 1} on {place}"
    return explain(
        where,
        expected=expected if size else f"no indices on {place}, which has size 0,",
        got=f"index {index}{position}",
        fix='Where such indices are meant, say what they read: mode="clip", "wrap" or "fill".',
    )


def refuse_empty_axis(where: str, axis: int | None) -> None:
    """Raise for indices into an axis of size 0, whatever their values.

    Raises:
        IndexOutOfBoundsError: always.
    """
    place = "the flattened array" if axis is None else f"axis {axis}"
    raise IndexOutOfBoundsError(
        explain(
            where,
            expected=f"an element to read on {place}",
            got="a size of 0",
            fix='There only mode="fill" has a value for an index.',
        )
    )


# --------------------------------------------------------------- the check under jit

in_bounds_p = Primitive("pybridge_in_bounds")
fail_p = Primitive("pybridge_fail")


def _check_now(indices: Any, *, size: int, where: str, axis: int | None) -> Any:
    """Raise outside of `jit`, for example under an eager `vmap`."""
    refuse_outside(np.asarray(indices), size, where, axis)
    return indices


def _check(indices: Any, *, size: int, where: str, axis: int | None) -> Any:
    """Return the indices from a program that fails if one is out of bounds."""
    if 0 in indices.shape:
        return indices
    outside = _is_outside(indices, size)
    first = first_true(outside, indices)
    fail = functools.partial(fail_p.bind, size=size, where=where, axis=axis)
    # What the failing branch returns takes part, or XLA might drop the branch.
    zero = lax.cond(jnp.any(outside), fail, jnp.zeros_like, first)
    return indices + zero


def _keep(used: list[bool], eqn: Any) -> tuple[list[bool], Any]:
    """Keep the check where what was read is not used: whether it raises must not depend on it."""
    return [True], eqn


def _batch(operands: Any, dims: Any, **params: Any) -> tuple[Any, Any]:
    # All lanes are checked together, by one conditional that stays one.
    return in_bounds_p.bind(*operands, **params), dims[0]


def _jvp(primals: Any, tangents: Any, **params: Any) -> tuple[Any, Any]:
    indices = in_bounds_p.bind(*primals, **params)
    return indices, ad.Zero(jax.typeof(indices).to_tangent_aval())


@functools.cache
def _effects() -> frozenset[Any]:
    """Return the effect of a call to Python that JAX must not drop."""
    return frozenset(jax.make_jaxpr(lambda: jax.debug.callback(lambda: None))().effects)


def _lower_fail(ctx: Any, index: Any, *, size: int, where: str, axis: int | None) -> Any:
    def fail(index: Any) -> tuple[np.ndarray]:
        text = outside_text(int(index), size, where, axis, "")
        if local:
            # Other devices may wait for this one in a collective, until XLA ends the process.
            logging.getLogger("pybridge").error(text)
        raise IndexOutOfBoundsError(text)

    context = ctx.module_context.axis_context
    local = bool(getattr(context, "manual_axes", ()))
    # Where XLA partitions a program for several devices, an operation with a side effect has to
    # say on which one it runs, and the others would wait for that one for ever. Without, all of
    # them run it, and all of them fail.
    partitioned = not local and (getattr(context, "num_devices", 1) or 1) > 1
    outs, *_ = mlir.emit_python_callback(
        ctx, fail, None, [index], ctx.avals_in, ctx.avals_out, has_side_effect=not partitioned
    )
    return outs


in_bounds_p.def_impl(_check_now)
in_bounds_p.def_abstract_eval(lambda indices, **params: indices)
mlir.register_lowering(in_bounds_p, mlir.lower_fun(_check, multiple_results=False))
ad.primitive_jvps[in_bounds_p] = _jvp
batching.primitive_batchers[in_bounds_p] = _batch
register_dead_code_rule(in_bounds_p, _keep)
fail_p.def_effectful_abstract_eval(lambda index, **params: (index, _effects()))
mlir.register_lowering(fail_p, _lower_fail)
