"""The AD systems behind one interface: reverse, forward and second order at a point."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import Tracer

from ..._backends import row
from ..._errors import JuliaError
from ...finite import TOLERANCES
from ...jaxprs import LOOPS, contains
from ...transforms import hessian, jvp, value_and_grad, vjp
from ._bounded_loops import bounded
from ._compilation import CompiledAhead, compiled, compiler_options
from ._probes import count
from ._subject import Arrays, Subject, is_moving, moved

# With these, a batch of points computes more than each point, or cannot be computed.
_LOOPS = frozenset(
    {"while", "cond", "pybridge_switch", "pure_callback", "io_callback", "debug_callback",
     "ffi_call", "shard_map", "custom_partitioning", "xla_call", "pybridge_call"}
)  # fmt: skip


class Weighted:
    """The weighted sum of a function's outputs, and the outputs themselves."""

    def __init__(self, subject: Subject, weights: dict[str, np.ndarray]):
        """Keep the weights, one array for each output."""
        self.subject = subject
        self.weights = tuple(weights[path] for path in subject.outputs)
        parts = [part for w in map(np.conj, self.weights) for part in real_parts(w)]
        self.flat_weights = np.concatenate(list(map(np.ravel, parts))).astype(float)

    def total(self, ys: Arrays) -> Any:
        """Sum the outputs with their weights: a real number."""
        parts = []
        for y, w in zip(ys, self.weights, strict=True):
            product = y * jnp.asarray(w).astype(y.dtype)
            parts.append(jnp.sum(product.real if jnp.iscomplexobj(product) else product))
        kind = jnp.result_type(*parts)
        return sum((part.astype(kind) for part in parts[1:]), parts[0].astype(kind))

    def flat(self, ys: Arrays) -> Any:
        """Put the outputs into one real vector, in the order of `flat_weights`."""
        return real_vector(ys)

    def value_and_gradient(self, xs: Arrays) -> tuple[Any, Any]:
        """Let JAX differentiate the sum in reverse mode: the outputs, and its gradient."""

        def scalar(xs: Arrays) -> tuple[Any, Any]:
            ys = self.subject.call(xs)
            return self.total(ys), ys

        (_, ys), gs = jax.value_and_grad(scalar, has_aux=True)(tuple(xs))
        return ys, gs

    def along(self, gs: Arrays, vs: Arrays) -> Any:
        """Give the derivative along a direction that a gradient stands for."""
        return sum(jnp.sum((g * v).real) for g, v in zip(gs, vs, strict=True))

    def gradient_and_tangent(self, xs: Arrays, vs: Arrays) -> tuple[Any, Any]:
        """Let JAX differentiate the gradient along a direction."""
        gradient = lambda *xs: self.value_and_gradient(xs)[1]  # noqa: E731
        return jax.jvp(gradient, tuple(xs), tuple(vs))


class JaxSystem:
    """JAX's own modes. For a Julia function: the bridge's composition of systems.

    Attributes:
        name: `"jax"`.
        modes: what can be asked.
    """

    name = "jax"
    modes = ("reverse", "forward", "second")
    seeded = chunked = False

    def __init__(self, subject: Subject, weighted: Weighted):
        """Compile nothing yet."""
        self._subject = subject
        # What gave value and gradient at the last point, and gives them at others; None if nothing.
        self._known: Callable[[Arrays], Any] | None = None
        self._has_forward = True
        call, gradient, forward = (
            subject.call,
            weighted.value_and_gradient,
            subject.value_and_tangent,
        )
        closed, most = subject.jaxpr, subject.most_iterations

        def wrap(f: Callable[..., Any]) -> Callable[..., Any]:
            return compiled(bounded(f, most), closed) if subject.traced else f

        def everything(xs: Arrays, lines: Arrays) -> Any:
            ys, tangents = lax.map(lambda vs: forward(xs, vs), tuple(lines))
            return call(xs), gradient(xs), (tuple(y[0] for y in ys), tangents)

        self.plain, self.reverse, self.forward = wrap(call), wrap(gradient), wrap(forward)
        self.second: Callable[..., Any] = weighted.gradient_and_tangent
        if subject.traced:
            self.second = CompiledAhead(bounded(self.second, most), closed)
        self._everything = wrap(everything)
        self._backward = wrap(lambda xs: (call(xs), gradient(xs)))
        self._weighted = weighted
        values = bounded(lambda xs: weighted.flat(call(xs)), most)
        gradients = bounded(lambda xs: real_vector(gradient(xs)[1]), most)
        self._many_values, self._many_gradients = (at_many(f, subject) for f in (values, gradients))
        # A small program costs more to compile than to call sixteen times, and without loops more
        # than to call a hundred times.
        self._is_small = compiler_options(closed) is not None
        self._is_short = self._is_small and closed is not None and not contains(closed, LOOPS)

    def expect_second(self, xs: Arrays, vs: Arrays) -> None:
        """Begin to compile what is asked last, beside the other programs."""
        if isinstance(self.second, CompiledAhead):
            self.second.start(xs, vs)

    def ask_at_once(self, xs: Arrays, lines: Sequence[Arrays]) -> AtOnce | None:
        """Compute value, gradient and tangents in one program, which is compiled faster.

        Args:
            xs: the point.
            lines: the directions.

        Returns:
            The answers, without those of forward mode where it is missing or raises; None where
            reverse mode does, so that each is asked alone.
        """
        if not self._subject.traced or not lines:
            return None
        stacked = tuple(np.stack(parts) for parts in zip(*lines, strict=True))
        self._known = None
        if self._has_forward:
            with contextlib.suppress(Exception):
                program = partial(self._everything, lines=stacked)
                plain, reverse, (ys, tangents) = jax.tree.map(np.asarray, program(tuple(xs)))
                self._known = program
                return AtOnce(plain, reverse, (ys, list(zip(*tangents, strict=True))))
            self._has_forward = False  # it is not traced again at every point
        with contextlib.suppress(Exception):
            plain, reverse = jax.tree.map(np.asarray, self._backward(tuple(xs)))
            self._known = self._backward
            return AtOnce(plain, reverse, None)
        return None

    def values(self, xs: Arrays, vs: Arrays, ts: np.ndarray) -> np.ndarray:
        """Compute the outputs at several distances along a line, a row for each."""
        if not self._is_short or self._known is None:
            return self._many_values(xs, vs, ts)
        return np.stack([self._weighted.flat(plain) for plain, _ in self._each(xs, vs, ts)])

    def gradients(self, xs: Arrays, vs: Arrays, ts: np.ndarray) -> np.ndarray:
        """Compute the gradients at several distances along a line, a row for each."""
        with contextlib.suppress(Exception):
            if not self._is_small:
                return np.asarray(self._many_gradients(xs, vs, ts), float)
            return np.stack([real_vector(gs) for _, gs in self._each(xs, vs, ts)]).astype(float)
        return one_by_one(lambda xs: real_vector(self.reverse(xs)[1]), count(xs))(xs, vs, ts)

    def _each(self, xs: Arrays, vs: Arrays, ts: np.ndarray) -> Iterator[tuple[Arrays, Arrays]]:
        """Compute value and gradient along a line with the programs that are compiled already."""
        program = self._known or self._backward
        for t in ts:
            plain, (_, gs), *_ = program(moved(xs, vs, t))
            yield plain, gs


class AtOnce(NamedTuple):
    """What JAX gives at a point.

    Attributes:
        plain: the plain value.
        reverse: value and gradient in reverse mode.
        forward: the value in forward mode, and the tangents for each direction; None where it is
            to be asked alone.
    """

    plain: tuple[np.ndarray, ...]
    reverse: tuple[Any, Any]
    forward: tuple[tuple[np.ndarray, ...], list[tuple[np.ndarray, ...]]] | None


def at_many(inner: Callable[[Any], Any], subject: Subject) -> Callable[..., Any]:
    """Let a function of a point be one of a point, a direction and several distances."""

    def shifted(xs: Arrays, vs: Arrays, t: Any) -> tuple[Any, ...]:
        return tuple(x + t.astype(x.real.dtype) * v for x, v in zip(xs, vs, strict=True))

    if subject.traced and subject.jaxpr is not None:
        # All at once where that computes nothing else: matrices are then read once.
        loops = contains(subject.jaxpr, _LOOPS) or subject.is_julia
        run = lax.map if loops else lambda g, ts: jax.vmap(g)(ts)

        def at_each(xs: Arrays, vs: Arrays, ts: Any) -> Any:
            try:
                return run(lambda t: inner(shifted(xs, vs, t)), ts)
            except NotImplementedError:  # an operation without a batching rule
                return lax.map(lambda t: inner(shifted(xs, vs, t)), ts)

        return compiled(at_each, subject.jaxpr)
    return lambda xs, vs, ts: np.stack([np.asarray(inner(shifted(xs, vs, t))) for t in ts])


def real_vector(gs: Arrays) -> Any:
    """Put arrays into one real vector; in NumPy, which compiles nothing, if none is traced."""
    library: Any = jnp if any(isinstance(g, Tracer) for g in gs) else np
    gs = [g if isinstance(g, Tracer) else np.asarray(g) for g in gs]
    parts = [part for g in gs for part in real_parts(g)]
    kind = jnp.result_type(*parts)
    return library.concatenate([library.ravel(part).astype(kind) for part in parts])


def real_parts(x: Any) -> tuple[Any, ...]:
    """Split complex numbers into real and imaginary parts."""
    return (x.real, x.imag) if jnp.iscomplexobj(x) else (x,)


class JuliaSystem:
    """One of Julia's AD systems on a function from `pb.from_julia`, or on a lowered one."""

    def __init__(self, name: str, subject: Subject, weighted: Weighted, *, second: bool):
        """Choose the modes; `second` is whether to ask for second derivatives."""
        self.name, self._subject, self._weighted = name, subject, weighted
        whole = len(subject.argnums()) == len({p.split("[")[1] for p in subject.paths})
        self._scalar = (
            whole and subject.shapes == ((),) and not np.iscomplexobj(weighted.weights[0])
        )
        # ForwardDiff's dual numbers are compared along with their partials.
        self.seeded = name == "forwarddiff"
        # It differentiates the elements of an array in chunks of its own choice; one seed after
        # the other is a chunk of one.
        self.chunked = self.seeded and self._scalar
        second = second and self._scalar and weighted.weights[0] == 1.0
        self.modes = tuple(mode for mode in row(name).modes if second or mode != "second")
        self.gradients = one_by_one(
            lambda xs: real_vector(self.reverse(xs)[1]), count(subject.point)
        )

    def reverse(self, xs: Arrays) -> tuple[Any, Any]:
        """Value and gradient of the weighted sum; with ForwardDiff, in its own chunks."""
        args, subject = self._subject.args_at(xs), self._subject
        if self._scalar:
            run = value_and_grad(subject.f, subject.argnums(), backend=self.name)
            value, gradient = run(*args)
            scale = self._weighted.weights[0].item()
            gs = [scale * np.asarray(g) for g in jax.tree.leaves(gradient)]
            return subject.floats(value), tuple(gs)
        value, pull = vjp(subject.f, *args, backend=self.name)
        cotangents = jax.tree.leaves(pull(self._cotangent(value)))
        pairs = zip(cotangents, jax.tree.leaves(args), strict=True)
        return subject.floats(value), tuple(np.asarray(ct) for ct, x in pairs if is_moving(x))

    def forward(self, xs: Arrays, vs: Arrays) -> tuple[Any, Any]:
        """Value and tangent along a direction."""
        subject = self._subject
        tangents = jax.tree.map(_tangent, subject.args_at(vs))
        value, tangent = jvp(subject.f, subject.args_at(xs), tangents, backend=self.name)
        return subject.floats(value), subject.floats(tangent)

    def second(self, xs: Arrays, vs: Arrays) -> tuple[Any, Any]:
        """Gradient's derivative along a direction, from the Hessian."""
        subject, numbers = self._subject, self._subject.argnums()
        blocks = hessian(subject.f, numbers, backend=self.name)(*subject.args_at(xs))
        flat = [np.asarray(b) for b in jax.tree.leaves(blocks)]
        rows = []
        for i, x in enumerate(xs):
            row = np.zeros(np.shape(x))
            for block, v in zip(flat[i * len(xs) :], vs, strict=False):
                row = row + np.tensordot(block, v, axes=np.ndim(v))
            rows.append(row)
        return None, tuple(rows)

    def _cotangent(self, value: Any) -> Any:
        """Put the weights in the value's tree; what has no derivative gets zeros."""
        weights = iter(self._weighted.weights)
        leaves, tree = jax.tree.flatten(value)
        found = [next(weights) if is_moving(y) else np.zeros(np.shape(y)) for y in leaves]
        return jax.tree.unflatten(tree, found)


def _tangent(x: Any) -> Any:
    """Make the tangent of a leaf: 0 if it is not differentiated; a key stands for its own."""
    if jnp.issubdtype(getattr(x, "dtype", None) or np.result_type(x), jax.dtypes.extended):
        return x
    tangent = np.asarray(x) if is_moving(x) else np.zeros_like(np.asarray(x))
    return tangent.item() if tangent.ndim == 0 else tangent


def one_by_one(f: Callable[[Arrays], Any], size: int) -> Callable[..., np.ndarray]:
    """Let a function of a point be one of a point, a direction and several distances.

    It gives so many numbers. Where it raises they are NaN: the point itself worked, so that this
    is the outside of the domain.
    """

    def at_each(xs: Arrays, vs: Arrays, ts: np.ndarray) -> np.ndarray:
        rows = np.full((len(ts), size), np.nan)
        for here, t in zip(rows, ts, strict=True):
            with contextlib.suppress(Exception):
                here[:] = f(moved(xs, vs, t))
        return rows

    return at_each


def robust(values: Callable[..., Any], size: int) -> Callable[..., np.ndarray]:
    """Let points at which a function raises be points at which it is not defined."""

    def safe(xs: Arrays, vs: Arrays, ts: np.ndarray) -> np.ndarray:
        with contextlib.suppress(Exception):
            return np.asarray(values(xs, vs, ts), float)
        rows = np.full((len(ts), size), np.nan)
        for here, t in zip(rows, ts, strict=True):
            with contextlib.suppress(Exception):
                # As many distances as ever: another number of them would be compiled anew.
                here[:] = values(xs, vs, np.full(2 * TOLERANCES.levels, t))[0]
        return rows

    return safe


# The numbers of Julia's systems, the tangents that they make of structures, and the words in which
# Zygote and Yota say that they cannot.
_OWN_NUMBERS = re.compile(
    r"\bDual\{|\bTracked\w+|no method matching \(ChainRulesCore\.(Mutable)?Tangent\{"
)
_REFUSALS = (
    "No derivative rule found for op",
    "try/catch is not supported",
    "Can't differentiate foreigncall",
    "Can't differentiate gc_preserve",
)
_REFUSALS_OF_JAX = (
    "can't apply forward-mode",
    "Forward-mode differentiation",
    "Reverse-mode differentiation does not work",
    "Pure callbacks do not support",
    "IO callbacks do not support",
    "Differentiation rule for",
    "Transpose rule (for reverse-mode differentiation) for",
    # custom_linear_solve has no derivative of its derivative: cg, gmres.
    "ad_util.Zero",
)


def is_refused_by_julia(text: str) -> bool:
    """Say whether a message is that of a Julia system that cannot run a function.

    Such as one without a method for the system's own numbers: Tracker has no `floor`, and Yota
    cannot make the tangent of a mutable structure of which it reads some fields.
    """
    no_method = "MethodError" in text and _OWN_NUMBERS.search(text) is not None
    return no_method or any(words in text for words in _REFUSALS)


def is_unsupported(error: BaseException) -> bool:
    """Say whether a system refuses, as opposed to fails."""
    if isinstance(error, NotImplementedError):  # those of pybridge are among them
        return True
    julia_type = error.julia_type if isinstance(error, JuliaError) else ""
    text = str(error)
    return (
        julia_type.rpartition(".")[2] == "UnsupportedModeError"
        or is_refused_by_julia(text)
        or any(words in text for words in _REFUSALS_OF_JAX)
    )
