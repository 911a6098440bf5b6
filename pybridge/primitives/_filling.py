"""Replace what a branch must not see: `fill` and the two primitives that it is made of.

An operand is replaced, in the lanes or elements that do not take a branch, by what the first one
that does has there. Every operand of a branch is replaced from the same place, so that the branch
sees combinations that really occur; and the place is looked for once.

What replaces is nobody's value: no derivative passes it, and nothing of it is in a result. Two
primitives say so, to JAX and to those who read its programs (see `_alignment`): `first_place`,
which also tells whether a branch is needed at all, and `filler`, which reads there. They are
lowered as a reduction and a gather, which know no difference between arrays on one device and
sharded ones, or between known and symbolic sizes.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.interpreters import ad, batching, mlir
from jax.sharding import NamedSharding, PartitionSpec

from ..jaxprs import Primitive
from ._gathering import gather
from ._select import select

first_place_p = Primitive("pybridge_first_place")
filler_p = Primitive("pybridge_filler")

# So many lanes are looked at first: most masks hold in one of them, and then it costs nothing to
# find. A reduction over all of them is as dear as a cheap branch.
_LOOKED_AT_FIRST = 1024


def first_place(mask: Any, rows: int = 0) -> Any:
    """Return where a mask holds first.

    Args:
        mask: bool, shape (*rows, *lanes).
        rows: the number of leading axes that have a place each.

    Returns:
        Integers of shape (*rows,): a place among the lanes, counted row by row, their number
        where the mask holds nowhere.
    """
    return first_place_p.bind(mask, axes=tuple(range(rows, jnp.ndim(mask))))


def holds_somewhere(mask: Any, place: Any) -> Any:
    """Return whether `place = first_place(mask, rows)` is one, bool of shape (*rows,)."""
    return place < number(math.prod(jnp.shape(mask)[jnp.ndim(place) :]), place.dtype)


def any_taken(mask: Any) -> Any:
    """Return whether any element of a bool array is True, a scalar."""
    return mask if jnp.ndim(mask) == 0 else holds_somewhere(mask, first_place(mask))


def varying_like(x: Any) -> Any:
    """Return a bool scalar for its type alone: it varies over the mesh axes over which `x` does.

    A select by it lets what it selects vary over them, too, and XLA drops it.
    """
    return any_taken(lax.ne(x, x))


def fill(mask: Any, x: Any, place: Any) -> Any:
    """Replace `x` where `mask` is False by what it is at a place.

    Args:
        mask: bool, shape (*rows, *lanes).
        x: any dtype, keys too, shape (*rows, *lanes, *rest).
        place: shape (*rows,), as `first_place` returns it.

    Returns:
        An array like `x`. What is replaced carries no derivative.
    """
    if 0 in jnp.shape(x):
        return x
    rows = jnp.ndim(place)
    lanes = range(rows, jnp.ndim(mask))
    filler = filler_p.bind(*same_mesh_axes([place, x]), lanes=len(lanes))
    filler = lax.expand_dims(filler, lanes)
    return select(mask, x, jnp.broadcast_to(filler, x.shape))


def same_mesh_axes(operands: Sequence[Any]) -> list[Any]:
    """Let operands vary over the mesh axes over which any of them does, inside `shard_map`.

    Args:
        operands: arrays of any shape and dtype.

    Returns:
        The operands, unchanged where they agree.
    """
    kinds = [_scalar_type(x) for x in operands]
    if all(kind == kinds[0] for kind in kinds[1:]):
        return list(operands)
    pred = functools.reduce(jnp.logical_or, map(varying_like, operands))
    return [lax.select(pred, x, x) for x in operands]


def _scalar_type(x: Any) -> Any:
    """The type of a bool scalar on the same mesh that varies like `x`."""
    aval = jax.typeof(x)
    sharding = NamedSharding(aval.sharding.mesh, PartitionSpec())
    return aval.update(shape=(), dtype=np.dtype(np.bool_), weak_type=False, sharding=sharding)


# ----------------------------------------------------------------------- what fills


def find_first(mask: Any, *, axes: Sequence[int]) -> Any:
    """Return what `first_place` does, from the first lanes alone where they tell."""
    sizes = [mask.shape[axis] for axis in axes]
    sharded = any(jax.typeof(mask).sharding.spec)
    if sharded or 0 in sizes or not all(isinstance(n, int) for n in sizes):
        return least_place(mask, axes)
    others = math.prod(sizes[1:])
    head = max(1, _LOOKED_AT_FIRST // others)
    if head >= sizes[0]:
        return least_place(mask, axes)
    place = least_place(lax.slice_in_dim(mask, 0, head, axis=axes[0]), axes)
    found = jnp.all(place < np.asarray(head * others, place.dtype))
    place = place.astype(_place_dtype(sizes[0] * others))
    return lax.cond(
        found, lambda place, _: place, lambda _, mask: least_place(mask, axes), place, mask
    )


def least_place(mask: Any, axes: Sequence[int]) -> Any:
    """Return what `first_place` does, by one reduction along `axes`."""
    sizes = [mask.shape[axis] for axis in axes]
    dtype = _place_dtype(math.prod(sizes))
    place = jnp.zeros((), dtype)
    for axis, size in zip(axes, sizes, strict=True):
        along = lax.broadcasted_iota(dtype, mask.shape, axis)
        place = place * number(size, dtype) + along
    nowhere = jnp.broadcast_to(number(math.prod(sizes), dtype), mask.shape)
    return jnp.min(select(mask, place, nowhere), axes, initial=jnp.iinfo(dtype).max)


def read_at(place: Any, x: Any, *, lanes: int) -> Any:
    """Return what is at a place of each row.

    Args:
        place: shape (*rows,), as `first_place` returns it.
        x: any dtype, keys too, shape (*rows, *lanes, *rest).
        lanes: the number of axes of the lanes.

    Returns:
        An array of shape (*rows, *rest). Where the mask holds nowhere, one of its lanes.
    """
    rows = jnp.ndim(place)
    sizes = [number(n, place.dtype) for n in x.shape[rows : rows + lanes]]
    inside = jnp.minimum(place, functools.reduce(lax.mul, sizes) - np.ones((), place.dtype))
    positions = []
    for size in reversed(sizes):
        positions.insert(0, lax.rem(*jnp.broadcast_arrays(inside, size)))
        inside = lax.div(*jnp.broadcast_arrays(inside, size))
    own = [lax.broadcasted_iota(place.dtype, place.shape, axis) for axis in range(rows)]
    # An index of one place: JAX makes a slice of a scalar, which a sharded axis does not have.
    index = [lax.expand_dims(i, [rows]) for i in (*own, *positions)]
    value = lax.squeeze(gather(jnp.asarray(x), tuple(index)), [rows])
    sharding = _sharding_without(jax.typeof(x), range(rows, rows + lanes))
    if tuple(jax.typeof(value).sharding.spec) == tuple(sharding.spec):
        return value
    return jax.sharding.reshard(value, sharding)


def first_true(mask: Any, x: Any) -> Any:
    """Return the element of `x` where `mask` is True first, any if it is nowhere.

    Args:
        mask: bool, the shape of `x`.
        x: any dtype, not empty.
    """
    if jnp.ndim(x) == 0:
        return x
    place = find_first(mask, axes=range(jnp.ndim(mask)))
    return read_at(place, x, lanes=jnp.ndim(mask))


def _place_dtype(count: Any) -> Any:
    """Return integers that hold a number of lanes; symbolic ones have 32 bits."""
    types = (np.int32, np.uint32, np.int64)
    fits = (t for t in types if not isinstance(count, int) or count <= np.iinfo(t).max)
    return np.dtype(next(fits))


def number(size: Any, dtype: Any) -> Any:
    """Return a size as a scalar of a dtype; a symbolic one is a value of the program."""
    return np.asarray(size, dtype) if isinstance(size, int) else jnp.asarray(size, dtype)


def _sharding_without(aval: Any, axes: Sequence[int]) -> NamedSharding:
    """Return how an array is sharded along the axes that are not among some."""
    spec = [entry for i, entry in enumerate(aval.sharding.spec) if i not in axes]
    return NamedSharding(aval.sharding.mesh, PartitionSpec(*spec))


def _without(aval: Any, axes: Sequence[int], dtype: Any) -> Any:
    shape = tuple(n for i, n in enumerate(aval.shape) if i not in axes)
    sharding = _sharding_without(aval, axes)
    return aval.update(shape=shape, dtype=dtype, weak_type=False, sharding=sharding)


# ---------------------------------------------------------------------------- rules


def _no_tangent(x: Any) -> ad.Zero:
    return ad.Zero(jax.typeof(x).to_tangent_aval())


def _place_aval(mask: Any, *, axes: tuple[int, ...]) -> Any:
    return _without(mask, axes, _place_dtype(math.prod(mask.shape[i] for i in axes)))


def _place_jvp(primals: Any, tangents: Any, **params: Any) -> tuple[Any, Any]:
    place = first_place_p.bind(*primals, **params)
    return place, _no_tangent(place)


def _place_batch(operands: Any, dims: Any, *, axes: tuple[int, ...]) -> tuple[Any, int]:
    mask = jnp.moveaxis(operands[0], dims[0], 0)
    return first_place_p.bind(mask, axes=tuple(i + 1 for i in axes)), 0


first_place_p.def_impl(find_first)
first_place_p.def_abstract_eval(_place_aval)
mlir.register_lowering(first_place_p, mlir.lower_fun(find_first, multiple_results=False))
ad.primitive_jvps[first_place_p] = _place_jvp
batching.primitive_batchers[first_place_p] = _place_batch


def _filler_aval(place: Any, x: Any, *, lanes: int) -> Any:
    rows = len(place.shape)
    return _without(x, range(rows, rows + lanes), x.dtype)


def _filler_jvp(primals: Any, tangents: Any, **params: Any) -> tuple[Any, Any]:
    filler = filler_p.bind(*primals, **params)
    return filler, _no_tangent(filler)


def _filler_transpose(ct: Any, place: Any, x: Any, **params: Any) -> list[Any]:
    """Return no cotangent: in `jax.linear_transpose`, too, what fills is a constant."""
    return [None, ad.Zero(x.aval)]


def _filler_batch(axis: Any, operands: Any, dims: Any, *, lanes: int) -> tuple[Any, int | None]:
    (place, x), (place_dim, x_dim) = operands, dims
    if place_dim is None and x_dim is None:  # JAX asks this rule even then
        return filler_p.bind(place, x, lanes=lanes), None
    if place_dim is None:
        # All read at the same place, so that they are part of what is read.
        filler = filler_p.bind(place, jnp.moveaxis(x, x_dim, -1), lanes=lanes)
        return filler, filler.ndim - 1
    if x_dim is None:
        x = jnp.broadcast_to(x, (axis.size, *x.shape))
    else:
        x = jnp.moveaxis(x, x_dim, 0)
    return filler_p.bind(jnp.moveaxis(place, place_dim, 0), x, lanes=lanes), 0


filler_p.def_impl(read_at)
filler_p.def_abstract_eval(_filler_aval)
mlir.register_lowering(filler_p, mlir.lower_fun(read_at, multiple_results=False))
ad.primitive_jvps[filler_p] = _filler_jvp
ad.primitive_transposes[filler_p] = _filler_transpose
batching.fancy_primitive_batchers[filler_p] = _filler_batch
