"""Record a run of a program: every value on the way, and the equations that made them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from ._evaluate import Evaluator
from ._programs import bound_equation
from ._source import Location, is_of_jax, user_line

if TYPE_CHECKING:
    from jax.extend.core import ClosedJaxpr


@dataclass(frozen=True)
class CallSite:
    """What stands around an equation.

    Attributes:
        line: the user's line.
        path: the loops and branches around it, the outermost first.
        function: the function of JAX's own that it is part of, such as `norm`; else empty.
        is_fixed: whether the line is named for all that is inside. A function under `jit` is
            traced once, and its program keeps the lines of the first call: those inside of
            `jnp.where` are from wherever that was used first.
    """

    line: Location | None = None
    path: tuple[str, ...] = ()
    function: str = ""
    is_fixed: bool = False

    def named(self, what: str) -> str:
        """Write `the scan at model.py:12 (loss)`."""
        return f"the {what}" + (f" at {self.line}" if self.line else "")


@dataclass(frozen=True, eq=False)
class Step:
    """One equation that was run, in one iteration of the branch that was taken.

    Attributes:
        primitive: its name.
        inputs: the places of its operands in `Recording.values`.
        outputs: the places of its results.
        line, path, function: where it stands, see `CallSite`.
        eqn: the equation; None where a scan cuts or joins arrays at its border.
    """

    primitive: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    line: Location | None
    path: tuple[str, ...]
    function: str
    eqn: Any


class Recording(Evaluator[int, CallSite]):
    """Runs programs and keeps what happens; a value is known by its place.

    Attributes:
        values: all values, by place: arrays, where a subclass keeps nothing else.
        steps: in the order in which they ran.
        outputs: the places of the results.
    """

    def __init__(self):
        """Begin; several programs can follow each other."""
        self.values: list[Any] = []
        self.steps: list[Step] = []
        self.outputs: tuple[int, ...] = ()

    # --- hooks ----------------------------------------------------------------------------------

    def compute(self, eqn: Any, operands: list[int]) -> Sequence[Any]:
        """Apply a primitive to the values at some places."""
        return bound_equation(eqn)(*(self.values[place] for place in operands))

    def cut(self, value: Any, length: int) -> Sequence[Any]:
        """Cut what a scan runs over, an array or keys, into one value for each iteration."""
        is_key = jnp.issubdtype(jax.typeof(value).dtype, jax.dtypes.prng_key)
        return [value[i] for i in range(length)] if is_key else list(np.asarray(value))

    def join(self, values: Sequence[Any]) -> Any:
        """Join what the iterations of a scan give."""
        return jnp.stack([jnp.asarray(value) for value in values])

    def keep(self, value: Any) -> int:
        """Keep a value and return its place."""
        self.values.append(value)
        return len(self.values) - 1

    def keep_step(
        self,
        primitive: str,
        inputs: Sequence[int],
        results: Sequence[Any],
        here: CallSite,
        eqn: Any = None,
        /,
    ) -> list[int]:
        """Keep a step with its results, and return their places."""
        outputs = [self.keep(result) for result in results]
        places = tuple(inputs), tuple(outputs)
        self.steps.append(Step(primitive, *places, here.line, here.path, here.function, eqn))
        return outputs

    # --- evaluation -----------------------------------------------------------------------------

    def constant(self, value: Any) -> int:
        return self.keep(value)

    def apply(
        self, program: ClosedJaxpr, eqn: Any, operands: list[int], here: CallSite
    ) -> list[int]:
        return self.keep_step(eqn.primitive.name, operands, self.compute(eqn, operands), here, eqn)

    def rows(self, stack: int, length: int, here: CallSite) -> list[int]:
        return self.keep_step("scan", [stack], self.cut(self.values[stack], length), here)

    def stack(self, rows: Sequence[int], here: CallSite) -> int:
        return self.keep_step("scan", rows, [self.join([self.values[p] for p in rows])], here)[0]

    def at(self, eqn: Any, around: CallSite) -> CallSite:
        """Return where an equation of a program stands."""
        return around if around.is_fixed else replace(around, line=user_line(eqn) or around.line)

    def inside(self, program: ClosedJaxpr, around: CallSite) -> CallSite:
        """Return what stands around a program that is called here."""
        return replace(around, is_fixed=around.is_fixed or is_of_jax(program))

    def deeper(self, around: CallSite, part: str, what: str) -> CallSite:
        """Return the same line, one loop or branch deeper."""
        return replace(around, path=(*around.path, f"{part} of {around.named(what)}"))
