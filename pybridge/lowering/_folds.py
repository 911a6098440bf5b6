"""Reductions by any function: a tree of JAX's own operations, which is traced and lowered.

JAX differentiates these reductions through the same tree.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

from ._registry import emits

Values = list[Any]
Side = tuple[Values, np.ndarray]
Combine = Callable[[Values, Values], Values]


@emits("reduce")
def _reduce(eqn: Any) -> str:
    dims = sorted(eqn.params["dimensions"])
    count = math.prod(eqn.aval().shape[d] for d in dims)
    combine = _combining(eqn, len(eqn.out().shape))

    def folded(*args: Any) -> Values:
        xs, inits = _halves(args)
        first = [jnp.moveaxis(x, dims, range(len(dims))) for x in xs]
        shape = eqn.out().shape
        return _tree([x.reshape(count, *shape) for x in first], inits, shape, combine)

    return traced(eqn, folded)


@emits("reduce_window")
def _reduce_window(eqn: Any) -> str:
    p = eqn.params
    combine = _combining(eqn, len(eqn.out().shape))
    padding = [
        (low, high, base - 1)
        for (low, high), base in zip(p["padding"], p["base_dilation"], strict=True)
    ]

    shape = eqn.out().shape
    elements = _elements(eqn.aval().shape, padding)
    places = _places(elements.shape, shape, p)
    inside = elements.reshape(-1)[places]

    def folded(*args: Any) -> Values:
        xs, inits = _halves(args)
        windows = []
        for x, init in zip(xs, inits, strict=True):
            padded = lax.pad(x, init, padding)
            windows.append(jnp.take(padded.reshape(-1), places, mode="clip"))
        return _tree(windows, inits, shape, combine, inside)

    return traced(eqn, folded)


def _elements(shape: Sequence[int], padding: Sequence[tuple[int, int, int]]) -> np.ndarray:
    """Tell which elements of a padded array are the array's own."""
    found = np.ones((), bool)
    for length, (low, high, gap) in zip(shape, padding, strict=True):
        last = (length - 1) * (gap + 1) if length else -1
        place = np.arange(last + 1 + low + high) - low
        own = (place >= 0) & (place <= last) & (place % (gap + 1) == 0)
        found = np.logical_and.outer(found, own)
    return found


def _places(padded: Sequence[int], out: Sequence[int], p: dict[str, Any]) -> np.ndarray:
    """Number the elements of all windows: one row for each place in a window."""
    window, n = p["window_dimensions"], len(out)
    numbers = np.zeros((*window, *out), np.int32)
    for d in range(n):
        inside = np.arange(window[d]) * p["window_dilation"][d]
        start = np.arange(out[d]) * p["window_strides"][d]
        step = math.prod(padded[d + 1 :])
        place = inside.reshape(-1, *(1,) * (2 * n - 1 - d)) + start.reshape(-1, *(1,) * (n - 1 - d))
        numbers += (place * step).astype(np.int32)
    return numbers.reshape(-1, *out)


def _halves(args: Sequence[Any]) -> tuple[Values, Values]:
    """Operands, and the value that each starts from."""
    n = len(args) // 2
    return list(args[:n]), list(args[n:])


def _combining(eqn: Any, ndim: int) -> Combine:
    """Make the function that combines arrays of one axis more than the result has."""
    p = eqn.params
    jaxpr = p["jaxpr"]
    consts = p.get("consts", ())
    closed = ClosedJaxpr(jaxpr, consts) if consts or not isinstance(jaxpr, ClosedJaxpr) else jaxpr
    f = jaxpr_as_fun(closed)
    for _ in range(ndim + 1):
        f = jax.vmap(f)
    return lambda a, b: list(f(*a, *b))


def _tree(
    xs: Values,
    inits: Values,
    shape: Sequence[int],
    combine: Combine,
    inside: np.ndarray | None = None,
) -> Values:
    """Combine along the first axis, neighbours first, and with the start at last.

    What is not `inside` is left out: a start that is no identity would count once for each place
    of the padding.
    """
    start = [jnp.broadcast_to(init, (1, *shape)) for init in inits]
    count = xs[0].shape[0]
    inside = np.ones((count, *(1,) * len(shape)), bool) if inside is None else inside
    while count > 1:
        even, odd = slice(0, count - count % 2, 2), slice(1, None, 2)
        sides = [([x[part] for x in xs], inside[part]) for part in (even, odd)]
        joined = _joined(combine, *sides)
        found = inside[even] | inside[odd]
        if count % 2:
            joined = [lax.concatenate([y, x[-1:]], 0) for x, y in zip(xs, joined, strict=True)]
            found = np.concatenate([found, inside[-1:]])
        xs, inside, count = joined, found, (count + 1) // 2
    ys = _joined(combine, (start, np.ones((), bool)), (xs, inside)) if count else start
    return [y.reshape(shape) for y in ys]


def _joined(combine: Combine, a: Side, b: Side) -> Values:
    """Combine two sides, each with what is inside of it; what is not leaves the other as it is."""
    (xs, x_inside), (ys, y_inside) = a, b
    both = combine(xs, ys)
    if x_inside.all() and y_inside.all():
        return both
    return [
        jnp.where(y_inside, jnp.where(x_inside, z, y), x)
        for x, y, z in zip(xs, ys, both, strict=True)
    ]


def traced(eqn: Any, program: Callable[..., Any]) -> str:
    """Write an equation as a program of JAX's own operations, which is lowered in its place."""
    types = [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in eqn.eqn.invars]
    closed = jax.make_jaxpr(program)(*types)
    return f"{eqn.function(closed, eqn.name)}({', '.join(eqn.args)})"


@emits("approx_top_k")
def _approx_top_k(eqn: Any) -> str:
    """Take the exact ones, as JAX does on the CPU; there are more where they are not aggregated."""
    dim = eqn.params["reduction_dimension"] % eqn.ndim()
    k, numbers = eqn.out().shape[dim], eqn.out(1).dtype

    def extreme(x: Any) -> Values:
        count = lax.broadcasted_iota(numbers, x.shape, dim)
        key = -x if eqn.params["is_max_k"] else x
        ordered = lax.sort((key, x, count), dimension=dim, num_keys=1, is_stable=True)
        return [lax.slice_in_dim(y, 0, k, axis=dim) for y in ordered[1:]]

    return traced(eqn, extreme)
