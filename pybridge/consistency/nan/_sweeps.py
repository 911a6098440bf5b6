"""Reverse and forward sweeps over a tape, step by step; also with some of its steps changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...jaxprs import Step, bound_equation
from ._problem import ModeResult
from ._tape import Tape, all_finite, as_numpy, is_inexact

# A step that is differentiated as often as this, in a loop, is worth a compilation.
_OFTEN = 4


class Sweep:
    """Cotangents on their way back through a tape, or tangents on their way forward.

    Attributes:
        tangents: they, by place.
    """

    def __init__(self, tape: Tape, mode: str, start: Mapping[int, np.ndarray] | None = None):
        """Begin a sweep.

        Args:
            tape: the tape.
            mode: `"reverse"` or `"forward"`.
            start: what it begins with, by place; None for ones at the end where it begins.
        """
        self.tape, self.is_reverse = tape, mode == "reverse"
        self.tangents: dict[int, np.ndarray] = dict(start or {})
        ends = tape.inputs, tape.outputs
        begin, self._end = reversed(ends) if self.is_reverse else ends
        for place in begin if start is None else ():
            self._add(place, np.ones_like(as_numpy(tape.values[place])))

    def steps(
        self, first: int = 0, end: int | None = None
    ) -> Iterator[tuple[int, Step, list[Any]]]:
        """Yield the steps that are reached: number, step, and what comes in; None for zero."""
        numbers = range(first, len(self.tape.steps) if end is None else end)
        for i in reversed(numbers) if self.is_reverse else numbers:
            step = self.tape.steps[i]
            places = step.outputs if self.is_reverse else step.inputs
            given = [self.tangents.get(place) for place in places]
            if any(x is not None for x in given) and self.tape.is_active(step):
                yield i, step, given

    def carry(
        self, step: Step, given: Sequence[Any], values: Sequence[Any] | None = None
    ) -> dict[int, np.ndarray]:
        """Pull cotangents back through a step, or push tangents through it.

        Args:
            step: the step.
            given: a cotangent for each output, or a tangent for each input; None for zero.
            values: the inputs to differentiate at; those of the tape where None.

        Returns:
            The cotangents of the active inputs, or the tangents of the inexact outputs, by number.
        """
        tape = self.tape
        active = tuple(k for k, place in enumerate(step.inputs) if tape.active[place])
        inexact = tuple(k for k, p in enumerate(step.outputs) if is_inexact(tape.values[p]))
        places = step.outputs if self.is_reverse else step.inputs
        entering, leaving = (inexact, active) if self.is_reverse else (active, inexact)

        def filled(k: int) -> np.ndarray:
            return self._zeros(places[k]) if given[k] is None else as_numpy(given[k])

        if step.eqn is None:
            arrays = list(map(filled, range(len(places))))
            cuts = tape.joins(step) is self.is_reverse
            outs = list(arrays[0]) if cuts else [np.stack(arrays)]
            return {k: outs[k] for k in leaving}
        # As in JAX, what no cotangent or tangent comes to is not multiplied with a zero.
        entering = tuple(k for k in entering if given[k] is not None)
        active, inexact = (active, entering) if self.is_reverse else (entering, inexact)
        dtypes = [jnp.result_type(tape.values[places[k]]) for k in entering]
        tangents = list(map(jnp.asarray, map(filled, entering), dtypes))
        values = tape.inputs_of(step) if values is None else list(values)
        outs = self._derivative(step, active, inexact)(values, tangents)
        return {k: as_numpy(out) for k, out in zip(leaving, outs, strict=True)}

    def _derivative(self, step: Step, *which: tuple[int, ...]) -> Callable[..., Any]:
        """Return what differentiates a step; compiled if it has often been asked for."""
        key, compiled = (self.is_reverse, id(step.eqn), *which), self.tape.compiled
        function = partial(_differentiate, self.is_reverse, bound_equation(step.eqn), *which)
        self.tape.uses[key] += 1
        if self.tape.uses[key] == _OFTEN:
            compiled[key] = jax.jit(function)
        return compiled.get(key, function)

    def add(self, step: Step, outs: Mapping[int, np.ndarray]) -> None:
        """Go on with what a step gives."""
        places = step.inputs if self.is_reverse else step.outputs
        for k, out in outs.items():
            if self.tape.active[places[k]]:
                self._add(places[k], out)

    def _zeros(self, place: int) -> np.ndarray:
        return np.zeros_like(as_numpy(self.tape.values[place]))

    def _add(self, place: int, tangent: np.ndarray) -> None:
        self.tangents[place] = self.tangents.get(place, 0) + tangent

    def result(self) -> list[np.ndarray]:
        """Return what has come to the end."""
        return [self.tangents.get(place, self._zeros(place)) for place in self._end]


def _differentiate(
    is_reverse: bool,
    operation: Callable[..., list[Any]],
    active: tuple[int, ...],
    inexact: tuple[int, ...],
    values: list[Any],
    tangents: list[Any],
) -> Sequence[Any]:
    def of_active(*xs: Any) -> list[Any]:
        given = dict(zip(active, xs, strict=True))
        outs = operation(*(given.get(k, value) for k, value in enumerate(values)))
        return [outs[k] for k in inexact]

    xs = [jnp.asarray(values[k]) for k in active]
    if is_reverse:
        return jax.vjp(of_active, *xs)[1](tangents)
    return jax.jvp(of_active, xs, tangents)[1]


@dataclass(frozen=True, eq=False)
class Patch:
    """A change of one step that leaves the value of the program as it is.

    Attributes:
        operand: which input of the step is replaced.
        mask: in which of its elements.
        fill: by what.
        restore: whether the step's result gets its old value back there, as a constant.
    """

    operand: int
    mask: np.ndarray
    fill: float
    restore: bool = False

    def apply(self, values: Sequence[Any]) -> list[Any]:
        """Return the step's inputs with the operand replaced."""
        changed = list(values)
        x = jnp.asarray(changed[self.operand])
        changed[self.operand] = jnp.where(self.mask, jnp.asarray(self.fill, x.dtype), x)
        return changed


def run_patched(tape: Tape, patches: Mapping[int, Patch], mode: str) -> ModeResult:
    """Run the taped program again with some steps changed, and differentiate it.

    Loops stay unrolled and conditionals decided as they were on the tape. It goes step by step:
    traced as a whole, a long loop would be a program of many thousand operations.

    Args:
        tape: the tape.
        patches: by the number of the step.
        mode: `"reverse"` (of the sum of the results) or `"forward"` (along ones).
    """
    values, inputs = list(tape.values), {}
    changed: set[int] = set()
    for i, step in enumerate(tape.steps):
        patch = patches.get(i)
        if patch is None and not changed.intersection(step.inputs):
            continue
        operands = [values[place] for place in step.inputs]
        inputs[i] = patch.apply(operands) if patch else operands
        for place, out in zip(step.outputs, tape.run_again(step, inputs[i]), strict=True):
            if patch and patch.restore and is_inexact(out):
                out = jnp.where(patch.mask, tape.values[place], out)
            # What is behind a stop_gradient stays as it was, unless it was bad as well.
            if tape.active[place] or not all_finite(values[place]):
                values[place] = out
                changed.add(place)
    sweep = Sweep(tape, mode)
    for i, step, given in sweep.steps():
        constant = patches[i].mask if i in patches and patches[i].restore else None
        if constant is not None and sweep.is_reverse:
            given = [None if ct is None else np.where(constant, 0.0, ct) for ct in given]
        outs = sweep.carry(step, given, inputs.get(i))
        if constant is not None and not sweep.is_reverse:
            outs = {k: np.where(constant, 0.0, tangent) for k, tangent in outs.items()}
        sweep.add(step, outs)
    return ModeResult([as_numpy(values[place]) for place in tape.outputs], sweep.result())
