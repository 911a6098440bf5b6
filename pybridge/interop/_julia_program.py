"""What a call of a Julia function from JAX is made of: the function, what is asked of it, types.

A `Program` is the parameter of the primitives here, whose rules are in `_primitives.py`. Four kinds
exist, in two families that are closed under differentiation and transposition (`rules.jl` says
why):

* `"call"`: the value; within a gradient of the leaves `wrt`, unless there are none;
* `"value_and_grad"`: the value of a real scalar function and its gradient, from one run;
* `"tangents"`: the derivative of the value along one or more directions;
* `"cotangents"`: the cotangents of the leaves `wrt`, differentiated along any directions.

The operands are the leaves of the arguments, then the cotangents of the values `seeds`, then
the tangents of each direction.

A call within a gradient may leave its pullback in Julia, for the cotangents that are asked for
later: it returns a *ticket*, a number that names it, as its last result, and the other takes the
ticket as its last operand. Where Julia has no pullback by that ticket (any more), it makes a new
one from the arguments: XLA may drop, repeat or reorder either of the two.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from ..jaxprs import Primitive
from ..primitives import same_mesh_axes

call_p = Primitive("julia_call")
value_and_grad_p = Primitive("julia_value_and_grad")
tangents_p = Primitive("julia_tangents")
cotangents_p = Primitive("julia_cotangents")
PRIMITIVES = {
    "call": call_p,
    "value_and_grad": value_and_grad_p,
    "tangents": tangents_p,
    "cotangents": cotangents_p,
}

Numbers = tuple[int, ...]


@dataclass(frozen=True)
class ArrayType:
    """Shape and dtype of a leaf, for one lane."""

    shape: tuple[int, ...]
    dtype: np.dtype


# 64 bits, which JAX has in one number only if it is told so.
TICKET = ArrayType((2,), np.dtype(np.uint32))


@dataclass(frozen=True)
class Level:
    """One `vmap` around a call.

    Attributes:
        size: the number of lanes.
        ins: for each operand whether it has an axis for the lanes; otherwise they share it.
        outs: for each result the same; a result that the lanes share is the sum over them.
        native: whether the function takes all lanes at once (`batched=True`): then the ticket is
            one for all.
    """

    size: int
    ins: tuple[bool, ...]
    outs: tuple[bool, ...]
    native: bool = False


class Executable(Protocol):
    """A program that has been made ready to run.

    Attributes:
        key: the number under which XLA finds it.
    """

    key: int

    def refusal(self, platform: str) -> str | None:
        """Tell why XLA does not call it on a platform; None where it does."""
        ...

    def call(self, operands: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Run it on arrays in host memory."""
        ...


class Function(Protocol):
    """What the primitives need to know of a bridged function. Compared by identity.

    Attributes:
        layout: `"logical"` or `"reversed"`.
        batched: whether the function takes a batch as its last Julia dimension.
        has_reverse: whether a gradient costs about as much as the value, in any dimension.
        jitted: compiled calls outside of `jit`, by primitive and program.
    """

    layout: str
    batched: bool

    @property
    def jitted(self) -> dict[Any, Any]:
        """See the attributes."""
        ...

    @property
    def has_reverse(self) -> bool:
        """See the attributes."""
        ...

    def executable(self, program: Program) -> Executable:
        """Make a program ready to run."""
        ...


@dataclass(frozen=True)
class Program:
    """See the module's docstring.

    Attributes:
        function: the function.
        kind: one of the four kinds.
        in_tree: the tree of the arguments.
        args: the types of its leaves.
        out_tree: the tree of the value.
        values: the types of its leaves.
        wrt: leaves of the arguments.
        seeds: leaves of the value whose cotangents are operands.
        directions: for each direction the leaves of the arguments that have tangents.
        kept: leaves of the value whose tangents are results.
        levels: the `vmap`s around it, outermost first.
        converts: whether results are converted to the dtypes in `values`.
        ticket: whether a ticket is the last result (of a call) or the last operand (of tangents
            and cotangents).
    """

    function: Function
    kind: str
    in_tree: Any
    args: tuple[ArrayType, ...]
    out_tree: Any
    values: tuple[ArrayType, ...]
    wrt: Numbers = ()
    seeds: Numbers = ()
    directions: tuple[Numbers, ...] = ()
    kept: Numbers = ()
    levels: tuple[Level, ...] = ()
    converts: bool = False
    ticket: bool = False

    def __repr__(self) -> str:
        """Keep jaxprs readable."""
        lanes = "".join(f"[{level.size}]" for level in self.levels)
        return f"{self.kind}{lanes} of {self.function!r}"

    def __call__(self, *operands: Any) -> list[Any]:
        """Apply it to its operands.

        That it can be called also keeps functions from living too long: JAX caches what it found
        out about a primitive under its parameters, and refers to callable ones weakly.
        """
        return bind(self, operands)

    def __hash__(self) -> int:
        """Hash what tells programs apart in practice; JAX hashes parameters often."""
        asked = (self.kind, self.wrt, self.directions, self.ticket)
        return hash((self.function, self.args, self.levels, *asked))

    @property
    def gives_ticket(self) -> bool:
        """Whether a ticket is the last result."""
        return self.ticket and self.kind == "call"

    @property
    def takes_ticket(self) -> bool:
        """Whether a ticket is the last operand."""
        return self.ticket and self.kind != "call"

    @property
    def operand_types(self) -> list[ArrayType]:
        """The operands' types for one lane."""
        tangents = [self.args[i] for direction in self.directions for i in direction]
        ticket = [TICKET] if self.takes_ticket else []
        return [*self.args, *(self.values[i] for i in self.seeds), *tangents, *ticket]

    @property
    def result_types(self) -> list[ArrayType]:
        """The results' types for one lane."""
        gradients = [self.args[i] for i in self.wrt]
        if self.kind == "call":
            return [*self.values, TICKET] if self.gives_ticket else list(self.values)
        if self.kind == "value_and_grad":
            return [*self.values, *gradients]
        if self.kind == "tangents":
            return [self.values[i] for i in self.kept]
        return gradients

    @property
    def loops(self) -> tuple[Level, ...]:
        """The levels that are loops over single calls."""
        return tuple(level for level in self.levels if not level.native)

    def lane_shape(self, i: int, *, result: bool = False) -> tuple[int, ...]:
        """Shape of an operand or result in one call, with the axis of a native batch."""
        shape = (self.result_types if result else self.operand_types)[i].shape
        for level in self.levels:
            if level.native and (level.outs if result else level.ins)[i]:
                reverse = self.function.layout == "reversed"
                shape = (level.size, *shape) if reverse else (*shape, level.size)
        return shape

    def loop_shape(self, i: int, *, result: bool = False) -> tuple[int, ...]:
        """The extents of the loops' axes of an operand or result; they come first."""
        return tuple(level.size for level in self.loops if (level.outs if result else level.ins)[i])

    def shape(self, i: int, *, result: bool = False) -> tuple[int, ...]:
        """Shape of an operand or result as JAX has it."""
        return self.loop_shape(i, result=result) + self.lane_shape(i, result=result)

    @property
    def results(self) -> list[jax.ShapeDtypeStruct]:
        """The results as JAX has them, with the loops' axes."""
        return [
            jax.ShapeDtypeStruct(self.shape(i, result=True), result.dtype)
            for i, result in enumerate(self.result_types)
        ]

    def leaf_axes(self, i: int) -> tuple[int, ...]:
        """The axes of an operand that are no lanes."""
        start = len(self.loop_shape(i))
        rank = len(self.operand_types[i].shape)
        in_front = len(self.lane_shape(i)) > rank and self.function.layout == "reversed"
        return tuple(range(start + in_front, start + in_front + rank))

    def derive(self, kind: str, ins: Sequence[Any], outs: Sequence[Any], **fields: Any) -> Program:
        """Make a program of another kind of the same function and arguments.

        Args:
            kind: its kind.
            ins: for each operand behind the arguments the one of this program whose lanes it
                has, as `("in", i)` or `("out", i)`.
            outs: the same for each result.
            **fields: `wrt`, `seeds`, `directions`, `kept`, `ticket`; those left out are empty.
        """

        def flags(level: Level, places: Sequence[Any]) -> tuple[bool, ...]:
            return tuple((level.ins if side == "in" else level.outs)[i] for side, i in places)

        arguments = [("in", i) for i in range(len(self.args))]
        levels = tuple(
            Level(level.size, flags(level, [*arguments, *ins]), flags(level, outs), level.native)
            for level in self.levels
        )
        empty = {"wrt": (), "seeds": (), "directions": (), "kept": (), "ticket": False}
        return replace(self, kind=kind, levels=levels, **{**empty, **fields})

    def with_ticket(self) -> Program:
        """Make the call that leaves its pullback in Julia and returns the ticket for it."""
        if self.ticket:
            return self
        levels = tuple(
            replace(level, outs=(*level.outs, not level.native)) for level in self.levels
        )
        return replace(self, ticket=True, levels=levels)

    def without_ticket(self) -> Program:
        """Make the program that neither returns a ticket nor takes one."""
        if not self.ticket:
            return self

        def rest(level: Level) -> Level:
            if self.gives_ticket:
                return replace(level, outs=level.outs[:-1])
            return replace(level, ins=level.ins[:-1])

        return replace(self, ticket=False, levels=tuple(map(rest, self.levels)))


def bind(program: Program, operands: Sequence[Any]) -> list[Any]:
    """Apply the primitive of a program to its operands."""
    arrays = [
        x if hasattr(x, "dtype") else jnp.asarray(x, type_.dtype)  # JAX hands on Python's numbers
        for x, type_ in zip(operands, program.operand_types, strict=True)
    ]
    operands = same_mesh_axes(arrays)
    return PRIMITIVES[program.kind].bind(*operands, program=program)
