"""Find out which inputs of a branch it uses element by element.

An array predicate wants elementwise branches that are evaluated on whole arrays. For the
operands that is a promise of the caller, which is checked here as far as it can be: a sum
or a sort of an operand would silently include elements that belong to the other branch.
For arrays that a branch closes over it is an open question: `scale` in `v * scale` goes
with the elements, `c` in `polyval(c, v)` is used whole by each of them, and both can have
the shape of `v`. The branch's jaxpr has the answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..jaxprs import BRANCHES, CALLS, ELEMENTWISE, MIXING, RULED_CALLS, Flow

if TYPE_CHECKING:
    from jax.extend.core import ClosedJaxpr

# What they return is in no result: whether a branch is needed, and what fills it up.
_ANSWERS = frozenset(
    "within_gradient pybridge_first_place pybridge_lane_any pybridge_filler".split()
)


@dataclass
class Alignment:
    """What a walk through a branch has found.

    Attributes:
        used: positions of inputs that the branch uses at all.
        used_whole: positions of inputs that reach an operation which is not known to be
            elementwise, or meet others along other axes.
        mixed: for inputs of which elements are mixed, position and the operation's name.
    """

    used: set[int] = field(default_factory=set)
    used_whole: set[int] = field(default_factory=set)
    mixed: list[tuple[int, str]] = field(default_factory=list)


@dataclass(frozen=True)
class _Elements:
    """What is known about a value in a branch.

    Attributes:
        inputs: positions of the inputs that flow into it element by element.
        axes: for each of its dimensions the axis of the operands that it runs along,
            counted from the last as -1, -2, ...; None where the value is constant.
    """

    inputs: frozenset[int]
    axes: tuple[int | None, ...]


def find_alignment(branch: ClosedJaxpr) -> Alignment:
    """Walk through a branch and record how it uses each of its inputs.

    Args:
        branch: the branch.

    Returns:
        What was found.
    """
    walk = _Walk()
    inputs = [
        _Elements(frozenset((i,)), _natural_axes(len(aval.shape)))
        for i, aval in enumerate(branch.in_avals)
    ]
    for result in walk.run(branch, inputs):
        walk.found.used |= result.inputs
    return walk.found


class _Walk(Flow[_Elements]):
    """Follows the elements of the inputs, and records where they are used in another way."""

    enters = frozenset({*CALLS, *RULED_CALLS, *BRANCHES})

    def __init__(self) -> None:
        self.found = Alignment()

    def constant(self, atom: Any) -> _Elements:
        return _Elements(frozenset(), (None,) * len(atom.aval.shape))

    def join(self, first: _Elements, second: _Elements) -> _Elements:
        """Combine what two branches of an inner conditional return."""
        inputs = first.inputs | second.inputs
        axes: list[int | None] = []
        for along in zip(first.axes, second.axes, strict=True):
            different = {axis for axis in along if axis is not None}
            if len(different) > 1:
                self.found.used_whole |= inputs
            axes.append(min(different) if different else None)
        return _Elements(inputs, tuple(axes))

    def results(self, eqn: Any, facts: list[_Elements]) -> Sequence[_Elements]:
        reaching = frozenset().union(*(fact.inputs for fact in facts))
        self.found.used |= reaching
        if not reaching or eqn.primitive.name in _ANSWERS:
            return [self.constant(var) for var in eqn.outvars]
        return super().results(eqn, facts)

    def through(self, eqn: Any, facts: list[_Elements]) -> Sequence[_Elements]:
        name = eqn.primitive.name
        if name == "pybridge_guard":
            return [facts[1]]
        reaching = frozenset().union(*(fact.inputs for fact in facts))
        axes = _axes_of_result(eqn, facts)
        if axes is not None:
            return [_Elements(reaching, axes)]
        self.found.used_whole |= reaching
        if name in MIXING:
            self.found.mixed += [(i, name) for i in sorted(reaching)]
        return [self.constant(var) for var in eqn.outvars]


def _axes_of_result(eqn: Any, ins: list[_Elements]) -> tuple[int | None, ...] | None:
    """Return the axes of an equation's result, None if it is not elementwise."""
    name = eqn.primitive.name
    shapes = [tuple(atom.aval.shape) for atom in eqn.invars]
    out = tuple(eqn.outvars[0].aval.shape) if eqn.outvars else ()
    axes = ins[0].axes
    if name == "broadcast_in_dim":
        placed: list[int | None] = [None] * len(out)
        for dim, axis in zip(eqn.params["broadcast_dimensions"], axes, strict=True):
            placed[dim] = axis
        return _without_ones(placed, out)
    if name == "transpose":
        return tuple(axes[dim] for dim in eqn.params["permutation"])
    if name in ("reshape", "squeeze"):
        lengths = [n for n in shapes[0] if n != 1]
        if lengths != [n for n in out if n != 1]:
            return None
        kept = iter([axis for axis, n in zip(axes, shapes[0], strict=True) if n != 1])
        return tuple(None if n == 1 else next(kept) for n in out)
    natural = _natural_axes(len(out))
    in_place = all(
        # `clamp` and `select_n` take scalars next to arrays.
        shape == () or (len(shape) == len(out) and _agree(each.axes, natural, shape))
        for shape, each in zip(shapes, ins, strict=True)
    )
    return natural if name in ELEMENTWISE and in_place else None


def _natural_axes(ndim: int) -> tuple[int | None, ...]:
    """Return the axes that NumPy's broadcasting gives the dimensions of an array."""
    return tuple(range(-ndim, 0))


def _agree(
    axes: tuple[int | None, ...], natural: tuple[int | None, ...], shape: tuple[int, ...]
) -> bool:
    triples = zip(axes, natural, shape, strict=True)
    return all(axis in (None, expected) or n == 1 for axis, expected, n in triples)


def _without_ones(axes: list[int | None], shape: tuple[int, ...]) -> tuple[int | None, ...]:
    return tuple(None if n == 1 else a for a, n in zip(axes, shape, strict=True))
