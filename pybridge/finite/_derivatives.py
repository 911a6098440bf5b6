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
from ._program import Convert, Program, as_jax, widen
from ._tableau import Estimate


class FiniteDerivative(NamedTuple):
    """A value, a derivative and the estimated absolute error of the derivative.

    At a kink the derivative is the middle of the one-sided derivatives and the error half of
    their distance. Where it is +-inf (vertical tangent) or nan, the error is inf.
    """

    value: Any
    derivative: Any
    error: Any


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
    tangent = program.differentiate(_direction(program, tangents)).derivative
    return FiniteDerivative(
        program.value, program.unflatten(tangent.value), program.unflatten(tangent.error)
    )


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
    parts = {leaf: _leaf_gradient(program, leaf) for leaf in jax.tree.leaves(chosen)}
    return FiniteDerivative(
        program.value,
        jax.tree.map(lambda leaf: parts[leaf].value, chosen),
        jax.tree.map(lambda leaf: parts[leaf].error, chosen),
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
        columns = [program.differentiate(e).derivative for e in program.basis(leaf)]
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
            full[:, i, j] = full[:, j, i] = program.differentiate_twice(units[i][1], units[j][1])
    owner = np.array([leaf for leaf, _ in units], dtype=int)

    def place(rows: slice, shape: tuple[int, ...]) -> Any:
        def block(i: int, j: int) -> np.ndarray:
            part = full[rows][:, owner == i][:, :, owner == j]
            return part.reshape(shape + program.point[i].shape + program.point[j].shape)

        return jax.tree.map(lambda i: jax.tree.map(lambda j: block(i, j), chosen), chosen)

    return _by_output(program, place)


def _leaf_gradient(program: Program, leaf: int) -> Estimate:
    """Differentiate the scalar result with respect to every element of one leaf."""
    shape, dtype = program.point[leaf].shape, program.point[leaf].dtype
    value, error = np.zeros(shape, dtype), np.zeros(shape)
    for k, direction in enumerate(program.basis(leaf)):
        partial = program.differentiate(direction).derivative
        value.flat[k], error.flat[k] = partial.value[0], partial.error[0]
        if dtype.kind == "c":
            imaginary = {leaf: 1j * direction[leaf]}
            partial = program.differentiate(imaginary).derivative
            value.flat[k] -= 1j * partial.value[0]
            error.flat[k] += partial.error[0]
    return Estimate(value, error)


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
