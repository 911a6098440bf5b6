"""Trace the branches of `cond` and `switch` and bring them to one form.

Each branch becomes a jaxpr without constants: what it closes over, differentiated tracers
included, is hoisted to explicit operands, so that the rules of the switch see every value
that a branch depends on; so is the number of the lane, `lax.axis_index`. All branches take
the same inputs and return the same tree of outputs with the same shapes and dtypes, or the
mismatch is reported with its path.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.core import eval_jaxpr
from jax.interpreters import partial_eval as pe
from jax.tree_util import keystr

from .._errors import ArgumentTypeError, BranchMismatchError, explain
from ._lane_numbers import lane_numbers, with_lane_numbers
from ._nondifferentiable import arrays_shown

if TYPE_CHECKING:
    from jax.extend.core import ClosedJaxpr

# `jax.tree_util.PyTreeDef` is a value without a type that checkers accept.
TreeDef = Any
_WEAK_TYPES = ((jnp.integer, int), (jnp.floating, float), (jnp.complexfloating, complex))


@dataclass(frozen=True)
class _Traced:
    """One branch as it was written: a jaxpr with constants, and what it returns."""

    name: str
    jaxpr: ClosedJaxpr
    tree: TreeDef
    paths: list[str]


@dataclass(frozen=True)
class Branches:
    """Branches that have been traced on the same operands and found to match.

    Attributes:
        operands: the leaves of the operands.
        traced: the branches as they were written.
        dtypes: for each output the dtype to convert it to, None where all agree.
        shape: of elementwise branches, to which constants are broadcast; else None.
    """

    operands: list[Any]
    traced: list[_Traced]
    dtypes: list[Any]
    shape: tuple[int, ...] | None = None

    @property
    def out_avals(self) -> list[Any]:
        """Return the outputs' abstract values; only their shapes are those of all."""
        return _out_avals(self.traced[0], self.shape)

    @property
    def out_paths(self) -> list[str]:
        """Return the path of each output leaf, as `keystr` prints it."""
        return self.traced[0].paths

    def evaluate(self, i: int) -> list[Any]:
        """Evaluate a branch on the operands and return its outputs."""
        closed = self.traced[i].jaxpr
        return self._promoted(eval_jaxpr(closed.jaxpr, closed.consts, *self.operands))

    def hoist(self) -> tuple[tuple[ClosedJaxpr, ...], list[Any]]:
        """Turn what the branches close over into operands.

        Returns:
            One jaxpr without constants for each branch, whose inputs are the hoisted
            values followed by the operands; and the hoisted values.
        """
        hoisted: list[Any] = []
        positions: dict[int, int] = {}
        for const in (const for branch in self.traced for const in branch.jaxpr.consts):
            # A value that several branches close over is hoisted once.
            if id(const) not in positions:
                positions[id(const)] = len(hoisted)
                hoisted.append(const)

        from jax.extend.core import ClosedJaxpr

        numbers: dict[Any, int] = {}
        for name in (name for branch in self.traced for name in lane_numbers(branch.jaxpr)):
            if name not in numbers:
                numbers[name] = len(hoisted)
                hoisted.append(lax.axis_index(name))

        def without_constants(closed: ClosedJaxpr) -> ClosedJaxpr:
            own = [positions[id(const)] for const in closed.consts]

            def function(*args: Any) -> list[Any]:
                consts, operands = [args[i] for i in own], args[len(hoisted) :]
                of_lane = {name: args[i] for name, i in numbers.items()}
                evaluate = with_lane_numbers(ClosedJaxpr(closed.jaxpr, consts))
                return self._promoted(evaluate(of_lane, *operands))

            return jax.make_jaxpr(function)(*hoisted, *self.operands)

        return tuple(without_constants(branch.jaxpr) for branch in self.traced), hoisted

    def unflatten(self, outs: list[Any]) -> Any:
        """Return the tree that the branches return, with arrays for leaves."""
        # A branch that returns a constant evaluates to a bare number.
        arrays = [out if isinstance(out, jax.Array) else jnp.asarray(out) for out in outs]
        return jax.tree.unflatten(self.traced[0].tree, arrays)

    def _promoted(self, outs: Sequence[Any]) -> list[Any]:
        if self.shape is not None:
            outs = [jnp.broadcast_to(out, self.shape) for out in outs]
        return [
            out if dtype is None else lax.convert_element_type(out, dtype)
            for out, dtype in zip(outs, self.dtypes, strict=True)
        ]


def flatten_operands(where: str, operands: tuple[Any, ...]) -> tuple[list[Any], TreeDef]:
    """Return the leaves of the operands and their tree.

    Args:
        where: the public name that was called, for messages.
        operands: pytrees of arrays.

    Returns:
        The leaves and the tree.

    Raises:
        ArgumentTypeError: a leaf is not an array, a number or a key.
    """
    with arrays_shown():
        with_paths, tree = jax.tree.flatten_with_path(operands)
    for path, leaf in with_paths:
        _check_leaf(where, f"operands{keystr(path)}", leaf)
    return [leaf for _, leaf in with_paths], tree


def trace_branches(
    where: str,
    names: Sequence[str],
    functions: Sequence[Callable[..., Any]],
    leaves: list[Any],
    in_tree: TreeDef,
    shape: tuple[int, ...] | None = None,
) -> Branches:
    """Trace each branch on the operands and bring all to one form.

    Args:
        where: the public name that was called, for messages.
        names: what the messages call the branches.
        functions: the branches, called as `f(*operands)`.
        leaves: the leaves of the operands.
        in_tree: their tree.
        shape: of elementwise branches. What they return and do not make of the operands, such
            as the number 0.0, is broadcast to it.

    Returns:
        The traced branches.

    Raises:
        ArgumentTypeError: a branch returns a leaf that is not an array.
        BranchMismatchError: the branches return different trees, shapes or dtypes that
            cannot be promoted.
    """
    traced = [
        _trace_branch(where, name, function, leaves, in_tree)
        for name, function in zip(names, functions, strict=True)
    ]
    for other in traced[1:]:
        _check_same_tree(where, traced[0], other)
        _check_same_shapes(where, traced[0], other, shape)
    return Branches(leaves, traced, _promoted_dtypes(where, traced), shape)


def _trace_branch(
    where: str,
    name: str,
    function: Callable[..., Any],
    leaves: list[Any],
    in_tree: TreeDef,
) -> _Traced:
    returned: list[tuple[TreeDef, list[str]]] = []

    def flat(*leaves: Any) -> list[Any]:
        out = function(*jax.tree.unflatten(in_tree, leaves))
        with arrays_shown():
            with_paths, tree = jax.tree.flatten_with_path(out)
        for path, leaf in with_paths:
            _check_leaf(where, f"the output of {name}{_at(keystr(path))}", leaf)
        returned.append((tree, [keystr(path) for path, _ in with_paths]))
        return [leaf for _, leaf in with_paths]

    jaxpr = jax.make_jaxpr(flat)(*leaves)
    tree, paths = returned[-1]
    return _Traced(name, jaxpr, tree, paths)


def _promoted_dtypes(where: str, traced: list[_Traced]) -> list[Any]:
    """Return for each output the dtype to convert to, None where all agree already."""
    dtypes: list[Any] = []
    avals_of_outputs = zip(*(branch.jaxpr.out_avals for branch in traced), strict=True)
    for i, avals in enumerate(avals_of_outputs):
        if len({(aval.dtype, aval.weak_type) for aval in avals}) == 1:
            dtypes.append(None)
            continue
        try:
            # The branches' types are data here: whatever promotion the user has set for
            # arithmetic, this one is asked for by calling `cond`.
            with jax.numpy_dtype_promotion("standard"):
                dtypes.append(jnp.result_type(*(_promotable(aval) for aval in avals)))
        except (TypeError, ValueError) as error:
            found = _listing(
                (branch.name, aval.str_short()) for branch, aval in zip(traced, avals, strict=True)
            )
            raise BranchMismatchError(
                explain(
                    where,
                    expected=f"outputs{_at(traced[0].paths[i])} of dtypes that have a common one",
                    got=found,
                    fix="Convert one of them in its branch.",
                )
            ) from error
    return dtypes


def _promotable(aval: Any) -> Any:
    """Return what stands for an abstract value in `jnp.result_type`, weak types too."""
    if aval.weak_type:
        for kind, scalar_type in _WEAK_TYPES:
            if jnp.issubdtype(aval.dtype, kind):
                return scalar_type
    return aval.dtype


def _check_leaf(where: str, what: str, leaf: Any) -> None:
    try:
        jax.typeof(leaf)
    except TypeError as error:
        kind = f"{type(leaf).__module__}.{type(leaf).__qualname__}"
        raise ArgumentTypeError(
            explain(
                where,
                expected=f"an array, a number or a key at {what}",
                got=f"a {kind}",
                fix="Close over static values instead of passing or returning them.",
            )
        ) from error


def _check_same_tree(where: str, first: _Traced, other: _Traced) -> None:
    if first.tree == other.tree:
        return
    paths = [p for p in first.paths if p not in other.paths]
    extra = [p for p in other.paths if p not in first.paths]
    only = _listing(
        (branch.name, f"a leaf{_at(found[0])} that the other lacks")
        for branch, found in ((first, paths), (other, extra))
        if found
    )
    raise BranchMismatchError(
        explain(
            where,
            expected="branches that return the same pytree",
            got=_listing((b.name, str(b.tree)) for b in (first, other))
            + (f" ({only})" if only else ""),
            fix="Return the same structure from every branch.",
        )
    )


def _out_avals(branch: _Traced, shape: tuple[int, ...] | None) -> list[Any]:
    """Return what a branch returns, with `shape` for constants that broadcast to it."""
    avals = branch.jaxpr.out_avals
    if shape is None:
        return avals
    return [
        aval.update(shape=shape) if _is_constant(branch, i, shape) else aval
        for i, aval in enumerate(avals)
    ]


def _is_constant(branch: _Traced, i: int, shape: tuple[int, ...]) -> bool:
    """Tell whether an output broadcasts to `shape` and is not made of the operands.

    An element of the operands, `x[0]`, would be broadcast to places that it says nothing about.
    """
    small = branch.jaxpr.out_avals[i].shape
    if small == shape or len(small) > len(shape):
        return False
    last = shape[len(shape) - len(small) :]
    if any(a not in (1, b) for a, b in zip(small, last, strict=True)):
        return False
    wanted = [position == i for position in range(len(branch.jaxpr.out_avals))]
    return not any(pe.dce_jaxpr(branch.jaxpr.jaxpr, wanted)[1])


def _check_same_shapes(
    where: str, first: _Traced, other: _Traced, shape: tuple[int, ...] | None
) -> None:
    avals = zip(_out_avals(first, shape), _out_avals(other, shape), strict=True)
    for path, (a, b) in zip(first.paths, avals, strict=True):
        if a.shape != b.shape:
            raise BranchMismatchError(
                explain(
                    where,
                    expected=f"outputs{_at(path)} of the same shape in every branch",
                    got=_listing(((first.name, a.str_short()), (other.name, b.str_short()))),
                    fix="Broadcast or reshape one of them in its branch.",
                )
            )


def _at(path: str) -> str:
    return f" at {path}" if path else ""


def _listing(pairs: Any) -> str:
    return " and ".join(f"{name}: {text}" for name, text in pairs)
