"""Judge value and gradient in the caller's own precision against extended precision.

An error is the program's own where it is much larger than what rounding the arguments does to the
exact function (its condition number times machine epsilon): a better formula would avoid it. What
no formula could avoid is not reported.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

from ...findings import Finding
from ...subject import Arrays, coarsest
from .._context import Context
from .._non_finite import with_cause
from ._extended_run import NotFollowedError, run_by_steps, run_extended
from ._lost_digits import Loss, find_loss
from ._precisions import IS_EXTENDED, is_inexact, widened
from ._stable_forms import stable_form

# A result with fewer than half of its digits is no base for differences or for a gradient: a
# relative error of more than the square root of machine epsilon. Without one right digit it is
# wrong: a tenth.
_WRONG = 0.1

# The arguments are moved by what rounding them does at most, half a unit in the last place, in
# random directions, there and back. A backward stable algorithm errs by a small multiple of what
# that does to the exact function.
_ROUNDING = 0.5
_DIRECTIONS = 3
_FACTOR = 16.0

# The reference has errors too: its own machine epsilon, magnified in the same way.
_DOUBT = 4.0

_VERBS = {
    "overflow": "overflows",
    "underflow": "underflows to 0",
    "domain": "leaves its domain by rounding",
    "cancellation": "cancels",
    "conversion": "rounds to fewer digits",
    "conditioning": "magnifies rounding",
}


class Results(NamedTuple):
    """What JAX gives in the caller's own precision.

    Attributes:
        eps: the relative rounding error of that precision.
        xs: the arguments.
        values: the value's leaves.
        gradients: the gradient of the weighted sum; empty where there is none.
    """

    eps: float
    xs: Arrays
    values: Sequence[np.ndarray]
    gradients: Sequence[np.ndarray] = ()


@dataclass(frozen=True)
class LostResult:
    """A result that the caller's precision loses, in its worst element.

    Attributes:
        mode: `"value"` or `"reverse"`.
        number: of the leaf of the value or of the gradient.
        place: the element.
        dtype: the dtype of the result.
        eps: its relative rounding error.
        got: the number there.
        exact: what it is in extended precision.
        relative: the error, relative to the largest element; inf where `got` is not finite.
        is_harmless: whether the error is lost in any other number of the computation.
        is_compiled: whether the compiled program loses it too: XLA takes `log(exp(x))` for `x`.
        loss: the operation that loses it; None where it is not found.
        advice: what to do.
    """

    mode: str
    number: int
    place: tuple[int, ...]
    dtype: str
    eps: float
    got: float
    exact: float
    relative: float
    is_harmless: bool
    is_compiled: bool
    loss: Loss | None
    advice: str

    @property
    def is_error(self) -> bool:
        """Whether no digit is right, in a number that matters."""
        return self.relative > _WRONG and not self.is_harmless

    @property
    def digits(self) -> tuple[int, int] | None:
        """How many digits are right, of how many; None where the result is not finite."""
        if not np.isfinite(self.relative):
            return None
        right, whole = (max(0, int(-np.log10(error))) for error in (self.relative, self.eps))
        return right, whole

    def describe(self, path: str) -> str:
        """Write what is lost, and where, in one line.

        Args:
            path: of the value's leaf, or of the argument.
        """
        element = f"[{', '.join(map(str, self.place))}]" if self.place else ""
        what = path if self.mode == "value" else f"gradient by {path}"
        text = f"{what}{element} is {self.got:.6g} in {self.dtype}, and exactly {self.exact:.6g}"
        if self.digits is not None:
            text += f" ({self.digits[0]} of {self.digits[1]} digits are right)"
        if self.loss is not None:
            step = self.loss.step
            inside = f" in {step.function}" if step.function else ""
            text += f": {step.primitive}{inside} {_VERBS[self.loss.kind]}"
        return text if self.is_compiled else f"{text} (outside of jax.jit alone)"


def detect_lost_digits(context: Context) -> list[Finding]:
    """Report results that the caller's precision loses, with the operation that loses them.

    Returns:
        At most one finding for the value and one for the gradient.
    """
    point, own, subject = context.point, context.own, context.point.subject
    if not subject.traced or subject.is_julia:
        return []
    context.say("given: in extended precision")
    if own is not None:
        values = own.values.get("reverse", own.plain) if own.gradients else own.plain
        return _findings(context, Results(own.eps, own.xs, values, own.gradients))
    who = "jax", "reverse"
    gradients = point.gradients.get(who, ())
    values = point.answers.values.get(who, point.plain) if gradients else point.plain
    with subject.precision():
        return _findings(context, Results(float(np.finfo(float).eps), point.xs, values, gradients))


def _findings(context: Context, results: Results) -> list[Finding]:
    point = context.point
    paths = {"value": point.subject.outputs, "reverse": point.subject.paths}
    found = find_lost_results(point.subject.call, point.weighted.total, results)
    findings = [_finding(lost, paths[lost.mode][lost.number]) for lost in found]
    if len(found) == 1 and found[0].mode == "reverse" and np.isnan(found[0].got):
        # The value keeps its digits, so that something drops what overflows from it.
        cause = context.find_cause(point, in_own_precision=True)
        if cause is not None and cause.dropped_by:
            return [with_cause(findings[0], cause)]
    return findings


def find_lost_results(
    call: Callable[..., Any], total: Callable[..., Any], results: Results
) -> list[LostResult]:
    """Compare results with those of extended precision.

    Args:
        call: the function, of a list of arrays; lists the leaves of its value.
        total: sums them to the number whose gradient is taken.
        results: what JAX gives.

    Returns:
        At most one result for the value and one for the gradient; none where the program cannot be
        followed in extended precision, or where that is no more than the caller's own.
    """
    if not IS_EXTENDED and results.eps <= np.finfo(np.float64).eps:
        return []
    try:
        with np.errstate(all="ignore"):
            return _compare(call, total, results)
    except NotFollowedError:
        return []


def _compare(
    call: Callable[..., Any], total: Callable[..., Any], results: Results
) -> list[LostResult]:
    closed = _trace(call, total, results)
    # A backward pass that computes more coarsely than the function does loses digits.
    eps = max(results.eps, coarsest(_trace(call, total, results._replace(gradients=()))))
    results = results._replace(eps=eps)
    xs = [np.asarray(x) for x in results.xs]
    exact = run_extended(closed, xs).results()
    is_compiled = _are_suspect([*results.values, *results.gradients], exact, eps)
    if not is_compiled:
        results = _run_eagerly(closed, results, exact)
    given = [*results.values, *results.gradients]
    if not _are_suspect(given, exact, eps):
        return []
    spread = _spread(closed, xs, exact, eps)
    beside = run_extended(closed, xs, beside=True)
    lost: dict[str, LostResult] = {}
    for i, (n, w, s) in enumerate(zip(given, exact, spread, strict=True)):
        mode, number = ("value", i)
        if i >= len(results.values):
            mode, number = "reverse", i - len(results.values)
        worst = None if mode in lost else _worst_element(n, w, s, eps)
        if worst is None or not _is_seen(beside.values[beside.outputs[i]], n, *worst, eps):
            continue
        place, relative = worst
        limit = min(eps**0.5, max(0.01 * relative, 8.0 * eps))
        loss = find_loss(beside, beside.outputs[i], place, limit)
        is_harmless = bool(np.abs(widened(n) - w)[place] <= harmless_error(results, mode))
        if is_harmless and (mode != "value" or loss is None or loss.step.function):
            continue  # a rule or a function of JAX's, and a loss that any other number hides
        advice = "Compute this part in a higher precision." if loss is None else stable_form(loss)
        value = lost.get("value")
        if loss and value and value.loss and value.loss.is_at(loss):
            # Along a gradient the same operation has the gradient's own around it.
            advice = value.advice
        lost[mode] = LostResult(
            mode,
            number,
            place,
            str(n.dtype),
            eps,
            float(np.real(n[place])),
            float(np.real(w[place])),
            relative,
            is_harmless,
            is_compiled,
            loss,
            advice,
        )
    return list(lost.values())


def _trace(call: Any, total: Any, results: Results) -> ClosedJaxpr:
    """Trace a function, with its gradient if there is one: first the value's leaves, then those."""

    def scalar(xs: Arrays) -> Any:
        ys = call(xs)
        return total(ys), ys

    def program(*xs: Any) -> Any:
        if not results.gradients:
            return tuple(call(xs))
        (_, ys), gs = jax.value_and_grad(scalar, has_aux=True)(xs)
        return (*ys, *gs)

    try:
        return jax.make_jaxpr(program)(*results.xs)
    except Exception as error:
        raise NotFollowedError(str(error)) from error


def _run_eagerly(closed: ClosedJaxpr, results: Results, exact: list[np.ndarray]) -> Results:
    """Give what JAX gives outside of `jax.jit`, if that may be something else."""
    try:
        by_steps = run_by_steps(closed, [np.asarray(x) for x in results.xs])
    except NotFollowedError:
        return results
    if not _are_suspect(by_steps, exact, results.eps):
        return results
    outs, count = [np.asarray(y) for y in jaxpr_as_fun(closed)(*results.xs)], len(results.values)
    return results._replace(values=outs[:count], gradients=outs[count:])


def _are_suspect(got: Sequence[np.ndarray], exact: Sequence[np.ndarray], eps: float) -> bool:
    """Tell whether any result may have lost more than half of its digits."""
    return any(_is_suspect(n, w, eps) for n, w in zip(got, exact, strict=True))


def _is_suspect(got: np.ndarray, exact: np.ndarray, eps: float) -> bool:
    """Tell whether a result may have lost more than half of its digits."""
    finite = np.isfinite(exact)
    if np.any(~np.isfinite(got) & finite):
        return True
    largest = np.max(np.abs(exact[finite]), initial=0.0)
    used = finite & np.isfinite(got)
    gap = np.max(np.abs(got.astype(exact.dtype) - exact)[used], initial=0.0)
    return bool(gap > eps**0.5 * largest)


def _spread(
    closed: ClosedJaxpr, xs: list[np.ndarray], exact: list[np.ndarray], eps: float
) -> list[np.ndarray]:
    """Say what rounding the arguments, and arrays in the program, does to exact results."""
    spread = [np.zeros(w.shape, np.longdouble) for w in exact]
    rng = np.random.default_rng(0)
    for _ in range(_DIRECTIONS):
        signs = [rng.choice([-1.0, 1.0], np.shape(x)) for x in (*xs, *closed.consts)]
        for by in (_ROUNDING * eps, -_ROUNDING * eps):
            moved = [_moved(x, by * s) for x, s in zip((*xs, *closed.consts), signs, strict=True)]
            program = ClosedJaxpr(closed.jaxpr, moved[len(xs) :])
            there = run_extended(program, moved[: len(xs)]).results()
            for i, gap in enumerate(np.abs(a - b) for a, b in zip(there, exact, strict=True)):
                spread[i] = np.maximum(spread[i], np.where(np.isnan(gap), np.inf, gap))
    return spread


def _moved(x: Any, factors: np.ndarray) -> Any:
    """Move numbers by parts of their size; single numbers in a program are its own: 1 + x."""
    return widened(x) + widened(x) * factors if is_inexact(x.dtype) else x


def harmless_error(results: Results, mode: str) -> float:
    """Say which absolute error is lost in any other number of the computation.

    A value is measured against its arguments where these are small, and against 1: the loss of a
    model that is sure is 1e-9 or 0. A gradient is measured against 1 and the value: that of a
    saturated activation is 1e-9 or 0.
    """
    if mode == "value":
        return _FACTOR * results.eps * min(1.0, max(map(_largest, results.xs), default=1.0))
    size = max(1.0, *map(_largest, results.xs))
    return _FACTOR * results.eps * max(1.0, max(map(_largest, results.values)) / size)


def _largest(x: Any) -> float:
    x = np.abs(np.asarray(x, np.complex128))
    return float(np.max(x[np.isfinite(x)], initial=0.0))


def _worst_element(
    got: np.ndarray, exact: np.ndarray, spread: np.ndarray, eps: float
) -> tuple[tuple[int, ...], float] | None:
    """Find the element that lost most, beyond what its arguments explain; None where none did.

    Returns:
        The element, and its error relative to the largest element; inf where it is not finite.
    """
    info = jnp.finfo(got.dtype)
    size = np.abs(exact)
    fits = np.isfinite(exact) & (size < float(info.max))
    lost, used = fits & ~np.isfinite(got), fits & np.isfinite(got)
    if lost.any():
        return tuple(map(int, np.argwhere(lost)[0])), np.inf
    if not used.any():
        return None
    largest = np.max(size[used])
    error = np.where(used, np.abs(widened(got) - exact), 0.0)
    excess = np.where(np.isfinite(spread), error - _FACTOR * spread, 0.0)
    place = tuple(map(int, np.unravel_index(int(np.argmax(excess)), excess.shape)))
    here = error[place]
    wide = float(np.finfo(exact.dtype).eps)
    known = largest > _DOUBT * here * (wide / eps) and largest > float(info.tiny)
    if not known or excess[place] <= 0 or here <= eps**0.5 * largest:
        return None
    return place, float(here / largest)


def _is_seen(
    both: tuple[Any, ...], got: np.ndarray, place: tuple[int, ...], relative: float, eps: float
) -> bool:
    """Tell whether the run in the declared precision loses as much: the two runs are comparable."""
    n, w = (np.asarray(x)[place] for x in both)
    if not np.isfinite(w):
        return False
    if not np.isfinite(n) or not np.isfinite(relative):
        # What one computer takes for infinite is 0 on another: both have lost everything.
        return not np.isfinite(n) or abs(n - w) > eps**0.5 * abs(w)
    return bool(abs(n - w) > 0.1 * abs(got[place] - w))


def _finding(lost: LostResult, path: str) -> Finding:
    loss, in_gradient = lost.loss, lost.mode == "reverse"
    numbers: dict[str, Any] = {lost.dtype: lost.got, "exact": lost.exact}
    if lost.digits is not None:
        numbers["right digits"] = lost.digits[0]
    if loss is not None:
        numbers |= {f"{loss.step.primitive} gives": loss.got, "instead of": loss.exact}
    return Finding(
        "precision",
        "error" if lost.is_error else "warning",
        lost.describe(path),
        systems=("jax",),
        mode=lost.mode,
        argument=path if in_gradient else "",
        element=(lost.place or None) if in_gradient else None,
        location=loss.step.line if loss is not None else None,
        primitive=loss.step.primitive if loss is not None else None,
        numbers=numbers,
        advice=lost.advice,
    )
