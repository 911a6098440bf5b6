"""Run a JAX program in the precision that it declares, and in extended precision beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr

from ....jaxprs import FOLLOWED, SOLVERS, Evaluator, Location, is_of_jax, jax_function, user_line
from ._extended_arithmetic import ELEMENTWISE, STRUCTURAL, apply
from ._extended_by_jax import is_inexact, is_key, run_in_double, run_natively

# Where long doubles are doubles, float64 has nothing to be compared with.
IS_EXTENDED = np.finfo(np.longdouble).nmant > np.finfo(np.float64).nmant

# A run that takes longer is given up.
_MOST_STEPS = 20_000
_MOST_ELEMENTS = 4_000_000

_KNOWN = frozenset({*ELEMENTWISE, *STRUCTURAL})


class NotFollowedError(Exception):
    """A program that cannot be run here: too long, or of operations that are not known."""


@dataclass
class Step:
    """One operation that was run.

    Attributes:
        primitive: its name; `"slice"` or `"concatenate"` where a loop cuts or joins arrays.
        inputs: the places of its operands in `ExtendedRun.values`.
        outputs: the places of its results.
        line: the user's line.
        function: the function of JAX's own that it is part of, such as `logsumexp`; empty where
            it is not, or where that function is the operation.
    """

    primitive: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    line: Location | None
    function: str = ""


@dataclass(frozen=True)
class Around:
    """What calls a program.

    Attributes:
        line: the line that calls it, for operations that have none of their own.
        function: the function of JAX's own around it, where it does more than one operation.
        is_fixed: whether what is inside has that line: a function of JAX's own may be traced once
            for all of its calls.
    """

    line: Location | None = None
    function: str = ""
    is_fixed: bool = False

    def of(self, eqn: Any) -> Around:
        """Say what an operation of the program stands in."""
        function = self.function or jax_function(eqn)
        line = self.line if self.is_fixed else user_line(eqn) or self.line
        return Around(line, function, self.is_fixed)

    def inside(self, inner: ClosedJaxpr) -> Around:
        """Say what a program stands in that is called here."""
        return replace(self, is_fixed=self.is_fixed or is_of_jax(inner))


@dataclass
class ExtendedRun(Evaluator[int, Around]):
    """A run in one or more precisions at once; the first decides about loops and branches.

    Attributes:
        is_wide: for each precision whether it is the extended one, else the declared one.
        values: all values, by place: an array for each precision.
        steps: the operations in the order in which they ran.
        outputs: the places of the program's results.
    """

    is_wide: tuple[bool, ...]
    values: list[tuple[Any, ...]] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    outputs: tuple[int, ...] = ()
    _elements: int = 0

    def results(self, number: int) -> list[np.ndarray]:
        """List the program's results in one precision."""
        return [np.asarray(self.values[place][number]) for place in self.outputs]

    # --- values -------------------------------------------------------------------------------

    def _new(self, values: Sequence[Any]) -> int:
        self._elements += sum(np.size(x) for x in values)
        if self._elements > _MOST_ELEMENTS:
            raise NotFollowedError("too many numbers")
        self.values.append(tuple(values))
        return len(self.values) - 1

    def _rounded(self, x: Any, dtype: Any, number: int) -> Any:
        """Give a value the precision of a run; what is no real or complex number is kept."""
        if not is_inexact(dtype):
            return x if is_key(dtype) else np.asarray(x).astype(dtype)
        if self.is_wide[number]:
            is_complex = jnp.issubdtype(dtype, np.complexfloating)
            return np.asarray(x).astype(np.clongdouble if is_complex else np.longdouble)
        narrow = np.asarray(x).astype(dtype)
        if narrow.dtype.kind == "c":
            return narrow
        # XLA flushes what is too small for a full number of digits.
        return np.where(np.abs(narrow) < jnp.finfo(dtype).tiny, np.zeros((), dtype), narrow)

    def constant(self, value: Any) -> int:
        """Keep a value that is the same in every precision."""
        dtype = value.dtype if hasattr(value, "dtype") else np.result_type(value)
        return self._new([self._rounded(value, dtype, n) for n in range(len(self.is_wide))])

    def inputs(self, xs: Sequence[Any], variables: Sequence[Any]) -> list[int]:
        """Keep the arguments; in extended precision they may be more exact than declared."""
        return [
            self._new([self._rounded(x, v.aval.dtype, n) for n in range(len(self.is_wide))])
            for x, v in zip(xs, variables, strict=True)
        ]

    # --- programs -----------------------------------------------------------------------------

    enters = FOLLOWED | SOLVERS

    def literal(self, atom: Any) -> int:
        """Keep a number of the program."""
        return self.constant(_literal(atom))

    def at(self, eqn: Any, around: Around) -> Around:
        """Say what an operation stands in."""
        return around.of(eqn)

    def inside(self, program: ClosedJaxpr, around: Around) -> Around:
        """Say what a program stands in that is called here."""
        return around.inside(program)

    def enter(self, eqn: Any, operands: list[int], here: Around) -> list[int] | None:
        """Run the programs of an equation, if there are real or complex numbers in it."""
        if not any(is_inexact(v.aval.dtype) for v in [*eqn.invars, *eqn.outvars]):
            return None
        return super().enter(eqn, operands, here)

    def decide(self, value: int) -> int:
        """Return a predicate or an index, by the first precision."""
        found = np.asarray(self.values[value][0])
        if found.ndim:
            raise NotFollowedError("a choice for each lane")
        return int(found)

    def scan(self, eqn: Any, operands: list[int], here: Around) -> list[int] | None:
        """Run a scan iteration by iteration."""
        if not eqn.params["length"]:
            raise NotFollowedError("a loop without a step")
        return super().scan(eqn, operands, here)

    def rows(self, stack: int, length: int, here: Around) -> list[int]:
        """Cut an array into one for each iteration."""
        values = self.values[stack]
        return [
            self._glue("slice", [stack], [np.asarray(x)[i] for x in values], here)
            for i in range(length)
        ]

    def stack(self, rows: Sequence[int], here: Around) -> int:
        """Join what the iterations give."""
        parts = zip(*(self.values[place] for place in rows), strict=True)
        return self._glue("concatenate", list(rows), [np.stack(part) for part in parts], here)

    def apply(self, program: ClosedJaxpr, eqn: Any, operands: list[int], here: Around) -> list[int]:
        """Run an operation in each precision."""
        return self._step(eqn, operands, here)

    def _glue(self, name: str, places: list[int], values: list[Any], around: Around) -> int:
        """Keep what a loop cuts out of an array or joins to one."""
        made = self._new(values)
        self._keep(name, places, [made], around)
        return made

    # --- single operations --------------------------------------------------------------------

    def _step(self, eqn: Any, places: list[int], around: Around) -> list[int]:
        rows = []
        for number in range(len(self.is_wide)):
            ins = [self.values[place][number] for place in places]
            outs = self._apply(eqn, ins, self.is_wide[number])
            dtypes = [v.aval.dtype for v in eqn.outvars]
            pairs = zip(outs, dtypes, strict=True)
            rows.append([self._rounded(y, dtype, number) for y, dtype in pairs])
        made = [self._new(column) for column in zip(*rows, strict=True)]
        self._keep(eqn.primitive.name, places, made, around)
        return made

    def _keep(self, name: str, places: list[int], made: list[int], around: Around) -> None:
        if len(self.steps) >= _MOST_STEPS:
            raise NotFollowedError("too many steps")
        self.steps.append(Step(name, tuple(places), tuple(made), around.line, around.function))

    def _apply(self, eqn: Any, ins: list[Any], is_wide: bool) -> list[Any]:
        """Run an operation in one precision."""
        dtypes = [v.aval.dtype for v in eqn.invars]
        if not any(is_inexact(d) for d in dtypes) and eqn.primitive.name not in _KNOWN:
            return run_natively(eqn, ins)
        if eqn.primitive.name not in _KNOWN:
            return run_in_double(eqn, ins) if is_wide else run_natively(eqn, ins)
        # As XLA does, numbers of 16 bits are computed with in 32 and rounded then.
        return apply(eqn.primitive.name, [_unpacked(x) for x in ins], eqn.params) or []


def run_extended(closed: ClosedJaxpr, xs: Sequence[Any], *, beside: bool = False) -> ExtendedRun:
    """Run a program in extended precision.

    Args:
        closed: the program.
        xs: its arguments, exact.
        beside: whether to run it in its own precision as well. That is then the first of the two,
            and decides which branches are taken in both.

    Returns:
        The run, with every value on the way.

    Raises:
        NotFollowedError: the program is too long, or holds something that cannot be run.
    """
    made = ExtendedRun((False, True) if beside else (True,))
    try:
        with np.errstate(all="ignore"):
            made.outputs = tuple(made.open(closed, made.inputs(xs, closed.jaxpr.invars), Around()))
    except NotFollowedError:
        raise
    except Exception as error:  # whatever an unknown operation raises
        raise NotFollowedError(str(error)) from error
    return made


def _literal(atom: Any) -> Any:
    dtype = atom.aval.dtype
    return atom.val if is_key(dtype) else np.asarray(atom.val).astype(dtype)


def _unpacked(x: Any) -> Any:
    x = np.asarray(x)
    return x.astype(np.float32) if is_inexact(x.dtype) and x.dtype.itemsize == 2 else x
