"""A function of pytrees seen as a function of flat float64 numbers, for differences.

Calls are made in float64 whatever precision the caller uses, because that is where the
digits of a difference come from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from .._errors import ArgumentTypeError, BridgeError, UnsupportedModeError, explain, first_line
from ._differences import Curve
from ._mixed import mixed_derivative
from ._points import CurveDerivative, differentiate_curve
from ._precision import double_precision
from ._tolerances import TOLERANCES

Convert = Callable[[np.ndarray, Any], Any]


def as_jax(value: np.ndarray, original: Any) -> jax.Array:
    """Give the function a JAX array, as JAX's own transformations do."""
    return jnp.asarray(value)


def as_given(value: np.ndarray, original: Any) -> Any:
    """Give the function the caller's kind of value: Python number, NumPy or JAX array."""
    if isinstance(original, float | complex):
        return value.item()
    return jnp.asarray(value) if isinstance(original, jax.Array) else value


# What is asked for one derivative may take more steps than what is asked for a thousand.
_EXACT = replace(TOLERANCES, central=1e-11, fruitless_halvings=TOLERANCES.most_halvings)


class Program:
    """A function of pytrees seen as a function of the flat list of its inexact leaves."""

    def __init__(self, f: Callable[..., Any], args: Sequence[Any], convert: Convert):
        """Flatten the arguments and call the function once at the point itself."""
        self._f, self._convert = f, convert
        self._leaves, self._tree = jax.tree.flatten(tuple(args))
        self.inexact = [i for i, leaf in enumerate(self._leaves) if is_inexact(leaf)]
        if any(isinstance(leaf, Tracer) for leaf in self._leaves):
            raise UnsupportedModeError(
                explain(
                    "finite differences",
                    expected="numbers",
                    got="values that JAX traces",
                    fix="Call them outside of jit, vmap and grad; inside, use JAX's own modes.",
                )
            )
        self.point = {i: widen(self._leaves[i]) for i in self.inexact}
        try:
            self.value, self.origin = self._call({})
        except TypeError as error:
            f(*args)  # an error of the function's own is the user's to see
            raise ArgumentTypeError(
                explain(
                    "finite differences",
                    expected="a function that runs in float64, where differences have their digits",
                    got=first_line(error),
                    fix="Give its constants the dtype of the arguments, as in "
                    "jnp.zeros((), x.dtype). pb.check takes such a function in its own precision.",
                )
            ) from error
        leaves, self.out_tree = jax.tree.flatten(self.value)
        self.out_shapes = [np.shape(leaf) for leaf in leaves]

    def _call(self, shifts: dict[int, np.ndarray]) -> tuple[Any, np.ndarray]:
        leaves = list(self._leaves)
        with double_precision(), np.errstate(all="ignore"):
            for i, x in self.point.items():
                moved = np.asarray(x + shifts[i] if i in shifts else x)
                leaves[i] = self._convert(moved, self._leaves[i])
            args = jax.tree.unflatten(self._tree, leaves)
            value = jax.tree.map(np.asarray, self._f(*args))
        flat = [widen(leaf).ravel() for leaf in jax.tree.leaves(value)]
        return value, np.concatenate(flat) if flat else np.zeros(0)

    def probe(self, shifts: dict[int, np.ndarray]) -> np.ndarray:
        """Call with moved leaves; nan where the function is not defined."""
        try:
            flat = self._call(shifts)[1]
        except (ArithmeticError, ValueError, BridgeError):
            # The point itself worked, so this is the outside of the domain: Python's and
            # Julia's own sqrt and log raise there.
            flat = None
        if flat is None or flat.shape != self.origin.shape:
            return np.full(self.origin.shape, np.nan)
        return flat

    def differentiate(self, direction: dict[int, np.ndarray]) -> CurveDerivative:
        """Differentiate in a direction, which is given per moving leaf."""
        lengths = [np.abs(v[np.isfinite(v)]).max(initial=0.0) for v in direction.values()]
        # A direction of length one, so that a tiny or huge tangent cannot spoil the steps.
        length = float(max(lengths, default=0.0)) or 1.0
        unit = {i: v / length for i, v in direction.items()}

        def sample(ts: np.ndarray) -> np.ndarray:
            return np.stack([self.probe({i: t * v for i, v in unit.items()}) for t in ts])

        size, smallest = self._scale(unit)
        curve = Curve(
            sample, self.origin, size, smallest, blur=self._blur(unit), shift=0.0, batch=1
        )
        found = differentiate_curve(curve, _EXACT)
        return CurveDerivative(*(estimate.times(length) for estimate in found))

    def differentiate_twice(
        self, first: dict[int, np.ndarray], second: dict[int, np.ndarray]
    ) -> np.ndarray:
        """Differentiate once in each of two directions of length one."""

        def surface(s: float, t: float) -> np.ndarray:
            shifts = {i: s * v for i, v in first.items()}
            for i, v in second.items():
                shifts[i] = shifts.get(i, 0.0) + t * v
            return self.probe(shifts)

        sizes, smallest = zip(self._scale(first), self._scale(second), strict=True)
        return mixed_derivative(surface, sizes, smallest, _EXACT).value

    def _scale(self, unit: dict[int, np.ndarray]) -> tuple[float, float]:
        """Find the largest and the smallest length that matter among the moving numbers."""
        moving = [np.abs(self.point[i][v != 0]) for i, v in unit.items()]
        x = np.concatenate([np.zeros(0), *moving])
        x = x[np.isfinite(x)]
        return max(1.0, x.max(initial=0.0)), max(x[x > 0].min(initial=1.0), 1e-30)

    def _blur(self, unit: dict[int, np.ndarray]) -> float:
        """Find by how many eps of the distance the moving numbers are rounded, see `Curve`."""
        blurs = [np.abs(self.point[i][v != 0] / v[v != 0]) for i, v in unit.items()]
        x = np.concatenate([np.zeros(0), *blurs])
        return float(x[np.isfinite(x)].max(initial=0.0))

    def basis(self, leaf: int) -> Iterator[dict[int, np.ndarray]]:
        """Yield a unit direction for every element of a leaf."""
        shape, dtype = self.point[leaf].shape, self.point[leaf].dtype
        for k in range(self.point[leaf].size):
            direction = np.zeros(shape, dtype)
            direction.flat[k] = 1.0
            yield {leaf: direction}

    def unflatten(self, flat: np.ndarray) -> Any:
        """Shape a flat result like the function's output."""
        sizes = [int(np.prod(shape)) for shape in self.out_shapes]
        parts = np.split(flat, np.cumsum(sizes)[:-1]) if sizes else []
        shaped = [part.reshape(s) for part, s in zip(parts, self.out_shapes, strict=True)]
        return jax.tree.unflatten(self.out_tree, shaped)

    def selected(self, argnums: int | Sequence[int]) -> Any:
        """Give the tree of leaf numbers of the arguments that are differentiated."""
        numbers = jax.tree.unflatten(self._tree, range(len(self._leaves)))
        if isinstance(argnums, int):
            return numbers[argnums]
        return tuple(numbers[i] for i in argnums)

    def require(self, where: str, chosen: Any, *, real: bool) -> None:
        """Refuse leaves that have no derivative."""
        for leaf in jax.tree.leaves(chosen):
            dtype = dtype_of(self._leaves[leaf])
            if leaf not in self.point or (real and self.point[leaf].dtype.kind == "c"):
                kinds = "real floating-point" if real else "floating-point or complex"
                raise ArgumentTypeError(
                    explain(
                        where,
                        expected=f"{kinds} inputs to differentiate",
                        got=str(dtype),
                        fix="Convert the argument, or leave it out of argnums.",
                    )
                )


def dtype_of(leaf: Any) -> Any:
    """Read the dtype of an array or a Python number."""
    return leaf.dtype if hasattr(leaf, "dtype") else np.result_type(leaf)


def is_inexact(leaf: Any) -> bool:
    """Say whether a leaf has a derivative: real or complex floating point."""
    return bool(jnp.issubdtype(dtype_of(leaf), np.inexact))


def widen(leaf: Any) -> np.ndarray:
    """Copy a leaf to float64 or complex128."""
    is_complex = jnp.issubdtype(dtype_of(leaf), np.complexfloating)
    return np.asarray(leaf).astype(np.complex128 if is_complex else np.float64)
