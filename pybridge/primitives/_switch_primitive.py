"""The JAX primitive behind `cond` and `switch`, and its rules.

JAX's own conditional becomes a `select` over all branches on all lanes once its predicate
is batched, and lets the derivatives of branches that were not taken through. This one
stays undecided for as long as possible:

* an index that is known while tracing selects there and then, at every level. That is
  what makes `cond(within_gradient(x), f, g, x)` free: the JVP rule meets the constant
  True, and no conditional is left in the program;
* an index that is the same for all lanes stays one conditional, `lax.switch`;
* an index that differs from lane to lane, or a conditional that is differentiated while
  its index is unknown, is spelled out by `spell_out` in terms of `lane_any`, `guard` and
  `lax.cond`. JAX's rules for those split it into primal and tangent part, transpose it
  and choose its residuals.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.interpreters import ad, batching, mlir

from .._jaxprs import Primitive, jaxpr_as_fun
from ._collectives import communicating_axes
from ._detection import within_gradient_p
from ._filling import select
from ._masking import (
    concrete_index,
    guard,
    is_the_same_on_all_devices,
    lane_any,
    run_if,
)

if TYPE_CHECKING:
    from jax.extend.core import ClosedJaxpr

switch_p = Primitive("pybridge_switch")
switch_p.multiple_results = True


def bind_switch(index: Any, branches: tuple[ClosedJaxpr, ...], operands: Any) -> list[Any]:
    """Evaluate the branch that a scalar index selects.

    Args:
        index: a bool or integer scalar, shape (), clamped to the branches.
        branches: at least one; same inputs, same output shapes and dtypes, no constants.
        operands: one array for each input.

    Returns:
        One array for each output.
    """
    known = concrete_index(index)
    if known is not None:
        return list(jaxpr_as_fun(_nth(branches, known))(*operands))
    if not _one_type_for_all(index, branches):
        return spell_out(index, branches, operands, [False] * len(operands))
    return switch_p.bind(index, *operands, branches=branches)


def branch_masks(index: Any, count: int) -> list[Any]:
    """Return for each branch where the clamped index selects it.

    Args:
        index: bool or integer, any shape.
        count: the number of branches; two if `index` is bool.

    Returns:
        `count` bool arrays of the index's shape, of which one is True at each place.
    """
    if index.dtype == np.dtype(np.bool_):
        return [jnp.logical_not(index), index]
    index = clamp_index(index, count)
    return [index == np.asarray(i, index.dtype) for i in range(count)]


def clamp_index(index: Any, count: int) -> Any:
    """Clamp an index of any integer dtype to `count` branches, as int32."""
    # In its own dtype first: a large uint32 must not wrap to a negative int32.
    highest = min(count - 1, jnp.iinfo(index.dtype).max)
    low, high = np.asarray(0, index.dtype), np.asarray(highest, index.dtype)
    return lax.convert_element_type(lax.clamp(low, index, high), np.int32)


def spell_out(
    index: Any, branches: tuple[ClosedJaxpr, ...], operands: Any, linear: list[bool]
) -> list[Any]:
    """Evaluate a switch as one guarded conditional for each branch and a select.

    Args:
        index: a bool or integer scalar, shape (), that may be or become batched.
        branches: as for `bind_switch`.
        operands: one array for each input.
        linear: for each operand whether it is a tangent.

    Returns:
        One array for each output.
    """
    results: list[Any] = []
    for mask, branch in zip(branch_masks(index, len(branches)), branches, strict=True):
        taken = lane_any(mask, communicating_axes(branch))
        guarded = [
            guard(mask, x, with_zero=is_linear)
            for x, is_linear in zip(operands, linear, strict=True)
        ]
        outs = run_if(taken, branch, guarded)
        if results:
            outs = [select(mask, o, r) for o, r in zip(outs, results, strict=True)]
        results = outs
    return results


def _nth(branches: tuple[ClosedJaxpr, ...], index: int) -> ClosedJaxpr:
    return branches[max(0, min(index, len(branches) - 1))]


def _one_type_for_all(index: Any, branches: tuple[ClosedJaxpr, ...]) -> bool:
    """Tell whether the branches agree in all of their types, not only in shape and dtype.

    Inside `shard_map` a type also says over which mesh axes a value varies. Where the
    index varies, or one branch's result does and another's does not, the select of
    `spell_out` finds the common type.
    """
    return is_the_same_on_all_devices(index) and all(
        a.update(weak_type=False) == b.update(weak_type=False)
        for branch in branches[1:]
        for a, b in zip(branches[0].out_avals, branch.out_avals, strict=True)
    )


def _impl(index: Any, *operands: Any, branches: Any) -> list[Any]:
    return bind_switch(index, branches, operands)


def _abstract_eval(index: Any, *operands: Any, branches: Any) -> tuple[Any, Any]:
    effects = frozenset().union(*(branch.effects for branch in branches))
    return branches[0].out_avals, effects


def _lower(index: Any, *operands: Any, branches: Any) -> list[Any]:
    """Evaluate as XLA's conditional."""
    if index.dtype != np.dtype(np.bool_):
        index = clamp_index(index, len(branches))
    functions = [jaxpr_as_fun(branch) for branch in branches]
    return lax.switch(lax.convert_element_type(index, np.int32), functions, *operands)


def _batch(axis: Any, operands: Any, dims: Any, *, branches: Any) -> tuple[Any, Any]:
    index, *xs = operands
    index_dim, *x_dims = dims
    if all(dim is None for dim in dims):  # JAX asks this rule even then
        return bind_switch(index, branches, xs), [None] * len(branches[0].out_avals)
    vmap_options = {
        "axis_size": axis.size,
        "axis_name": axis.name,
        "spmd_axis_name": axis.spmd_name,
    }
    if index_dim is None:
        batched = tuple(
            jax.make_jaxpr(jax.vmap(jaxpr_as_fun(b), tuple(x_dims), 0, **vmap_options))(*xs)
            for b in branches
        )
        outs = bind_switch(index, batched, xs)
    else:

        def one_lane(index: Any, *xs: Any) -> list[Any]:
            return spell_out(index, branches, xs, [False] * len(xs))

        outs = jax.vmap(one_lane, tuple(dims), 0, **vmap_options)(index, *xs)
    return outs, [0] * len(outs)


def _jvp(primals: Any, tangents: Any, *, branches: Any) -> tuple[list[Any], list[Any]]:
    index, *xs = primals
    avals = branches[0].out_avals
    moving = [_is_nonzero(tangent) for tangent in tangents[1:]]
    if not any(moving):
        return bind_switch(index, branches, xs), [_zero_tangent(aval) for aval in avals]
    xs_dot = [tangent for tangent, m in zip(tangents[1:], moving, strict=True) if m]
    known = concrete_index(index)
    if known is not None:
        branches = (_nth(branches, known),)
    differentiated = [_jvp_branch(branch, moving, xs, xs_dot) for branch in branches]
    jvp_branches = tuple(branch for branch, _ in differentiated)
    if known is not None:
        outs = list(jaxpr_as_fun(jvp_branches[0])(*xs, *xs_dot))
    else:
        linear = [False] * len(xs) + [True] * len(xs_dot)
        outs = spell_out(index, jvp_branches, [*xs, *xs_dot], linear)
    outs, outs_dot = outs[: len(avals)], iter(outs[len(avals) :])
    # An output has a tangent if it has one in any branch that may be taken.
    carried = [any(flags) for flags in zip(*(f for _, f in differentiated), strict=True)]
    all_dots = [next(outs_dot) if _is_inexact(aval) else None for aval in avals]
    return outs, [
        dot if is_carried else _zero_tangent(aval)
        for dot, is_carried, aval in zip(all_dots, carried, avals, strict=True)
    ]


def _jvp_branch(
    branch: ClosedJaxpr, moving: list[bool], xs: list[Any], xs_dot: list[Any]
) -> tuple[ClosedJaxpr, list[bool]]:
    """Differentiate a branch with respect to the operands that carry a tangent.

    Args:
        branch: the branch.
        moving: for each operand whether it carries a tangent.
        xs: the operands; only their types are used.
        xs_dot: the tangents of the moving ones; only their types are used.

    Returns:
        A branch that takes operands and tangents and returns outputs and the tangents of
        the inexact ones, and for each output whether it has more than a symbolic zero.
    """
    carried: list[bool] = []
    has_tangent = [_is_inexact(aval) for aval in branch.out_avals]

    def with_tangents(xs: list[Any], xs_dot: list[Any]) -> list[Any]:
        def of_moving(*moved: Any) -> list[Any]:
            remaining = iter(moved)
            mixed = [next(remaining) if m else x for m, x in zip(moving, xs, strict=True)]
            outs = list(jaxpr_as_fun(branch)(*mixed))
            # Traced on its own, the branch has no outer derivative that could answer.
            carried[:] = [
                inexact and concrete_index(within_gradient_p.bind(out)) == 1
                for out, inexact in zip(outs, has_tangent, strict=True)
            ]
            return outs

        moved = [x for m, x in zip(moving, xs, strict=True) if m]
        outs, outs_dot = jax.jvp(of_moving, tuple(moved), tuple(xs_dot))
        pairs = zip(outs_dot, has_tangent, strict=True)
        return [*outs, *(dot for dot, inexact in pairs if inexact)]

    traced = jax.make_jaxpr(with_tangents)(xs, xs_dot)
    return traced, carried


def _transpose(cts: Any, index: Any, *operands: Any, branches: Any) -> list[Any]:
    """Transpose a switch that is linear in some operands, for `jax.linear_transpose`.

    A derivative never comes here: the JVP rule leaves no switch behind.
    """
    linear = [ad.is_undefined_primal(x) for x in operands]

    def of_linear(*xs: Any) -> list[Any]:
        remaining = iter(xs)
        pairs = zip(operands, linear, strict=True)
        mixed = [next(remaining) if is_linear else x for x, is_linear in pairs]
        return spell_out(index, branches, mixed, linear)

    avals = [x.aval for x, is_linear in zip(operands, linear, strict=True) if is_linear]
    structs = [jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in avals]
    cts = [ad.instantiate_zeros(ct) for ct in cts]
    transposed = iter(jax.linear_transpose(of_linear, *structs)(cts))
    return [None, *(next(transposed) if is_linear else None for is_linear in linear)]


def _is_inexact(aval: Any) -> bool:
    return jnp.issubdtype(aval.dtype, np.inexact)


def _is_nonzero(tangent: Any) -> bool:
    return type(tangent) is not ad.Zero and tangent.dtype != jax.dtypes.float0


def _zero_tangent(aval: Any) -> ad.Zero:
    return ad.Zero(aval.to_tangent_aval())


switch_p.def_impl(_impl)
switch_p.def_effectful_abstract_eval(_abstract_eval)
mlir.register_lowering(switch_p, mlir.lower_fun(_lower, multiple_results=True))
batching.fancy_primitive_batchers[switch_p] = _batch
ad.primitive_jvps[switch_p] = _jvp
ad.primitive_transposes[switch_p] = _transpose
