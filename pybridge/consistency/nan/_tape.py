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
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from ..._jaxprs import Location, inner_jaxprs, is_of_jax, user_line

# Loops with more steps than this stay closed: they are one step each.
MOST_STEPS = 20_000

_CALLS = frozenset(
    """checkpoint closed_call core_call custom_vmap_call jit pjit remat remat2""".split()
)
_RULES = frozenset({"custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr"})

# Takes the values of a step's inputs, gives those of its outputs.
Operation = Callable[..., list[Any]]


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
    operation: Operation
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
    consts = [tape.new(const) for const in jaxpr.consts]
    outs = recorder.run(jaxpr.jaxpr, consts, list(tape.inputs))
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


class Recorder:
    """Runs programs equation by equation onto a tape."""

    def __init__(self, tape: Tape):
        """Begin; several programs can follow each other on one tape."""
        self.tape = tape
        self._operations: dict[int, tuple[Any, Operation]] = {}

    def run(
        self,
        jaxpr: Jaxpr,
        consts: Sequence[int],
        args: Sequence[int],
        where: Where | None = None,
    ) -> list[int]:
        """Run a program on values that the tape holds.

        Args:
            jaxpr: the program.
            consts: the places of its constants.
            args: the places of its arguments.
            where: what stands around it.

        Returns:
            The places of its results.
        """
        where = where or Where()
        env = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*consts, *args], strict=True))

        def read(atom: Any) -> int:
            return self.tape.new(atom.val) if isinstance(atom, Literal) else env[atom]

        for eqn in jaxpr.eqns:
            if eqn.outvars or not eqn.effects:  # a print would be printed twice
                inputs = [read(atom) for atom in eqn.invars]
                outs = self._equation(eqn, inputs, where.at(eqn))
                env.update(zip(eqn.outvars, outs, strict=True))
        return [read(atom) for atom in jaxpr.outvars]

    def _equation(self, eqn: Any, inputs: list[int], here: Where) -> list[int]:
        name = eqn.primitive.name
        if name in _CALLS:
            inner = list(inner_jaxprs(eqn))
            if len(inner) == 1:
                return self._open(inner[0], inputs, here)
        elif name == "cond" or (name == "pybridge_switch" and self._is_scalar(inputs[0])):
            return self._cond(eqn, inputs, here)
        elif name == "scan" and 0 < self._steps_of_scan(eqn) <= self._room():
            return self._scan(eqn, inputs, here)
        elif name == "while":
            outs = self._while(eqn, inputs, here)
            if outs is not None:
                return outs
        if name in ("scan", "while"):
            self.tape.closed.append(here.named(_LOOPS[name]))
        return self._step(eqn, inputs, here)

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

    def _operation(self, eqn: Any) -> Operation:
        """Return what runs an equation; the same function each time round a loop."""
        if id(eqn) not in self._operations:
            # Older versions of JAX pass the functions of a custom rule apart.
            bound = eqn.primitive.get_bind_params(eqn.params)
            functions, params = bound if isinstance(bound, tuple | list) else ((), bound)

            def operation(*values: Any) -> list[Any]:
                outs = eqn.primitive.bind(*functions, *values, **params)
                return list(outs) if eqn.primitive.multiple_results else [outs]

            # The equation is kept: its id must not go to another one.
            self._operations[id(eqn)] = (eqn, operation)
        return self._operations[id(eqn)][1]

    def _open(self, inner: ClosedJaxpr, inputs: list[int], here: Where) -> list[int]:
        consts = [self.tape.new(const) for const in inner.consts]
        return self.run(inner.jaxpr, consts, inputs, here.inside(inner))

    def _cond(self, eqn: Any, inputs: list[int], here: Where) -> list[int]:
        branches = eqn.params["branches"]
        index = max(0, min(int(self.tape.values[inputs[0]]), len(branches) - 1))
        taken = here.deeper(f"branch {index} of", "cond")
        return self._open(branches[index], inputs[1:], taken)

    def _scan(self, eqn: Any, inputs: list[int], here: Where) -> list[int]:
        body, length = eqn.params["jaxpr"], eqn.params["length"]
        ends = eqn.params["num_consts"], eqn.params["num_consts"] + eqn.params["num_carry"]
        consts, carry, stacks = inputs[: ends[0]], inputs[ends[0] : ends[1]], inputs[ends[1] :]
        slices = [self._glue(_unstack(length), [stack], here) for stack in stacks]
        rows: list[list[int]] = [[] for _ in range(length)]
        for i in range(length)[::-1] if eqn.params["reverse"] else range(length):
            xs = [part[i] for part in slices]
            inside = here.deeper(f"iteration {i} of", "scan")
            outs = self._open(body, [*consts, *carry, *xs], inside)
            carry, rows[i] = outs[: len(carry)], outs[len(carry) :]
        columns = zip(*rows, strict=True)
        return [*carry, *(self._glue(stack, list(column), here)[0] for column in columns)]

    def _while(self, eqn: Any, inputs: list[int], here: Where) -> list[int] | None:
        """Run a while loop step by step; None, and nothing on the tape, if it is too long."""
        cond, body = eqn.params["cond_jaxpr"], eqn.params["body_jaxpr"]
        ends = eqn.params["cond_nconsts"], eqn.params["cond_nconsts"] + eqn.params["body_nconsts"]
        of_cond, of_body, carry = inputs[: ends[0]], inputs[ends[0] : ends[1]], inputs[ends[1] :]
        first, i = len(self.tape.steps), 0
        while True:
            inside = here.deeper(f"iteration {i} of", "while loop")
            going = self._open(cond, [*of_cond, *carry], inside)
            if not bool(self.tape.values[going[0]]):
                return carry
            if self._room() <= 0:
                del self.tape.steps[first:]
                return None
            carry = self._open(body, [*of_body, *carry], inside)
            i += 1

    def _glue(self, operation: Operation, inputs: list[int], here: Where) -> list[int]:
        """Cut or join arrays at the border of a loop."""
        tape = self.tape
        active = any(tape.active[place] for place in inputs)
        values = operation(*(tape.values[place] for place in inputs))
        places = tuple(inputs), tuple(tape.new(value, active) for value in values)
        tape.steps.append(Step("scan", "", operation, *places, here.line, here.path, True))
        return list(places[1])

    def _room(self) -> int:
        return MOST_STEPS - len(self.tape.steps)

    def _steps_of_scan(self, eqn: Any) -> int:
        return eqn.params["length"] * _count(eqn.params["jaxpr"])

    def _is_scalar(self, place: int) -> bool:
        return jnp.ndim(self.tape.values[place]) == 0


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
    if eqn.primitive.name not in _RULES:
        return ""
    inner = next(inner_jaxprs(eqn), None)
    named = inner.jaxpr.debug_info.func_name if inner is not None else ""
    return eqn.params.get("name") or named or eqn.primitive.name


def _constant(answer: bool) -> Operation:
    return lambda *_: [np.bool_(answer)]


def _unstack(length: int) -> Operation:
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
