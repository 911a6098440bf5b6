"""A program as a list of operations that were run: what `explain_nan` walks along.

Calls, loops and conditionals are opened: a step is one operation in one iteration of the
branch that was taken, with the numbers that it saw.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr

from ...jaxprs import (
    BRANCHES,
    CALLS,
    LOOPS,
    RULED_CALLS,
    CallSite,
    Recording,
    Step,
    bound_equation,
    called_name,
    inner_jaxprs,
)

# Loops with more steps than this stay closed: they are one step each.
MOST_STEPS = 20_000

_LOOPS = {"scan": "scan", "while": "while loop"}


class Tape(Recording):
    """The steps of one run, and every value on the way.

    Attributes:
        active: for each value whether it depends on a differentiated input.
        inputs: the places of the differentiated inputs.
        outputs: the places of the inexact results.
        closed: loops that were too long to be opened.
        is_finite: whether the program's own value is. Then infinity times a mask was 0 in it: XLA
            makes a select of the product, unlike operation by operation.
        masks: the places of masks that were made numbers.
        uses, compiled: how often steps were differentiated, and what was compiled for that.
    """

    # Functions with a derivative rule of their own are one step: their rule may be at fault.
    enters = frozenset({*CALLS, *BRANCHES, *LOOPS})

    def __init__(self, inputs: Sequence[Any], is_finite: bool):
        """Begin with the differentiated inputs."""
        super().__init__()
        self.is_finite, self.masks = is_finite, set[int]()
        self.active: list[bool] = []
        self.closed: list[str] = []
        self.uses: Counter[Any] = Counter()
        self.compiled: dict[Any, Callable[..., Any]] = {}
        self.inputs = tuple(map(self.keep, inputs))
        for place in self.inputs:
            self.active[place] = True

    def end(self, places: Sequence[int]) -> Tape:
        """Take the results that are inexact for the outputs."""
        self.outputs = tuple(place for place in places if is_inexact(self.values[place]))
        return self

    @cached_property
    def made_by(self) -> dict[int, int]:
        """The number of the step that made a value, by place; asked for once all is run."""
        return {place: i for i, step in enumerate(self.steps) for place in step.outputs}

    def is_active(self, step: Step) -> bool:
        """Tell whether a step depends on a differentiated input."""
        return any(self.active[place] for place in step.inputs)

    def inputs_of(self, step: Step) -> list[Any]:
        """Return the values that a step saw."""
        return [self.values[place] for place in step.inputs]

    def joins(self, step: Step) -> bool:
        """Tell whether a step at the border of a loop joins arrays; else it cuts one."""
        return np.ndim(self.values[step.outputs[0]]) > np.ndim(self.values[step.inputs[0]])

    def run_again(self, step: Step, values: Sequence[Any]) -> Sequence[Any]:
        """Run a step on other values."""
        if step.eqn is not None:
            return self._masked(step.eqn, step.inputs, values, bound_equation(step.eqn)(*values))
        return [self.join(values)] if self.joins(step) else self.cut(values[0], len(step.outputs))

    def keep(self, value: Any) -> int:
        self.active.append(False)
        return super().keep(value)

    def keep_step(self, primitive: str, inputs: Sequence[int], *rest: Any) -> list[int]:
        """Keep a step; its results are active if one of its operands is."""
        outputs = super().keep_step(primitive, inputs, *rest)
        if primitive != "stop_gradient" and any(self.active[place] for place in inputs):
            for place in outputs:
                self.active[place] = is_inexact(self.values[place])
        if self.is_finite and primitive == "convert_element_type":
            self.masks.update(outputs if _is_mask(self.values[inputs[0]]) else ())
        return outputs

    def compute(self, eqn: Any, operands: list[int]) -> Sequence[Any]:
        """Run an operation as it is when differentiated."""
        if eqn.primitive.name == "within_gradient":
            return [np.bool_(any(self.active[place] for place in operands))]
        values = [self.values[place] for place in operands]
        return self._masked(eqn, operands, values, super().compute(eqn, operands))

    def _masked(
        self, eqn: Any, places: Sequence[int], values: Sequence[Any], results: Sequence[Any]
    ) -> Sequence[Any]:
        """Put 0 where a product has a factor that is a mask and does not hold."""
        masks = [value for place, value in zip(places, values, strict=True) if place in self.masks]
        if eqn.primitive.name != "mul" or not masks:
            return results
        return [jnp.where(masks[0] == 0, jnp.zeros_like(result), result) for result in results]

    def inside(self, program: ClosedJaxpr, around: CallSite) -> CallSite:
        """Return what stands around a program; of a function of JAX's own, its name as well."""
        site = super().inside(program, around)
        if site.is_fixed == around.is_fixed:
            return site
        name = program.jaxpr.debug_info.func_name.rpartition(".")[2]
        return replace(site, function=name.lstrip("_"))

    def equation(
        self, program: ClosedJaxpr, eqn: Any, operands: list[int], here: CallSite
    ) -> list[int]:
        """Evaluate an equation, but print nothing a second time."""
        if eqn.effects and not eqn.outvars:
            return []
        return super().equation(program, eqn, operands, here)

    def decide(self, value: int) -> int | None:
        number = self.values[value]
        return None if jnp.ndim(number) else int(number)

    def goes_on(self, eqn: Any, iterations: int) -> bool:
        """Tell whether the tape has room for a loop."""
        room = MOST_STEPS - len(self.steps)
        if eqn.primitive.name == "scan":
            return iterations * _count_steps(eqn.params["jaxpr"]) <= room
        return room > 0

    def while_loop(self, eqn: Any, operands: list[int], here: CallSite) -> list[int] | None:
        """Run a while loop step by step; None, and nothing on the tape, if it is too long."""
        first = len(self.steps)
        outs = super().while_loop(eqn, operands, here)
        if outs is None:
            del self.steps[first:]
        return outs

    def apply(
        self, program: ClosedJaxpr, eqn: Any, operands: list[int], here: CallSite
    ) -> list[int]:
        """Keep a step; a loop that stays closed is one as well."""
        if eqn.primitive.name in LOOPS:
            self.closed.append(here.named(_LOOPS[eqn.primitive.name]))
        return super().apply(program, eqn, operands, here)


def record(program: ClosedJaxpr, args: Sequence[Any], is_finite: bool) -> Tape:
    """Run a program whose inputs are all differentiated, and keep every step."""
    tape = Tape(args, is_finite)
    return tape.end(tape.run(program, tape.inputs, CallSite()))


def _count_steps(program: ClosedJaxpr) -> int:
    """Count the steps of a program, at least one; loops inside as often as they run."""
    total = 1
    for eqn in program.jaxpr.eqns:
        inner = sum(map(_count_steps, inner_jaxprs(eqn)))
        total += max(1, inner) * (eqn.params["length"] if eqn.primitive.name == "scan" else 1)
    return total


def rule_name(step: Step) -> str:
    """Name the function whose own derivative rule a step has; empty where it has none."""
    if step.eqn is None or step.primitive not in RULED_CALLS:
        return ""
    return step.eqn.params.get("name") or called_name(step.eqn) or step.primitive


def _is_mask(value: Any) -> bool:
    return jnp.result_type(value) == np.bool_


def is_inexact(value: Any) -> bool:
    """Tell whether a value is of real or complex numbers."""
    return jnp.issubdtype(jnp.result_type(value), np.inexact)


def all_finite(value: Any) -> bool:
    """Tell whether all elements are finite."""
    return bool(np.all(np.isfinite(as_numpy(value))))


def as_numpy(value: Any) -> np.ndarray:
    """Return a value as an array on which `np.isfinite` works."""
    array = np.asarray(value)
    return array if array.dtype.kind in "fciub" else array.astype(np.float32)
