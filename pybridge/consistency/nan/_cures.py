"""What makes a derivative finite: each proposal is run before it is made."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ._explanation import Cure, Operation, Origin
from ._problem import ModeResult, Problem, forward_of, reverse_of
from ._rewriting import rewritten
from ._source_text import (
    Choice,
    branch_text,
    choice_at,
    fresh_name,
    names_in,
    operation_text,
    operation_with,
)
from ._step_derivatives import Local, Patch, run_patched
from ._tape import Tape, all_finite, as_numpy
from ._walk import Leak

_FILLS = (1.0, 0.5, 2.0)


def settle(
    tape: Tape, local: Local, leaks: Sequence[Leak], mode: str
) -> tuple[list[Leak], ModeResult | None]:
    """Run the program with all patches, and decide about the leaks that are only likely.

    Returns:
        The leaks, none of the kind `"maybe"`; and the answer of the patched program where its
        value is the same and its derivative finite, else None.
    """
    answer = _patched(tape, local, leaks, mode)
    if answer is None and any(leak.kind == "maybe" for leak in leaks):
        leaks = [
            replace(leak, kind="infinite", patch=None) if leak.kind == "maybe" else leak
            for leak in leaks
        ]
        answer = _patched(tape, local, leaks, mode)
    leaks = [replace(leak, kind="leak") if leak.kind == "maybe" else leak for leak in leaks]
    return leaks, answer


def find_cures(
    problem: Problem,
    tape: Tape,
    local: Local,
    found: Sequence[tuple[Leak, Origin, Operation | None]],
    answer: ModeResult | None,
    mode: str,
    infinite: bool,
) -> tuple[Cure, ...]:
    """List what to do, the smallest change first.

    Args:
        problem: the function and the point.
        tape: its steps.
        local: differentiates them.
        found: the leaks, as they are shown.
        answer: that of the patched program, see `settle`.
        mode: `"reverse"` or `"forward"`.
        infinite: whether the derivative of the whole is infinite somewhere, and not only nan.
    """
    cures: list[Cure] = []
    choices = [_choice(tape, leak) for leak, _, _ in found]
    if answer is not None:
        if len(found) == 1 and choices[0] is not None:
            cures += _cond_cure(problem, tape, found[0][1], found[0][2], choices[0], mode)
        texts = [_where_text(x[0], x[1], c) for x, c in zip(found, choices, strict=True)]
        derivative = problem.arranged(mode, answer.derivative)
        cures.append(Cure("\n     and: ".join(texts), True, derivative))
    kinds = {leak.kind for leak, _, _ in found}
    # 0 times infinity as a product of moving factors, or what is infinite: 0 would be wrong.
    # A rule that is wrong itself would become finite, and stay wrong.
    if kinds <= {"leak", "overflow"}:
        cures += _strong_zero_cure(problem, tape, mode)
    if not cures and kinds <= {"leak", "infinite"} and "infinite" in kinds and not infinite:
        cures += _constant_cure(problem, tape, local, found, mode)
    return tuple(sorted(cures, key=lambda cure: not cure.verified))


def _patched(tape: Tape, local: Local, leaks: Sequence[Leak], mode: str) -> ModeResult | None:
    patches = {leak.step: leak.patch for leak in leaks if leak.patch is not None}
    answer = _tried(tape, local, patches, mode)
    if answer is None:
        return None
    # With the old numbers put back, the derivative must not change: it would if the results
    # that the patch changed were factors of something that moves.
    back = {i: replace(p, restore=True) for i, p in patches.items() if _restores(tape, i, p)}
    again = _tried(tape, local, {**patches, **back}, mode)
    pairs = zip(answer.derivative, again.derivative if again else (), strict=False)
    same = again is not None and all(np.allclose(a, b, rtol=1e-5, atol=1e-30) for a, b in pairs)
    return answer if same else None


def _restores(tape: Tape, i: int, patch: Patch) -> bool:
    return all(np.shape(tape.values[p]) == patch.mask.shape for p in tape.steps[i].outputs)


def _tried(tape: Tape, local: Local, patches: Mapping[int, Patch], mode: str) -> ModeResult | None:
    """Run the program with patches; None unless they are a cure."""
    return (
        _accepted(tape, ModeResult(*run_patched(tape, local, patches, mode))) if patches else None
    )


def _run(
    problem: Problem, tape: Tape, function: Callable[..., list[Any]], mode: str
) -> ModeResult | None:
    """Differentiate another function; None unless it is a cure."""
    derive = reverse_of if mode == "reverse" else forward_of
    return _accepted(tape, derive(function, problem.inputs))


def _accepted(tape: Tape, answer: ModeResult) -> ModeResult | None:
    values = [as_numpy(tape.values[place]) for place in tape.outputs]
    same = len(values) == len(answer.values) and all(
        a.shape == b.shape and np.allclose(a, b, rtol=1e-5, atol=0, equal_nan=True)
        for a, b in zip(values, answer.values, strict=True)
    )
    return answer if same and answer.finite else None


def _choice(tape: Tape, leak: Leak) -> Choice | None:
    if leak.drop is None:
        return None
    step = tape.steps[leak.drop[0]]
    return choice_at(step.location, step.primitive, leak.drop[1])


def _cond_cure(
    problem: Problem,
    tape: Tape,
    origin: Origin,
    drop: Operation | None,
    choice: Choice,
    mode: str,
) -> Iterator[Cure]:
    """Propose `pb.cond` for a `where`, and run the function with it where that is possible."""
    names = names_in(choice.part)
    inside = choice.holds(origin.operation.location)
    if drop is None or choice.other is None or not names or not inside:
        return
    part, other = branch_text(choice.part, names), branch_text(choice.other, names)
    branches = (other, part) if choice.flipped else (part, other)
    new = f"pb.cond({choice.condition}, {', '.join([*branches, *names])})"
    where = f" at {drop.location}" if drop.location else ""
    text = f"Replace `{choice.text}`{where} by `{new}`"
    changed = rewritten(problem.f, drop.location, choice.text, new)
    if changed is None:
        # The line is in a function that is called from elsewhere. A branch of `pb.cond` must
        # be elementwise where the condition is an array; only a call tells.
        return
    try:
        answer = _run(problem, tape, problem.flat(changed), mode)
    except Exception:  # whatever the changed function raises, it is no cure
        return
    if answer is not None:
        yield Cure(text, True, problem.arranged(mode, answer.derivative))


def _where_text(leak: Leak, origin: Origin, choice: Choice | None) -> str:
    """Write the double where in the user's own words, as far as these are known."""
    operation = origin.operation
    where = f" at {operation.location}" if operation.location else ""
    number = leak.patch.operand if leak.patch else leak.operand
    fill = leak.patch.fill if leak.patch else 1.0
    text, operand = operation_text(operation.location, operation.primitive, number)
    # On another line the names of the condition may mean something else, or nothing yet.
    keep, meaning = "used", ", where `used` is True in the elements whose result is used"
    if choice is not None and choice.holds(operation.location):
        keep, meaning = choice.keep, ""
    elif choice is not None:
        meaning += f" (those that `{choice.text}` takes)"
    inner = f"`jnp.where({keep}, {operand or 'x'}, {fill})`"
    if operand:
        change = f"In `{text}`{where} put {inner} for `{operand}`"
    else:
        change = f"Give {operation.name}{where} the operand {inner} instead of its operand `x`"
    return f"{change}{meaning}; keep what chooses as it is"


def _strong_zero_cure(problem: Problem, tape: Tape, mode: str) -> Iterator[Cure]:
    """Run `pb.strong_zero`, if this installation has it."""
    try:
        from ...primitives import strong_zero  # type: ignore

        function = strong_zero(problem.flat(problem.f))
        answer = _run(problem, tape, function, mode)
    except Exception:  # it may refuse what `jax.grad` takes, and then it is no cure
        return
    if answer is not None:
        derivative = problem.arranged(mode, answer.derivative)
        yield Cure(f"Use `pb.strong_zero({problem.name})` for the function", True, derivative)


def _constant_cure(
    problem: Problem,
    tape: Tape,
    local: Local,
    found: Sequence[tuple[Leak, Origin, Operation | None]],
    mode: str,
) -> Iterator[Cure]:
    """Propose a derivative of zero where an infinite one meets a zero, as for a norm at 0."""
    patches: dict[int, Patch] = {}
    for leak, _, _ in found:
        step = tape.steps[leak.step]
        if leak.kind == "leak" and leak.patch is not None:
            patches[leak.step] = leak.patch
            continue
        shapes = {np.shape(tape.values[place]) for place in step.outputs}
        if shapes != {leak.mask.shape}:
            return
        for fill in _FILLS:
            patch = Patch(leak.operand, leak.mask, fill, restore=True)
            ones = [np.ones_like(as_numpy(tape.values[place])) for place in step.outputs]
            partials = local.vjp(step, ones, patch.apply(tape.inputs_of(step)))
            if all(all_finite(as_numpy(partial)[leak.mask]) for partial in partials.values()):
                patches[leak.step] = patch
                break
    answer = _tried(tape, local, patches, mode)
    if answer is None:
        return
    leak, origin = next((leak, origin) for leak, origin, _ in found if leak.kind != "leak")
    active = [tape.active[place] for place in tape.steps[leak.step].inputs]
    text = _constant_text(origin, leak.operand, active, patches[leak.step].fill)
    yield Cure(text, True, problem.arranged(mode, answer.derivative))


def _constant_text(origin: Origin, operand: int, active: Sequence[bool], fill: float) -> str:
    """Write a derivative of zero at one point in the user's own words, as far as they are known."""
    operation, points = origin.operation, origin.operands
    at = operation.location, operation.primitive
    ok = fresh_name(operation.location, "ok", "is_smooth", "has_slope")
    if operation.function == "norm" and (text := _norm_text(operation, ok)):
        return text
    names = [operation_text(*at, number)[1] for number in range(len(points))]
    meaning = ""
    if not all(name for name, moves in zip(names, active, strict=True) if moves):
        letter = fresh_name(operation.location, "x", "operand", "its_operand")
        letters = (f"{letter}{n}" if sum(active) > 1 else letter for n in range(len(points)))
        names = [x if moves else "..." for x, moves in zip(letters, active, strict=True)]
        named = " and ".join(f"`{x}`" for x, moves in zip(names, active, strict=True) if moves)
        of = f"the operand of its {operation.primitive}" if operation.function else "its operand"
        meaning = f" and {named} for {of}{'s' if sum(active) > 1 else ''}"
    inner = f"jnp.where({ok}, {names[operand]}, {fill})"
    call = "" if meaning else operation_with(*at, operand, inner)
    safe = (inner if number == operand else name for number, name in enumerate(names))
    call = call or f"{operation.primitive}({', '.join(safe)})"
    # With one operand more that moves, the point is where all of them have these values.
    off = [
        f"{x} != {_literal(point)}"
        for x, point, moves in zip(names, points, active, strict=True)
        if moves
    ]
    condition = off[0] if len(off) == 1 else " | ".join(f"({part})" for part in off)
    where = f" at {operation.location}" if operation.location else ""
    return (
        f"Choose 0 as the derivative there: for {operation.name}{where} write "
        f"`jnp.where({ok}, {call}, {_literal(origin.value)})` with `{ok} = {condition}`{meaning}. "
        "The one-sided derivatives may be others"
    )


def _norm_text(operation: Operation, ok: str) -> str:
    """Write a norm that has the derivative 0 at 0; empty where it is taken along an axis."""
    at = operation.location, operation.function
    operand = operation_text(*at)[1]
    inside = operation_with(*at, 0, f"jnp.where({ok}, {operand}, 1.0)") if operand else ""
    if not inside or operation.text.count(",") != operand.count(","):
        return ""
    where = f" at {operation.location}" if operation.location else ""
    return (
        f"Choose 0 as the derivative there: for {operation.name}{where} write "
        f"`jnp.where({ok}, {inside}, 0.0)` with `{ok} = jnp.any({operand} != 0.0)`. "
        "The one-sided derivatives may be others"
    )


def _literal(value: Any) -> str:
    return str(value.item()) if hasattr(value, "item") and np.ndim(value) == 0 else str(value)
