"""Read elements at positions that are in range, also where arrays are sharded.

JAX asks for the sharding of what is read, wherever an axis of a mesh is explicit. It is that of
the indices, for their axes, and that of the array for the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from ._select import mesh_axes, select


def gather(x: jax.Array, index: tuple[Any, ...]) -> jax.Array:
    """Read elements at positions that are in range.

    Args:
        x: any dtype, keys too.
        index: slices, Nones and arrays of integers, as `place` returns them.

    Returns:
        What NumPy's indexing gives.
    """
    return x.at[index].get(
        mode="promise_in_bounds",
        wrap_negative_indices=False,
        out_sharding=_sharding_of_result(x, index),
    )


def flattened(x: jax.Array) -> jax.Array:
    """Return an array row by row, whatever it is sharded over."""
    sharding = jax.typeof(x).sharding
    if all(entry is None for entry in sharding.spec[1:]):
        return jnp.ravel(x)
    whole = NamedSharding(sharding.mesh, PartitionSpec(None))
    return jax.lax.reshape(x, (x.size,), out_sharding=whole)


def fill(y: jax.Array, valid: Any, before: int, value: Any) -> jax.Array:
    """Replace what was read at an index that was out of range.

    Args:
        y: what was read, shape (*before, *valid.shape, *after).
        valid: bool; which indices were in range.
        before: the number of axes of `y` that stand before those of the indices.
        value: a scalar of the dtype of `y`.

    Returns:
        An array like `y`. Replaced elements carry no derivative of `y`.
    """
    if not isinstance(valid, Tracer) and np.all(valid):
        return y  # and no NaN is made, which jax_debug_nans would take for one in the result
    axes = range(before, before + np.ndim(valid))
    valid = jax.lax.broadcast_in_dim(jnp.asarray(valid), y.shape, axes)
    return select(valid, y, jnp.broadcast_to(value, y.shape))


def index_axes(index: Sequence[Any], ndim: int) -> int:
    """Return where the axes of the indices stand, of which there are `ndim`, in what is read.

    NumPy's rule: where the first of them stood, or in front if something stood between them.
    """
    arrays = [i for i, part in enumerate(index) if is_array(part)]
    together = arrays[-1] - arrays[0] + 1 == len(arrays)
    return arrays[0] if ndim and together else 0


def is_array(part: Any) -> bool:
    """Tell arrays among the parts of an index from slices and new axes."""
    return part is not None and not isinstance(part, slice)


def _sharding_of_result(x: jax.Array, index: tuple[Any, ...]) -> NamedSharding | None:
    """Return how to shard what is read; None where no axis of a mesh is explicit."""
    arrays = [jnp.asarray(part) for part in index if is_array(part)]
    shardings = [jax.typeof(array).sharding for array in (x, *arrays)]
    meshes = [s.mesh for s in shardings if AxisType.Explicit in s.mesh.axis_types]
    if not meshes:
        return None
    shape = jnp.broadcast_shapes(*(array.shape for array in arrays))
    of_indices: list[Any] = [None] * len(shape)
    for sharding in shardings[1:]:
        start = len(shape) - len(sharding.spec)
        for axis, entry in enumerate(sharding.spec, start):
            of_indices[axis] = of_indices[axis] or entry
    of_array = iter(shardings[0].spec)
    entries: list[Any] = []
    for part in index:
        # A new axis reads none of the array's, and an array of indices reads one and leaves none.
        entry = None if part is None else next(of_array)
        if not is_array(part):
            entries.append(entry if part == slice(None) else None)
    entries += of_array
    if arrays:
        at = index_axes(index, len(shape))
        entries[at:at] = of_indices
    return NamedSharding(meshes[0], PartitionSpec(*_each_once(entries)))


def _each_once(entries: list[Any]) -> list[Any]:
    """Drop entries of a PartitionSpec that use a mesh axis again."""
    used: set[Any] = set()
    kept = []
    for entry in entries:
        kept.append(entry if used.isdisjoint(mesh_axes(entry)) else None)
        used.update(mesh_axes(kept[-1]))
    return kept
