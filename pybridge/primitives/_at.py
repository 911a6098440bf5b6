"""Read with NumPy's whole index notation: `at(x)[...].get(mode=...)`."""

from __future__ import annotations

import dataclasses
import operator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._errors import ArgumentTypeError, ArgumentValueError, IndexOutOfBoundsError, explain
from ._bounds import known_values, place, refuse_empty_axis
from ._gathering import fill, gather, index_axes, is_array
from ._take import as_array, as_fill, as_indices, check_mode


def at(x: Any) -> At:
    """Return what `pb.at(x)[index].get(mode=...)` is written with.

    The reads of `x.at[index].get()`, with one meaning in every mode of differentiation and
    with errors that are raised under `jit`: what `pb.take` is for one axis, for NumPy's whole
    index notation.

    Args:
        x: array of any dtype, PRNG keys included, any shape.

    Returns:
        An object to be indexed. An index is an integer, an array (or list) of integers, a
        slice, None, an Ellipsis, a mask of bools, or a tuple of these; shapes are NumPy's.
        A mask decides about the shape of the result, so its values have to be known.
        `get(mode="error", *, fill_value=None)` reads; the modes are those of `pb.take` and
        hold for integers and arrays of integers. Slices never leave the array.

    Raises:
        IndexOutOfBoundsError: in `get`, as `pb.take`; for a mask also where it has another
            size than the axis.
        ArgumentTypeError: `x` is no array, an index is none of the above, or a mask is traced.
        ArgumentValueError: there are more indices than axes, or `mode` or `fill_value` are as
            `pb.take` refuses them.

    Example:
        >>> import jax
        >>> import jax.numpy as jnp
        >>> import pybridge as pb
        >>> x = jnp.arange(6.0).reshape(2, 3)
        >>> print(pb.at(x)[:, [0, 5]].get(mode="clip"))
        [[0. 2.]
         [3. 5.]]
        >>> print(pb.at(x)[..., -1].get())
        [2. 5.]
        >>> print(jax.grad(lambda x: pb.at(x)[0, [2, 7]].get(mode="fill", fill_value=0.0).sum())(x))
        [[0. 0. 1.]
         [0. 0. 0.]]

    The rules are those of NumPy's indexing. In Julia, `PyBridge.take` reads along one axis.
    """
    return At(x)


@dataclasses.dataclass(frozen=True)
class At:
    """An array that waits for an index; see `at`."""

    x: Any

    def __getitem__(self, index: Any) -> Read:
        """Return what reads at an index; see `at`."""
        return Read(self.x, index)


@dataclasses.dataclass(frozen=True)
class Read:
    """An array and an index; see `at`."""

    x: Any
    index: Any

    def get(self, mode: str = "error", *, fill_value: Any = None) -> jax.Array:
        """Return what stands at the index; see `at`."""
        check_mode("pb.at", mode, fill_value)
        x = as_array("pb.at", self.x)
        entries = _entries(self.index, x.ndim)
        placed: list[Any] = []
        masks: list[Any] = []
        axis = 0
        for entry in entries:
            if entry is None or isinstance(entry, slice):
                placed.append(entry)
                axis += entry is not None
            elif isinstance(entry, _Mask):
                for found in entry.positions(x.shape, axis):
                    placed.append(found)
                    axis += 1
            else:
                positions, valid = _place(entry, x.shape[axis], mode, axis)
                placed.append(positions)
                masks.append(valid)
                axis += 1
        _check_broadcast(placed)
        filled = [valid for valid in masks if valid is not None]
        if not filled:
            return gather(x, tuple(placed))
        value = as_fill("pb.at", fill_value, x.dtype)
        return _filled(x, placed, filled, value)


@dataclasses.dataclass(frozen=True)
class _Mask:
    """Bools that select along as many axes as they have."""

    values: np.ndarray

    def positions(self, shape: tuple[int, ...], axis: int) -> tuple[np.ndarray, ...]:
        """Return the positions that are True, one array for each axis of the mask."""
        for i, size in enumerate(self.values.shape):
            if size != shape[axis + i]:
                raise IndexOutOfBoundsError(
                    explain(
                        "pb.at",
                        expected=f"a mask of size {shape[axis + i]} on axis {axis + i}",
                        got=f"one of size {size}",
                        fix="A mask has a bool for each element of the axes it stands for.",
                    )
                )
        return tuple(np.asarray(found, np.int32) for found in np.nonzero(self.values))


def _entries(index: Any, ndim: int) -> list[Any]:
    """Return an index as slices, Nones, masks and integers, for every axis of the array."""
    entries = [_entry(part) for part in (index if isinstance(index, tuple) else (index,))]
    axes = sum(_axes(entry) for entry in entries)
    dots = [i for i, entry in enumerate(entries) if entry is Ellipsis]
    if len(dots) > 1 or axes > ndim:
        got = f"{len(dots)} of `...`" if len(dots) > 1 else f"indices for {axes} axes"
        raise ArgumentValueError(
            explain(
                "pb.at",
                expected=f"indices for {ndim} axes or less, and one `...` at most",
                got=got,
                fix="Leave indices out from the end, or write `...` for them.",
            )
        )
    rest = [slice(None)] * (ndim - axes)
    dot = dots[0] if dots else len(entries)
    return [*entries[:dot], *rest, *entries[dot + 1 :]]


def _axes(entry: Any) -> int:
    """Return how many axes of the array an entry stands for."""
    if entry is None or entry is Ellipsis:
        return 0
    return entry.values.ndim if isinstance(entry, _Mask) else 1


def _entry(part: Any) -> Any:
    """Tell what one part of an index is.

    Raises:
        ArgumentTypeError: it is nothing that reads, or a mask of unknown values.
    """
    if part is None or part is Ellipsis:
        return part
    if isinstance(part, slice):
        return _slice(part)
    if isinstance(part, bool | np.bool_) or (np.ndim(part) == 0 and _is_bool(part)):
        raise ArgumentTypeError(
            explain(
                "pb.at",
                expected="an integer, an array of integers, a slice, None, `...` or a mask",
                got=f"the single bool {part}",
                fix="Write 0 or 1 for a position, or None for a new axis.",
            )
        )
    if isinstance(part, list) or not isinstance(part, jax.Array | np.ndarray):
        part = part if hasattr(part, "__jax_array__") or _has_arrays(part) else np.asarray(part)
    if not _is_bool(part):
        # An empty list has no numbers that could be of a wrong kind.
        return as_indices("pb.at", part if np.size(part) else _empty(part))
    values = known_values(part)
    if values is None:
        raise ArgumentTypeError(
            explain(
                "pb.at",
                expected="a mask whose values are known while the program is traced",
                got=f"a traced one of shape {np.shape(part)}",
                fix="It decides about the shape of the result. Keep all elements, and choose "
                "with jnp.where(mask, x, 0).",
            )
        )
    return _Mask(values)


def _has_arrays(part: Any) -> bool:
    return any(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(part))


def _is_bool(part: Any) -> bool:
    return getattr(part, "dtype", None) == np.dtype(np.bool_)


def _empty(part: Any) -> Any:
    is_list = isinstance(part, np.ndarray) and part.dtype == np.float64
    return part.astype(np.int32) if is_list else part


def _slice(part: slice) -> slice:
    """Return a slice of Python's own integers.

    Raises:
        ArgumentTypeError: a bound is no integer, or its value is not known.
    """
    try:
        start, stop, step = (
            None if bound is None else operator.index(bound)
            for bound in (part.start, part.stop, part.step)
        )
    except (TypeError, jax.errors.ConcretizationTypeError):
        raise ArgumentTypeError(
            explain(
                "pb.at",
                expected="slices whose bounds are integers that are known",
                got=str(part),
                fix="For a bound that is computed, use jax.lax.dynamic_slice_in_dim.",
            )
        ) from None
    if step == 0:
        raise ArgumentValueError(
            explain(
                "pb.at",
                expected="slices with a step",
                got=str(part),
                fix="A step of 1 takes each element.",
            )
        )
    return slice(start, stop, step)


def _place(entry: Any, size: int, mode: str, axis: int) -> tuple[Any, Any | None]:
    if size == 0 and np.size(entry) and mode != "fill":
        refuse_empty_axis("pb.at", axis)
    return place(entry, size, mode, where="pb.at", axis=axis)


def _check_broadcast(placed: list[Any]) -> None:
    shapes = [np.shape(part) for part in placed if is_array(part)]
    try:
        jnp.broadcast_shapes(*shapes)
    except ValueError:
        raise ArgumentValueError(
            explain(
                "pb.at",
                expected="arrays of indices that broadcast against each other",
                got=f"shapes {', '.join(map(str, shapes))}",
                fix="For each combination of them, use jnp.ix_ or add axes with None.",
            )
        ) from None


def _filled(x: jax.Array, placed: list[Any], masks: list[Any], value: Any) -> jax.Array:
    """Read, and replace what stands at indices that were out of range."""
    valid = masks[0]
    for mask in masks[1:]:
        valid = valid & mask
    shape = jnp.broadcast_shapes(*(np.shape(part) for part in placed if is_array(part)))
    valid = jnp.broadcast_to(valid, shape)
    before = index_axes(placed, len(shape))
    if 0 in x.shape:
        # There is nothing to read; the shape is that of a read from an array which has ones.
        ones = tuple(max(size, 1) for size in x.shape)
        kept = [
            slice(0, 0) if isinstance(p, slice) and n == 0 else p
            for p, n in _with_sizes(placed, x.shape)
        ]
        like = jax.eval_shape(lambda x: gather(x, tuple(kept)), jax.ShapeDtypeStruct(ones, x.dtype))
        return jnp.full(like.shape, value, x.dtype)
    return fill(gather(x, tuple(placed)), valid, before, value)


def _with_sizes(placed: list[Any], shape: tuple[int, ...]) -> list[tuple[Any, int]]:
    """Pair each part of an index with the size of its axis, 1 for a new one."""
    sizes = iter(shape)
    return [(part, 1 if part is None else next(sizes)) for part in placed]
