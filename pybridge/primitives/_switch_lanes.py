"""Evaluate a switch whose index differs from lane to lane, of a `vmap` or of an array.

Each branch runs once for all lanes, in a conditional on "does any lane take it?", in which the
lanes that do not are filled. Filling, branch and selection are together in the conditional, so
that XLA makes one pass over memory of them. A branch that only moves its operands or returns
constants has nothing to be kept away from: it needs neither fillers nor a conditional.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from jax.interpreters import ad, batching
from jax.interpreters import partial_eval as pe

from ..jaxprs import jaxpr_as_fun
from ._collectives import communicating_axes, refuse_divided
from ._filling import fill, first_place, holds_somewhere
from ._masking import guard, lane_any, with_key_words
from ._select import select
from ._switch_primitive import batch_branch, batch_together, bind_switch, branch_masks, switch_p

if TYPE_CHECKING:
    from jax.extend.core import ClosedJaxpr

# Equations that hand elements on: neither they nor their derivatives have bad points.
_MOVES = frozenset(("broadcast_in_dim", "convert_element_type", "copy"))


@dataclass(frozen=True, eq=False)
class LaneBranch:
    """A branch and the lanes that take it.

    Attributes:
        program: from the operands of all lanes to the results of all lanes, without constants.
        mask: bool, shape (*lanes,).
        find: returns whether any lane takes the branch, a bool of shape (), and where fillers
            are read, a pytree of arrays.
        fill: called with the mask, the places, and the position and value of an operand; returns
            the operand, filled where it has lanes.
    """

    program: ClosedJaxpr
    mask: Any
    find: Callable[[], tuple[Any, Any]]
    fill: Callable[[Any, Any, int, Any], Any]


def switch_lanes(branches: Sequence[LaneBranch], operands: Sequence[Any]) -> list[Any]:
    """Evaluate branches for all lanes and select their results.

    Args:
        branches: of their masks one is True in each lane.
        operands: one array for each input of a branch.

    Returns:
        One array, shape (*lanes, ...), for each output.
    """
    still = [branch for branch in branches if _only_moves(branch.program)]
    running = [branch for branch in branches if branch not in still]
    results = [] if running else _select_moved(still, [b.mask for b in still], operands)
    for branch in running:
        results = _run(branch, operands, still, results)
        still = []
    return results


def _run(
    branch: LaneBranch, operands: Sequence[Any], still: list[LaneBranch], results: list[Any]
) -> list[Any]:
    """Return the results of a branch where it is taken, of others elsewhere.

    Args:
        branch: the branch.
        operands: those of all branches.
        still: branches that only move operands, evaluated here.
        results: of the branches before.
    """
    program, wrap_keys = with_key_words(branch.program, operands)
    here, places = branch.find()
    taken = lane_any(here, communicating_axes(program))
    jaxpr, positions = _pruned(program)
    moved = sorted({i for other in still for i in _pruned(other.program)[1]})
    inputs = (
        branch.mask,
        jax.tree.map(lambda x: guard(here, x), places),
        {i: guard(here, operands[i]) for i in positions},
        [other.mask for other in still],
        {i: operands[i] for i in moved},
        results,
    )
    leaves, tree = jax.tree.flatten(inputs)

    def part(is_taken: bool) -> ClosedJaxpr:
        def evaluate(*leaves: Any) -> list[Any]:
            mask, places, guarded, masks, moved, others = jax.tree.unflatten(tree, leaves)
            if is_taken:
                filled = [branch.fill(mask, places, i, x) for i, x in guarded.items()]
                outs = jaxpr_as_fun(jaxpr)(*filled)
            else:
                outs = [ad.zeros_like_aval(aval) for aval in program.out_avals]
            others = _select_moved(still, masks, moved) if still else others
            if not others:
                return outs
            others = [
                jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x
                for x in others
            ]
            # Where none is taken, too, so that the results have one type in both.
            return [select(mask, o, x) for o, x in zip(outs, others, strict=True)]

        return jax.make_jaxpr(evaluate)(*leaves)

    return wrap_keys(bind_switch(taken, (part(False), part(True)), leaves))


def _select_moved(branches: Sequence[LaneBranch], masks: Sequence[Any], operands: Any) -> list[Any]:
    """Return the results of branches that only move operands, which are found by position."""
    results: list[Any] = []
    for branch, mask in zip(branches, masks, strict=True):
        program, positions = _pruned(branch.program)
        outs = [jnp.asarray(x) for x in jaxpr_as_fun(program)(*(operands[i] for i in positions))]
        if results:
            outs = [select(mask, o, r) for o, r in zip(outs, results, strict=True)]
        results = outs
    return results


def _pruned(program: ClosedJaxpr) -> tuple[ClosedJaxpr, list[int]]:
    """Return a program of the operands that it uses alone, and their positions."""
    jaxpr, used = pe.dce_jaxpr(program.jaxpr, [True] * len(program.out_avals))
    return program.replace(jaxpr=jaxpr), [i for i, is_used in enumerate(used) if is_used]


def _only_moves(program: ClosedJaxpr) -> bool:
    """Tell whether a program computes nothing from its operands."""
    from jax.extend.core import Literal

    if program.effects:
        return False
    jaxpr = _pruned(program)[0].jaxpr
    reached = set(jaxpr.invars)
    for eqn in jaxpr.eqns:
        if any(atom in reached for atom in eqn.invars if not isinstance(atom, Literal)):
            if eqn.primitive.name not in _MOVES:
                return False
            reached.update(eqn.outvars)
    return True


def _batch(axis: Any, operands: Any, dims: Any, *, branches: Any) -> tuple[Any, Any]:
    index, *xs = operands
    index_dim, *x_dims = dims
    if index_dim is None:
        return batch_together(axis, index, xs, x_dims, branches)
    index = jnp.moveaxis(index, index_dim, 0)
    has_lanes = [dim is not None for dim in x_dims]
    xs = [x if dim is None else jnp.moveaxis(x, dim, 0) for x, dim in zip(xs, x_dims, strict=True)]

    def filled(mask: Any, place: Any, i: int, x: Any) -> Any:
        return fill(mask, x, place) if has_lanes[i] else x

    def lane_branch(mask: Any, branch: ClosedJaxpr) -> LaneBranch:
        def find() -> tuple[Any, Any]:
            place = first_place(mask)
            return holds_somewhere(mask, place), place

        refuse_divided(communicating_axes(branch), (axis.name,))
        in_dims = [0 if flag else None for flag in has_lanes]
        return LaneBranch(batch_branch(axis, branch, in_dims, 0, xs), mask, find, filled)

    masks = branch_masks(index, len(branches))
    outs = switch_lanes(list(map(lane_branch, masks, branches)), xs)
    return outs, [0] * len(outs)


batching.fancy_primitive_batchers[switch_p] = _batch
