"""Find the named axes over which a branch speaks to other lanes or devices.

A collective combines the values of all lanes of a `vmap(axis_name=...)`, or of all devices of a
`shard_map`. In a branch that only some of them take it has no meaning: under `vmap` it would
count the fillers of the other lanes, and between devices it would wait for those that never
come. So such a branch is refused where its predicate turns out to differ along the axis.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import jax

from .._errors import ArgumentValueError, explain
from ..jaxprs import inner_jaxprs

if TYPE_CHECKING:
    from jax.extend.core import ClosedJaxpr

# They name an axis and combine nothing.
_LOCAL = frozenset("axis_index pvary pcast preduced reduced_vary_cast vary_unreduced_cast".split())

Axes = frozenset[Hashable]


def communicating_axes(branch: ClosedJaxpr) -> Axes:
    """Return the names of the axes that the collectives of a program combine.

    Args:
        branch: the program; those inside of its equations are looked into.

    Returns:
        The names; none for most programs.
    """
    return frozenset(_names(branch))


def _names(closed: ClosedJaxpr) -> Iterator[Hashable]:
    for eqn in closed.jaxpr.eqns:
        if eqn.primitive.name not in _LOCAL:
            for option in ("axes", "axis_name"):
                named = eqn.params.get(option, ())
                # Where an axis of the array is meant it is a number.
                named = named if isinstance(named, tuple | list) else (named,)
                yield from (name for name in named if not isinstance(name, int | None))
        for inner in inner_jaxprs(eqn):
            yield from _names(inner)


def varying_axes(x: Any) -> Axes:
    """Return the mesh axes of a `shard_map` over which the type of a value varies."""
    aval = jax.typeof(x)
    manual = getattr(aval, "manual_axis_type", None)  # up to JAX 0.9 it is the set itself
    return frozenset(getattr(aval, "vma", ()) if manual is None else manual.varying)


def refuse_divided(axes: Axes, differing: Sequence[Hashable] | Axes) -> None:
    """Refuse collectives in a branch that not all lanes or devices take.

    Args:
        axes: those of the collectives.
        differing: those along which the predicate differs.

    Raises:
        ArgumentValueError: they have one in common.
    """
    for name in sorted(map(repr, axes.intersection(differing))):
        raise ArgumentValueError(
            explain(
                "pb.cond",
                expected=f"a predicate that is the same along the axis {name}, over which a "
                "branch has a collective (psum, pmean, all_gather or the like)",
                got="one that differs along it, so that some take the branch and others do not",
                fix="Choose the values first and combine them afterwards, for example "
                "`psum(pb.cond(pred, lambda x: x, jnp.zeros_like, x), axis)`; or decide "
                "together, by `psum(pred.astype(int), axis) > 0`.",
            )
        )
