"""Choose between arrays, also where they are sharded differently over the axes of a mesh."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import NamedSharding, PartitionSpec


def select(mask: Any, on_true: Any, on_false: Any) -> Any:
    """Choose by a mask whose axes are the leading axes of the values.

    Args:
        mask: bool, shape (...).
        on_true: any dtype (keys, too), shape (..., *rest).
        on_false: same shape and dtype.

    Returns:
        An array of the values' shape and dtype.
    """
    shape = jnp.shape(on_true)
    if jnp.ndim(mask) not in (0, len(shape)):
        mask = lax.broadcast_in_dim(mask, shape, range(jnp.ndim(mask)))
    if jnp.ndim(mask) == 0:
        return lax.select(mask, *on_same_devices([on_true, on_false]))
    return lax.select(*on_same_devices([mask, on_true, on_false]))


def on_same_devices(operands: Sequence[Any]) -> list[Any]:
    """Let arrays be sharded alike over the explicit axes of a mesh, which a select asks for.

    Args:
        operands: arrays of one shape.

    Returns:
        The arrays, unchanged where they agree. Each of their axes is sharded as in the first of
        them where it is.
    """
    shardings = [jax.typeof(x).sharding for x in operands]
    specs = [tuple(sharding.spec) for sharding in shardings]
    if all(spec == specs[0] for spec in specs[1:]):
        return list(operands)
    used: set[Any] = set()
    common = []
    for entries in zip(*specs, strict=True):
        free = (e for e in entries if e is not None and used.isdisjoint(mesh_axes(e)))
        common.append(next(free, None))
        used.update(mesh_axes(common[-1]))
    mesh = next(s.mesh for s, spec in zip(shardings, specs, strict=True) if any(spec))
    sharding = NamedSharding(mesh, PartitionSpec(*common))
    return [jax.sharding.reshard(x, sharding) for x in operands]


def mesh_axes(entry: Any) -> tuple[Any, ...]:
    """Return the mesh axes in one entry of a PartitionSpec."""
    if entry is None:
        return ()
    return entry if isinstance(entry, tuple) else (entry,)
