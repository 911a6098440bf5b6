"""Losses of margins between classes, and of the overlap of sets."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from ..._errors import ArgumentValueError, explain
from ._pair import Aggregate, checked, number, positive_part


def hinge_loss(prediction: Any, target: Any, *, agg: Aggregate = jnp.mean) -> jax.Array:
    """Return the hinge loss: `agg(max(0, 1 - prediction * target))`.

    At the kink the derivative is that of the right side, as Zygote's.

    Args:
        prediction: an array of real numbers, whose signs are the classes.
        target: 1 or -1, of the same shape.
        agg: what makes one number of all.

    Raises:
        ArgumentTypeError: one of them is no array of real numbers.
        ArgumentValueError: the shapes differ.

    Example:
        >>> import jax.numpy as jnp, pybridge as pb
        >>> y, target = jnp.array([0.5, 0.5, 1.5]), jnp.array([1, -1, 1])
        >>> round(float(pb.nn.losses.hinge_loss(y, target)), 5)
        0.66667

    The twin is `Flux.Losses.hinge_loss`.
    """
    prediction, target = checked("hinge_loss", prediction, target, agg=agg)
    return agg(positive_part(1 - prediction * target))


def squared_hinge_loss(prediction: Any, target: Any, *, agg: Aggregate = jnp.mean) -> jax.Array:
    """Return the squared hinge loss: `agg(max(0, 1 - prediction * target)**2)`.

    Arguments and errors are those of `hinge_loss`. The twin is `Flux.Losses.squared_hinge_loss`.

    Example:
        >>> import jax.numpy as jnp, pybridge as pb
        >>> y, target = jnp.array([0.5, 0.5, 1.5]), jnp.array([1, -1, 1])
        >>> round(float(pb.nn.losses.squared_hinge_loss(y, target)), 5)
        0.83333
    """
    prediction, target = checked("squared_hinge_loss", prediction, target, agg=agg)
    return agg(jnp.square(positive_part(1 - prediction * target)))


def siamese_contrastive_loss(
    prediction: Any, target: Any, *, agg: Aggregate = jnp.mean, margin: Any = 1
) -> jax.Array:
    """Return the contrastive loss of distances between pairs.

    `agg((1 - target) * prediction**2 + target * max(0, margin - prediction)**2)`: pairs with the
    target 0 ought to be close, those with 1 further apart than `margin`. The twin is
    `Flux.Losses.siamese_contrastive_loss`. Source: Hadsell et al. 2006.

    Raises:
        ArgumentTypeError: as for `hinge_loss`.
        ArgumentValueError: the shapes differ, or `margin` is negative.

    Example:
        >>> import jax.numpy as jnp, pybridge as pb
        >>> y, target = jnp.array([0.5, 0.5, 1.5]), jnp.array([0, 1, 1])
        >>> round(float(pb.nn.losses.siamese_contrastive_loss(y, target)), 5)
        0.16667
    """
    prediction, target = checked("siamese_contrastive_loss", prediction, target, agg=agg)
    distance = number("siamese_contrastive_loss", "margin", margin, prediction)
    if not isinstance(margin, Tracer) and not margin >= 0:
        raise ArgumentValueError(
            explain(
                "losses.siamese_contrastive_loss",
                expected="a margin of 0 or more",
                got=repr(margin),
                fix="It is the distance from which on pairs count as dissimilar.",
            )
        )
    apart = positive_part(distance - prediction)
    return agg((1 - target) * jnp.square(prediction) + target * jnp.square(apart))


def dice_coeff_loss(prediction: Any, target: Any, *, smooth: Any = 1) -> jax.Array:
    """Return the loss of the dice coefficient, which measures how two sets overlap.

    `1 - (2 sum(target * prediction) + smooth) / (sum(target**2) + sum(prediction**2) + smooth)`,
    summed over all elements. The twin is `Flux.Losses.dice_coeff_loss`. Source: Milletari et al.
    2016.

    Raises:
        ArgumentTypeError: as for `hinge_loss`.
        ArgumentValueError: the shapes differ.

    Example:
        >>> import jax.numpy as jnp, pybridge as pb
        >>> y, target = jnp.array([0.5, 0.5, 1.0]), jnp.array([0, 1, 1])
        >>> round(float(pb.nn.losses.dice_coeff_loss(y, target)), 5)
        0.11111
    """
    prediction, target = checked("dice_coeff_loss", prediction, target)
    both = 2 * _total(target * prediction)
    smooth = number("dice_coeff_loss", "smooth", smooth, both)
    all_of_both = _total(jnp.square(target)) + _total(jnp.square(prediction))
    return (1 - (both + smooth) / (all_of_both + smooth)).astype(prediction.dtype)


def tversky_loss(prediction: Any, target: Any, *, beta: Any = 0.7) -> jax.Array:
    """Return the Tversky loss, which weighs what was missed against what was found wrongly.

    With sums over all elements, tp = sum(target * prediction): 1 - (tp + 1) / (tp +
    beta sum((1 - target) * prediction) + (1 - beta) sum(target * (1 - prediction)) + 1). This is
    what `Flux.Losses.tversky_loss` computes; its documentation has the two weights exchanged.
    Source: Salehi et al. 2017.

    Raises:
        ArgumentTypeError: as for `hinge_loss`.
        ArgumentValueError: the shapes differ.

    Example:
        >>> import jax.numpy as jnp, pybridge as pb
        >>> y, target = jnp.array([0.5, 0.5, 1.0]), jnp.array([0, 1, 1])
        >>> round(float(pb.nn.losses.tversky_loss(y, target)), 5)
        0.16667
    """
    prediction, target = checked("tversky_loss", prediction, target)
    beta = number("tversky_loss", "beta", beta, prediction)
    both = _total(target * prediction)
    wrong = _total(beta * (1 - target) * prediction + (1 - beta) * target * (1 - prediction))
    return (1 - (both + 1) / (both + wrong + 1)).astype(prediction.dtype)


def _total(x: jax.Array) -> jax.Array:
    """Sum in single precision at least: 65,520 ones are infinite in half precision."""
    return jnp.sum(x, dtype=np.promote_types(x.dtype, np.float32))
