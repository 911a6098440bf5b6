"""The derivative of one step of a tape, in both modes, and the tape run again with changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ._tape import Rerun, Step, Tape, as_numpy, is_inexact, stack

# A step that comes back as often as this, in a loop, is worth a compilation.
_OFTEN = 4


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


class Local:
    """Differentiates the steps of a tape, each on its own."""

    def __init__(self, tape: Tape):
        """Keep the tape and what gets compiled."""
        self.tape = tape
        self._uses: Counter[Any] = Counter()
        self._compiled: dict[Any, Callable[..., Any]] = {}

    def vjp(
        self, step: Step, cts: Sequence[Any], values: Sequence[Any] | None = None
    ) -> dict[int, Any]:
        """Pull cotangents back through a step.

        Args:
            step: the step.
            cts: one for each output; None for zero.
            values: the inputs to differentiate at; those of the tape where None.

        Returns:
            The cotangents of the active inputs, by number.
        """
        wrt, kept = self._ends(step)
        if step.glue:
            rows = self._cut_or_join(step.operation is not stack, step.outputs, cts)
            return {k: rows[k] for k in wrt}
        given = [self._as_tangent(step.outputs[k], cts[k]) for k in kept]
        return dict(zip(wrt, self._call(_pull, step, wrt, kept, values, given), strict=True))

    def jvp(
        self, step: Step, tangents: Sequence[Any], values: Sequence[Any] | None = None
    ) -> dict[int, Any]:
        """Push tangents through a step.

        Args:
            step: the step.
            tangents: one for each input; None for zero.
            values: the inputs to differentiate at; those of the tape where None.

        Returns:
            The tangents of the inexact outputs, by number.
        """
        wrt, kept = self._ends(step)
        if step.glue:
            rows = self._cut_or_join(step.operation is stack, step.inputs, tangents)
            return {k: rows[k] for k in kept}
        given = [self._as_tangent(step.inputs[k], tangents[k]) for k in wrt]
        return dict(zip(kept, self._call(_push, step, wrt, kept, values, given), strict=True))

    def is_active(self, step: Step) -> bool:
        """Tell whether a step depends on a differentiated input."""
        return any(self.tape.active[place] for place in step.inputs)

    def _ends(self, step: Step) -> tuple[tuple[int, ...], tuple[int, ...]]:
        tape = self.tape
        wrt = tuple(k for k, place in enumerate(step.inputs) if tape.active[place])
        kept = tuple(k for k, p in enumerate(step.outputs) if is_inexact(tape.values[p]))
        return wrt, kept

    def _cut_or_join(
        self, joins: bool, places: Sequence[int], tangents: Sequence[Any]
    ) -> list[np.ndarray]:
        """Do with tangents or cotangents, None for zero, what the border of a loop does."""
        arrays = [
            np.zeros_like(as_numpy(self.tape.values[place]))
            if tangent is None
            else as_numpy(tangent)
            for place, tangent in zip(places, tangents, strict=True)
        ]
        return [np.stack(arrays)] if joins else list(arrays[0])

    def _as_tangent(self, place: int, tangent: Any) -> Any:
        value = self.tape.values[place]
        dtype = jnp.result_type(value)
        if tangent is None:
            return jnp.zeros(jnp.shape(value), dtype)
        return jnp.asarray(tangent, dtype)

    def _call(
        self, kind: Callable[..., Any], step: Step, wrt: Any, kept: Any, values: Any, given: Any
    ) -> Any:
        values = self.tape.inputs_of(step) if values is None else list(values)
        key = kind, step.operation, wrt, kept
        self._uses[key] += 1
        if key not in self._compiled:
            function = partial(kind, step.operation, wrt, kept)
            if self._uses[key] < _OFTEN:
                return function(values, given)
            self._compiled[key] = jax.jit(function)
        return self._compiled[key](values, given)


def _of_active(operation: Rerun, wrt: Any, kept: Any, values: Sequence[Any]) -> Any:
    def function(*xs: Any) -> list[Any]:
        full = list(values)
        for k, x in zip(wrt, xs, strict=True):
            full[k] = x
        outs = operation(*full)
        return [outs[k] for k in kept]

    return function, [jnp.asarray(values[k]) for k in wrt]


def _pull(operation: Rerun, wrt: Any, kept: Any, values: Any, cts: Any) -> Any:
    function, xs = _of_active(operation, wrt, kept, values)
    return jax.vjp(function, *xs)[1](cts)


def _push(operation: Rerun, wrt: Any, kept: Any, values: Any, tangents: Any) -> Any:
    function, xs = _of_active(operation, wrt, kept, values)
    return jax.jvp(function, tuple(xs), tuple(tangents))[1]


def run_patched(
    tape: Tape, local: Local, patches: Mapping[int, Patch], mode: str
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Run the taped program again with some steps changed, and differentiate it.

    Loops stay unrolled and conditionals decided as they were on the tape. It goes step by step:
    traced as a whole, a long loop would be a program of many thousand operations.

    Args:
        tape: the tape.
        local: differentiates its steps.
        patches: by the number of the step.
        mode: `"reverse"` (of the sum of the results) or `"forward"` (along ones).

    Returns:
        The results, and the derivative: one array for each input, or for each result.
    """
    env, seen = list(tape.values), {}
    changed: set[int] = set()
    for i, step in enumerate(tape.steps):
        patch = patches.get(i)
        if patch is None and not changed.intersection(step.inputs):
            continue
        values = [env[place] for place in step.inputs]
        seen[i] = patch.apply(values) if patch else values
        for place, out in zip(step.outputs, step.operation(*seen[i]), strict=True):
            if patch and patch.restore and is_inexact(out):
                out = jnp.where(patch.mask, tape.values[place], out)
            if tape.active[place]:  # what is behind a stop_gradient stays as it was
                env[place] = out
                changed.add(place)
    derive = _reverse if mode == "reverse" else _forward
    return [as_numpy(env[place]) for place in tape.outputs], derive(tape, local, patches, seen)


def _reverse(
    tape: Tape, local: Local, patches: Mapping[int, Patch], seen: Mapping[int, Any]
) -> list[np.ndarray]:
    cts: dict[int, Any] = {}
    for place in tape.outputs:
        cts[place] = cts.get(place, 0) + np.ones_like(as_numpy(tape.values[place]))
    for i in range(len(tape.steps))[::-1]:
        step = tape.steps[i]
        given = [_without(patches.get(i), cts.get(place)) for place in step.outputs]
        if any(ct is not None for ct in given) and local.is_active(step):
            for k, ct in local.vjp(step, given, seen.get(i)).items():
                cts[step.inputs[k]] = cts.get(step.inputs[k], 0) + as_numpy(ct)
    return [cts.get(p, np.zeros_like(as_numpy(tape.values[p]))) for p in tape.inputs]


def _forward(
    tape: Tape, local: Local, patches: Mapping[int, Patch], seen: Mapping[int, Any]
) -> list[np.ndarray]:
    dots: dict[int, Any] = {p: np.ones_like(as_numpy(tape.values[p])) for p in tape.inputs}
    for i, step in enumerate(tape.steps):
        given = [dots.get(place) for place in step.inputs]
        if any(dot is not None for dot in given) and local.is_active(step):
            for k, dot in local.jvp(step, given, seen.get(i)).items():
                if tape.active[step.outputs[k]]:
                    dots[step.outputs[k]] = _without(patches.get(i), as_numpy(dot))
    return [dots.get(p, np.zeros_like(as_numpy(tape.values[p]))) for p in tape.outputs]


def _without(patch: Patch | None, tangent: Any) -> Any:
    """Return a tangent without the elements that a patch makes constant."""
    if tangent is None or patch is None or not patch.restore:
        return tangent
    return np.where(patch.mask, 0.0, tangent)
