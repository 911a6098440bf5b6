"""Replace what a branch must not see: `fill` and the two primitives that it is made of.

An operand is replaced, in the lanes or elements that do not take a branch, by what the first one
that does has there. Every operand of a branch is replaced from the same place, so that the branch
sees combinations that really occur.

What replaces is nobody's value: no derivative passes it, and nothing of it is in a result. Two
primitives say so, to JAX and to those who read its programs (see `_alignment`): `any_taken`, for
the question whether a branch is needed at all, and `filler`. They are lowered as reductions, which
know no difference between arrays on one device and sharded ones, or between known and symbolic
sizes.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.interpreters import ad, batching, mlir
from jax.sharding import NamedSharding, PartitionSpec

from .._jaxprs import Primitive

any_taken_p = Primitive("pybridge_any")
filler_p = Primitive("pybridge_filler")


def fill(mask: Any, x: Any, *, kept: Sequence[int] = ()) -> Any:
    """Replace `x` where `mask` is False by what it is where it is True first.

    Args:
        mask: bool; as many axes as `x`, each as long as that of `x` or of length 1. Where `x`
            has length 1 and `mask` has not, `x` stays as long as any of them is True.
        x: any dtype, keys too.
        kept: axes along which an element is filled from its own row, if the row has a True.

    Returns:
        An array like `x`. What is replaced carries no derivative.
    """
    shared = [i for i, (m, n) in enumerate(_pairs(mask, x)) if n == 1 and m != 1]
    if shared:
        mask = lax.expand_dims(any_taken(mask, shared), shared)
    if 0 in x.shape:
        return x
    along = [i for i, n in enumerate(jnp.shape(mask)) if n != 1]
    filler = filler_p.bind(
        *same_mesh_axes([mask, x]),
        picked=tuple(i for i in along if i not in kept),
        kept=tuple(i for i in along if i in kept),
    )
    return select(jnp.broadcast_to(mask, x.shape), x, filler)


def any_taken(mask: Any, axes: Sequence[int] | None = None) -> Any:
    """Return whether any element is True.

    Args:
        mask: bool, any shape.
        axes: to look along, all by default.

    Returns:
        A bool array without these axes.
    """
    axes = range(jnp.ndim(mask)) if axes is None else axes
    return any_taken_p.bind(mask, axes=tuple(axes))


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
    # What they are compared for does not matter: the result has the type.
    varying = [any_taken(lax.ne(x, x)) for x in operands]
    pred = functools.reduce(jnp.logical_or, varying)
    return [lax.select(pred, x, x) for x in operands]


def _scalar_type(x: Any) -> Any:
    """The type of a bool scalar on the same mesh that varies like `x`."""
    aval = jax.typeof(x)
    sharding = NamedSharding(aval.sharding.mesh, PartitionSpec())
    return aval.update(shape=(), dtype=np.dtype(np.bool_), weak_type=False, sharding=sharding)


def _pairs(mask: Any, x: Any) -> Any:
    return zip(jnp.shape(mask), jnp.shape(x), strict=True)


# ----------------------------------------------------------------------- what fills


def filler_values(mask: Any, x: Any, *, picked: Sequence[int], kept: Sequence[int]) -> Any:
    """Return the elements of `x` at the first place where `mask` is True, everywhere.

    Args:
        mask: bool; as many axes as `x`, each as long as that of `x` or of length 1.
        x: any dtype, keys too.
        picked: axes along which the first place is looked for.
        kept: axes along which each row has a first place of its own; a row without has that
            of the first row that has one.

    Returns:
        An array of the shape and dtype of `x`.
    """
    if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
        words = filler_values(mask[..., None], jax.random.key_data(x), picked=picked, kept=kept)
        return jax.random.wrap_key_data(words, impl=jax.random.key_impl(x))
    value, taken = x, mask
    for axis in reversed(picked):
        value, taken = _first(taken, value, axis)
    first, some = value, taken
    for axis in reversed(kept):
        first, some = _first(some, first, axis)
    if kept:
        value = _where(taken, value, first)
    value, sharding = jnp.broadcast_to(value, x.shape), jax.typeof(x).sharding
    if tuple(jax.typeof(value).sharding.spec) == tuple(sharding.spec):
        return value
    return jax.sharding.reshard(value, sharding)


def first_true(mask: Any, x: Any) -> Any:
    """Return the element of `x` where `mask` is True first, the first of all if it is nowhere.

    Args:
        mask: bool, the shape of `x`.
        x: any dtype but keys, not empty.
    """
    for axis in reversed(range(jnp.ndim(x))):
        x, mask = _first(mask, x, axis)
    return jnp.squeeze(x)


def _where(mask: Any, on_true: Any, on_false: Any) -> Any:
    """Choose between arrays that broadcast against each other."""
    shape = jnp.broadcast_shapes(*map(jnp.shape, (mask, on_true, on_false)))
    return select(*(jnp.broadcast_to(x, shape) for x in (mask, on_true, on_false)))


def _first(mask: Any, x: Any, axis: int) -> tuple[Any, Any]:
    """Reduce an axis to the first element of `x` where `mask` is True, and to whether one is."""
    place = jnp.argmax(mask, axis, keepdims=True)
    here = lax.broadcasted_iota(place.dtype, mask.shape, axis) == place
    return _at(here, x, axis), jnp.any(mask, axis, keepdims=True)


def _at(here: Any, x: Any, axis: int) -> Any:
    """Return the one element along an axis where `here` is True, bit for bit."""
    if jnp.issubdtype(x.dtype, jnp.complexfloating):
        return lax.complex(_at(here, jnp.real(x), axis), _at(here, jnp.imag(x), axis))
    if x.dtype == np.bool_:
        return jnp.any(here & x, axis, keepdims=True)
    # Not all devices can compare numbers of less than 16 bits.
    kind = np.float32 if jnp.issubdtype(x.dtype, jnp.floating) else np.int32
    wide = x if x.dtype.itemsize > 1 else x.astype(kind)
    # The largest of one number and others that are less is that number, NaN and -0.0 too.
    floating = jnp.issubdtype(wide.dtype, jnp.floating)
    least = -np.inf if floating else jnp.iinfo(wide.dtype).min
    others = np.asarray(least, wide.dtype)
    return jnp.max(_where(here, wide, others), axis, keepdims=True).astype(x.dtype)


# ---------------------------------------------------------------------------- rules


def _no_tangent(aval: Any) -> ad.Zero:
    return ad.Zero(aval.to_tangent_aval())


def _any_aval(mask: Any, *, axes: tuple[int, ...]) -> Any:
    left = [i for i in range(len(mask.shape)) if i not in axes]
    spec = PartitionSpec(*(mask.sharding.spec[i] for i in left))
    sharding = NamedSharding(mask.sharding.mesh, spec)
    return mask.update(shape=tuple(mask.shape[i] for i in left), sharding=sharding)


def _any_jvp(primals: Any, tangents: Any, **params: Any) -> tuple[Any, Any]:
    answer = any_taken_p.bind(*primals, **params)
    return answer, _no_tangent(jax.typeof(answer))


def _any_batch(operands: Any, dims: Any, *, axes: tuple[int, ...]) -> tuple[Any, int]:
    mask = jnp.moveaxis(operands[0], dims[0], 0)
    return any_taken(mask, [i + 1 for i in axes]), 0


any_taken_p.def_impl(lambda mask, *, axes: jnp.any(mask, axes))
any_taken_p.def_abstract_eval(_any_aval)
mlir.register_lowering(
    any_taken_p,
    mlir.lower_fun(lambda mask, *, axes: jnp.any(mask, axes), multiple_results=False),
)
ad.primitive_jvps[any_taken_p] = _any_jvp
batching.primitive_batchers[any_taken_p] = _any_batch


def _filler_jvp(primals: Any, tangents: Any, **params: Any) -> tuple[Any, Any]:
    filler = filler_p.bind(*primals, **params)
    return filler, _no_tangent(jax.typeof(filler))


def _filler_transpose(ct: Any, mask: Any, x: Any, **params: Any) -> list[Any]:
    """Return no cotangent: in `jax.linear_transpose`, too, what fills is a constant."""
    return [None, ad.Zero(x.aval)]


def _filler_batch(
    axis: Any, operands: Any, dims: Any, *, picked: tuple[int, ...], kept: tuple[int, ...]
) -> tuple[Any, int | None]:
    if all(dim is None for dim in dims):  # JAX asks this rule even then
        return filler_p.bind(*operands, picked=picked, kept=kept), None
    mask, x = (
        lax.expand_dims(x, [0]) if dim is None else jnp.moveaxis(x, dim, 0)
        for x, dim in zip(operands, dims, strict=True)
    )
    x = jnp.broadcast_to(x, (axis.size, *x.shape[1:]))
    picked, kept = (tuple(i + 1 for i in axes) for axes in (picked, kept))
    return filler_p.bind(*same_mesh_axes([mask, x]), picked=picked, kept=kept), 0


filler_p.def_impl(filler_values)
filler_p.def_abstract_eval(lambda mask, x, **params: x)
mlir.register_lowering(filler_p, mlir.lower_fun(filler_values, multiple_results=False))
ad.primitive_jvps[filler_p] = _filler_jvp
ad.primitive_transposes[filler_p] = _filler_transpose
batching.fancy_primitive_batchers[filler_p] = _filler_batch
