"""What all losses share: prediction and target as arrays that fit, and x log(y)."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..._errors import ArgumentTypeError, ArgumentValueError, explain
from .._dtypes import floating, input_array


def checked(where: str, prediction: Any, target: Any) -> tuple[jax.Array, jax.Array]:
    """Return prediction and target in the prediction's dtype, which becomes floating.

    Raises:
        ArgumentTypeError: one of them is no array of real numbers.
        ArgumentValueError: they differ in shape, and the target is no single number.
    """
    where = f"losses.{where}"
    pair = [jnp.asarray(input_array(where, one)) for one in (prediction, target)]
    for one in pair:
        if jnp.issubdtype(one.dtype, jnp.complexfloating):
            raise ArgumentTypeError(
                explain(
                    where,
                    expected="real numbers",
                    got=f"dtype {one.dtype}",
                    fix="Losses of complex numbers are yours to define, for example with abs.",
                )
            )
    first, second = pair
    # As in Flux, whose arrays have axes of size one behind their last.
    if second.ndim and _without_ones(first.shape) != _without_ones(second.shape):
        raise ArgumentValueError(
            explain(
                where,
                expected=f"a target of the prediction's shape {first.shape}",
                got=f"shape {second.shape}",
                fix="Class numbers become one-hot with `jax.nn.one_hot(labels, classes)`.",
            )
        )
    first = floating(first)
    return first, second.astype(first.dtype)


def _without_ones(shape: tuple[int, ...]) -> tuple[int, ...]:
    while shape and shape[0] == 1:
        shape = shape[1:]
    return shape


def number(value: Any, like: jax.Array) -> Any:
    """Return a constant in the dtype of an array; what is traced stays an array."""
    return jnp.asarray(value, like.dtype)


def small(eps: Any, like: jax.Array) -> Any:
    """Return `eps`, by default the machine epsilon of the array's dtype."""
    return number(jnp.finfo(like.dtype).eps if eps is None else eps, like)


def xlogy(x: jax.Array, y: jax.Array) -> jax.Array:
    """Return x log(y), and 0 where x is 0."""
    return jax.scipy.special.xlogy(x, y)


def positive_part(x: jax.Array) -> jax.Array:
    """Return max(0, x), with derivative 1 at 0, as Zygote has it."""
    return jnp.where(x < 0, np.zeros((), x.dtype), x)


def absolute(x: jax.Array) -> jax.Array:
    """Return |x|, with derivative 0 at 0, as Zygote has it; JAX has 1."""
    return jnp.where(x == 0, np.zeros((), x.dtype), jnp.abs(x))
