"""A program as a list of operations that were run: what `explain_nan` walks along.

Calls, loops and conditionals are opened: a step is one operation in one iteration of the
branch that was taken, with the numbers that it saw.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr

from ...jaxprs import (
    BRANCHES,
    CALLS,
    LOOPS,
    RULED_CALLS,
    Evaluator,
    Location,
    bound_equation,
    called_program,
    inner_jaxprs,
    is_of_jax,
    user_line,
)

# Loops with more steps than this stay closed: they are one step each.
MOST_STEPS = 20_000

# Takes the values of a step's inputs, gives those of its outputs.
Rerun = Callable[..., list[Any]]


@dataclass(frozen=True, eq=False)
class Step:
    """One operation that was run.

    Attributes:
        primitive: the operation in JAX's name.
        rule: the name of the function whose own derivative rule it has; else empty.
        operation: runs it again, on other values.
        inputs: the places of its operands in `Tape.values`.
        outputs: the places of its results.
        location: the user's line.
        path: the loops and branches around it, the outermost first.
        glue: whether it only cuts or joins arrays at the border of a loop.
        function: the compiled function of JAX's own that it is part of, such as `norm`.
    """

    primitive: str
    rule: str
    operation: Rerun
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    location: Location | None
    path: tuple[str, ...] = ()
    glue: bool = False
    function: str = ""


@dataclass
class Tape:
    """The steps of one run, and every value on the way.

    Attributes:
        values: all values, by place.
        active: for each whether it depends on a differentiated input.
        steps: in the order in which they ran.
        inputs: the places of the differentiated inputs.
        outputs: the places of the inexact results.
        closed: loops that were too long to be opened.
    """

    values: list[Any] = field(default_factory=list)
    active: list[bool] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    inputs: tuple[int, ...] = ()
    outputs: tuple[int, ...] = ()
    closed: list[str] = field(default_factory=list)

    def new(self, value: Any, active: bool = False) -> int:
        """Keep a value and return its place."""
        self.values.append(value)
        self.active.append(active and is_inexact(value))
        return len(self.values) - 1

    def inputs_of(self, step: Step) -> list[Any]:
        """Return the values that a step saw."""
        return [self.values[place] for place in step.inputs]


def is_inexact(value: Any) -> bool:
    """Tell whether a value is of real or complex numbers."""
    return jnp.issubdtype(jnp.result_type(value), np.inexact) and not _is_key(value)


def record(jaxpr: ClosedJaxpr, args: Sequence[Any]) -> Tape:
    """Run a program whose inputs are all differentiated, and keep every step."""
    tape = Tape()
    recorder = Recorder(tape)
    tape.inputs = tuple(tape.new(arg, True) for arg in args)
    outs = recorder.run(jaxpr, list(tape.inputs), Where())
    tape.outputs = tuple(place for place in outs if is_inexact(tape.values[place]))
    return tape


@dataclass(frozen=True)
class Where:
    """What stands around a program.

    Attributes:
        line: the line that calls it.
        path: the loops and branches around it.
        fixed: whether that line is named for all that is inside. A function under `jit` is
            traced once, and its program keeps the lines of the first call: those inside of
            `jnp.where` are from wherever that was used first.
        function: the name of that function; else empty.
    """

    line: Location | None = None
    path: tuple[str, ...] = ()
    fixed: bool = False
    function: str = ""

    def at(self, eqn: Any) -> Where:
        """Return where an equation of the program stands."""
        return self if self.fixed else replace(self, line=user_line(eqn) or self.line)

    def inside(self, inner: ClosedJaxpr) -> Where:
        """Return what stands around a program that is called here."""
        if self.fixed or not is_of_jax(inner):
            return self
        name = inner.jaxpr.debug_info.func_name.rpartition(".")[2]
        return replace(self, fixed=True, function=name.lstrip("_"))

    def deeper(self, part: str, what: str) -> Where:
        """Return the same line, one loop or branch deeper."""
        return replace(self, path=(*self.path, f"{part} {self.named(what)}"))

    def named(self, what: str) -> str:
        """Write `the scan at model.py:12 (loss)`."""
        return f"the {what}" + (f" at {self.line}" if self.line else "")


class Recorder(Evaluator[int, Where]):
    """Runs programs equation by equation onto a tape; a value is its place."""

    enters = frozenset({*CALLS, *BRANCHES, *LOOPS})

    def __init__(self, tape: Tape):
        """Begin; several programs can follow each other on one tape."""
        self.tape = tape
        self._operations: dict[int, tuple[Any, Rerun]] = {}

    def constant(self, value: Any) -> int:
        """Keep a constant."""
        return self.tape.new(value)

    def at(self, eqn: Any, around: Where) -> Where:
        """Return where an equation stands."""
        return around.at(eqn)

    def inside(self, program: ClosedJaxpr, around: Where) -> Where:
        """Return what stands around a program that is called here."""
        return around.inside(program)

    def deeper(self, around: Where, part: str, what: str) -> Where:
        """Return what stands around a branch or an iteration."""
        return around.deeper(f"{part} of", what)

    def equation(
        self, program: ClosedJaxpr, eqn: Any, operands: list[int], here: Where
    ) -> list[int]:
        """Evaluate an equation, but print nothing a second time."""
        if eqn.effects and not eqn.outvars:
            return []
        return super().equation(program, eqn, operands, here)

    def decide(self, value: int) -> int | None:
        """Return a predicate or an index; None where it has several."""
        found = self.tape.values[value]
        return None if jnp.ndim(found) else int(found)

    def goes_on(self, eqn: Any, iterations: int) -> bool:
        """Tell whether the tape has room for a loop."""
        room = MOST_STEPS - len(self.tape.steps)
        if eqn.primitive.name == "scan":
            return iterations * _count(eqn.params["jaxpr"]) <= room
        return room > 0

    def rows(self, stack: int, length: int, here: Where) -> list[int]:
        """Cut an array into one place for each iteration."""
        return self._glue(_unstack(length), [stack], here)

    def stack(self, rows: Sequence[int], here: Where) -> int:
        """Join what the iterations give."""
        return self._glue(stack, list(rows), here)[0]

    def while_loop(self, eqn: Any, operands: list[int], here: Where) -> list[int] | None:
        """Run a while loop step by step; None, and nothing on the tape, if it is too long."""
        first = len(self.tape.steps)
        outs = super().while_loop(eqn, operands, here)
        if outs is None:
            del self.tape.steps[first:]
        return outs

    def apply(self, program: ClosedJaxpr, eqn: Any, operands: list[int], here: Where) -> list[int]:
        """Keep a step; a loop that stays closed is one as well."""
        if eqn.primitive.name in LOOPS:
            self.tape.closed.append(here.named(_LOOPS[eqn.primitive.name]))
        return self._step(eqn, operands, here)

    def _step(self, eqn: Any, inputs: list[int], here: Where) -> list[int]:
        tape, name = self.tape, eqn.primitive.name
        active = any(tape.active[place] for place in inputs)
        # The program is to be seen as it is when differentiated.
        answering = name == "within_gradient"
        operation = _constant(active) if answering else self._operation(eqn)
        values = operation(*(tape.values[place] for place in inputs))
        outputs = [tape.new(value, active and name != "stop_gradient") for value in values]
        places = tuple(inputs), tuple(outputs)
        tape.steps.append(
            Step(name, _rule(eqn), operation, *places, here.line, here.path, False, here.function)
        )
        return outputs

    def _operation(self, eqn: Any) -> Rerun:
        """Return what runs an equation; the same function each time round a loop."""
        if id(eqn) not in self._operations:
            # The equation is kept: its id must not go to another one.
            self._operations[id(eqn)] = (eqn, bound_equation(eqn))
        return self._operations[id(eqn)][1]

    def _glue(self, operation: Rerun, inputs: list[int], here: Where) -> list[int]:
        """Cut or join arrays at the border of a loop."""
        tape = self.tape
        active = any(tape.active[place] for place in inputs)
        values = operation(*(tape.values[place] for place in inputs))
        places = tuple(inputs), tuple(tape.new(value, active) for value in values)
        tape.steps.append(Step("scan", "", operation, *places, here.line, here.path, True))
        return list(places[1])


_LOOPS = {"scan": "scan", "while": "while loop"}


def _count(jaxpr: ClosedJaxpr) -> int:
    """Count the steps of a program, at least one; loops inside as often as they run."""
    total = 1
    for eqn in jaxpr.eqns:
        inner = sum(_count(part) for part in inner_jaxprs(eqn))
        total += max(1, inner) * (eqn.params["length"] if eqn.primitive.name == "scan" else 1)
    return total


def _rule(eqn: Any) -> str:
    """Name the function with a derivative rule of its own that an equation calls."""
    if eqn.primitive.name not in RULED_CALLS:
        return ""
    inner = called_program(eqn)
    named = inner.jaxpr.debug_info.func_name if inner is not None else ""
    return eqn.params.get("name") or named or eqn.primitive.name


def _constant(answer: bool) -> Rerun:
    return lambda *_: [np.bool_(answer)]


def _unstack(length: int) -> Rerun:
    def operation(stack: Any) -> list[Any]:
        if _is_key(stack):
            return [stack[i] for i in range(length)]
        return list(np.asarray(stack))

    return operation


def stack(*rows: Any) -> list[Any]:
    """Join the rows that a scan gives, one for each iteration."""
    return [jnp.stack([jnp.asarray(row) for row in rows])]


def _is_key(value: Any) -> bool:
    return jnp.issubdtype(jax.typeof(value).dtype, jax.dtypes.prng_key)


def all_finite(value: Any) -> bool:
    """Tell whether all elements are finite."""
    return bool(np.all(np.isfinite(as_numpy(value))))


def as_numpy(value: Any) -> np.ndarray:
    """Return a value as an array on which `np.isfinite` works."""
    array = np.asarray(value)
    return array if array.dtype.kind in "fciub" else array.astype(np.float32)
