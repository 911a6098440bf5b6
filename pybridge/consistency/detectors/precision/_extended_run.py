"""Run a JAX program in the precision that it declares, and in extended precision beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from jax.extend.core import ClosedJaxpr

from ....jaxprs import FOLLOWED, SOLVERS, CallSite, Recording, jax_function
from ._extended_arithmetic import run_equation
from ._precisions import is_inexact, is_key, rounded

# A run that takes longer is given up. XLA compiles in the time of a few thousand steps.
_MOST_STEPS = 20_000
_FEW_STEPS = 2_000
_MOST_ELEMENTS = 4_000_000


class NotFollowedError(Exception):
    """A program that cannot be run here: too long, or of operations that are not known."""


class ExtendedRun(Recording):
    """A run in one or more precisions at once; the first decides about loops and branches.

    A value is an array for each precision.

    Attributes:
        is_wide: for each precision whether it is the extended one, else the declared one.
    """

    enters = FOLLOWED | SOLVERS

    def __init__(self, *is_wide: bool, most_steps: int = _MOST_STEPS):
        """Begin a run in some precisions, of so many steps at most."""
        super().__init__()
        self.is_wide, self._most_steps = is_wide, most_steps
        self._elements = 0

    def results(self) -> list[np.ndarray]:
        """List the program's results in the first precision."""
        return [np.asarray(self.values[place][0]) for place in self.outputs]

    def keep(self, value: Any) -> int:
        """Keep an array for each precision."""
        self._elements += sum(map(np.size, value))
        if self._elements > _MOST_ELEMENTS:
            raise NotFollowedError("too many numbers")
        return super().keep(tuple(value))

    def keep_step(self, *parts: Any) -> list[int]:
        if len(self.steps) >= self._most_steps:
            raise NotFollowedError("too many steps")
        return super().keep_step(*parts)

    def argument(self, value: Any, dtype: Any) -> int:
        """Keep an argument; in extended precision it may be more exact than declared."""
        return self.keep([rounded(value, dtype, is_wide) for is_wide in self.is_wide])

    def constant(self, value: Any) -> int:
        """Keep a value that is the same in every precision."""
        return self.argument(
            value, value.dtype if hasattr(value, "dtype") else np.result_type(value)
        )

    def literal(self, atom: Any) -> int:
        dtype = atom.aval.dtype
        return self.constant(atom.val if is_key(dtype) else np.asarray(atom.val).astype(dtype))

    def at(self, eqn: Any, around: CallSite) -> CallSite:
        """Return where an equation stands, with the function of JAX's own around it."""
        return replace(super().at(eqn, around), function=around.function or jax_function(eqn))

    def enter(self, eqn: Any, operands: list[int], here: CallSite) -> list[int] | None:
        """Run the programs of an equation, if there are real or complex numbers in it."""
        if not any(is_inexact(v.aval.dtype) for v in [*eqn.invars, *eqn.outvars]):
            return None
        return super().enter(eqn, operands, here)

    def decide(self, value: int) -> int:
        number = np.asarray(self.values[value][0])
        if number.ndim:
            raise NotFollowedError("a choice for each lane")
        return int(number)

    def cut(self, value: Any, length: int) -> Sequence[Any]:
        return [[np.asarray(x)[i] for x in value] for i in range(length)]

    def join(self, values: Sequence[Any]) -> Any:
        return [np.stack(rows) for rows in zip(*values, strict=True)]

    def compute(self, eqn: Any, operands: list[int]) -> Sequence[Any]:
        columns = zip(*(self.values[place] for place in operands), strict=True)
        each = list(map(list, columns)) or [[]] * len(self.is_wide)
        return list(zip(*map(run_equation, [eqn] * len(each), each, self.is_wide), strict=True))


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
    return _run(ExtendedRun(False, True) if beside else ExtendedRun(True), closed, xs)


def run_by_steps(closed: ClosedJaxpr, xs: Sequence[Any]) -> list[np.ndarray]:
    """Run a short program in the precision that it declares, each operation rounded on its own.

    Nothing is compiled, so that no operations are fused.

    Args:
        closed: the program.
        xs: its arguments.

    Returns:
        Its results.

    Raises:
        NotFollowedError: see `run_extended`.
    """
    return _run(ExtendedRun(False, most_steps=_FEW_STEPS), closed, xs).results()


def _run(run: ExtendedRun, closed: ClosedJaxpr, xs: Sequence[Any]) -> ExtendedRun:
    try:
        with np.errstate(all="ignore"):
            dtypes = [v.aval.dtype for v in closed.jaxpr.invars]
            args = list(map(run.argument, xs, dtypes))
            run.outputs = tuple(run.open(closed, args, CallSite()))
    except NotFollowedError:
        raise
    except Exception as error:  # whatever an unknown operation raises
        raise NotFollowedError(str(error)) from error
    return run
