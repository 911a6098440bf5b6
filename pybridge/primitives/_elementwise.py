"""Evaluate a switch whose index is an array and whose branches are elementwise.

Each branch runs once, on whole arrays, in which the elements that did not take it are
replaced by the first element that did; the results are selected element by element, see
`_switch_lanes`. Here is found out what goes with the elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.tree_util import keystr

from .._errors import ArgumentTypeError, ArgumentValueError, BranchMismatchError, explain
from ..jaxprs import AbstractRef
from ._alignment import find_alignment
from ._branches import Branches
from ._collectives import communicating_axes
from ._filling import any_taken, fill, first_place, holds_somewhere
from ._masking import lane_any
from ._switch_lanes import LaneBranch, switch_lanes
from ._switch_primitive import branch_masks

if TYPE_CHECKING:
    from jax.extend.core import ClosedJaxpr


def broadcast_operands(
    where: str, index: Any, leaves: list[Any], paths: Sequence[Any]
) -> list[Any]:
    """Broadcast operands against an array index and against each other.

    Args:
        where: the public name that was called, for messages.
        index: an array.
        leaves: the leaves of the operands.
        paths: their paths, for messages.

    Returns:
        The leaves, all of the shape to which `index` and all of them broadcast.

    Raises:
        ArgumentValueError: a leaf does not broadcast against the others.
    """
    shape = jnp.shape(index)
    _check_no_refs(where, leaves)
    for leaf, path in zip(leaves, paths, strict=True):
        try:
            shape = jnp.broadcast_shapes(shape, jnp.shape(leaf))
        except ValueError as error:
            raise ArgumentValueError(
                explain(
                    where,
                    expected=f"operands that broadcast against the shape {shape}",
                    got=f"operands{keystr(path)} of shape {jnp.shape(leaf)}",
                    fix="With an array to choose by, branches are elementwise. To choose "
                    "for each row or example, use a scalar under jax.vmap.",
                )
            ) from error
    return [jnp.broadcast_to(leaf, shape) for leaf in leaves]


def switch_elementwise(
    where: str, names: Sequence[str], index: Any, branches: Branches
) -> list[Any]:
    """Evaluate elementwise branches on whole arrays and select their results.

    Args:
        where: the public name that was called, for messages.
        names: what the messages call the branches.
        index: a bool or integer array.
        branches: traced on operands that have been broadcast.

    Returns:
        One array for each output, of the shape to which everything broadcasts.

    Raises:
        ArgumentValueError: a branch is not elementwise.
        BranchMismatchError: an output has another shape than the operands.
    """
    shape = jnp.broadcast_shapes(jnp.shape(index), *map(jnp.shape, branches.operands))
    _check_output_shapes(where, shape, branches)
    index = jnp.broadcast_to(index, shape)
    jaxprs, hoisted = branches.hoist()
    _check_no_refs(where, hoisted)
    masks = branch_masks(index, len(jaxprs))
    of_lanes = [
        _lane_branch(f"{where}, {name}", mask, branch, hoisted)
        for name, mask, branch in zip(names, masks, jaxprs, strict=True)
    ]
    return switch_lanes(of_lanes, [*hoisted, *branches.operands])


def _check_no_refs(where: str, closed_over: list[Any]) -> None:
    """Refuse refs: a branch that is evaluated on whole arrays would write for all elements."""
    if any(isinstance(jax.typeof(x), AbstractRef) for x in closed_over):
        raise ArgumentTypeError(
            explain(
                where,
                expected="branches without refs, because the choice is an array",
                got="one that reads or writes a jax.new_ref",
                fix="Read it before the choice and write the result after it.",
            )
        )


def _lane_branch(where: str, mask: Any, branch: ClosedJaxpr, hoisted: list[Any]) -> LaneBranch:
    """Say how elements that do not take a branch are replaced, also in what it closes over.

    An array that a branch closes over and uses elementwise may be smaller than the
    operands, say one value for each column. An element must then be filled from its own
    column, as long as one of the column takes the branch: otherwise the branch would see
    a pair of values that no element has.
    """
    shape = mask.shape
    if 0 in shape or _is_single(shape):
        return LaneBranch(branch, mask, lambda: (any_taken(mask), ()), lambda m, places, i, x: x)
    alignment = find_alignment(branch)
    for position, operation in alignment.mixed:
        if position >= len(hoisted):
            # A collective over lanes that differ is refused first: no cure for it is named here.
            lane_any(any_taken(mask), communicating_axes(branch))
            raise ArgumentValueError(
                explain(
                    where,
                    expected="an elementwise branch, because the choice is an array",
                    got=f"one that mixes elements ({operation})",
                    fix="Mix them before or after, or choose by a scalar under jax.vmap.",
                )
            )
    aligned = alignment.used - alignment.used_whole
    elementwise = [i in aligned and _fits(jnp.shape(x), shape) for i, x in enumerate(hoisted)]
    kept = {
        _axes(jnp.shape(x), shape)
        for x, is_elementwise in zip(hoisted, elementwise, strict=True)
        if is_elementwise and _axes(jnp.shape(x), shape) != _axes(shape, shape)
    }
    if len(kept) > 1:
        raise ArgumentValueError(
            explain(
                where,
                expected="closed-over arrays that vary along the same axes",
                got=f"arrays that vary along axes {sorted(kept)} of {shape}",
                fix="Pass them to the branch as operands, which are broadcast.",
            )
        )
    along = kept.pop() if kept else ()

    def filled(mask: Any, places: Any, i: int, x: Any) -> Any:
        if i < len(elementwise) and not elementwise[i]:
            return x
        return _fill_along(mask, x, places, along) if along else fill(mask, x, places)

    def find() -> tuple[Any, Any]:
        if not along:
            place = first_place(mask)
            return holds_somewhere(mask, place), place
        rows = _rows_first(mask, along)
        place = first_place(rows, len(along))
        in_row = holds_somewhere(rows, place)
        row = first_place(in_row)
        return holds_somewhere(in_row, row), (place, in_row, row)

    return LaneBranch(branch, mask, find, filled)


def _fill_along(mask: Any, x: Any, places: Any, along: tuple[int, ...]) -> Any:
    """Fill each row from its own elements, and one in which no element is taken from another.

    Args:
        mask: bool.
        x: any dtype; of the shape of the mask, or what broadcasts to it and varies along the
            axes of the rows alone.
        places: of each row the place of its filler and whether it has one, and the place of
            the first row that does.
        along: the axes of the rows.
    """
    place, in_row, row = places
    if jnp.shape(x) != mask.shape:
        return lax.reshape(fill(in_row, lax.reshape(x, in_row.shape), row), jnp.shape(x))
    filled = fill(_rows_first(mask, along), _rows_first(x, along), place)
    return jnp.moveaxis(fill(in_row, filled, row), range(len(along)), along)


def _rows_first(x: Any, along: tuple[int, ...]) -> Any:
    return jnp.moveaxis(x, along, range(len(along)))


def _fits(small: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    """Tell whether an array that is not a scalar broadcasts to `shape`."""
    if 0 in small or _is_single(small) or len(small) > len(shape):
        return False
    return jnp.broadcast_shapes(small, shape) == shape


def _is_single(shape: tuple[Any, ...]) -> bool:
    """Tell whether an array holds one element; one of a symbolic size may hold more."""
    return all(n == 1 for n in shape)


def _axes(small: tuple[int, ...], shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the axes of `shape` along which an array that broadcasts to it varies."""
    offset = len(shape) - len(small)
    return tuple(offset + i for i, length in enumerate(small) if length != 1)


def _check_output_shapes(where: str, shape: tuple[int, ...], branches: Branches) -> None:
    for path, aval in zip(branches.out_paths, branches.out_avals, strict=True):
        if aval.shape != shape:
            raise BranchMismatchError(
                explain(
                    where,
                    expected=f"outputs of the shape {shape} of an elementwise branch",
                    got=f"{aval.str_short()}" + (f" at {path}" if path else ""),
                    fix="Let every branch return one value for each element, or choose by "
                    "a scalar under jax.vmap.",
                )
            )
