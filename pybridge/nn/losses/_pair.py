"""What all losses share: prediction and target as arrays that fit, constants, and x log(y)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..._errors import ArgumentTypeError, ArgumentValueError, explain
from ...primitives import on_same_devices
from .._dtypes import floating, input_array

Aggregate = Callable[[jax.Array], jax.Array]


def checked(
    where: str, prediction: Any, target: Any, *, agg: Aggregate | None = None, axis: Any = ()
) -> tuple[jax.Array, jax.Array]:
    """Return prediction and target in the prediction's shape and its dtype, made floating.

    On a mesh both are sharded alike.

    Args:
        where: the loss.
        prediction: an array of real numbers.
        target: an array of as many, or one number.
        agg: what makes one number of all.
        axis: the loss's, of the prediction: a number, several, or None for all.

    Raises:
        ArgumentTypeError: one of the arrays is no array of real numbers, `agg` no function, or
            `axis` no number.
        ArgumentValueError: the arrays differ in shape, or the prediction has no such axis.
    """
    where = f"losses.{where}"
    first, second = (_real(where, one) for one in (prediction, target))
    check_options(where, first, agg, axis)
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
    more = second.ndim - first.ndim
    second = jnp.squeeze(second, tuple(range(more))) if more > 0 else second
    second = jnp.broadcast_to(second.astype(first.dtype), first.shape)
    first, second = on_same_devices([first, second])
    return first, second


def _real(where: str, x: Any) -> jax.Array:
    x = jnp.asarray(input_array(where, x))
    if jnp.issubdtype(x.dtype, np.number) and not jnp.issubdtype(x.dtype, np.complexfloating):
        return x
    if x.dtype == np.bool_:
        return x
    raise ArgumentTypeError(
        explain(
            where,
            expected="real numbers",
            got=f"dtype {x.dtype}",
            fix="Losses of complex numbers are yours to define, for example with abs.",
        )
    )


def check_options(where: str, x: jax.Array, agg: Any, axis: Any) -> None:
    """Raise what `checked` says about `agg` and `axis`."""
    axes = axis if isinstance(axis, tuple) else () if axis is None else (axis,)
    if agg is not None and not callable(agg):
        expected, got, fix = "a function as agg", repr(agg), "For example `agg=jnp.sum`."
    elif not all(isinstance(k, int | np.integer) for k in axes):
        expected, got, fix = "a whole number as axis", repr(axis), "The last axis is -1."
    elif not all(-x.ndim <= k < x.ndim for k in axes):
        raise ArgumentValueError(
            explain(
                where,
                expected=f"an axis of an array of shape {x.shape}",
                got=f"axis={axis}",
                fix="It is the axis of the classes.",
            )
        )
    else:
        return
    raise ArgumentTypeError(explain(where, expected=expected, got=got, fix=fix))


def _without_ones(shape: tuple[int, ...]) -> tuple[int, ...]:
    while shape and shape[0] == 1:
        shape = shape[1:]
    return shape


def number(where: str, name: str, value: Any, like: jax.Array) -> Any:
    """Return a constant of a loss in the dtype of an array; what is traced stays an array.

    Raises:
        ArgumentTypeError: it is no real number.
    """
    is_scalar = isinstance(value, int | float | np.generic | np.ndarray | jax.Array)
    if is_scalar and np.ndim(value) == 0 and not np.iscomplexobj(value):
        with contextlib.suppress(OverflowError):
            return jnp.asarray(value, like.dtype)
    raise ArgumentTypeError(
        explain(
            f"losses.{where}",
            expected=f"a real number as {name}",
            got=repr(value),
            fix=f"Leave {name} out for what Flux has by default.",
        )
    )


def small(where: str, eps: Any, like: jax.Array) -> Any:
    """Return `eps`, by default the machine epsilon of the array's dtype."""
    return number(where, "eps", jnp.finfo(like.dtype).eps if eps is None else eps, like)


@jax.custom_jvp
def xlogy(x: jax.Array, y: jax.Array) -> jax.Array:
    """Return x log(y), and 0 where x is 0, for arrays of one shape.

    The derivative by y is 0 where x is 0, also where y is 0: that of `jax.scipy.special.xlogy`
    is nan there.
    """
    return jnp.where(x == 0, np.zeros((), x.dtype), x * jnp.log(_one_where_zero(x, y)))


def _one_where_zero(x: jax.Array, y: jax.Array) -> jax.Array:
    return jnp.where(x == 0, np.ones((), y.dtype), y)


@jax.custom_jvp
def _quotient(x: jax.Array, y: jax.Array) -> jax.Array:
    """Return x / y, and 0 where x is 0; the derivative by x is 1 / y there, too."""
    return x / _one_where_zero(x, y)


# Each is left out where its argument is not differentiated: 0 times log(0) is nan.
xlogy.defjvps(
    lambda tangent, result, x, y: tangent * jnp.log(y),
    lambda tangent, result, x, y: tangent * _quotient(x, y),
)
_quotient.defjvps(
    lambda tangent, result, x, y: tangent / y,
    lambda tangent, result, x, y: -tangent * _quotient(result, y),
)


def positive_part(x: jax.Array) -> jax.Array:
    """Return max(0, x), with derivative 1 at 0, as Zygote has it."""
    return jnp.where(x < 0, np.zeros((), x.dtype), x)


def absolute(x: jax.Array) -> jax.Array:
    """Return |x|, with derivative 0 at 0, as Zygote has it; JAX has 1."""
    return jnp.where(x == 0, np.zeros((), x.dtype), jnp.abs(x))
