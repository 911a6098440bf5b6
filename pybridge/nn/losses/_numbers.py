"""Losses of predicted numbers."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from ._pair import Aggregate, absolute, checked, number, small, xlogy


def mae(prediction: Any, target: Any, *, agg: Aggregate = jnp.mean) -> jax.Array:
    """Return the mean absolute error: `agg(abs(prediction - target))`.

    Args:
        prediction: an array of real numbers.
        target: an array of the same shape, or one number; it is converted to the prediction's
            dtype.
        agg: what makes one number of all, for example `jnp.sum`.

    Raises:
        ArgumentTypeError: one of them is no array of real numbers.
        ArgumentValueError: the shapes differ.

    Example:
        >>> import jax.numpy as jnp, pybridge as pb
        >>> float(pb.nn.losses.mae(jnp.array([1.0, 2.0]), jnp.array([2.0, 4.0])))
        1.5

    The twin is `Flux.Losses.mae`.
    """
    prediction, target = checked("mae", prediction, target, agg=agg)
    return agg(absolute(prediction - target))


def mse(prediction: Any, target: Any, *, agg: Aggregate = jnp.mean) -> jax.Array:
    """Return the mean square error: `agg((prediction - target)**2)`.

    Arguments and errors are those of `mae`. The twin is `Flux.Losses.mse`.

    Example:
        >>> import jax.numpy as jnp, pybridge as pb
        >>> float(pb.nn.losses.mse(jnp.array([1.0, 2.0]), jnp.array([2.0, 4.0])))
        2.5
    """
    prediction, target = checked("mse", prediction, target, agg=agg)
    return agg(jnp.square(prediction - target))


def msle(prediction: Any, target: Any, *, agg: Aggregate = jnp.mean, eps: Any = None) -> jax.Array:
    """Return the mean squared logarithmic error.

    `agg(log((prediction + eps) / (target + eps))**2)`. Arguments and errors are those of `mae`;
    `eps` is the machine epsilon by default. The twin is `Flux.Losses.msle`.

    Example:
        >>> import jax.numpy as jnp, pybridge as pb
        >>> round(float(pb.nn.losses.msle(jnp.array([1.1, 2.2]), jnp.array([1.0, 2.0]))), 6)
        0.009084
    """
    prediction, target = checked("msle", prediction, target, agg=agg)
    eps = small("msle", eps, prediction)
    return agg(jnp.square(jnp.log((prediction + eps) / (target + eps))))


def huber_loss(
    prediction: Any, target: Any, *, agg: Aggregate = jnp.mean, delta: Any = 1
) -> jax.Array:
    """Return the Huber loss: quadratic in errors below `delta`, linear above.

    With e = abs(prediction - target) it is `agg` of e^2 / 2 where e < delta, else
    delta (e - delta / 2). Other arguments and errors are those of `mae`. The twin is
    `Flux.Losses.huber_loss`.

    Example:
        >>> import jax.numpy as jnp, pybridge as pb
        >>> float(pb.nn.losses.huber_loss(jnp.array([1.5, 4.0]), jnp.array([1.0, 2.0])))
        0.8125
    """
    prediction, target = checked("huber_loss", prediction, target, agg=agg)
    delta = number("huber_loss", "delta", delta, prediction)
    error = absolute(prediction - target)
    return agg(jnp.where(error < delta, error * error / 2, delta * (error - delta / 2)))


def poisson_loss(prediction: Any, target: Any, *, agg: Aggregate = jnp.mean) -> jax.Array:
    """Return how far the prediction is from a Poisson distribution's mean.

    `agg(prediction - target * log(prediction))`. Arguments and errors are those of `mae`. The
    twin is `Flux.Losses.poisson_loss`.

    Example:
        >>> import jax.numpy as jnp, pybridge as pb
        >>> round(float(pb.nn.losses.poisson_loss(jnp.array([1.0, 3, 3]), jnp.arange(1, 4))), 6)
        0.502313
    """
    prediction, target = checked("poisson_loss", prediction, target, agg=agg)
    return agg(prediction - xlogy(target, prediction))
