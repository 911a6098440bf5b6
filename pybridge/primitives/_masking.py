"""Keep a branch away from the lanes that did not take it.

Under `vmap` a predicate differs from lane to lane, and a branch is evaluated on all
lanes at once. Two small primitives, both the identity until a batched predicate reaches
them, make that safe:

* `lane_any(mask)` turns a batched mask into one unbatched bool, "does any lane take this
  branch?". A conditional on it stays a real conditional under every number of `vmap`s, so
  a branch that no lane takes is never evaluated.
* `guard(mask, x)` replaces the operands of lanes that did not take the branch by those of
  the first lane that did. The branch then only ever sees operands that belong to it, and
  no derivative passes through a replaced lane, in either mode and any order.

Each batching rule handles one axis and binds itself again on the reduced mask, so nested
`vmap`s fill a lane from its own row if the row has a taken lane, else from the first row
that has one: operands that are batched along different axes stay a combination that some
lane really uses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.core import ShapedArray
from jax.interpreters import ad, batching, mlir

from .._errors import ArgumentValueError, explain
from ..jaxprs import Primitive, jaxpr_as_fun
from ._collectives import Axes, refuse_divided, varying_axes
from ._filling import any_taken, fill, first_place, holds_somewhere, varying_like
from ._select import select

if TYPE_CHECKING:
    from jax.extend.core import ClosedJaxpr


def concrete_index(index: Any) -> int | None:
    """Return a bool or integer scalar as an int, or None while its value is unknown."""
    try:
        return int(index)
    except jax.errors.ConcretizationTypeError:
        return None


def run_if(taken: Any, branch: ClosedJaxpr, operands: list[Any]) -> list[Any]:
    """Evaluate a branch if `taken`, else return zeros without evaluating it.

    Args:
        taken: a bool scalar, shape (), that is not batched (see `lane_any`).
        branch: the branch; its operands are arrays.
        operands: one array for each input of the branch.

    Returns:
        One array for each output of the branch.
    """
    known = concrete_index(taken)
    if known:
        return list(jaxpr_as_fun(branch)(*operands))
    branch, wrap_keys = with_key_words(branch, operands)
    avals = branch.out_avals

    def skip(*operands: Any) -> list[Any]:
        return [ad.zeros_like_aval(aval) for aval in avals]

    if known is not None:
        return wrap_keys(skip())
    return wrap_keys(lax.cond(taken, jaxpr_as_fun(branch), skip, *operands))


def with_key_words(
    branch: ClosedJaxpr, operands: Sequence[Any]
) -> tuple[ClosedJaxpr, Callable[[list[Any]], list[Any]]]:
    """Let a branch return the words of PRNG keys, which have a zero, unlike keys.

    Args:
        branch: the branch.
        operands: one array for each input; only their types are used.

    Returns:
        The branch, and a function that makes keys of the words among its results.
    """
    is_key = [jnp.issubdtype(a.dtype, jax.dtypes.prng_key) for a in branch.out_avals]
    if not any(is_key):
        return branch, list
    impls: list[Any] = []

    def with_words(*operands: Any) -> list[Any]:
        outs = jaxpr_as_fun(branch)(*operands)
        pairs = list(zip(outs, is_key, strict=True))
        impls[:] = [jax.random.key_impl(out) if key else None for out, key in pairs]
        return [jax.random.key_data(out) if key else out for out, key in pairs]

    def wrap_keys(outs: list[Any]) -> list[Any]:
        return [
            out if impl is None else jax.random.wrap_key_data(out, impl=impl)
            for out, impl in zip(outs, impls, strict=True)
        ]

    return jax.make_jaxpr(with_words)(*operands), wrap_keys


def vary_with(mask: Any, operands: Any) -> list[Any]:
    """Let operands vary over the mesh axes along which a mask does, inside `shard_map`.

    A branch that not all devices take must hold no communication. It would if an operand
    that is the same on all devices met a varying one in there: the transpose sums its
    cotangents over the devices, and those that skip the branch never join. So such
    operands become varying before, and the sum is taken outside of the conditional.

    Args:
        mask: a predicate or an index, or the array of either.
        operands: arrays.

    Returns:
        The operands, unchanged where `mask` is the same on all devices.
    """
    if is_the_same_on_all_devices(mask):
        return list(operands)
    # Not by an index itself: the transpose of a select by one out of range chooses neither operand.
    pred = lane_any(varying_like(mask))
    return [lax.select(pred, x, x) for x in operands]


def is_the_same_on_all_devices(x: Any) -> bool:
    """Tell whether the type of a value varies over no mesh axis of a `shard_map`."""
    aval = jax.typeof(x)
    unvarying = ShapedArray(aval.shape, aval.dtype, sharding=aval.sharding)
    return aval.update(weak_type=False) == unvarying


lane_any_p = Primitive("pybridge_lane_any")


def lane_any(mask: Any, axes: Axes = frozenset()) -> Any:
    """Return whether any lane of the enclosing `vmap`s takes a branch.

    Args:
        mask: a bool scalar, shape (), for each lane.
        axes: the named axes that the branch's collectives combine.

    Returns:
        A bool scalar, shape (), that is never batched.

    Raises:
        ArgumentValueError: lanes or devices along one of these axes differ, now or when a
            `vmap` with its name is met.
    """
    if concrete_index(mask) is not None:
        return mask
    refuse_divided(axes, varying_axes(mask))
    return lane_any_p.bind(mask, axes=axes)


def _lane_any_batch(axis: Any, operands: Any, dims: Any, *, axes: Axes) -> tuple[Any, None]:
    if dims[0] is None:
        return lane_any(operands[0], axes), None
    refuse_divided(axes, (axis.name,))
    return lane_any(any_taken(*operands), axes), None


def _lane_any_jvp(primals: Any, tangents: Any, *, axes: Axes) -> tuple[Any, Any]:
    return lane_any(primals[0], axes), ad.Zero(jax.typeof(primals[0]).to_tangent_aval())


lane_any_p.def_impl(lambda mask, *, axes: mask)
lane_any_p.def_abstract_eval(lambda mask, *, axes: mask)
mlir.register_lowering(
    lane_any_p, mlir.lower_fun(lambda mask, *, axes: mask, multiple_results=False)
)
ad.primitive_jvps[lane_any_p] = _lane_any_jvp
batching.fancy_primitive_batchers[lane_any_p] = _lane_any_batch

guard_p = Primitive("pybridge_guard")


def guard(mask: Any, x: Any, *, with_zero: bool = False) -> Any:
    """Keep `x` in the lanes that take a branch; fill the others from the first that does.

    Args:
        mask: a bool scalar, shape (), for each lane.
        x: an array of any shape and dtype.
        with_zero: fill with zeros. This form is linear in `x`.

    Returns:
        An array like `x`.
    """
    if concrete_index(mask) is not None:
        return x
    return guard_p.bind(mask, x, with_zero=with_zero)


def _guard_batch(operands: Any, dims: Any, *, with_zero: bool) -> tuple[Any, int | None]:
    mask, x = operands
    mask_dim, x_dim = dims
    if mask_dim is None:
        return guard(mask, x, with_zero=with_zero), x_dim
    place = first_place(mask)
    taken = holds_somewhere(mask, place)
    if x_dim is None:
        # All lanes share the value, so it is the one that the taken lanes use.
        return guard(taken, x, with_zero=with_zero), None
    x = jnp.moveaxis(x, x_dim, 0)
    if with_zero:
        x = select(mask, x, jnp.zeros_like(x))
    else:
        x = fill(mask, x, place)
    return guard(taken, x, with_zero=with_zero), 0


def _guard_jvp(primals: Any, tangents: Any, *, with_zero: bool) -> tuple[Any, Any]:
    mask, x = primals
    tangent = tangents[1]
    if type(tangent) is not ad.Zero:
        _check_sum_over_devices(mask, x)
        tangent = guard(mask, tangent, with_zero=True)
    return guard(mask, x, with_zero=with_zero), tangent


def _check_sum_over_devices(mask: Any, x: Any) -> None:
    """Refuse what `vary_with` could not repair, before it hangs at run time.

    Raises:
        ArgumentValueError: a differentiated value that a branch closes over is the same
            on all devices of a `shard_map`, and the predicate is not.
    """
    if jax.typeof(vary_with(mask, [x])[0]) != jax.typeof(x):
        raise ArgumentValueError(
            explain(
                "pb.cond",
                expected="values closed over by a branch to differ between the devices of "
                "a shard_map, as its predicate does",
                got=f"a differentiated {jax.typeof(x).str_short()} that is the same on all",
                fix="Pass it to the branch as an operand: its gradient is a sum over the "
                "devices, which cannot be taken in a branch that some of them skip.",
            )
        )


def _guard_transpose(ct: Any, mask: Any, x: Any, *, with_zero: bool) -> list[Any]:
    return [None, ct if type(ct) is ad.Zero else guard(mask, ct, with_zero=True)]


guard_p.def_impl(lambda mask, x, *, with_zero: x)
guard_p.def_abstract_eval(lambda mask, x, *, with_zero: x)
mlir.register_lowering(
    guard_p, mlir.lower_fun(lambda mask, x, *, with_zero: x, multiple_results=False)
)
ad.primitive_jvps[guard_p] = _guard_jvp
ad.primitive_transposes[guard_p] = _guard_transpose
batching.primitive_batchers[guard_p] = _guard_batch
