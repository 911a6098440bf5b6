"""Mean and variance in two passes, and what the normalisation layers share."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .._errors import ArgumentTypeError, ArgumentValueError, explain
from ._dtypes import at_least_single


class Over(NamedTuple):
    """Over which values statistics are taken.

    Attributes:
        axes: of the array.
        axis_name: of a `vmap` or `shard_map`, one or several names, or None.
    """

    axes: tuple[int, ...]
    axis_name: Any = None


class Standardised(NamedTuple):
    """Values with mean 0 and variance 1, and the statistics that they had.

    Attributes:
        values: of the input's shape; 0 where the mask is False.
        mean: with size 1 along the axes.
        var: biased, the same shape.
        count: of values behind each of them, a number or, with a mask, an array.
    """

    values: jax.Array
    mean: jax.Array
    var: jax.Array
    count: Any


def widened(x: jax.Array) -> jax.Array:
    """Return `x` in its working dtype."""
    return x.astype(at_least_single(x.dtype))


def standardise(x: jax.Array, mask: jax.Array | None, over: Over, eps: float) -> Standardised:
    """Return (x - mean) / sqrt(var + eps).

    Args:
        x: inexact, in the working dtype.
        mask: bool, broadcastable to `x`; only values where it holds count, and the others
            may be NaN.
        over: the axes.
        eps: added to the variance, so that derivatives are finite at constant input.

    Returns:
        The values and the biased statistics, computed in two passes: the mean first, and
        the variance from the differences, which keeps its digits where the mean is large.
    """
    count = value_count(x, mask, over)
    x = masked(mask, x)
    values, mean, var = _standardise(over, float(eps), x, mask, count)
    return Standardised(values, mean, var, count)


def value_count(x: jax.Array, mask: jax.Array | None, over: Over) -> Any:
    """Return how many values each statistic has.

    An int; with a mask, or where a size is symbolic, an array.
    """
    lanes = 1 if over.axis_name is None else jax.lax.axis_size(over.axis_name)
    if mask is None:
        count = lanes * math.prod(x.shape[axis] for axis in over.axes)
        return count if isinstance(count, int) else jnp.asarray(count, x.dtype)
    ones = jnp.broadcast_to(mask, x.shape).astype(x.dtype)
    return total(over, ones)


def total(over: Over, x: jax.Array) -> jax.Array:
    """Return the sum, with size 1 along the axes."""
    here = jnp.sum(x, over.axes, keepdims=True)
    return here if over.axis_name is None else jax.lax.psum(here, over.axis_name)


def _mean(over: Over, x: jax.Array, count: Any) -> jax.Array:
    if isinstance(count, int):
        return total(over, x) * np.asarray(1 / max(count, 1), x.dtype)
    return total(over, x) / jnp.maximum(count, np.ones((), x.dtype))


def masked(mask: jax.Array | None, x: jax.Array) -> jax.Array:
    """Return `x` with 0 where the mask is False."""
    return x if mask is None else jnp.where(mask, x, np.zeros((), x.dtype))


@partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def _standardise(over: Over, eps: float, x: Any, mask: Any, count: Any) -> Any:
    mean = _mean(over, x, count)
    centred = masked(mask, x - mean)
    var = _mean(over, centred * centred, count)
    return centred * inverse_deviation(var, eps), mean, var


@_standardise.defjvp
def _(over: Over, eps: float, primals: Any, tangents: Any) -> Any:
    """Push a tangent through with two sums.

    JAX would differentiate every step of the formula. This is the same derivative with
    what cancels left out, and its transpose is the backward pass of the paper.
    """
    x, mask, count = primals
    values, _, var = out = _standardise(over, eps, x, mask, count)
    inverse = inverse_deviation(var, eps)
    # Transposed, the barrier is behind the sum of x's cotangents. Without it XLA makes that sum,
    # which is cheap for each element, in every operation that reads it: with residual connections
    # the work of all layers behind this one, and so the square of the depth.
    moved = masked(mask, jax.lax.optimization_barrier(tangents[0]))
    mean_moved = _mean(over, moved, count)
    along = _mean(over, values * moved, count)
    values_moved = inverse * masked(mask, moved - mean_moved - values * along)
    var_moved = np.asarray(2, x.dtype) * along / inverse
    return out, (values_moved, mean_moved, var_moved)


def inverse_deviation(var: jax.Array, eps: float) -> jax.Array:
    """Return 1 / sqrt(var + eps), and NaN for a variance that the dtype could not hold.

    An infinite variance is an overflow: dividing by it would turn all values into zeros.
    """
    inverse = jax.lax.rsqrt(var + np.asarray(eps, var.dtype))
    return jnp.where(jnp.isinf(var), np.asarray(np.nan, var.dtype), inverse)


def affine_params(shape: tuple[int, ...], dtype: Any) -> dict[str, jax.Array]:
    """Return scale 1 and bias 0, the parameters with which `affine` changes nothing."""
    return {"scale": jnp.ones(shape, dtype), "bias": jnp.zeros(shape, dtype)}


def affine(
    params: Any, shape: tuple[int, ...], values: jax.Array, activation: Callable[..., Any]
) -> jax.Array:
    """Return `activation(scale * values + bias)`, with parameters reshaped to `shape`."""
    if params:
        scale, bias = (params[name].reshape(shape) for name in ("scale", "bias"))
        values = values * scale.astype(values.dtype) + bias.astype(values.dtype)
    return activation(values)


def checked_mask(where: str, mask: Any, x: jax.Array) -> jax.Array | None:
    """Return the mask as a bool array with the input's number of axes, or None.

    Raises:
        ArgumentTypeError: it is not bool.
        ArgumentValueError: it does not broadcast to the input's shape.
    """
    if mask is None:
        return None
    mask = jnp.asarray(mask)
    if mask.dtype != np.bool_:
        raise ArgumentTypeError(
            explain(
                f"{where}.apply",
                expected="a bool array as `mask`",
                got=str(mask.dtype),
                fix="It is True where a value counts, for example `lengths > position`.",
            )
        )
    try:
        fits = jnp.broadcast_shapes(mask.shape, x.shape) == x.shape
    except ValueError:
        fits = False
    if not fits:
        raise ArgumentValueError(
            explain(
                f"{where}.apply",
                expected=f"a mask that broadcasts to the input's shape {x.shape}",
                got=f"shape {mask.shape}",
                fix="Give it the input's number of axes, with 1 where it does not vary.",
            )
        )
    return mask.reshape((1,) * (x.ndim - mask.ndim) + mask.shape)


def checked_eps(where: str, eps: Any) -> float:
    """Return `eps` as a float.

    Raises:
        ArgumentValueError: it is negative or no number.
    """
    if isinstance(eps, bool) or not isinstance(eps, int | float | np.number) or not eps >= 0:
        raise ArgumentValueError(
            explain(
                where,
                expected="a number eps >= 0",
                got=repr(eps),
                fix="It is added to the variance, inside the square root.",
            )
        )
    return float(eps)
