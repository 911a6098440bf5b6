"""Derivatives by finite differences that come with an error estimate.

The independent reference for every AD system: nothing here looks at how a function is
written, it is only called, in float64. The function sees plain values, so `within_gradient`
is False inside.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from .._errors import ArgumentTypeError, explain
from . import _tableau as richardson
from ._sampling import Convert, Program, as_jax, widen
from ._sampling import as_given as as_given
from ._sampling import double_precision as double_precision


class FiniteDerivative(NamedTuple):
    """A value, a derivative and the estimated absolute error of the derivative.

    At a kink the derivative is the middle of the one-sided slopes and the error half of
    their distance. Where it is +-inf (vertical tangent) or nan, the error is inf.
    """

    value: Any
    derivative: Any
    error: Any


class FiniteSlopes(NamedTuple):
    """A value and the one-sided slopes in a direction, with their error estimates."""

    value: Any
    left: Any
    right: Any
    left_error: Any
    right_error: Any


def finite_jvp(
    f: Callable[..., Any],
    primals: Sequence[Any],
    tangents: Sequence[Any],
    *,
    convert: Convert = as_jax,
) -> FiniteDerivative:
    """Differentiate `f` at `primals` in the direction `tangents`.

    Args:
        f: a function of pytrees with a pytree as its result.
        primals: its arguments.
        tangents: trees of the same structure; entries at integer leaves are ignored.
        convert: makes what `f` receives out of a float64 array and the original leaf.

    Returns:
        Value, tangent (shapes of the value, float64; 0 for integer results) and error.
    """
    program = Program(f, primals, convert)
    slope = richardson.combine(program.slopes(_direction(program, tangents)))
    return FiniteDerivative(
        program.value, program.unflatten(slope.value), program.unflatten(slope.error)
    )


def finite_slopes(
    f: Callable[..., Any],
    primals: Sequence[Any],
    tangents: Sequence[Any],
    *,
    convert: Convert = as_jax,
) -> FiniteSlopes:
    """Differentiate `f` from the left and from the right, for kinks.

    Args:
        f: see `finite_jvp`.
        primals: see `finite_jvp`.
        tangents: see `finite_jvp`; "right" is the way they point.
        convert: see `finite_jvp`.

    Returns:
        Value, slopes from the left and the right, and their errors. A slope is nan on a
        side where the function is not defined and +-inf where it grows without end.
    """
    program = Program(f, primals, convert)
    _, right, left = program.slopes(_direction(program, tangents))
    parts = (left.value, right.value, left.error, right.error)
    return FiniteSlopes(program.value, *(program.unflatten(part) for part in parts))


def finite_gradient(
    f: Callable[..., Any],
    args: Sequence[Any],
    argnums: int | Sequence[int] = 0,
    *,
    convert: Convert = as_jax,
) -> FiniteDerivative:
    """Differentiate a scalar function with respect to some of its arguments.

    Args:
        f: a function of pytrees with one real scalar as its result.
        args: its arguments.
        argnums: which of them to differentiate, as in `jax.grad`.
        convert: see `finite_jvp`.

    Returns:
        Value, gradient (float64 arrays of the inputs' shapes; for a complex input
        `df/dx - i df/dy`, as in JAX) and error.

    Raises:
        ArgumentTypeError: an integer input, or a result that is not a real scalar.
    """
    program = Program(f, args, convert)
    chosen = program.selected(argnums)
    program.require("finite differences", chosen, real=False)
    if program.out_shapes != [()] or program.origin.dtype.kind == "c":
        raise ArgumentTypeError(
            explain(
                "finite differences",
                expected="one real scalar as the result of the function",
                got=f"a result of shape {program.out_shapes}",
                fix="Reduce the result, for example with a sum, or ask for the jacobian.",
            )
        )
    slopes = {leaf: _leaf_gradient(program, leaf) for leaf in jax.tree.leaves(chosen)}
    return FiniteDerivative(
        program.value,
        jax.tree.map(lambda leaf: slopes[leaf].value, chosen),
        jax.tree.map(lambda leaf: slopes[leaf].error, chosen),
    )


def finite_jacobian(
    f: Callable[..., Any],
    args: Sequence[Any],
    argnums: int | Sequence[int] = 0,
    *,
    convert: Convert = as_jax,
) -> FiniteDerivative:
    """Differentiate every output with respect to every chosen real input.

    Args:
        f: a function of pytrees with a pytree as its result.
        args: its arguments.
        argnums: which of them to differentiate, as in `jax.jacobian`.
        convert: see `finite_jvp`.

    Returns:
        Value, jacobian and error: the output's tree, in each leaf the inputs' tree, in
        each leaf of that an array of shape output shape + input shape.
    """
    program = Program(f, args, convert)
    chosen = program.selected(argnums)
    program.require("finite differences", chosen, real=True)
    values, errors = {}, {}
    for leaf in jax.tree.leaves(chosen):
        columns = [richardson.combine(program.slopes(e)) for e in program.basis(leaf)]
        values[leaf] = _stack([c.value for c in columns], program.origin)
        errors[leaf] = _stack([c.error for c in columns], program.origin)

    def arrange(matrices: dict[int, np.ndarray]) -> Any:
        def place(rows: slice, shape: tuple[int, ...]) -> Any:
            return jax.tree.map(
                lambda leaf: matrices[leaf][rows].reshape(shape + program.point[leaf].shape),
                chosen,
            )

        return _by_output(program, place)

    return FiniteDerivative(program.value, arrange(values), arrange(errors))


def finite_hessian(
    f: Callable[..., Any],
    args: Sequence[Any],
    argnums: int | Sequence[int] = 0,
    *,
    convert: Convert = as_jax,
) -> Any:
    """Differentiate twice, with second differences rather than differences twice.

    Args:
        f: a function of pytrees with a pytree as its result.
        args: its arguments.
        argnums: which of them to differentiate, as in `jax.hessian`.
        convert: see `finite_jvp`.

    Returns:
        The output's tree, in each leaf the inputs' tree twice, in each leaf of that an
        array of shape output shape + input shape + input shape.
    """
    program = Program(f, args, convert)
    chosen = program.selected(argnums)
    program.require("finite differences", chosen, real=True)
    units = [(leaf, e) for leaf in jax.tree.leaves(chosen) for e in program.basis(leaf)]
    n = len(units)
    full = np.zeros((program.origin.size, n, n))
    for i in range(n):
        for j in range(i, n):
            full[:, i, j] = full[:, j, i] = program.mixed(units[i][1], units[j][1])
    owner = np.array([leaf for leaf, _ in units], dtype=int)

    def place(rows: slice, shape: tuple[int, ...]) -> Any:
        def block(one: int, two: int) -> np.ndarray:
            part = full[rows][:, owner == one][:, :, owner == two]
            return part.reshape(shape + program.point[one].shape + program.point[two].shape)

        return jax.tree.map(lambda one: jax.tree.map(lambda two: block(one, two), chosen), chosen)

    return _by_output(program, place)


def _leaf_gradient(program: Program, leaf: int) -> richardson.Slope:
    """Differentiate the scalar result with respect to every element of one leaf."""
    shape, dtype = program.point[leaf].shape, program.point[leaf].dtype
    value, error = np.zeros(shape, dtype), np.zeros(shape)
    for k, direction in enumerate(program.basis(leaf)):
        slope = richardson.combine(program.slopes(direction))
        value.flat[k], error.flat[k] = slope.value[0], slope.error[0]
        if dtype.kind == "c":
            turned = {leaf: 1j * direction[leaf]}
            slope = richardson.combine(program.slopes(turned))
            value.flat[k] -= 1j * slope.value[0]
            error.flat[k] += slope.error[0]
    return richardson.Slope(value, error)


def _by_output(program: Program, place: Callable[[slice, tuple[int, ...]], Any]) -> Any:
    """Build the output's tree from what `place` makes of each leaf's rows and shape."""
    parts, start = [], 0
    for shape in program.out_shapes:
        stop = start + int(np.prod(shape))
        parts.append(place(slice(start, stop), shape))
        start = stop
    return jax.tree.unflatten(program.out_tree, parts)


def _stack(columns: list[np.ndarray], like: np.ndarray) -> np.ndarray:
    """Put columns side by side; a leaf without elements has none."""
    return np.stack(columns, axis=1) if columns else np.zeros((like.size, 0))


def _direction(program: Program, tangents: Sequence[Any]) -> dict[int, np.ndarray]:
    """Pick the tangents of the inexact leaves."""
    leaves = jax.tree.leaves(tuple(tangents), is_leaf=lambda leaf: leaf is None)
    return {i: np.broadcast_to(widen(leaves[i]), program.point[i].shape) for i in program.inexact}
