"""A function at a point, its derivatives as JAX gives them, and its tape."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..._errors import ArgumentTypeError, ArgumentValueError, explain
from ..subject import is_moving
from ._eager_tape import record_eagerly
from ._tape import Tape, all_finite, as_numpy, is_inexact, record

# What JAX raises where a program needs a concrete value.
_NEEDS_VALUES = (
    jax.errors.ConcretizationTypeError,
    jax.errors.NonConcreteBooleanIndexError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerIntegerConversionError,
)


@dataclass(frozen=True, eq=False)
class ModeResult:
    """What a mode gives: results and derivative, as lists of arrays."""

    values: list[np.ndarray]
    derivative: list[np.ndarray]

    @property
    def finite(self) -> bool:
        """Whether the derivative is finite."""
        return all(map(all_finite, self.derivative))


class Problem:
    """A function of the inexact leaves of some of its arguments."""

    def __init__(self, f: Callable[..., Any], args: Sequence[Any], argnums: Any):
        """Check the arguments, before anything runs.

        Args:
            f: the function.
            args: its arguments.
            argnums: those to differentiate; None for all that hold floating numbers.
        """
        if not callable(f):
            raise ArgumentTypeError(
                explain(
                    "pb.explain_nan",
                    expected="a function",
                    got=f"a {type(f).__name__}",
                    fix="Pass the function itself, and then its arguments.",
                )
            )
        self.f = f
        self.args = tuple(args)
        self.name = getattr(f, "__name__", None) or type(f).__name__
        self.single = isinstance(argnums, Integral) or (argnums is None and len(self.args) == 1)
        self.argnums = _argnums(self.args, argnums)
        leaves, self._tree = jax.tree_util.tree_flatten_with_path(self.args)
        self._leaves = [leaf for _, leaf in leaves]
        self._moving = [
            i
            for n in self.argnums
            for i, (path, leaf) in enumerate(leaves)
            if path[0].idx == n and is_moving(leaf)
        ]
        self.inputs = [jnp.asarray(self._leaves[i]) for i in self._moving]
        if not self.inputs:
            raise ArgumentTypeError(
                explain(
                    "pb.explain_nan",
                    expected="an argument of floating or complex numbers",
                    got=", ".join(type(arg).__name__ for arg in self.args) or "no arguments",
                    fix="Pass 2.0 instead of 2, or name another argument with argnums.",
                )
            )

    def flat(self, f: Callable[..., Any]) -> Callable[..., list[Any]]:
        """Return a function of the inputs that lists the inexact results."""

        def function(*inputs: Any) -> list[Any]:
            results = jax.tree.leaves(f(*self._arguments(self._leaves, inputs)))
            return [result for result in results if is_inexact(result)]

        return function

    def _arguments(self, leaves: Sequence[Any], inputs: Sequence[Any]) -> Any:
        """Arrange leaves, and values for the inputs among them, as the arguments are."""
        given = dict(zip(self._moving, inputs, strict=True))
        return self._tree.unflatten(given.get(i, leaf) for i, leaf in enumerate(leaves))

    def arranged(self, mode: str, derivative: Sequence[Any]) -> Any:
        """Arrange a derivative for the reader; it is None for leaves that are no inputs."""
        if mode == "forward":
            return derivative[0] if len(derivative) == 1 else list(derivative)
        parts = self._arguments([None] * len(self._leaves), derivative)
        return parts[self.argnums[0]] if self.single else tuple(parts[n] for n in self.argnums)

    def tape(self, is_finite: bool) -> Tape:
        """Run the function, whose value is finite or not, and keep every step."""
        function = self.flat(self.f)
        try:
            traced = jax.make_jaxpr(function)(*self.inputs)
        except _NEEDS_VALUES:
            return record_eagerly(function, self.inputs, is_finite)
        return record(traced, self.inputs, is_finite)

    def bad_inputs(self) -> list[str]:
        """List the arguments that are not finite themselves."""
        return [
            f"args[{n}]{jax.tree_util.keystr(path)}"
            for n, arg in enumerate(self.args)
            for path, leaf in jax.tree.leaves_with_path(arg)
            if is_moving(leaf) and not all_finite(leaf)
        ]


def differentiate(
    function: Callable[..., list[Any]], inputs: Sequence[Any], mode: str
) -> ModeResult:
    """Differentiate the sum of a list of results as `jax.grad` does, or the list along ones."""
    if mode == "reverse":
        values, pullback = jax.vjp(function, *inputs)
        derivative = pullback([jnp.ones_like(value) for value in values])
    else:
        ones = [jnp.ones_like(x) for x in inputs]
        values, derivative = jax.jvp(function, tuple(inputs), tuple(ones))
    return ModeResult(list(map(as_numpy, values)), list(map(as_numpy, derivative)))


def _argnums(args: tuple[Any, ...], argnums: Any) -> list[int]:
    if argnums is None:
        return [n for n, arg in enumerate(args) if any(map(is_moving, jax.tree.leaves(arg)))]
    chosen = [argnums] if isinstance(argnums, Integral) else list(argnums)
    if not all(isinstance(n, Integral) and -len(args) <= int(n) < len(args) for n in chosen):
        raise ArgumentValueError(
            explain(
                "pb.explain_nan",
                expected=f"argnums between 0 and {len(args) - 1}",
                got=repr(argnums),
                fix="Count the arguments after the function from 0.",
            )
        )
    return [int(n) % len(args) for n in chosen]
