"""The JAX primitive behind `cond` and `switch`, and how it is evaluated and batched.

JAX's own conditional becomes a `select` over all branches on all lanes once its predicate
is batched, and lets the derivatives of branches that were not taken through. This one
stays undecided for as long as possible:

* an index that is known while tracing selects there and then, at every level. That is
  what makes `cond(within_gradient(x), f, g, x)` free: the JVP rule meets the constant
  True, and no conditional is left in the program;
* an index that is the same for all lanes stays one conditional, `lax.switch`. In reverse
  mode its derivative is another one, see `_switch_partial_eval`;
* an index that differs from lane to lane becomes one conditional for each branch, on "does any
  lane take it?", see `_switch_lanes`;
* one that differs between the devices of a `shard_map` is spelled out by `spell_out` in terms
  of `lane_any`, `guard` and `lax.cond`. JAX's rules for those split it into primal and tangent
  part, transpose it and choose its residuals;
* refs (`jax.new_ref`) are no values that could be filled or selected. Branches that take some
  are left to `lax.switch`, which refuses an index that differs from lane to lane; those that
  make their own are spelled out at once;
* what all branches return as they got it is in no conditional: `y` of `lambda x, y: (f(x), y)`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.interpreters import mlir
from jax.interpreters import partial_eval as pe

from ..jaxprs import FOLLOWED, AbstractRef, Flow, Primitive, inner_jaxprs, jaxpr_as_fun
from ._collectives import communicating_axes
from ._masking import (
    concrete_index,
    guard,
    is_the_same_on_all_devices,
    lane_any,
    run_if,
)
from ._select import select

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
        return list(map(_as_array, jaxpr_as_fun(nth_branch(branches, known))(*operands)))
    if any(map(_takes_refs, branches)):
        functions = [jaxpr_as_fun(branch) for branch in branches]
        return lax.switch(_as_int32(index, len(branches)), functions, *operands)
    operands = list(map(_as_array, operands))
    passed_on = _passed_on(branches)
    rest = tuple(without(branch, passed_on) for branch in branches)
    if None not in passed_on and not any(branch.effects for branch in rest):
        return [operands[i] for i in passed_on]
    if any(map(_makes_refs, rest)) or not _one_type_for_all(index, rest):
        chosen = spell_out(index, rest, operands, [False] * len(operands))
    else:
        chosen = switch_p.bind(index, *operands, branches=rest)
    remaining = iter(chosen)
    return [next(remaining) if i is None else operands[i] for i in passed_on]


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
    if jnp.iinfo(index.dtype).bits < 32:
        # XLA clamps int8 and uint8 wrongly on NVIDIA's GPUs: 0 to [0, 2] was 2 (jax 0.11.2, H200).
        index = lax.convert_element_type(index, np.int32)
    # In its own dtype otherwise: a large uint32 must not wrap to a negative int32.
    highest = min(count - 1, jnp.iinfo(index.dtype).max)
    low, high = np.asarray(0, index.dtype), np.asarray(highest, index.dtype)
    return lax.convert_element_type(lax.clamp(low, index, high), np.int32)


def _as_array(x: Any) -> Any:
    """Return what a branch passes on, or the constant that it is, as other results are."""
    return jnp.asarray(x) if isinstance(x, int | float | complex) else x


def _as_int32(index: Any, count: int) -> Any:
    if index.dtype != np.dtype(np.bool_):
        return clamp_index(index, count)
    return lax.convert_element_type(index, np.int32)


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


def nth_branch(branches: tuple[ClosedJaxpr, ...], index: int) -> ClosedJaxpr:
    """Return the branch that a known index selects."""
    return branches[max(0, min(index, len(branches) - 1))]


def _passed_on(branches: tuple[ClosedJaxpr, ...]) -> list[int | None]:
    """Return for each output the input that it is in every branch, None where it is not."""
    from jax.extend.core import Var

    def positions(branch: ClosedJaxpr) -> list[int | None]:
        inputs = {var: i for i, var in enumerate(branch.jaxpr.invars)}
        return [inputs.get(out) if isinstance(out, Var) else None for out in branch.jaxpr.outvars]

    of_outputs = zip(*map(positions, branches), strict=True)
    return [found[0] if len(set(found)) == 1 else None for found in of_outputs]


def without(branch: ClosedJaxpr, left_out: list[int | None]) -> ClosedJaxpr:
    """Return a branch with those outputs alone that have None in a list."""
    if all(i is None for i in left_out):
        return branch
    jaxpr, _ = pe.dce_jaxpr(branch.jaxpr, [i is None for i in left_out], instantiate=True)
    return branch.replace(jaxpr=jaxpr)


def _takes_refs(branch: ClosedJaxpr) -> bool:
    return any(isinstance(aval, AbstractRef) for aval in branch.in_avals)


def _makes_refs(branch: ClosedJaxpr) -> bool:
    """Tell whether a branch calls `jax.new_ref`.

    JAX turns refs into values before it compiles, by rules that its own conditional has.
    """
    if not branch.effects:
        return False
    made = (var.aval for eqn in branch.jaxpr.eqns for var in eqn.outvars)
    return any(isinstance(aval, AbstractRef) for aval in made) or any(
        _makes_refs(inner) for eqn in branch.jaxpr.eqns for inner in inner_jaxprs(eqn)
    )


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
    functions = [jaxpr_as_fun(branch) for branch in branches]
    return lax.switch(_as_int32(index, len(branches)), functions, *operands)


def batch_together(
    axis: Any, index: Any, xs: Sequence[Any], dims: list[Any], branches: tuple[ClosedJaxpr, ...]
) -> tuple[list[Any], list[int | None]]:
    """Map over a switch whose index is the same for all lanes.

    Args:
        axis: what JAX's batching rules get.
        index: as for `bind_switch`.
        xs: one array for each input.
        dims: for each of them the axis of its lanes, or None.
        branches: as for `bind_switch`.

    Returns:
        The results, and for each the axis of its lanes, or None.
    """
    if all(dim is None for dim in dims):  # JAX asks this rule even then
        return bind_switch(index, branches, xs), [None] * len(branches[0].out_avals)
    out_dims = _batched_outputs(branches, dims)
    batched = tuple(batch_branch(axis, branch, dims, out_dims, xs) for branch in branches)
    return bind_switch(index, batched, xs), out_dims


def batch_branch(
    axis: Any, branch: ClosedJaxpr, dims: list[Any], out_dims: Any, xs: Sequence[Any]
) -> ClosedJaxpr:
    """Map over a branch; of `xs` only types are used."""
    mapped = jax.vmap(
        jaxpr_as_fun(branch),
        tuple(dims),
        out_dims,
        axis_size=axis.size,
        axis_name=axis.name,
        spmd_axis_name=axis.spmd_name,
    )
    return jax.make_jaxpr(mapped)(*xs)


def _batched_outputs(branches: tuple[ClosedJaxpr, ...], dims: list[Any]) -> list[int | None]:
    """Return 0 for each output that a batched input reaches in some branch, else None."""
    is_batched = [dim is not None for dim in dims]
    of_branches = [_Batched().run(branch, is_batched) for branch in branches]
    return [0 if any(column) else None for column in zip(*of_branches, strict=True)]


class _Batched(Flow[bool]):
    """Follows which values have lanes, as JAX's rules for calls, loops and branches do."""

    # What a rule of the user's own returns is not known.
    enters = FOLLOWED - {"custom_vmap_call"}

    def constant(self, atom: Any) -> bool:
        return False

    def join(self, first: bool, second: bool) -> bool:
        return first or second

    def through(self, eqn: Any, facts: list[bool]) -> list[bool]:
        return [any(facts)] * len(eqn.outvars)

    def chosen(self, eqn: Any, index: bool, facts: list[bool]) -> list[bool]:
        return [index or fact for fact in facts]

    def results(self, eqn: Any, facts: list[bool]) -> Sequence[bool]:
        results = super().results(eqn, facts)
        if eqn.primitive.name != "while":
            return results
        asked = facts[: eqn.params["cond_nconsts"]]
        going = self.run(eqn.params["cond_jaxpr"], [*asked, *results])
        # Lanes that have ended keep what they have, so everything in the loop has lanes.
        return [True] * len(results) if any(going) else results


switch_p.def_impl(_impl)
switch_p.def_effectful_abstract_eval(_abstract_eval)
mlir.register_lowering(switch_p, mlir.lower_fun(_lower, multiple_results=True))
