"""Losses of predicted classes and distributions."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.core import Tracer

from ..._errors import ArgumentValueError, explain
from .._activations import logsigmoid
from .._dtypes import floating, input_array
from .._softmax import logsoftmax
from ._numbers import Aggregate
from ._pair import checked, number, small, xlogy


def label_smoothing(target: Any, alpha: Any, *, axis: int | None = -1) -> jax.Array:
    """Return labels with less confidence: `target * (1 - alpha) + alpha / classes`.

    Args:
        target: one-hot along `axis`, or with `axis=None` numbers between 0 and 1 that say yes
            or no: of two classes.
        alpha: the smoothing factor, between 0 and 1.
        axis: of the classes; Flux's `dims=1` is the last one, and `dims=0` is None.

    Raises:
        ArgumentValueError: `alpha` is not between 0 and 1.

    Example:
        >>> import jax.numpy as jnp, pybridge as pb
        >>> pb.nn.losses.label_smoothing(jnp.array([[1.0, 0.0]]), 0.5).tolist()
        [[0.75, 0.25]]

    The twin is `Flux.Losses.label_smoothing`.
    """
    if not isinstance(alpha, Tracer) and not 0 < alpha < 1:
        raise ArgumentValueError(
            explain(
                "losses.label_smoothing",
                expected="a number between 0 and 1 as alpha",
                got=repr(alpha),
                fix="At 0 the labels stay what they are, and at 1 nothing is left of them.",
            )
        )
    target = floating(input_array("losses.label_smoothing", target))
    alpha = number(alpha, target)
    return target * (1 - alpha) + alpha / (2 if axis is None else target.shape[axis])


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
    prediction, target = checked("crossentropy", prediction, target)
    logs = xlogy(target, prediction + small(eps, prediction))
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
    prediction, target = checked("logitcrossentropy", prediction, target)
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
    prediction, target = checked("binarycrossentropy", prediction, target)
    eps = small(eps, prediction)
    return agg(-xlogy(target, prediction + eps) - xlogy(1 - target, 1 - prediction + eps))


def logitbinarycrossentropy(
    prediction: Any, target: Any, *, agg: Aggregate = jnp.mean
) -> jax.Array:
    """Return the cross entropy of `sigmoid(prediction)`, without loss of precision.

    `agg((1 - target) * prediction - logsigmoid(prediction))`. Arguments and errors are those of
    `crossentropy`. The twin is `Flux.Losses.logitbinarycrossentropy`.

    Example:
        >>> import jax.numpy as jnp, pybridge as pb
        >>> x, y = jnp.array([0.0, 100.0]), jnp.array([True, False])
        >>> round(float(pb.nn.losses.logitbinarycrossentropy(x, y)), 5)
        50.34657
    """
    prediction, target = checked("logitbinarycrossentropy", prediction, target)
    return agg((1 - target) * prediction - logsigmoid(prediction))


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
    prediction, target = checked("kldivergence", prediction, target)
    entropy = agg(jnp.sum(xlogy(target, target), axis, keepdims=True))
    return entropy + crossentropy(prediction, target, axis=axis, agg=agg, eps=eps)


def binary_focal_loss(
    prediction: Any, target: Any, *, agg: Aggregate = jnp.mean, gamma: Any = 2, eps: Any = None
) -> jax.Array:
    """Return the focal loss of probabilities of yes: what is nearly right counts less.

    With p = prediction + eps where the target is yes, else 1 - prediction - eps:
    `agg((1 - p)**gamma * -log(p))`. Other arguments and errors are those of `crossentropy`. The
    twin is `Flux.Losses.binary_focal_loss`. Source: Lin et al. 2017.

    Example:
        >>> import jax.numpy as jnp, pybridge as pb
        >>> p, y = jnp.array([0.5, 0.25]), jnp.array([True, False])
        >>> round(float(pb.nn.losses.binary_focal_loss(p, y)), 5)
        0.09563
    """
    prediction, target = checked("binary_focal_loss", prediction, target)
    shifted = prediction + small(eps, prediction)
    likely = target * shifted + (1 - target) * (1 - shifted)
    return agg((1 - likely) ** _power(gamma, likely) * -jnp.log(likely))


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

    With p = prediction + eps: `agg(sum(-target * (1 - p)**gamma * log(p)))`. Other arguments and
    errors are those of `crossentropy`. The twin is `Flux.Losses.focal_loss`.

    Example:
        >>> import jax.numpy as jnp, pybridge as pb
        >>> p, y = jnp.array([[0.5, 0.5], [0.25, 0.75]]), jnp.array([[1, 0], [0, 1]])
        >>> round(float(pb.nn.losses.focal_loss(p, y)), 5)
        0.09563
    """
    prediction, target = checked("focal_loss", prediction, target)
    p = prediction + small(eps, prediction)
    weight = (1 - p) ** _power(gamma, p)
    return agg(jnp.sum(-target * weight * jnp.log(p), axis, keepdims=True))


def _power(gamma: Any, like: jax.Array) -> Any:
    return gamma if isinstance(gamma, int) else number(gamma, like)
