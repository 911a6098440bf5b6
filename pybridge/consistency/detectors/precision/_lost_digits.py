"""Find the operation that loses the digits of a result: overflow, underflow, cancellation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from ....jaxprs import MOVING
from ._extended_arithmetic import ELEMENTWISE
from ._extended_run import ExtendedRun, Step

_SUMS = frozenset({"add", "add_any", "sub", "reduce_sum", "cumsum", "dot_general", "scatter-add"})


_NEAR = 3


@dataclass(frozen=True)
class Loss:
    """Where a result loses its digits.

    Attributes:
        kind: `"overflow"`: too large for the dtype; `"underflow"`: too small, it becomes 0;
            `"domain"`: rounding leaves the operation's domain; `"cancellation"`: nearly equal
            numbers are subtracted; `"conditioning"`: the operation magnifies rounding in another
            way.
        step: the operation: its operands still have their digits, its result has not.
        dtype: the dtype of the result.
        got: the result there.
        exact: what it is in extended precision.
        operands: the primitives that gave the operands, past those that only move numbers.
        before: the primitives of the last three steps before it.
        after: the primitives between the operation and the program's result.
    """

    kind: str
    step: Step
    dtype: str
    got: float
    exact: float
    operands: frozenset[str]
    before: frozenset[str]
    after: frozenset[str]

    def is_at(self, other: Loss) -> bool:
        """Tell whether another loss is at the same operation of the same line."""
        one, two = self.step, other.step
        return (one.line, one.primitive) == (two.line, two.primitive)


def relative_error(got: Any, exact: Any) -> np.ndarray:
    """Compare elements; infinite where one is finite and the other is not, or 0 is not met."""
    got, exact = _wide(got), _wide(exact)
    with np.errstate(all="ignore"):
        error = np.abs(got - exact) / np.abs(exact)
    error = np.where(got == exact, 0.0, error)
    both = np.isfinite(got) & np.isfinite(exact)
    lost = ~np.isfinite(got) & np.isfinite(exact)
    return np.where(lost, np.inf, np.where(both, error, 0.0)).astype(float)


def relative_to_largest(got: Any, exact: Any) -> np.ndarray:
    """Compare elements; relative to the largest of the array."""
    got, exact = _wide(got), _wide(exact)
    with np.errstate(all="ignore"):
        finite = np.isfinite(exact)
        largest = np.max(np.abs(exact[finite]), initial=0.0) if exact.size else 0.0
        error = np.abs(got - exact) / (largest or np.longdouble(1))
    both = np.isfinite(got) & finite
    lost = ~np.isfinite(got) & finite
    return np.where(lost, np.inf, np.where(both, error, 0.0)).astype(float)


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
    made = {place: step for step in run.steps for place in step.outputs}
    mask = np.zeros(np.shape(run.values[output][0]), bool)
    mask[place] = True
    at = output
    while at in made:
        step = made[at]
        worse = [found for q in step.inputs if (found := _lost(run, step, q, mask, limit))]
        if not worse:
            return _loss(run, made, step, at, mask, output)
        _, at, mask = max(worse, key=lambda found: found[0])
    return None


def _result(run: ExtendedRun, step: Step) -> tuple[Any, Any]:
    got, exact = run.values[step.outputs[0]]
    return np.asarray(got), np.asarray(exact)


def _lost(
    run: ExtendedRun, step: Step, place: int, mask: np.ndarray, limit: float
) -> tuple[float, int, np.ndarray] | None:
    """Say how many digits an operand has lost where the result has; None where it has them."""
    got, exact = run.values[place]
    if not is_number(got):
        return None
    if step.primitive in MOVING and np.asarray(got).dtype == _result(run, step)[0].dtype:
        kept = [_wide(x)[mask] for x in _result(run, step)]
        alike = np.isin(_wide(got), kept[0]) | (np.isnan(got) & np.isnan(kept[0]).any())
        mask = alike & np.isin(_wide(exact), kept[1])
        error = np.where(mask, relative_error(got, exact), 0.0)
    elif np.shape(got) == mask.shape and step.primitive in ELEMENTWISE:
        error = np.where(mask, relative_error(got, exact), 0.0)
    else:
        error = relative_to_largest(got, exact)
    worst = float(np.max(error, initial=0.0))
    return (worst, place, error > limit) if worst > limit else None


def _loss(
    run: ExtendedRun, made: dict[int, Step], step: Step, at: int, mask: np.ndarray, output: int
) -> Loss:
    got, exact = (_wide(x) for x in run.values[at])
    first = tuple(np.argwhere(mask)[0]) if mask.any() else (0,) * mask.ndim
    n, w = got[first], exact[first]
    dtype = np.asarray(run.values[at][0]).dtype
    info = jnp.finfo(dtype)
    kind = "cancellation" if step.primitive in _SUMS else "conditioning"
    if not np.isfinite(n):
        kind = "overflow" if abs(w) > float(info.max) else "domain"
    elif n == 0 and abs(w) < float(info.tiny):
        kind = "underflow"
    after = _descendants(run, set(step.outputs)) & _ancestors(made, [output])
    names = frozenset(s.primitive for s in run.steps if after.intersection(s.outputs))
    direct, near = _near(made, step, 1), _near(made, step, _NEAR)
    return Loss(kind, step, str(dtype), float(np.real(n)), float(np.real(w)), direct, near, names)


def _near(made: dict[int, Step], step: Step, steps: int) -> frozenset[str]:
    """Name the primitives of the last steps before one; moving numbers is no step."""
    found: set[str] = set()
    for place in step.inputs if steps else ():
        if place in made:
            one = made[place]
            moves = one.primitive in MOVING
            found |= _near(made, one, steps if moves else steps - 1)
            found |= set() if moves else {one.primitive}
    return frozenset(found)


def _ancestors(made: dict[int, Step], places: list[int]) -> set[int]:
    """Collect the places that some are computed from, themselves included."""
    found: set[int] = set()
    waiting = list(places)
    while waiting:
        place = waiting.pop()
        if place not in found:
            found.add(place)
            waiting += made[place].inputs if place in made else ()
    return found


def _descendants(run: ExtendedRun, places: set[int]) -> set[int]:
    """Collect the places that are computed from some, these not included."""
    reached, found = set(places), set()
    for step in run.steps:
        if reached.intersection(step.inputs):
            reached.update(step.outputs)
            found.update(step.outputs)
    return found


def is_number(x: Any) -> bool:
    """Tell whether a value is an array of real or complex floating-point numbers."""
    return hasattr(x, "dtype") and bool(jnp.issubdtype(x.dtype, np.inexact))


def _wide(x: Any) -> np.ndarray:
    x = np.asarray(x)
    return x.astype(np.clongdouble if x.dtype.kind == "c" else np.longdouble)
