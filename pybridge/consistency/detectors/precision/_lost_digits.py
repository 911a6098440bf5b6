"""Find the operation that loses the digits of a result: overflow, underflow, cancellation."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from ....jaxprs import MOVING, Step
from ._extended_arithmetic import ELEMENTWISE
from ._extended_run import ExtendedRun
from ._precisions import is_inexact, widened

_SUMS = frozenset({"add", "add_any", "sub", "reduce_sum", "cumsum", "dot_general", "scatter-add"})

_CONVERSIONS = frozenset({"convert_element_type", "reduce_precision"})

LOGARITHMS = frozenset({"log", "log1p"})

# `Loss.before` goes back by so many steps.
_NEAR = 3


@dataclass(frozen=True)
class Loss:
    """Where a result loses its digits.

    Attributes:
        kind: `"overflow"`: too large for the dtype; `"underflow"`: too small, it becomes 0;
            `"domain"`: rounding leaves the operation's domain; `"cancellation"`: nearly equal
            numbers are subtracted; `"conversion"`: it converts to a dtype of less precision;
            `"conditioning"`: the operation magnifies rounding in another way.
        step: the operation: its operands still have their digits, its result has not.
        name: of the operation. Names of operations are those of their primitives, but for two:
            `"square"` for all that multiplies numbers with themselves, `"sqrt"` for the power 1/2.
        got: the result there.
        exact: what it is in extended precision.
        operands: the operations that gave the operands, past those that only move numbers.
        before: the last three operations before it.
        after: the operations between it and the program's result.
        until_log: those between it and the first logarithm after it, with those that gave their
            operands; empty without one.
        divisors: what the divisors are made of, of the operation itself and those after it.
    """

    kind: str
    step: Step
    name: str
    got: float
    exact: float
    operands: frozenset[str]
    before: frozenset[str]
    after: frozenset[str]
    until_log: frozenset[str]
    divisors: frozenset[str]

    def is_at(self, other: Loss) -> bool:
        """Tell whether another loss is at the same operation of the same line."""
        one, two = self.step, other.step
        return (one.line, one.primitive) == (two.line, two.primitive)


def find_loss(run: ExtendedRun, output: int, place: tuple[int, ...], limit: float) -> Loss | None:
    """Follow lost digits back to the operation that loses them.

    Args:
        run: a run in the declared precision and the extended one.
        output: the place of the result.
        place: the element of it that is wrong.
        limit: the relative error from which on a number counts as one that has lost its digits.

    Returns:
        The loss; None where the program gives an argument or a constant back.
    """
    made_by = {place: step for step in run.steps for place in step.outputs}
    mask = np.zeros(np.shape(run.values[output][0]), bool)
    mask[place] = True
    at = output
    while at in made_by:
        step = made_by[at]
        errors = {q: _errors_of_operand(run, step, q, at, mask) for q in step.inputs}
        worst = max(errors, key=lambda q: errors[q].max(initial=0.0), default=at)
        if not errors or not (errors[worst] > limit).any():
            return _loss(run, made_by, step, at, mask, output)
        at, mask = worst, errors[worst] > limit
    return None


def _errors_of_operand(
    run: ExtendedRun, step: Step, operand: int, result: int, mask: np.ndarray
) -> np.ndarray:
    """Say how many digits an operand has lost, in the elements that a result is made of."""
    got, exact = run.values[operand]
    if not hasattr(got, "dtype") or not is_inexact(got.dtype):
        return np.zeros(np.shape(got))
    if _moves(step) and got.dtype == run.values[result][0].dtype:
        kept_got, kept_exact = (widened(x)[mask] for x in run.values[result])
        mask = np.isin(widened(got), kept_got) | (np.isnan(got) & np.isnan(kept_got).any())
        mask = mask & np.isin(widened(exact), kept_exact)
    elif np.shape(got) != mask.shape or step.primitive not in ELEMENTWISE:
        finite = np.isfinite(exact)
        return _errors(got, exact, np.max(np.abs(exact[finite]), initial=0.0) or 1)
    return np.where(mask, _errors(got, exact, np.abs(exact)), 0.0)


def _errors(got: Any, exact: Any, size: Any) -> np.ndarray:
    """Compare elements relative to a size; infinite where one is finite and the other is not."""
    got, exact = widened(got), widened(exact)
    with np.errstate(all="ignore"):
        error = np.where(got == exact, 0.0, np.abs(got - exact) / size)
    finite = np.isfinite(exact)
    return np.where(finite, np.where(np.isfinite(got), error, np.inf), 0.0).astype(float)


def _loss(
    run: ExtendedRun, made_by: dict[int, Step], step: Step, at: int, mask: np.ndarray, output: int
) -> Loss:
    first = tuple(np.argwhere(mask)[0]) if mask.any() else (0,) * mask.ndim
    got, exact = (widened(x)[first] for x in run.values[at])
    info = jnp.finfo(run.values[at][0].dtype)
    kind = "cancellation" if step.primitive in _SUMS else "conditioning"
    if not np.isfinite(got):
        kind = "overflow" if abs(exact) > float(info.max) else "domain"
    elif got == 0 and abs(exact) < float(info.tiny):
        kind = "underflow"
    elif step.primitive in _CONVERSIONS:
        kind = "conversion"
    operands, before = (_names_before(run, made_by, step, depth) for depth in (1, _NEAR))
    after, until = _steps_after(run, step, output)
    beside = (_names_before(run, made_by, later, 1) for later in until)
    divisors = {s.inputs[1] for s in {step, *after} if s.primitive == "div"}
    return Loss(
        kind,
        step,
        _name(run, step),
        float(got.real),
        float(exact.real),
        operands,
        before,
        _names(run, after),
        _names(run, until).union(*beside),
        _names(run, _made_from(run, divisors)),
    )


def _names(run: ExtendedRun, steps: Iterable[Step]) -> frozenset[str]:
    return frozenset(_name(run, step) for step in steps)


def _name(run: ExtendedRun, step: Step) -> str:
    """Name an operation as `Loss` does."""
    power: Any = step.eqn.params["y"] if step.primitive == "integer_pow" else None
    if step.primitive in ("mul", "dot_general", "pow"):
        one, other = (widened(run.values[place][-1]).ravel() for place in step.inputs)
        if step.primitive != "pow":
            return "square" if np.array_equal(np.abs(one), np.abs(other)) else step.primitive
        power = other[0] if other.size and np.ptp(np.real(other)) == 0 else None
    return {2: "square", 0.5: "sqrt"}.get(power, step.primitive)


def _moves(step: Step) -> bool:
    """Tell whether a step only moves numbers; at the border of a loop it does."""
    return step.eqn is None or step.primitive in MOVING


def _names_before(
    run: ExtendedRun, made_by: dict[int, Step], step: Step, depth: int
) -> frozenset[str]:
    """Name the last operations before one; moving numbers is none."""
    names: set[str] = set()
    seen: set[tuple[int, int]] = set()
    waiting = [(place, depth) for place in step.inputs]
    while waiting:
        place, left = waiting.pop()
        if left and place in made_by and (place, left) not in seen:
            seen.add((place, left))
            before = made_by[place]
            if not _moves(before):
                names.add(_name(run, before))
                left -= 1
            waiting += [(operand, left) for operand in before.inputs]
    return frozenset(names)


def _steps_after(run: ExtendedRun, step: Step, output: int) -> tuple[set[Step], set[Step]]:
    """Collect the steps from one to a result, and to the first logarithms on the way.

    Neither the step nor these logarithms are included.
    """
    made = _closure(set(step.outputs), ((s, s.inputs, s.outputs) for s in run.steps))
    between = made & _made_from(run, {output})
    logs = {s for s in between if s.primitive in LOGARITHMS}
    made = _closure(
        set(step.outputs), ((s, s.inputs, s.outputs) for s in run.steps if s not in logs)
    )
    return between, made & _made_from(run, {place for s in logs for place in s.inputs})


def _made_from(run: ExtendedRun, places: set[int]) -> set[Step]:
    """Collect the steps that some places are made from."""
    return _closure(places, ((s, s.outputs, s.inputs) for s in reversed(run.steps)))


def _closure(
    places: set[int], steps: Iterable[tuple[Step, tuple[int, ...], tuple[int, ...]]]
) -> set[Step]:
    """Collect the steps that are reached from some places, over edges in one direction."""
    reached = set()
    for step, entry, exit in steps:
        if places.intersection(entry):
            places |= set(exit)
            reached.add(step)
    return reached
