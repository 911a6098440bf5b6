"""What makes a derivative finite: each proposal is run before it is made."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from ... import primitives
from ._explanation import Cure, Operation, Origin
from ._leaks import Leak, used_kind
from ._problem import ModeResult, Problem, differentiate
from ._rewriting import rewritten
from ._source_text import (
    Choice,
    assigned_at,
    branch_text,
    choice_at,
    fresh_name,
    names_in,
    operation_text,
    operation_with,
)
from ._sweeps import Patch, Sweep, run_patched
from ._tape import Tape, all_finite, as_numpy

_FILLS = (1.0, 0.5, 2.0)


class ExplainedLeak(NamedTuple):
    """A leak as it is shown."""

    leak: Leak
    origin: Origin
    dropped_by: Operation | None


@dataclass(frozen=True, eq=False)
class Trial:
    """Runs changed programs: those with the same value and a finite derivative are cures."""

    problem: Problem
    tape: Tape
    mode: str

    def run_patched(self, patches: Mapping[int, Patch]) -> ModeResult | None:
        """Run the program with some steps changed; None unless that is a cure."""
        if not patches:
            return None
        return self._accepted(run_patched(self.tape, patches, self.mode))

    def run(self, function: Callable[..., list[Any]]) -> ModeResult | None:
        """Run another function of the inputs; None unless that is a cure."""
        try:
            return self._accepted(differentiate(function, self.problem.inputs, self.mode))
        except Exception:  # whatever the changed function raises, it is no cure
            return None

    def _accepted(self, answer: ModeResult) -> ModeResult | None:
        tape = self.tape
        values = [as_numpy(tape.values[place]) for place in tape.outputs]
        same = len(values) == len(answer.values) and all(
            a.shape == b.shape and np.allclose(a, b, rtol=1e-5, atol=0, equal_nan=True)
            for a, b in zip(values, answer.values, strict=True)
        )
        return answer if same and answer.finite else None

    def cure(self, text: str, answer: ModeResult) -> Cure:
        """Make a cure of what was run."""
        return Cure(text, True, self.problem.arranged(self.mode, answer.derivative))


def settle(trial: Trial, leaks: Sequence[Leak]) -> tuple[list[Leak], ModeResult | None]:
    """Run the program with all patches, and decide about the leaks that are only likely.

    Returns:
        The leaks, none of the kind `"maybe"`; and the answer of the patched program where its
        value is the same and its derivative finite, else None.
    """
    answer = _run_all_patches(trial, leaks)
    if answer is None and any(leak.kind == "maybe" for leak in leaks):
        leaks = [_used(trial.tape, x) if x.kind == "maybe" else x for x in leaks]
        answer = _run_all_patches(trial, leaks)
    return [replace(x, kind="leak") if x.kind == "maybe" else x for x in leaks], answer


def _used(tape: Tape, leak: Leak) -> Leak:
    kind = used_kind(tape.steps[leak.step], leak.partial, leak.mask)
    return replace(leak, kind=kind, patch=None)


def _run_all_patches(trial: Trial, leaks: Sequence[Leak]) -> ModeResult | None:
    tape = trial.tape
    patches = {leak.step: leak.patch for leak in leaks if leak.patch is not None}
    answer = trial.run_patched(patches)
    if answer is None:
        return None
    # With the old numbers put back, the derivative must not change: it would if the results
    # that the patch changed were factors of something that moves. NaN was none: the value has none.
    restoring = {
        i: replace(patch, restore=True)
        for i, patch in patches.items()
        if all(_can_restore(tape.values[p], patch.mask) for p in tape.steps[i].outputs)
    }
    again = trial.run_patched({**patches, **restoring})
    same = again is not None and all(
        np.allclose(a, b, rtol=1e-5, atol=1e-30)
        for a, b in zip(answer.derivative, again.derivative, strict=True)
    )
    return answer if same else None


def _can_restore(value: Any, mask: np.ndarray) -> bool:
    value = as_numpy(value)
    return value.shape == mask.shape and not np.isnan(value[mask]).any()


def find_cures(
    trial: Trial, explained: Sequence[ExplainedLeak], answer: ModeResult | None, infinite: bool
) -> tuple[Cure, ...]:
    """List what to do, the smallest change first.

    Args:
        trial: runs what is proposed.
        explained: the leaks.
        answer: that of the patched program, see `settle`.
        infinite: whether the derivative of the whole is infinite somewhere, and not only nan.
    """
    cures: list[Cure] = []
    if answer is not None:
        choices = [_choice(trial, leak) for leak, _, _ in explained]
        if len(explained) == 1 and choices[0] is not None:
            cures += _cond_cure(trial, explained[0], choices[0])
        cures.append(trial.cure(_where_texts(explained, choices), answer))
    kinds = {leak.kind for leak, _, _ in explained}
    # 0 times infinity as a product of moving factors, or what is infinite: 0 would be wrong.
    # A rule that is wrong itself would become finite, and stay wrong.
    if kinds <= {"leak", "overflow"}:
        cures += _strong_zero_cure(trial)
    if not cures and kinds <= {"leak", "infinite"} and "infinite" in kinds and not infinite:
        cures += _constant_cure(trial, explained)
    return tuple(sorted(cures, key=lambda cure: not cure.verified))


def _choice(trial: Trial, leak: Leak) -> Choice | None:
    if leak.drop is None:
        return None
    step = trial.tape.steps[leak.drop[0]]
    return choice_at(step.line, step.primitive, leak.drop[1])


def _cond_cure(trial: Trial, explained: ExplainedLeak, choice: Choice) -> Iterator[Cure]:
    """Propose `pb.cond` for a `where`, and run the function with it where that is possible."""
    _, origin, drop = explained
    names = names_in(choice.part)
    inside = choice.holds(origin.operation.location)
    if drop is None or choice.other is None or not names or not inside:
        return
    part, other = branch_text(choice.part, names), branch_text(choice.other, names)
    branches = (other, part) if choice.flipped else (part, other)
    new = f"pb.cond({choice.condition}, {', '.join([*branches, *names])})"
    changed = rewritten(trial.problem.f, drop.location, choice.text, new)
    if changed is None:
        # The line is in a function that is called from elsewhere. A branch of `pb.cond` must
        # be elementwise where the condition is an array; only a call tells.
        return
    answer = trial.run(trial.problem.flat(changed))
    if answer is not None:
        yield trial.cure(f"Replace `{choice.text}`{_at(drop)} by `{new}`", answer)


def _where_texts(explained: Sequence[ExplainedLeak], choices: Sequence[Choice | None]) -> str:
    """Write what changes, and what becomes of the condition.

    A condition on what the change itself makes another number would choose otherwise then.
    """
    changed = {
        choice.keep: choice
        for choice, (_, origin, _) in zip(choices, explained, strict=True)
        if choice is not None and assigned_at(origin.operation.location) & choice.names
    }
    texts = "\n     and: ".join(
        dict.fromkeys(
            _where_text(leak, choice, choice is not None and choice.keep in changed)
            for leak, choice in zip(explained, choices, strict=True)
        )
    )
    ends = [
        f"let `{'~' * choice.flipped}used` choose in `{choice.text}`" for choice in changed.values()
    ]
    return f"{texts}; {' and '.join(ends) or 'keep what chooses as it is'}"


def _where_text(explained: ExplainedLeak, choice: Choice | None, changes: bool) -> str:
    """Write the double where in the user's own words, as far as these are known.

    Args:
        explained: the leak.
        choice: what leaves its result out.
        changes: whether the condition of that would be another one then.
    """
    leak, operation = explained.leak, explained.origin.operation
    number = leak.patch.operand if leak.patch else leak.operand
    fill = leak.patch.fill if leak.patch else 1.0
    text, operand = operation_text(operation.location, operation.primitive, number)
    # On another line the names of the condition may mean something else, or nothing yet.
    keep, meaning = "used", ", where `used` is True in the elements whose result is used"
    if changes:
        meaning += ", found before this line"
    elif choice is not None and choice.holds(operation.location):
        keep, meaning = choice.keep, ""
    elif choice is not None:
        meaning += f" (those that `{choice.text}` takes)"
    name = operand or fresh_name(operation.location, "operand", "its_operand")
    inner = f"`jnp.where({keep}, {name}, {fill})`"
    if operand:
        change = f"In `{text}`{_at(operation)} put {inner} for `{operand}`"
    else:
        given = f"Give {operation.name}{_at(operation)}"
        change = f"{given} the operand {inner} in the place of its own, `{name}`"
    return f"{change}{meaning}"


def _strong_zero_cure(trial: Trial) -> Iterator[Cure]:
    problem = trial.problem
    answer = trial.run(lambda *xs: primitives.strong_zero(problem.flat(problem.f))(*xs))
    if answer is not None:
        yield trial.cure(f"Use `pb.strong_zero({problem.name})` for the function", answer)


def _constant_cure(trial: Trial, explained: Sequence[ExplainedLeak]) -> Iterator[Cure]:
    """Propose a derivative of zero where an infinite one meets a zero, as for a norm at 0."""
    tape = trial.tape
    patches: dict[int, Patch] = {}
    for leak, _, _ in explained:
        step = tape.steps[leak.step]
        if leak.kind == "leak" and leak.patch is not None:
            patches[leak.step] = leak.patch
            continue
        if {np.shape(tape.values[place]) for place in step.outputs} != {leak.mask.shape}:
            return
        ones = [np.ones_like(as_numpy(tape.values[place])) for place in step.outputs]
        for fill in _FILLS:
            patch = Patch(leak.operand, leak.mask, fill, restore=True)
            operands = patch.apply(tape.inputs_of(step))
            partials = Sweep(tape, "reverse", {}).carry(step, ones, operands)
            if all(all_finite(partial[leak.mask]) for partial in partials.values()):
                patches[leak.step] = patch
                break
    answer = trial.run_patched(patches)
    if answer is not None:
        leak, origin = next((leak, origin) for leak, origin, _ in explained if leak.kind != "leak")
        active = [tape.active[place] for place in tape.steps[leak.step].inputs]
        text = _constant_text(origin, leak.operand, active, patches[leak.step].fill)
        yield trial.cure(text, answer)


def _constant_text(origin: Origin, operand: int, active: Sequence[bool], fill: float) -> str:
    """Write a derivative of zero at one point in the user's own words, as far as they are known."""
    operation, points = origin.operation, origin.operands
    source = operation.location, operation.primitive
    ok = fresh_name(operation.location, "ok", "is_smooth", "has_slope")
    if operation.function == "norm" and (norm := _norm_text(operation, ok)):
        return _zero_derivative_text(operation, *norm)
    names = {k: operation_text(*source, k)[1] for k, moves in enumerate(active) if moves}
    meaning = call = ""
    if not all(names.values()):
        letter = fresh_name(operation.location, "x", "operand", "its_operand")
        names = {k: f"{letter}{k}" if len(names) > 1 else letter for k in names}
        named = " and ".join(f"`{name}`" for name in names.values())
        of = f"the operand of its {operation.primitive}" if operation.function else "its operand"
        meaning = f" and {named} for {of}{'s' if len(names) > 1 else ''}"
    inner = f"jnp.where({ok}, {names[operand]}, {fill})"
    if not meaning:
        call = operation_with(*source, operand, inner)
    if not call:
        safe = (inner if k == operand else names.get(k, "...") for k in range(len(points)))
        call = f"{operation.primitive}({', '.join(safe)})"
    # With one operand more that moves, the point is where all of them have these values.
    # One number may be both operands: x ** x.
    off = list(dict.fromkeys(f"{name} != {_literal(points[k])}" for k, name in names.items()))
    condition = off[0] if len(off) == 1 else " | ".join(f"({part})" for part in off)
    safe_call = f"jnp.where({ok}, {call}, {_literal(origin.value)})"
    return _zero_derivative_text(operation, safe_call, f"{ok} = {condition}", meaning)


def _norm_text(operation: Operation, ok: str) -> tuple[str, str] | None:
    """Write a norm that has the derivative 0 at 0; None where it is taken along an axis."""
    source = operation.location, operation.function
    operand = operation_text(*source)[1]
    inside = operation_with(*source, 0, f"jnp.where({ok}, {operand}, 1.0)") if operand else ""
    if not inside or operation.text.count(",") != operand.count(","):
        return None
    return f"jnp.where({ok}, {inside}, 0.0)", f"{ok} = jnp.any({operand} != 0.0)"


def _zero_derivative_text(
    operation: Operation, call: str, condition: str, meaning: str = ""
) -> str:
    return (
        f"Choose 0 as the derivative there: for {operation.name}{_at(operation)} write "
        f"`{call}` with `{condition}`{meaning}. The one-sided derivatives may be others"
    )


def _at(operation: Operation) -> str:
    return f" at {operation.location}" if operation.location else ""


def _literal(value: Any) -> str:
    return str(value.item()) if hasattr(value, "item") and np.ndim(value) == 0 else str(value)
