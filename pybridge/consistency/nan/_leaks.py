"""Find the steps of a tape where a finite derivative becomes NaN or infinite."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...jaxprs import ELEMENTWISE, RULED_CALLS, SELECTING, Step
from ._source_text import operation_text
from ._sweeps import Patch, Sweep
from ._tape import Tape, all_finite, as_numpy, is_inexact, rule_name

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
        partial: the partial tape, in the shape of the mask.
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


def find_leaks(tape: Tape, mode: str) -> list[Leak]:
    """Differentiate step by step, mending the derivative wherever it breaks.

    Returns:
        The breaks in the order of the sweep: in reverse mode from the end of the program, in
        forward mode from its beginning, and only those that reach a result.
    """
    leaks, cotangents = _reverse_leaks(tape)
    return leaks if mode == "reverse" else _forward_leaks(tape, cotangents)


def _reverse_leaks(tape: Tape) -> tuple[list[Leak], dict[int, np.ndarray]]:
    """Pull ones back from the results; also return the cotangents by place."""
    sweep, leaks = Sweep(tape, "reverse"), []
    for i, step, given in sweep.steps():
        ins = sweep.carry(step, given)
        if step.eqn is not None and not all(map(all_finite, ins.values())):
            ins = _mend_reverse(sweep, i, given, ins, leaks)
        for k, ct in ins.items():
            total = sweep.tangents.get(step.inputs[k], 0) + ct
            if all_finite(ct) and not all_finite(total):
                leaks.append(Leak(i, k, ~np.isfinite(total), "overflow", np.asarray(total)))
                del sweep.tangents[step.inputs[k]]
            sweep.add(step, {k: ct})
    return _from_bad_values(sweep, leaks), sweep.tangents


def _from_bad_values(sweep: Sweep, leaks: list[Leak]) -> list[Leak]:
    """Replace leaks in what is made of a bad value by one where that value arises.

    They are replaced where one of them has no patch, as in `div(nan, nan)`, where both operands are
    bad, or where the user did not write it: nobody can change what JAX's own functions do.
    """
    tape = sweep.tape
    unused = {x.step: x.patch for x in leaks if x.kind in ("leak", "maybe")}
    sources = {i: _bad_operands(tape, tape.steps[i]) for i in unused}
    hidden = (i for i, patch in unused.items() if patch is None or not _is_written(tape.steps[i]))
    arisen = set().union(*(sources[i] for i in hidden))
    kept = [leak for leak in leaks if not sources.get(leak.step, set()) & arisen]
    known = {leak.step for leak in kept}
    kept += [leak for i in arisen - known if (leak := _value_leak(sweep, i)) is not None]
    return sorted(kept, key=lambda leak: -leak.step)


def _is_written(step: Step) -> bool:
    return bool(operation_text(step.line, step.primitive)[0])


def _bad_operands(tape: Tape, step: Step) -> set[int]:
    """List the steps in which the operands of a step that are not finite arise."""
    values = {p: as_numpy(tape.values[p]) for p in step.inputs if tape.active[p]}
    arisen = {_source(tape, p) for p, value in values.items() if not all_finite(value)}
    return {i for i in arisen if i is not None}


def _value_leak(sweep: Sweep, i: int) -> Leak | None:
    """Make a leak of a step whose value is not finite; None where no operand mends that."""
    tape, step = sweep.tape, sweep.tape.steps[i]
    ones = [np.ones_like(as_numpy(tape.values[place])) for place in step.outputs]
    mask = ~np.isfinite(as_numpy(tape.values[step.outputs[0]]))
    shapes = {k: np.shape(tape.values[p]) for k, p in enumerate(step.inputs) if tape.active[p]}
    masks = {k: mask if s == mask.shape else np.ones(s, bool) for k, s in shapes.items()}
    for patch in _patches(tape, step, masks, True):
        operands = patch.apply(tape.inputs_of(step))
        if patch.operand in shapes and all(map(all_finite, tape.run_again(step, operands))):
            partial = sweep.carry(step, ones)[patch.operand]
            return Leak(i, patch.operand, patch.mask, "leak", partial, patch)
    return None


def _forward_leaks(tape: Tape, cotangents: Mapping[int, np.ndarray]) -> list[Leak]:
    """Push ones through from the inputs; cotangents tell which elements are used."""
    sweep, leaks = Sweep(tape, "forward"), []
    for i, step, given in sweep.steps():
        outs = sweep.carry(step, given)
        if step.eqn is not None and not all(map(all_finite, outs.values())):
            outs = _mend_forward(sweep, i, given, outs, cotangents, leaks)
        sweep.add(step, outs)
    return [leak for leak in leaks if _reaches_outputs(tape, leak)]


def _mend_reverse(
    sweep: Sweep, i: int, given: list[Any], ins: dict[int, np.ndarray], leaks: list[Leak]
) -> dict[int, np.ndarray]:
    """Note why a step's cotangents are not finite, and make them so."""
    tape, step = sweep.tape, sweep.tape.steps[i]
    bad = {k: ~np.isfinite(ct) for k, ct in ins.items() if not all_finite(ct)}
    partials = sweep.carry(step, _ones(given))
    lanes = _zero_lanes(tape, step, given)
    # Where the step mixes elements, none of them tells whether it is used: all are tried.
    mixes = lanes is None or any(mask.shape != lanes.shape for mask in bad.values())
    if mixes:
        lanes = np.bool_(not any(ct is not None and np.any(ct) for ct in given))
    unused = {k: mask & lanes for k, mask in bad.items()}
    tried = bad if mixes else unused
    patch, mended = None, ins
    for candidate in _patches(tape, step, tried, mixes):
        again = sweep.carry(step, given, candidate.apply(tape.inputs_of(step)))
        if all(all_finite(again[k][mask]) for k, mask in tried.items()):
            patch, mended = candidate, again
            break
    for k, mask in bad.items():
        if mixes and patch is not None and not unused[k].all():
            leaks.append(Leak(i, k, mask, "maybe", partials[k], patch))
            continue
        if unused[k].any():
            leaks.append(Leak(i, k, unused[k], "leak", partials[k], patch))
        if (used := mask & ~unused[k]).any():
            leaks.append(Leak(i, k, used, used_kind(step, partials[k], mask), partials[k]))
    return _finite(mended, unused)


def _mend_forward(
    sweep: Sweep,
    i: int,
    given: list[Any],
    outs: dict[int, np.ndarray],
    cotangents: Mapping[int, np.ndarray],
    leaks: list[Leak],
) -> dict[int, np.ndarray]:
    """Do the same for tangents."""
    tape, step = sweep.tape, sweep.tape.steps[i]
    k, mask = next((k, ~np.isfinite(out)) for k, out in outs.items() if not all_finite(out))
    partial = sweep.carry(step, _ones(given))[k]
    unused = mask & (cotangents.get(step.outputs[k], 0) == 0)
    operand = next(j for j, tangent in enumerate(given) if tangent is not None)
    mended = outs
    if unused.any():
        patch = None
        alike = {j: unused for j, t in enumerate(given) if np.shape(t) == unused.shape}
        for candidate in _patches(tape, step, alike, False):
            again = sweep.carry(step, given, candidate.apply(tape.inputs_of(step)))
            if all_finite(again[k][unused]):
                patch, mended = candidate, again
                break
        leaks.append(Leak(i, operand, unused, "leak", partial, patch))
    if (used := mask & ~unused).any():
        leaks.append(Leak(i, operand, used, used_kind(step, partial, used), partial))
    return _finite(mended, {})


def _ones(tangents: list[Any]) -> list[Any]:
    return [None if tangent is None else np.ones_like(tangent) for tangent in tangents]


def _finite(
    tangents: Mapping[int, np.ndarray], unused: Mapping[int, np.ndarray]
) -> dict[int, np.ndarray]:
    """Put numbers where there are none: 0 where no result is used, as with a finite derivative."""
    stand_ins = {k: np.where(unused.get(k, np.False_), 0.0, 1.0) for k in tangents}
    return {k: np.where(np.isfinite(x), x, stand_ins[k]) for k, x in tangents.items()}


def used_kind(step: Step, partial: np.ndarray, mask: np.ndarray) -> str:
    """Say why a derivative is not finite where it is used."""
    if partial.shape == mask.shape and all_finite(partial[mask]):
        return "overflow"
    return "rule" if rule_name(step) and np.isnan(partial).any() else "infinite"


def _zero_lanes(tape: Tape, step: Step, given: list[Any]) -> np.ndarray | None:
    """Tell in which elements no cotangent comes in; None where a step mixes elements."""
    shapes = {np.shape(tape.values[place]) for place in step.outputs}
    if step.primitive not in _ELEMENTWISE or len(shapes) != 1:
        return None
    return np.all([np.zeros(next(iter(shapes))) if c is None else c == 0 for c in given], axis=0)


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


def find_drop(tape: Tape, leak: Leak) -> tuple[int, int] | None:
    """Find the step that does not use the elements of a leak: its derivative there is zero.

    Returns:
        The number of the step, and which of its inputs holds the elements.
    """
    sweep, stop = _begin_at_result(tape, leak, 1.0), None
    for j, step, given in sweep.steps(leak.step + 1):
        outs = sweep.carry(step, given) if _any_nonzero(given) else {}
        if step.primitive in _ELEMENTWISE:
            outs = {k: _carried(sweep.tape, step, given, k, out) for k, out in outs.items()}
        alive = {k: out != 0 for k, out in outs.items()}  # NaN differs from zero as well
        if outs and step.eqn is not None:
            entry = next(k for k, x in enumerate(given) if x is not None and x.any())
            if step.primitive == "stop_gradient":  # another path may lead to the results
                stop = stop or (j, entry)
            elif not any(mask.any() for mask in alive.values()):
                return j, entry
            entering = given[entry] != 0
            for mask in alive.values():
                if step.primitive in _ELEMENTWISE and mask.shape == entering.shape:
                    if (entering & ~mask).any():
                        return j, entry
        sweep.add(step, {k: mask * 1.0 for k, mask in alive.items()})
    return stop


def _carried(tape: Tape, step: Step, given: list[Any], k: int, out: np.ndarray) -> np.ndarray:
    """Let what is infinite flow on, whatever its derivative: log(inf) does not hide an inf."""
    value = as_numpy(tape.values[step.outputs[k]])
    entering = [x != 0 for x in given if x is not None and np.shape(x) == np.shape(out)]
    if np.shape(value) != np.shape(out) or not entering:
        return out
    return np.where(np.any(entering, axis=0) & ~np.isfinite(value), 1.0, out)


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


def reaches_inputs(tape: Tape, leaks: Sequence[Leak]) -> bool:
    """Tell whether NaN in the cotangents at some leaks becomes NaN in the gradient.

    It does not where an earlier `where` chooses another value, as the rule of `relu` does.
    """
    sweep = Sweep(tape, "reverse", {})
    for leak in leaks:
        sweep.add(sweep.tape.steps[leak.step], {leak.operand: np.where(leak.mask, np.nan, 0.0)})
    return _reaches_end(sweep, 0, max(leak.step for leak in leaks))


def _reaches_outputs(tape: Tape, leak: Leak) -> bool:
    """Tell whether NaN in the tangent of a step's result becomes NaN in the program's."""
    return _reaches_end(_begin_at_result(tape, leak, np.nan), leak.step + 1)


def _reaches_end(sweep: Sweep, first: int, end: int | None = None) -> bool:
    for _, step, given in sweep.steps(first, end):
        if _any_nonzero(given):
            # Only what was nan counts: a partial that is infinite is a leak of its own.
            outs = sweep.carry(step, given).items()
            sweep.add(step, {k: np.where(np.isnan(x), np.nan, 0.0) for k, x in outs})
    return not all(map(all_finite, sweep.result()))


def _begin_at_result(tape: Tape, leak: Leak, tangent: float) -> Sweep:
    """Begin with a tangent in the leak's elements of a step's result, and zeros elsewhere."""
    sweep, step = Sweep(tape, "forward", {}), tape.steps[leak.step]
    for k, place in enumerate(step.outputs):
        shape = np.shape(sweep.tape.values[place])
        mask = leak.mask if leak.mask.shape == shape else np.ones(shape, bool)
        sweep.add(step, {k: np.where(mask, tangent, 0.0)})
    return sweep


def _any_nonzero(tangents: list[Any]) -> bool:
    return any(tangent is not None and np.any(tangent != 0) for tangent in tangents)


def first_bad_value(tape: Tape) -> int | None:
    """Find the step from which the NaN, or else the infinity, in the result comes.

    Returns:
        The number of the step, or of the one that uses a constant that is not finite; None
        where an argument is not finite already.
    """
    values = {place: as_numpy(tape.values[place]) for place in tape.outputs}
    place = min(
        (p for p in tape.outputs if not all_finite(values[p])),
        key=lambda p: not np.isnan(values[p]).any(),
    )
    return _source(tape, place)


def _source(tape: Tape, place: int) -> int | None:
    """Find the step from which the NaN, or else the infinity, in a value comes."""
    lanes, i = ~np.isfinite(as_numpy(tape.values[place])), None
    while place in tape.made_by:
        i = tape.made_by[place]
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
