"""The function that `pb.check` checks, as a function of the list of its floating-point leaves."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.extend.core import ClosedJaxpr
from jax.tree_util import keystr

from ..._errors import ArgumentTypeError, ArgumentValueError, explain, first_line
from ...finite import double_precision, widen
from ...interop import JuliaFunction
from ...jaxprs import RULED_CALLS, SOLVERS, contains, raising_line
from ._bounded_loops import most_iterations
from ._precision import coarsest

if TYPE_CHECKING:
    from ._sightings import Sightings

Arrays = Sequence[Any]

_CALLBACKS = frozenset({"pure_callback", "io_callback", "ffi_call"})

# What these compute is not known from the program and its arguments.
_CHANGING = _CALLBACKS | {"pybridge_call", "rng_uniform"}
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


class Subject:
    """A function and its arguments.

    Attributes:
        f: the function.
        args: the arguments as the caller gave them.
        name: what a report calls it.
        is_julia: whether it comes from `pb.from_julia`.
        paths: the floating-point leaves of the arguments, which are differentiated.
        point: these leaves, in float64 or complex128.
        outputs: the floating-point leaves of the value.
        shapes: their shapes.
        dtypes: their dtypes, as the function gives them.
        wide: whether the function can be run in float64 at all.
        traced: whether JAX can trace it, so that it can be compiled.
        jaxpr: the program that it is for JAX, in `paths`; None where it cannot be traced.
        own_program: the same in the caller's own precision.
    """

    def __init__(self, f: Callable[..., Any], args: Sequence[Any]):
        """Flatten the arguments, and trace the function with them, or call it where it cannot be.

        Raises:
            ArgumentTypeError: nothing to call, or nothing to differentiate.
            ArgumentValueError: the function raises.
        """
        if not callable(f):
            raise _refuse("a function", f"a {type(f).__name__}", "Pass the function itself.")
        self.f, self.args = f, tuple(args)
        self.is_julia = isinstance(f, JuliaFunction)
        self.name = _name(f)
        flat, self._tree = jax.tree_util.tree_flatten_with_path(self.args)
        self._leaves = [leaf for _, leaf in flat]
        self._moving = [i for i, leaf in enumerate(self._leaves) if is_moving(leaf)]
        self.paths = tuple(f"args{keystr(flat[i][0])}" for i in self._moving)
        self.point = tuple(widen(self._leaves[i]) for i in self._moving)
        self.given = tuple(self._leaves[i] for i in self._moving)
        if not self.paths:
            got = "arguments without any" if self._leaves else "no arguments"
            fix = "Convert what should be differentiated, for example with float(x)."
            raise _refuse("an argument of floating-point numbers", got, fix)
        self.outputs: tuple[str, ...] = ()
        self.shapes: tuple[tuple[int, ...], ...] = ()
        self.dtypes: tuple[np.dtype, ...] = ()
        self.own_program = self._trace()
        self._own_value = None if _shows_all(self.own_program) else self.call_plainly()
        if not self.outputs:
            got = "a value without any"
            raise _refuse("a value of floating-point numbers", got, "Return what is computed.")
        self._prepare()

    def _prepare(self) -> None:
        """Find out whether it runs in float64, and whether JAX can trace it."""
        for self.wide in (True, False):
            if self._runs() and not (self.wide and self._has_narrow_rules()):
                return

    def _runs(self) -> bool:
        """Trace it, or call it where that cannot be; False where neither works."""
        self.traced, self.jaxpr = False, None
        with self.precision():
            with contextlib.suppress(Exception):
                self.jaxpr = jax.make_jaxpr(lambda *xs: self.call(xs))(*self.at(self.point))
                if contains(self.jaxpr, _CALLBACKS):
                    # What it declares in float32 only shows where it runs.
                    jax.block_until_ready(self.call(self.at(self.point)))
                self.traced = True
                return True
            with contextlib.suppress(Exception):
                self.call(self.at(self.point))
                return True
        return False

    def _has_narrow_rules(self) -> bool:
        """Tell whether a rule works in the caller's own precision, and not in double precision."""
        program = self.own_program
        if program is None or not contains(program, {*RULED_CALLS, *SOLVERS}):
            return False

        def reverse(*xs: Any) -> Any:
            ys, pullback = jax.vjp(lambda *xs: self.call(xs), *xs)
            return pullback(ys)

        for mode in (lambda *xs: self.value_and_tangent(xs, xs), reverse):
            with double_precision():
                works = _traces(mode, self.point)
            if not works and _traces(mode, self.given):
                return True
        return False

    def _trace(self) -> ClosedJaxpr | None:
        """Trace with the caller's own arguments; None where that cannot be."""
        if self.is_julia:
            return None
        with contextlib.suppress(Exception):
            return jax.make_jaxpr(lambda *xs: self.call(xs))(*self.given)
        return None

    def repeat(self) -> tuple[Sequence[np.ndarray], Sequence[np.ndarray]]:
        """Call twice with the caller's own arguments.

        Where the function is the same program each time that it is traced, nothing is run: both
        values are empty.
        """
        program = self.own_program
        if program and _shows_all(program) and _is_same(program, self._trace()):
            return (), ()
        first = self._own_value if self._own_value is not None else self.call_plainly()
        return first, self.call_plainly()

    @cached_property
    def rounding(self) -> float:
        """The relative rounding error of the narrowest numbers that the value passes through."""
        if self.is_julia:
            return self.sightings.rounding if self.wide else 0.0
        return 0.0 if self.jaxpr is None else coarsest(self.jaxpr)

    @cached_property
    def most_iterations(self) -> int | None:
        """The iterations from which on a loop counts as endless; None where no loop could be."""
        with self.precision():
            return most_iterations(self.jaxpr, self.at(self.point))

    @property
    def eps(self) -> float:
        """The relative rounding error of its numbers: of its precision, or of a narrower one."""
        return max(float(np.finfo(self.dtype).eps), self.rounding)

    @cached_property
    def sightings(self) -> Sightings:
        """What a Julia function does at the given point."""
        return self.sightings_at(self.at(self.point))

    def sightings_at(self, xs: Arrays) -> Sightings:
        """What a Julia function does at a point; nothing is run before it is asked for."""
        from ._sightings import Sightings

        assert isinstance(self.f, JuliaFunction)
        return Sightings(self.f, self.args_at(xs))

    @property
    def dtype(self) -> np.dtype:
        """The precision in which it is checked."""
        if self.wide:
            return np.dtype(np.float64)
        found = [jnp.finfo(np.asarray(x).dtype).dtype for x in self.given]
        return np.result_type(np.float32, *(d for d in found if d.itemsize > 2))

    @property
    def given_eps(self) -> float:
        """The relative rounding error of the caller's own arguments, the largest of them."""
        return max(float(jnp.finfo(np.asarray(x).dtype).eps) for x in self.given)

    def precision(self) -> contextlib.AbstractContextManager[None]:
        """Make the context in which it is checked: double precision where it can be."""
        return double_precision() if self.wide else contextlib.nullcontext()

    def at(self, point: Arrays) -> tuple[np.ndarray, ...]:
        """Give a float64 point the precision in which the function is checked."""
        if self.wide:
            return tuple(point)
        kinds = {"f": self.dtype, "c": np.result_type(self.dtype, np.complex64)}
        return tuple(x.astype(kinds[x.dtype.kind]) for x in point)

    def call(self, xs: Arrays) -> tuple[Any, ...]:
        """Call with other floating-point leaves; return those of the value."""
        return self.floats(self.f(*self.args_at(xs)))

    def value_and_tangent(self, xs: Arrays, vs: Arrays) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """Let JAX differentiate along a direction: the value's leaves and theirs."""
        return jax.jvp(lambda *xs: self.call(xs), tuple(xs), tuple(vs))

    def call_plainly(self) -> tuple[np.ndarray, ...]:
        """Call with the caller's own arguments, in the caller's own precision.

        Raises:
            ArgumentValueError: the function raises; its exception is the cause.
        """
        try:
            return tuple(np.asarray(y) for y in self.floats(self.f(*self._own_args())))
        except Exception as error:
            line = raising_line(error)
            place = f" in {line.file}:{line.line} ({line.function}): {line.source}" if line else ""
            raise ArgumentValueError(
                explain(
                    "pb.check",
                    expected=f"a point at which {self.name} can be called",
                    got=first_line(error) + place,
                    fix="Call the function with these arguments first.",
                )
            ) from error

    def _own_args(self) -> tuple[Any, ...]:
        """Give a Python function JAX's arrays for NumPy's, as every transformation does."""
        numpy = () if self.is_julia else np.ndarray
        return self._around([jnp.asarray(x) if isinstance(x, numpy) else x for x in self.given])

    def args_at(self, point: Arrays) -> tuple[Any, ...]:
        """Build the whole arguments around floating-point leaves."""
        return self._around(map(self._convert, point))

    def _around(self, moving: Iterable[Any]) -> tuple[Any, ...]:
        leaves = list(self._leaves)
        for i, x in zip(self._moving, moving, strict=True):
            leaves[i] = x
        return jax.tree.unflatten(self._tree, leaves)

    def argnums(self) -> tuple[int, ...]:
        """List the arguments all of whose leaves are differentiated."""
        leaves = map(jax.tree.leaves, self.args)
        return tuple(n for n, found in enumerate(leaves) if found and all(map(is_moving, found)))

    def _convert(self, x: Any) -> Any:
        """Julia takes numbers as numbers, JAX everything as its arrays."""
        if isinstance(x, Tracer):
            return x
        if self.is_julia:
            return x.item() if np.ndim(x) == 0 else np.asarray(x)
        return jnp.asarray(x)

    def floats(self, value: Any) -> tuple[Any, ...]:
        """List the floating-point leaves of a value."""
        flat, _ = jax.tree_util.tree_flatten_with_path(value)
        chosen = [(path, leaf) for path, leaf in flat if is_moving(leaf)]
        if not self.outputs:
            self.outputs = tuple(f"value{keystr(path)}" for path, _ in chosen)
            self.shapes = tuple(np.shape(leaf) for _, leaf in chosen)
            self.dtypes = tuple(np.dtype(jnp.result_type(leaf)) for _, leaf in chosen)
        return tuple(leaf if self.is_julia else jnp.asarray(leaf) for _, leaf in chosen)


def _shows_all(program: ClosedJaxpr | None) -> bool:
    """Tell whether all that a function does is known from its program and its arguments."""
    return program is not None and not program.effects and not contains(program, _CHANGING)


def _traces(function: Callable[..., Any], xs: Arrays) -> bool:
    """Tell whether JAX can trace a function at a point."""
    with contextlib.suppress(Exception):
        jax.eval_shape(function, *xs)
        return True
    return False


def _is_same(one: ClosedJaxpr, other: ClosedJaxpr | None) -> bool:
    """Compare programs with the numbers in them; rules are compared by their names."""
    if other is None or len(one.consts) != len(other.consts):
        return False
    texts = (_ADDRESS.sub("", str(program.jaxpr)) for program in (one, other))
    return next(texts) == next(texts) and all(
        a is b or _holds_the_same(a, b) for a, b in zip(one.consts, other.consts, strict=True)
    )


def _holds_the_same(one: Any, other: Any) -> bool:
    """Compare two constants of programs bit by bit."""
    if jnp.issubdtype(one.dtype, jax.dtypes.prng_key):
        one, other = map(jax.random.key_data, (one, other))
    one, other = np.asarray(one), np.asarray(other)
    return one.dtype == other.dtype and one.tobytes() == other.tobytes()


def is_moving(leaf: Any) -> bool:
    """Say whether a leaf is differentiated: real or complex floating-point numbers."""
    dtype = getattr(leaf, "dtype", None)
    if dtype is None or isinstance(leaf, type):  # np.float32, the type, has a dtype of its own
        return isinstance(leaf, float | complex)
    return bool(jnp.issubdtype(dtype, np.inexact))


def moved(xs: Arrays, vs: Arrays, t: float) -> tuple[np.ndarray, ...]:
    """Give the point at a distance along a direction."""
    return tuple(np.asarray(x + t * v, x.dtype) for x, v in zip(xs, vs, strict=True))


def named(paths: Sequence[str], arrays: Arrays) -> dict[str, np.ndarray]:
    """Put arrays under the paths of their leaves."""
    return {path: np.asarray(x) for path, x in zip(paths, arrays, strict=True)}


def _name(f: Any) -> str:
    if isinstance(f, JuliaFunction):
        return f.source if f.source is not None else repr(f)
    inner = getattr(f, "func", f)  # functools.partial
    return getattr(inner, "__qualname__", None) or type(inner).__name__


def _refuse(expected: str, got: str, fix: str) -> ArgumentTypeError:
    return ArgumentTypeError(explain("pb.check", expected=expected, got=got, fix=fix))
