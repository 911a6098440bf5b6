"""Losses of predicted classes and distributions."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import Tracer

from ..._errors import ArgumentValueError, explain
from .._activations import logsigmoid
from .._dtypes import floating, input_array
from .._softmax import logsoftmax
from ._pair import Aggregate, check_options, checked, number, positive_part, small, xlogy


def label_smoothing(target: Any, alpha: Any, *, axis: int | None = -1) -> jax.Array:
    """Return labels with less confidence: `target * (1 - alpha) + alpha / classes`.

    Args:
        target: one-hot along `axis`, or with `axis=None` numbers between 0 and 1 that say yes
            or no: of two classes.
        alpha: the smoothing factor, between 0 and 1.
        axis: of the classes; Flux's `dims=1` is the last one, and `dims=0` is None.

    Raises:
        ArgumentTypeError: `alpha` is no number, or `axis` no whole one.
        ArgumentValueError: `alpha` is not between 0 and 1, or there is no such axis.

    Example:
        >>> import jax.numpy as jnp, pybridge as pb
        >>> pb.nn.losses.label_smoothing(jnp.array([[1.0, 0.0]]), 0.5).tolist()
        [[0.75, 0.25]]

    The twin is `Flux.Losses.label_smoothing`.
    """
    target = floating(input_array("losses.label_smoothing", target))
    check_options("losses.label_smoothing", target, None, axis)
    smoothing = number("label_smoothing", "alpha", alpha, target)
    if not isinstance(alpha, Tracer) and not 0 < alpha < 1:
        raise ArgumentValueError(
            explain(
                "losses.label_smoothing",
                expected="a number between 0 and 1 as alpha",
                got=repr(alpha),
                fix="At 0 the labels stay what they are, and at 1 nothing is left of them.",
            )
        )
    classes = 2 if axis is None else math.prod(target.shape[k] for k in np.atleast_1d(axis))
    return target * (1 - smoothing) + smoothing / classes


def crossentropy(
    prediction: Any, target: Any, *, axis: Any = -1, agg: Aggregate = jnp.mean, eps: Any = None
) -> jax.Array:
    """Return the cross entropy of probabilities: `agg(-sum(target * log(prediction + eps)))`.

    Args:
        prediction: probabilities, with sum 1 along `axis`, as `softmax` gives them.
            `logitcrossentropy` of what comes before the softmax is more precise.
        target: probabilities of the same shape, for example one-hot.
        axis: of the classes, which stays, with size one, for `agg`; Flux's `dims=1` is the last.
        agg: what makes one number of all.
        eps: added to the prediction, the machine epsilon by default.

    Raises:
        ArgumentTypeError: one of them is no array of real numbers.
        ArgumentValueError: the shapes differ.

    Example:
        >>> import jax.numpy as jnp, pybridge as pb
        >>> p, y = jnp.array([[0.5, 0.5], [0.25, 0.75]]), jnp.array([[1, 0], [0, 1]])
        >>> round(float(pb.nn.losses.crossentropy(p, y)), 5)
        0.49041

    The twin is `Flux.Losses.crossentropy`.
    """
    prediction, target = checked("crossentropy", prediction, target, agg=agg, axis=axis)
    logs = xlogy(target, prediction + small("crossentropy", eps, prediction))
    return agg(-jnp.sum(logs, axis, keepdims=True))


def logitcrossentropy(
    prediction: Any, target: Any, *, axis: int = -1, agg: Aggregate = jnp.mean
) -> jax.Array:
    """Return the cross entropy of `softmax(prediction)`, without loss of precision.

    `agg(-sum(target * logsoftmax(prediction)))`. Arguments and errors are those of
    `crossentropy`. The twin is `Flux.Losses.logitcrossentropy`.

    Example:
        >>> import jax.numpy as jnp, pybridge as pb
        >>> x, y = jnp.array([[0.0, 0.0], [0.0, 100.0]]), jnp.array([[1, 0], [1, 0]])
        >>> round(float(pb.nn.losses.logitcrossentropy(x, y)), 5)
        50.34657
    """
    prediction, target = checked("logitcrossentropy", prediction, target, agg=agg, axis=axis)
    return agg(-jnp.sum(target * logsoftmax(prediction, axis), axis, keepdims=True))


def binarycrossentropy(
    prediction: Any, target: Any, *, agg: Aggregate = jnp.mean, eps: Any = None
) -> jax.Array:
    """Return the cross entropy of probabilities of yes.

    `agg(-target * log(prediction + eps) - (1 - target) * log(1 - prediction + eps))`. Arguments
    and errors are those of `crossentropy`. The twin is `Flux.Losses.binarycrossentropy`.

    Example:
        >>> import jax.numpy as jnp, pybridge as pb
        >>> p, y = jnp.array([0.5, 0.25]), jnp.array([True, False])
        >>> round(float(pb.nn.losses.binarycrossentropy(p, y)), 5)
        0.49041
    """
    prediction, target = checked("binarycrossentropy", prediction, target, agg=agg)
    eps = small("binarycrossentropy", eps, prediction)
    return agg(-xlogy(target, prediction + eps) - xlogy(1 - target, 1 - prediction + eps))


def logitbinarycrossentropy(
    prediction: Any, target: Any, *, agg: Aggregate = jnp.mean
) -> jax.Array:
    """Return the cross entropy of `sigmoid(prediction)`, without loss of precision.

    `agg(-target * logsigmoid(prediction) - (1 - target) * logsigmoid(-prediction))`. Arguments and
    errors are those of `crossentropy`. The twin is `Flux.Losses.logitbinarycrossentropy`.

    Example:
        >>> import jax.numpy as jnp, pybridge as pb
        >>> x, y = jnp.array([0.0, 100.0]), jnp.array([True, False])
        >>> round(float(pb.nn.losses.logitbinarycrossentropy(x, y)), 5)
        50.34657
    """
    prediction, target = checked("logitbinarycrossentropy", prediction, target, agg=agg)
    # Flux's (1 - y) x - logsigmoid(x) cancels for a negative x.
    return agg(-target * logsigmoid(prediction) - (1 - target) * logsigmoid(-prediction))


def kldivergence(
    prediction: Any, target: Any, *, axis: Any = -1, agg: Aggregate = jnp.mean, eps: Any = None
) -> jax.Array:
    """Return the Kullback-Leibler divergence of the target from the prediction.

    `agg(sum(target * log(target)))` plus the `crossentropy`, whose arguments and errors are
    those here. The twin is `Flux.Losses.kldivergence`.

    Example:
        >>> import jax.numpy as jnp, pybridge as pb
        >>> p, y = jnp.array([[0.5, 0.5]]), jnp.array([[1.0, 0.0]])
        >>> round(float(pb.nn.losses.kldivergence(p, y)), 5)
        0.69315
    """
    prediction, target = checked("kldivergence", prediction, target, agg=agg, axis=axis)
    entropy = agg(jnp.sum(xlogy(target, target), axis, keepdims=True))
    return entropy + crossentropy(prediction, target, axis=axis, agg=agg, eps=eps)


def binary_focal_loss(
    prediction: Any, target: Any, *, agg: Aggregate = jnp.mean, gamma: Any = 2, eps: Any = None
) -> jax.Array:
    """Return the focal loss of probabilities of yes: what is nearly right counts less.

    With p = prediction + eps where the target is yes, else 1 - prediction - eps, but at least eps:
    `agg(max(0, 1 - p)**gamma * -log(p))`. Other arguments and errors are those of `crossentropy`.
    The twin is `Flux.Losses.binary_focal_loss`, which fails where p is not positive. Source: Lin
    et al. 2017.

    Example:
        >>> import jax.numpy as jnp, pybridge as pb
        >>> p, y = jnp.array([0.5, 0.25]), jnp.array([True, False])
        >>> round(float(pb.nn.losses.binary_focal_loss(p, y)), 5)
        0.09563
    """
    prediction, target = checked("binary_focal_loss", prediction, target, agg=agg)
    eps = small("binary_focal_loss", eps, prediction)
    shifted = prediction + eps
    likely = target * shifted + (1 - target) * (1 - shifted)
    # The derivative stays what it is at eps, so that a saturated wrong answer can still be mended.
    likely = likely + lax.stop_gradient(positive_part(eps - likely))
    return agg(_focus("binary_focal_loss", likely, gamma) * -jnp.log(likely))


def focal_loss(
    prediction: Any,
    target: Any,
    *,
    axis: Any = -1,
    agg: Aggregate = jnp.mean,
    gamma: Any = 2,
    eps: Any = None,
) -> jax.Array:
    """Return the focal loss of probabilities of classes.

    With p = prediction + eps: `agg(sum(-target * max(0, 1 - p)**gamma * log(p)))`. Other arguments
    and errors are those of `crossentropy`. The twin is `Flux.Losses.focal_loss`.

    Example:
        >>> import jax.numpy as jnp, pybridge as pb
        >>> p, y = jnp.array([[0.5, 0.5], [0.25, 0.75]]), jnp.array([[1, 0], [0, 1]])
        >>> round(float(pb.nn.losses.focal_loss(p, y)), 5)
        0.09563
    """
    prediction, target = checked("focal_loss", prediction, target, agg=agg, axis=axis)
    p = prediction + small("focal_loss", eps, prediction)
    weight = _focus("focal_loss", p, gamma)
    return agg(jnp.sum(-target * weight * jnp.log(p), axis, keepdims=True))


def _focus(where: str, p: jax.Array, gamma: Any) -> jax.Array:
    """Return the weight of a probability, which eps may carry beyond 1."""
    power = gamma if isinstance(gamma, int) else number(where, "gamma", gamma, p)
    return positive_part(1 - p) ** power
