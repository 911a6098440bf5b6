"""Judge value and gradient in the caller's own precision against extended precision.

An error is the program's own where it is much larger than what rounding the arguments does to the
exact function (its condition number times machine epsilon): a better formula would avoid it. What
no formula could avoid is not reported.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr

from ...findings import Finding
from ...subject import Arrays, OwnPrecision, Point, coarsest
from .._context import Context
from ._extended_run import IS_EXTENDED, ExtendedRun, NotFollowedError, run_extended
from ._lost_digits import Loss, find_loss
from ._stable_forms import stable_form

# A result with fewer than half of its digits is no base for differences or for a gradient: a
# relative error of more than the square root of machine epsilon. Without one right digit it is
# wrong: a tenth.
_WRONG = 0.1

# The arguments are moved by this many units in the last place in random directions, there and
# back. A backward stable algorithm errs by a small multiple of what one such unit does; with the
# factor below, 64 of them are let pass, as everywhere in this package.
_ULPS = 4.0
_DIRECTIONS = 3
_FACTOR = 16.0

# The reference has errors too: its own machine epsilon, magnified in the same way.
_DOUBT = 4.0

_VERBS = {
    "overflow": "overflows",
    "underflow": "underflows to 0",
    "domain": "leaves its domain by rounding",
    "cancellation": "cancels",
    "conditioning": "magnifies rounding",
}


@dataclass
class Results:
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


@dataclass
class Wrong:
    """The element of a result that has lost most.

    Attributes:
        place: which one.
        got: the number.
        exact: what it is in extended precision.
        relative: the error, relative to the largest element; inf where `got` is not finite.
        is_harmless: whether the error is lost in any other number of the computation.
    """

    place: tuple[int, ...]
    got: Any
    exact: Any
    relative: float
    is_harmless: bool


@dataclass
class LostResult:
    """A result that the caller's precision loses.

    Attributes:
        mode: `"value"` or `"reverse"`.
        number: of the leaf of the value or of the gradient.
        wrong: its worst element.
        loss: the operation that loses it; None where it is not found.
        dtype: the dtype of the result.
        eps: its relative rounding error.
        advice: what to do.
    """

    mode: str
    number: int
    wrong: Wrong
    loss: Loss | None
    dtype: str
    eps: float
    advice: str

    @property
    def is_error(self) -> bool:
        """Whether no digit is right, in a number that matters."""
        return self.wrong.relative > _WRONG and not self.wrong.is_harmless

    def describe(self, path: str) -> str:
        """Write what is lost, and where, in one line.

        Args:
            path: of the value's leaf, or of the argument.
        """
        wrong, loss = self.wrong, self.loss
        element = f"[{', '.join(map(str, wrong.place))}]" if wrong.place else ""
        what = path if self.mode == "value" else f"gradient by {path}"
        text = f"{what}{element} is {self.got:.6g} in {self.dtype}, and exactly {self.exact:.6g}"
        if self.digits is not None:
            text += f" ({self.digits[0]} of {self.digits[1]} digits are right)"
        if loss is not None:
            inside = f" in {loss.step.function}" if loss.step.function else ""
            text += f": {loss.step.primitive}{inside} {_VERBS[loss.kind]}"
        return text

    @property
    def got(self) -> float:
        """The number in the caller's precision."""
        return float(np.real(self.wrong.got))

    @property
    def exact(self) -> float:
        """What it is in extended precision."""
        return float(np.real(self.wrong.exact))

    @property
    def digits(self) -> tuple[int, int] | None:
        """How many digits are right, of how many; None where the result is not finite."""
        if not np.isfinite(self.wrong.relative):
            return None
        right, whole = (max(0, int(-np.log10(e))) for e in (self.wrong.relative, self.eps))
        return right, whole


def _own_results(own: OwnPrecision) -> Results:
    """Take the results in a precision below double."""
    values = own.values.get("reverse", own.plain) if own.gradients else own.plain
    return Results(own.eps, own.xs, values, own.gradients)


def _double_results(point: Point) -> Results:
    """Take the results in double precision."""
    who = "jax", "reverse"
    gradients = point.gradients.get(who, ())
    values = point.answers.values.get(who, point.plain) if gradients else point.plain
    return Results(float(np.finfo(float).eps), point.xs, values, gradients)


def detect_lost_digits(context: Context) -> list[Finding]:
    """Report results that the caller's precision loses, with the operation that loses them.

    Returns:
        At most one finding for the value and one for the gradient.
    """
    point, subject = context.point, context.point.subject
    if not subject.traced or subject.is_julia:
        return []
    context.say("given: in extended precision")
    if context.own is not None:
        return _find_lost(point, _own_results(context.own))
    with subject.precision():
        return _find_lost(point, _double_results(point))


def _find_lost(point: Point, results: Results) -> list[Finding]:
    subject, weighted = point.subject, point.weighted
    paths = {"value": subject.outputs, "reverse": subject.paths}
    return [
        _finding(lost, paths[lost.mode][lost.number])
        for lost in find_lost_results(subject.call, weighted.total, results)
    ]


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
    closed = gradient_program(call, total, results.xs, bool(results.gradients))
    eps = max(results.eps, coarsest(closed))
    results = replace(results, eps=eps)
    xs = [np.asarray(x) for x in results.xs]
    exact = run_extended(closed, xs).results(0)
    got = [*results.values, *results.gradients]
    if not any(_suspect(n, w, eps) for n, w in zip(got, exact, strict=True)):
        return []
    spread = _spread(closed, xs, exact, eps)
    beside = run_extended(closed, xs, beside=True)
    found: dict[str, LostResult] = {}
    for number, (n, w, s) in enumerate(zip(got, exact, spread, strict=True)):
        mode = "value" if number < len(results.values) else "reverse"
        wrong = None if mode in found else _worst(n, w, s, eps, _unit(results, mode))
        if wrong is None or not _is_seen(beside, number, wrong, eps):
            continue
        limit = min(eps**0.5, max(0.01 * wrong.relative, 8.0 * eps))
        loss = find_loss(beside, beside.outputs[number], wrong.place, limit)
        if wrong.is_harmless and (mode != "value" or loss is None or loss.step.function):
            continue  # a rule or a function of JAX's, and a loss that any other number hides
        advice = "Compute this part in a higher precision." if loss is None else stable_form(loss)
        value = found.get("value")
        if loss and value and value.loss and value.loss.is_at(loss):
            # Along a gradient the same operation has the gradient's own around it.
            advice = value.advice
        if mode == "reverse":
            number -= len(results.values)
        found[mode] = LostResult(mode, number, wrong, loss, str(n.dtype), eps, advice)
    return list(found.values())


def gradient_program(call: Any, total: Any, xs: Arrays, differentiate: bool) -> ClosedJaxpr:
    """Trace a function with its gradient: the value's leaves first, then those of the gradient."""

    def program(*xs: Any) -> Any:
        def scalar(xs: Arrays) -> Any:
            ys = call(xs)
            return total(ys), ys

        if not differentiate:
            return tuple(call(xs))
        (_, ys), gs = jax.value_and_grad(scalar, has_aux=True)(tuple(xs))
        return (*ys, *gs)

    try:
        return jax.make_jaxpr(program)(*xs)
    except Exception as error:
        raise NotFollowedError(str(error)) from error


def _suspect(got: np.ndarray, exact: np.ndarray, eps: float) -> bool:
    """Say whether a result may have lost more than half of its digits."""
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
    found = [np.zeros(w.shape, np.longdouble) for w in exact]
    rng = np.random.default_rng(0)
    for _ in range(_DIRECTIONS):
        signs = [rng.choice([-1.0, 1.0], np.shape(x)) for x in (*xs, *closed.consts)]
        for way in (_ULPS * eps, -_ULPS * eps):
            moved = [_moved(x, way * s) for x, s in zip((*xs, *closed.consts), signs, strict=True)]
            program = ClosedJaxpr(closed.jaxpr, moved[len(xs) :])
            there = run_extended(program, moved[: len(xs)]).results(0)
            gaps = [np.abs(a - b) for a, b in zip(there, exact, strict=True)]
            gaps = [np.where(np.isnan(gap), np.inf, gap) for gap in gaps]
            found = [np.maximum(a, b) for a, b in zip(found, gaps, strict=True)]
    return found


def _moved(x: Any, factors: np.ndarray) -> Any:
    """Move numbers by parts of their size; single numbers in a program are its own: 1 + x."""
    if not jnp.issubdtype(x.dtype, np.inexact):
        return x
    kind = np.clongdouble if np.asarray(x).dtype.kind == "c" else np.longdouble
    wide = np.asarray(x).astype(kind)
    return wide + wide * factors


def _unit(results: Results, mode: str) -> float:
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


def _worst(
    got: np.ndarray, exact: np.ndarray, spread: np.ndarray, eps: float, unit: float
) -> Wrong | None:
    """Find the element that lost most, beyond what its arguments explain; None where none did."""
    info = jnp.finfo(got.dtype)
    size = np.abs(exact)
    lost = ~np.isfinite(got) & np.isfinite(exact) & (size < float(info.max))
    if lost.any():
        place = tuple(int(k) for k in np.argwhere(lost)[0])
        return Wrong(place, got[place], exact[place], np.inf, False)
    used = np.isfinite(got) & np.isfinite(exact) & (size < float(info.max))
    if not used.any():
        return None
    largest = np.max(size[used])
    error = np.where(used, np.abs(got.astype(exact.dtype) - exact), 0.0)
    excess = np.where(np.isfinite(spread), error - _FACTOR * spread, 0.0)
    place = tuple(int(k) for k in np.unravel_index(int(np.argmax(excess)), excess.shape))
    here = error[place]
    wide = float(np.finfo(exact.dtype).eps)
    known = largest > _DOUBT * here * (wide / eps) and largest > float(info.tiny)
    if not known or excess[place] <= 0 or here <= eps**0.5 * largest:
        return None
    return Wrong(place, got[place], exact[place], float(here / largest), bool(here <= unit))


def _is_seen(beside: ExtendedRun, number: int, wrong: Wrong, eps: float) -> bool:
    """Tell whether the run in the declared precision loses as much: the two runs are comparable."""
    narrow, wide = beside.values[beside.outputs[number]]
    n, w = np.asarray(narrow)[wrong.place], np.asarray(wide)[wrong.place]
    if not np.isfinite(w):
        return False
    if not np.isfinite(n) or not np.isfinite(wrong.relative):
        # What one computer takes for infinite is 0 on another: both have lost everything.
        return not np.isfinite(n) or abs(n - w) > eps**0.5 * abs(w)
    return bool(abs(n - w) > 0.1 * abs(wrong.got - w))


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
        element=(lost.wrong.place or None) if in_gradient else None,
        location=loss.step.line if loss is not None else None,
        primitive=loss.step.primitive if loss is not None else None,
        numbers=numbers,
        advice=lost.advice,
    )
