"""Walk along a tape and find the steps where a finite derivative becomes NaN or infinite."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...jaxprs import ELEMENTWISE, RULED_CALLS, SELECTING
from ._step_derivatives import Local, Patch
from ._tape import Step, Tape, all_finite, as_numpy, is_inexact

_ELEMENTWISE = ELEMENTWISE.union(RULED_CALLS)
# What stands in for an operand whose result is not used. Not every function likes a one:
# the derivative of arccos is infinite there.
_FILLS = (1.0, 0.5, 2.0, 0.0)


@dataclass(frozen=True, eq=False)
class Leak:
    """A step at which a finite derivative stops being finite.

    Attributes:
        step: its number.
        operand: the input whose partial derivative is not finite.
        mask: in which elements (of that input; in forward mode of the result).
        kind: `"leak"`: the result is not used there; `"maybe"`: the same is likely, but only
            running the program again can tell; `"product"`: it meets a factor that is 0 here
            and moves as well; `"infinite"`: it is used; `"overflow"`: the partial derivative
            is finite, and a product or a sum is too large; `"rule"`: a custom rule gives NaN
            although its result is used.
        partial: the partial derivatives, in the shape of the mask.
        patch: a change that makes the derivative finite; None where there is none.
        drop: the step that does not use the elements, and its input; None if not found.
    """

    step: int
    operand: int
    mask: np.ndarray
    kind: str
    partial: np.ndarray
    patch: Patch | None = None
    drop: tuple[int, int] | None = None


def reverse_walk(tape: Tape, local: Local) -> tuple[list[Leak], dict[int, np.ndarray]]:
    """Pull ones back from the results, mending the derivative wherever it breaks.

    Returns:
        The breaks, in the order of the pass, which is from the end of the program; and the
        cotangents by place.
    """
    cts: dict[int, np.ndarray] = {}
    leaks: list[Leak] = []
    for place in tape.outputs:
        cts[place] = cts.get(place, 0) + np.ones_like(as_numpy(tape.values[place]))
    for i in range(len(tape.steps))[::-1]:
        step = tape.steps[i]
        given = [cts.get(place) for place in step.outputs]
        if all(ct is None for ct in given) or not local.is_active(step):
            continue
        pulled = local.vjp(step, given)
        ins = {k: as_numpy(ct) for k, ct in pulled.items()}
        if not step.glue and not all(map(all_finite, ins.values())):
            found, ins = _mend_reverse(tape, local, i, given, ins)
            leaks += found
        for k, ct in ins.items():
            place = step.inputs[k]
            total = cts.get(place, 0) + ct
            if all_finite(ct) and not all_finite(total):
                leaks.append(Leak(i, k, ~np.isfinite(total), "overflow", np.asarray(total)))
                total = ct
            cts[place] = total
    return leaks, cts


def forward_walk(tape: Tape, local: Local, cts: dict[int, np.ndarray]) -> list[Leak]:
    """Push ones through from the inputs, mending the derivative wherever it breaks.

    Args:
        tape: the tape.
        local: differentiates its steps.
        cts: the cotangents of a reverse walk; they tell which elements are used.

    Returns:
        The breaks that reach a result, in the order of the program.
    """
    tangents = {place: np.ones_like(as_numpy(tape.values[place])) for place in tape.inputs}
    leaks: list[Leak] = []
    for i, step in enumerate(tape.steps):
        given = [tangents.get(place) for place in step.inputs]
        if all(tangent is None for tangent in given) or not local.is_active(step):
            continue
        outs = {k: as_numpy(t) for k, t in local.jvp(step, given).items()}
        if not step.glue and not all(map(all_finite, outs.values())):
            found, outs = _mend_forward(tape, local, i, given, outs, cts)
            leaks += [leak for leak in found if _reaches_result(tape, local, leak)]
        for k, tangent in outs.items():
            if tape.active[step.outputs[k]]:
                tangents[step.outputs[k]] = tangent
    return leaks


def _mend_reverse(
    tape: Tape, local: Local, i: int, given: list[Any], ins: dict[int, np.ndarray]
) -> tuple[list[Leak], dict[int, np.ndarray]]:
    """Find out why a step's cotangents are not finite, and make them so."""
    step = tape.steps[i]
    bad = {k: ~np.isfinite(ct) for k, ct in ins.items() if not all_finite(ct)}
    ones = [None if ct is None else np.ones_like(ct) for ct in given]
    partials = {k: as_numpy(ct) for k, ct in local.vjp(step, ones).items()}
    shapes = {mask.shape for mask in bad.values()}
    lanes = _zero_lanes(tape, step, given) if len(shapes) == 1 else None
    unused = {k: _unused(lanes, given, mask) for k, mask in bad.items()}
    patch, mended = None, ins
    whole = lanes is None or lanes.shape not in shapes
    for candidate in _patches(tape, step, unused if not whole else bad, whole):
        again = local.vjp(step, given, candidate.apply(tape.inputs_of(step)))
        again = {k: as_numpy(ct) for k, ct in again.items()}
        if all(np.isfinite(again[k][bad[k] if whole else unused[k]]).all() for k in bad):
            patch, mended = candidate, again
            break
    leaks = []
    for k, mask in bad.items():
        found = [(mask & unused[k], "leak"), (mask & ~unused[k], _why(step, partials[k], mask))]
        if whole and patch is not None and not unused[k].all():
            found = [(mask, "maybe")]
        for part, kind in found:
            if part.any():
                fix = patch if kind in ("leak", "maybe") else None
                leaks.append(Leak(i, k, part, kind, partials[k], fix))
    return leaks, {k: np.where(np.isfinite(ct), ct, 1.0) for k, ct in mended.items()}


def _mend_forward(
    tape: Tape,
    local: Local,
    i: int,
    given: list[Any],
    outs: dict[int, np.ndarray],
    cts: dict[int, np.ndarray],
) -> tuple[list[Leak], dict[int, np.ndarray]]:
    """Do the same for tangents."""
    step = tape.steps[i]
    k, out = next((k, out) for k, out in outs.items() if not all_finite(out))
    mask = ~np.isfinite(out)
    ones = [None if t is None else np.ones_like(t) for t in given]
    partial = as_numpy(local.jvp(step, ones)[k])
    ct = cts.get(step.outputs[k])
    unused = mask & (ct == 0) if ct is not None else mask
    operand = next(j for j, t in enumerate(given) if t is not None)
    leaks, mended = [], outs
    if unused.any():
        patch = None
        alike = {j: unused for j, t in enumerate(given) if np.shape(t) == unused.shape}
        for candidate in _patches(tape, step, alike, False):
            again = local.jvp(step, given, candidate.apply(tape.inputs_of(step)))
            again = {j: as_numpy(t) for j, t in again.items()}
            if np.isfinite(again[k][unused]).all():
                patch, mended = candidate, again
                break
        leaks.append(Leak(i, operand, unused, "leak", partial, patch))
    if (mask & ~unused).any():
        kind = _why(step, partial, mask & ~unused)
        leaks.append(Leak(i, operand, mask & ~unused, kind, partial))
    return leaks, {j: np.where(np.isfinite(t), t, 1.0) for j, t in mended.items()}


def find_drop(tape: Tape, local: Local, leak: Leak) -> tuple[int, int] | None:
    """Find the step that does not use the elements of a leak: its derivative there is zero.

    Returns:
        The number of the step, and which of its inputs holds the elements.
    """
    for j, step, flow, outs in _follow(tape, local, leak, 1.0):
        alive = {k: out != 0 for k, out in outs.items()}  # NaN differs from zero as well
        entry = next(k for k, mask in enumerate(flow) if mask is not None and mask.any())
        if not any(mask.any() for mask in alive.values()):
            return j, entry
        entering = flow[entry] != 0
        for mask in alive.values():
            if step.primitive in _ELEMENTWISE and mask.shape == entering.shape:
                if (entering & ~mask).any():
                    return j, entry
    return None


def is_structural(tape: Tape, drop: tuple[int, int]) -> bool:
    """Tell whether a step leaves elements out whatever the differentiated values are.

    A `where`, an index, a constant factor of 0 do. In `sqrt(x) ** 2` at 0 it is a derivative
    that happens to be 0, and 0 times infinity stands for something else: here for 1.
    """
    step = tape.steps[drop[0]]
    if step.primitive in SELECTING:
        return True
    others = [place for k, place in enumerate(step.inputs) if k != drop[1]]
    return step.primitive in ("mul", "dot_general") and not any(tape.active[p] for p in others)


def reaches_inputs(tape: Tape, local: Local, leaks: Sequence[Leak]) -> bool:
    """Tell whether NaN in the cotangents at some leaks becomes NaN in the gradient.

    It does not where an earlier `where` chooses another value, as the rule of `relu` does.
    """
    cts: dict[int, np.ndarray] = {}
    for leak in leaks:
        place = tape.steps[leak.step].inputs[leak.operand]
        cts[place] = cts.get(place, 0) + np.where(leak.mask, np.nan, 0.0)
    for i in range(max(leak.step for leak in leaks))[::-1]:
        step = tape.steps[i]
        given = [cts.get(place) for place in step.outputs]
        if local.is_active(step) and any(ct is not None and np.any(ct != 0) for ct in given):
            for k, ct in local.vjp(step, given).items():
                # Only what was nan counts: a partial that is infinite is a leak of its own.
                flow = np.where(np.isnan(as_numpy(ct)), np.nan, 0.0)
                cts[step.inputs[k]] = cts.get(step.inputs[k], 0) + flow
    return any(np.isnan(cts[place]).any() for place in tape.inputs if place in cts)


def _reaches_result(tape: Tape, local: Local, leak: Leak) -> bool:
    """Tell whether NaN in the tangent of a step's result becomes NaN in the program's."""
    reached = set(tape.steps[leak.step].outputs) & set(tape.outputs)
    for _, step, _, outs in _follow(tape, local, leak, np.nan):
        reached |= {
            step.outputs[k]
            for k, out in outs.items()
            if step.outputs[k] in tape.outputs and not all_finite(out)
        }
    return bool(reached)


def _follow(
    tape: Tape, local: Local, leak: Leak, tangent: float
) -> Iterator[tuple[int, Step, list[Any], dict[int, np.ndarray]]]:
    """Push a tangent in the leak's elements, and zeros elsewhere, through the later steps."""
    flow: dict[int, np.ndarray] = {}
    for place in tape.steps[leak.step].outputs:
        shape = np.shape(tape.values[place])
        mask = leak.mask if leak.mask.shape == shape else np.ones(shape, bool)
        flow[place] = np.where(mask, tangent, 0.0)
    for j in range(leak.step + 1, len(tape.steps)):
        step = tape.steps[j]
        given = [flow.get(place) for place in step.inputs]
        moving = [x for k, x in enumerate(given) if tape.active[step.inputs[k]]]
        if not any(x is not None and (x != 0).any() for x in moving):
            continue
        kept = [place for place in step.outputs if is_inexact(tape.values[place])]
        if not kept:
            continue
        outs = {k: as_numpy(out) for k, out in local.jvp(step, given).items()}
        if not np.isnan(tangent) and step.primitive in _ELEMENTWISE:
            outs = {k: _carried(tape, step, given, k, out) for k, out in outs.items()}
        if not step.glue:
            yield j, step, given, outs
        for k, out in outs.items():
            if tape.active[step.outputs[k]]:
                flow[step.outputs[k]] = out if np.isnan(tangent) else (out != 0) * tangent


def _carried(tape: Tape, step: Step, given: list[Any], k: int, out: np.ndarray) -> np.ndarray:
    """Let what is infinite flow on, whatever its derivative: log(inf) does not hide an inf."""
    value = as_numpy(tape.values[step.outputs[k]])
    entering = [x != 0 for x in given if x is not None and np.shape(x) == np.shape(out)]
    if np.shape(value) != np.shape(out) or not entering:
        return out
    return np.where(np.any(entering, axis=0) & ~np.isfinite(value), 1.0, out)


def first_bad_value(tape: Tape) -> int | None:
    """Find the step from which the NaN, or else the infinity, in the result comes.

    Returns:
        The number of the step, or of the one that uses a constant that is not finite; None
        where an argument is not finite already.
    """
    made_by = {place: i for i, step in enumerate(tape.steps) for place in step.outputs}
    values = {place: as_numpy(tape.values[place]) for place in tape.outputs}
    place = min(
        (p for p in tape.outputs if not all_finite(values[p])),
        key=lambda p: not np.isnan(values[p]).any(),
    )
    lanes, i = ~np.isfinite(values[place]), None
    while place in made_by:
        i = made_by[place]
        step, nan = tape.steps[i], np.isnan(as_numpy(tape.values[place])[lanes]).any()
        before = _source_of(tape, step, lanes, nan)
        if before is None:
            return i
        place, lanes = before
    return None if place in tape.inputs else i


def _source_of(
    tape: Tape, step: Step, lanes: np.ndarray, nan: Any
) -> tuple[int, np.ndarray] | None:
    """Find the operand with the NaN (or infinity) that a step passed on."""
    for k, place in enumerate(step.inputs):
        if not is_inexact(tape.values[place]):
            continue
        value = as_numpy(tape.values[place])
        bad = np.isnan(value) if nan else ~np.isfinite(value)
        if step.primitive == "select_n" and value.shape == lanes.shape:
            bad = bad & (np.asarray(tape.values[step.inputs[0]]).astype(int) == k - 1)
        if step.primitive in _ELEMENTWISE and value.shape == lanes.shape:
            bad = bad & lanes
        if bad.any():
            return place, bad
    return None


def _zero_lanes(tape: Tape, step: Step, given: list[Any]) -> np.ndarray | None:
    """Tell in which elements no cotangent comes in; None where a step mixes elements."""
    shapes = {np.shape(tape.values[place]) for place in step.outputs}
    if step.primitive not in _ELEMENTWISE or len(shapes) != 1:
        return None
    return np.all([np.zeros(next(iter(shapes))) if c is None else c == 0 for c in given], axis=0)


def _unused(lanes: np.ndarray | None, given: list[Any], mask: np.ndarray) -> np.ndarray:
    if lanes is not None and lanes.shape == mask.shape:
        return lanes & mask
    nothing = all(ct is None or not np.any(ct) for ct in given)
    return mask & nothing


def _patches(tape: Tape, step: Step, masks: dict[int, np.ndarray], whole: bool) -> Iterator[Patch]:
    """List changes to try: each operand, replaced where its result is not used."""
    union = np.any(list(masks.values()), axis=0) if masks and not whole else None
    for k, place in enumerate(step.inputs):
        value = tape.values[place]
        if not is_inexact(value):
            continue
        if union is not None and np.shape(value) == union.shape:
            mask = union
        else:
            mask = ~np.isfinite(as_numpy(value)) | masks.get(k, np.False_)
        if np.any(mask):
            for fill in _FILLS:
                yield Patch(k, np.asarray(mask), fill)


def _why(step: Step, partial: np.ndarray, mask: np.ndarray) -> str:
    if partial.shape == mask.shape and np.isfinite(partial[mask]).all():
        return "overflow"
    return "rule" if step.rule and np.isnan(partial).any() else "infinite"
