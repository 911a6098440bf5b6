"""Say where a NaN in a derivative comes from, and what to do: `explain_nan`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..detectors import Cause
from ..detectors.precision import LostResult, Results, find_lost_results
from ._cures import ExplainedLeak, Trial, find_cures, settle
from ._explanation import Cure, NaNExplanation, Operation, Origin
from ._leaks import Leak, find_drop, find_leaks, first_bad_value, is_structural, reaches_inputs
from ._problem import ModeResult, Problem, differentiate
from ._source_text import choice_at, operation_text
from ._tape import Tape, all_finite, as_numpy, rule_name

# More places than these are not listed.
_MOST_ELEMENTS = 100
_ADVICE = {
    "infinite": "The derivative is infinite there, and the value depends on it: no rewriting "
    "keeps the meaning. Keep the operand away from that point (for example `sqrt(x + 1e-12)`, "
    "which changes the value a little), or leave these elements out of the loss.",
    "product": "Both factors depend on the arguments, so 0 times infinity may stand for any "
    "number. Write the product as one expression that is smooth there: `x ** 1.5` for "
    "`x * jnp.sqrt(x)`.",
    "rule": "The rule is at fault, not the function's value: mend it (`defjvp`, `defvjp`) "
    "where the operand has this value.",
    "overflow": "The numbers are too large for the dtype: rescale, or compute in float64.",
}
_EQUAL_VALUES = (
    "The rule divides by the differences of the eigenvalues (or of the squares of the singular "
    "values), and some are equal: their vectors can be any basis of a plane and have no "
    "derivative. Ask for what does not depend on the choice (the eigenvalues, a trace, a solve), "
    "or make the values differ."
)
_DECOMPOSITIONS = ("eig", "eigh", "svd")
_PRODUCTS_WITH = {
    "log": "xlogy(x, y)` for `x * jnp.log(y)`",
    "log1p": "xlog1py(x, y)` for `x * jnp.log1p(y)`",
}


def explain_nan(
    f: Callable[..., Any], *args: Any, argnums: int | Sequence[int] | None = None
) -> NaNExplanation:
    """Say where the first non-finite number in the derivative of a function arises.

    The function is run step by step, through `jit`, `vmap`, `scan`, `while_loop`, `cond` and
    `checkpoint`; then its derivative is taken step by step, from the end for reverse mode and
    from the beginning for forward mode. The first step that makes a NaN or an infinity out of
    finite numbers is the origin. If its result is not used, the step that leaves it out (a
    `where`, a mask, an index) is named as well: that is why the value is finite. Proposals are
    run before they are made.

    Functions that need concrete values (boolean masks, a Python `if`) work, as they do in
    `jax.grad`. The function is called a few times. `within_gradient` answers True inside.

    Args:
        f: a function of pytrees, with a pytree of arrays as its result. The derivative is that
            of the sum of all results.
        *args: its arguments.
        argnums: which of them are differentiated, as in `jax.grad`; None for all that hold
            floating or complex numbers.

    Returns:
        The explanation. Print it; `.ok`, `.origin`, `.dropped_by` and `.cures` are for
        programs.

    Raises:
        ArgumentTypeError: there is nothing to differentiate.
        ArgumentValueError: `argnums` counts too far.

    Example:
        >>> import jax.numpy as jnp
        >>> import pybridge as pb
        >>> def loss(x):
        ...     return jnp.sum(jnp.where(x > 0, jnp.log(x), 0.0))
        >>> why = pb.explain_nan(loss, jnp.array([0.0, 1.0]))
        >>> why.origin.operation.primitive, why.origin.elements, why.dropped_by.primitive
        ('log', ((0,),), 'select_n')
        >>> why.cures[0].verified, why.cures[0].derivative.tolist()
        (True, [0.0, 1.0])

    There is no Julia twin. The mechanism, 0 times infinity in the reverse pass, is described in
    JAX's FAQ ("gradients contain NaN where using where").
    """
    # Those settings end a program at the first number that is not finite.
    with jax.debug_nans(False), jax.debug_infs(False):
        return _explain(Problem(f, args, argnums))


def _explain(problem: Problem) -> NaNExplanation:
    answers, notes = _answers(problem)
    if not answers:
        return NaNExplanation(problem.name, False, None, (), None, None, notes=tuple(notes))
    values = next(iter(answers.values())).values
    value = values[0] if len(values) == 1 else values
    if problem.bad_inputs():
        notes.append(f"Not finite already: {', '.join(problem.bad_inputs())}.")
    if not all(map(all_finite, values)):
        return _explain_value(problem, values, value, notes)
    modes = tuple(mode for mode, answer in answers.items() if not answer.finite)
    if not modes:
        return _explain_precision(problem, answers, value, notes)
    return _explain_derivative(problem, modes, answers[modes[0]], value, notes)


def find_cause(f: Callable[..., Any], args: Sequence[Any]) -> Cause | None:
    """Say in short where a number that is not finite comes from, for the checker's findings."""
    why = explain_nan(f, *args)
    if why.ok or why.origin is None:
        return None
    operation, advice = why.origin.operation, ""
    if why.cures:
        advice = f"{why.cures[0].text.removesuffix('.')}. pb.explain_nan says more."
    elif why.notes:
        advice = why.notes[-1]
    hidden = why.dropped_by.name if why.dropped_by is not None else ""
    return Cause(operation.name, operation.location, operation.primitive, hidden, advice)


def _answers(problem: Problem) -> tuple[dict[str, ModeResult], list[str]]:
    """Ask JAX in both modes; what it cannot do becomes a note."""
    answers, notes = {}, []
    for mode in ("reverse", "forward"):
        try:
            answers[mode] = differentiate(problem.flat(problem.f), problem.inputs, mode)
            continue
        except (TypeError, ValueError, NotImplementedError) as error:
            reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        problem.flat(problem.f)(*problem.inputs)  # an error of its own is the user's to see
        notes.append(f"{mode.capitalize()} mode is not possible: {reason}")
    return answers, notes


def _explain_derivative(
    problem: Problem, modes: tuple[str, ...], answer: ModeResult, value: Any, notes: list[str]
) -> NaNExplanation:
    mode, tape = modes[0], problem.tape(is_finite=True)
    trial = Trial(problem, tape, mode)
    leaks, mended = settle(trial, find_leaks(tape, mode))
    explained = []
    for group in _by_line(tape, leaks):
        if mode == "reverse" and not reaches_inputs(tape, group):
            continue
        leak, dropped_by = group[0], None
        if leak.kind == "leak" and (drop := find_drop(tape, leak)):
            is_product = mended is None and not is_structural(tape, drop)
            leak = replace(leak, drop=drop, kind="product" if is_product else "leak")
            dropped_by = _operation(tape, *drop)
        explained.append(ExplainedLeak(leak, _origin(tape, leak), dropped_by))
    infinite = any(np.isinf(part).any() for part in answer.derivative)
    cures = find_cures(trial, explained, mended, infinite)
    notes = [*notes, *_closed(tape)]
    if not any(cure.verified for cure in cures):
        notes += filter(None, dict.fromkeys(_advice(x.leak, x.origin) for x in explained))
    if not explained:
        notes.append(
            "Step by step the derivative is finite: JAX's own differs, perhaps in a "
            "transformation that was not followed."
        )
    shown = [(origin, dropped_by) for _, origin, dropped_by in explained]
    (origin, dropped_by), *further = shown or [(None, None)]
    return NaNExplanation(
        name=problem.name,
        ok=False,
        mode=mode,
        modes=modes,
        derivative=problem.arranged(mode, answer.derivative),
        value=value,
        origin=origin,
        dropped_by=dropped_by,
        cures=cures,
        further=tuple(further),
        notes=tuple(notes),
    )


def _explain_value(
    problem: Problem, values: Sequence[np.ndarray], value: Any, notes: list[str]
) -> NaNExplanation:
    tape = problem.tape(is_finite=False)
    i, origin = first_bad_value(tape), None
    if i is not None:
        step = tape.steps[i]
        place = next(p for p in step.outputs if not all_finite(as_numpy(tape.values[p])))
        out = as_numpy(tape.values[place])
        mask = np.isnan(out) if np.isnan(out).any() else ~np.isfinite(out)
        origin = Origin(
            _operation(tape, i), "value", _elements(mask), *_numbers(tape, i, mask, place)
        )
    elif not notes:
        notes = [*notes, "A constant in the function is not finite."]
    notes = [*notes, *_closed(tape), "Mend the value first: its derivative has no meaning here."]
    why = NaNExplanation(
        problem.name, False, "value", ("value",), value, value, origin, notes=tuple(notes)
    )
    lost = _find_lost(problem, values, [])
    text = lost.advice if lost is not None else _form_of_product(tape, i)
    return replace(why, cures=(Cure(text, False),)) if text else why


def _form_of_product(tape: Tape, i: int | None) -> str:
    """Name the function that is 0 where a factor is 0 and the other is the logarithm of 0."""
    if i is None or tape.steps[i].primitive != "mul":
        return ""
    factors = set(tape.steps[i].inputs)
    makers = [step.primitive for step in tape.steps[:i] if factors & set(step.outputs)]
    form = next((_PRODUCTS_WITH[name] for name in makers if name in _PRODUCTS_WITH), "")
    return f"Write `jax.scipy.special.{form}: it is 0 where x is 0." if form else ""


def _explain_precision(
    problem: Problem, answers: dict[str, ModeResult], value: Any, notes: list[str]
) -> NaNExplanation:
    """Say whether finite numbers have lost their digits."""
    fine = NaNExplanation(problem.name, True, None, (), None, value, notes=tuple(notes))
    answer = answers.get("reverse")
    lost = _find_lost(problem, answer.values, answer.derivative) if answer is not None else None
    if answer is None or lost is None or lost.loss is None:
        return fine
    step = lost.loss.step
    text = "" if step.function else operation_text(step.line, step.primitive)[0]
    operation = Operation(step.primitive, step.line, text)
    place = f"args[{problem.argnums[0]}]" if len(problem.inputs) == 1 else "the arguments"
    return replace(
        fine,
        ok=False,
        mode=lost.mode,
        modes=(lost.mode,),
        origin=Origin(operation, "precision", (lost.place,), (), lost.loss.got),
        cures=(Cure(lost.advice, False),),
        derivative=problem.arranged("reverse", answer.derivative),
        lost=lost.describe("value" if lost.mode == "value" else place),
    )


def _find_lost(
    problem: Problem, values: Sequence[np.ndarray], gradients: Sequence[np.ndarray]
) -> LostResult | None:
    """Find a result that loses its digits, in an operation that is known."""
    eps = max(float(jnp.finfo(x.dtype).eps) for x in problem.inputs)
    call = problem.flat(problem.f)
    results = Results(eps, problem.inputs, values, gradients)
    lost = find_lost_results(lambda xs: call(*xs), _sum_of_all, results)
    return next((result for result in lost if result.loss is not None), None)


def _sum_of_all(ys: Sequence[Any]) -> Any:
    """Sum all results, as `differentiate` does; the real part of complex ones."""
    return sum(jnp.sum(y.real if jnp.iscomplexobj(y) else y) for y in ys)


def _advice(leak: Leak, origin: Origin) -> str:
    # Where vectors are squared, those with a 0 look like a product that moves.
    is_vectors = origin.operation.primitive in _DECOMPOSITIONS
    if is_vectors and leak.kind in ("infinite", "product"):
        return _EQUAL_VALUES
    return _ADVICE.get(leak.kind, "")


def _by_line(tape: Tape, leaks: Sequence[Leak]) -> list[list[Leak]]:
    """Put the leaks of one operation of the program together: in a loop it comes many times."""
    groups: dict[Any, list[Leak]] = {}
    for leak in leaks:
        groups.setdefault((id(tape.steps[leak.step].eqn), leak.kind), []).append(leak)
    return list(groups.values())


def _origin(tape: Tape, leak: Leak) -> Origin:
    mask = np.asarray(leak.mask)
    elements = _elements(mask)
    operands, value = _numbers(tape, leak.step, mask, tape.steps[leak.step].outputs[0])
    known = leak.partial.shape == mask.shape
    partial = np.asarray(leak.partial[elements[0]]).item() if known else np.nan
    operation = _operation(tape, leak.step, leak.operand)
    return Origin(operation, leak.kind, elements, operands, value, partial, leak.operand)


def _numbers(tape: Tape, i: int, mask: np.ndarray, place: int) -> tuple[tuple[Any, ...], Any]:
    """Return what a step sees and gives in the first element of a mask."""
    element = _elements(mask)[0]

    def at(place: int) -> Any:
        value = tape.values[place]
        if np.shape(value) == mask.shape:
            return as_numpy(value)[element]
        return as_numpy(value) if np.size(value) <= 8 else None

    return tuple(at(p) for p in tape.steps[i].inputs), at(place)


def _operation(tape: Tape, i: int, operand: int = 0) -> Operation:
    step = tape.steps[i]
    choice = choice_at(step.line, step.primitive, operand)
    text = operation_text(step.line, step.primitive, operand)[0]
    if choice is not None and step.primitive != "mul":
        text = choice.text
    # On the line stands the function that the operation is a part of.
    called = operation_text(step.line, step.function)[0] if step.function else ""
    return Operation(
        primitive=step.primitive,
        location=step.line,
        text=called or text,
        path=step.path,
        rule=rule_name(step),
        function=step.function if called else "",
    )


def _elements(mask: np.ndarray) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(map(int, place)) for place in np.argwhere(mask)[:_MOST_ELEMENTS])


def _closed(tape: Tape) -> list[str]:
    return [
        f"Not opened, because it runs too often: {what}. Try fewer iterations."
        for what in dict.fromkeys(tape.closed)
    ]
