"""NNlib's functions of a whole axis: they stand between layers, not inside of one.

The axis is the last one by default, as NNlib's is the first. The twins in Julia are
NNlib's functions of the same names (`src/softmax.jl`, `src/functions.jl`).
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from ._dtypes import floating


def softmax(x: Any, axis: Any = -1) -> jax.Array:
    """Return exp(x) / sum(exp(x)) along an axis.

    Where +inf is among the values it takes all, in equal parts if it is there more than
    once; `jax.nn.softmax` gives NaN.

    Args:
        x: array of at least one axis.
        axis: an int or several.

    Returns:
        An array like x.

    Example:
        >>> import jax.numpy as jnp, pybridge as pb
        >>> pb.nn.softmax(jnp.array([0.0, 0.0])).tolist()
        [0.5, 0.5]
    """
    return _softmax(floating(x), axis)


def logsoftmax(x: Any, axis: Any = -1) -> jax.Array:
    """Return log(softmax(x)), computed without overflow.

    Arguments are those of `softmax`, and so is the treatment of +inf.
    """
    shifted = _shifted(floating(x), axis)
    return shifted - jnp.log(jnp.sum(jnp.exp(shifted), axis, keepdims=True))


def logsumexp(x: Any, axis: Any = None, keepdims: bool = False) -> jax.Array:
    """Return log(sum(exp(x))), computed without overflow.

    As in NNlib the default is the sum over all elements. Where +inf is among the values
    the result is +inf; NNlib gives NaN.

    Args:
        x: array.
        axis: an int, several, or None for all.
        keepdims: whether the axes stay, with size one, as they do in NNlib.
    """
    return jax.nn.logsumexp(floating(x), axis, keepdims=keepdims)


def glu(x: Any, axis: int = -1) -> jax.Array:
    """Return a sigmoid(b), where a and b are the two halves of x along an axis."""
    return jax.nn.glu(floating(x), axis)


@partial(jax.custom_jvp, nondiff_argnums=(1,))
def _softmax(x: jax.Array, axis: Any) -> jax.Array:
    powers = jnp.exp(_shifted(x, axis))
    return powers / jnp.sum(powers, axis, keepdims=True)


@_softmax.defjvp
def _(axis: Any, primals: Any, tangents: Any) -> Any:
    """Push a tangent through with one sum, as NNlib's and JAX's own rules do."""
    (tangent,) = tangents
    y = _softmax(*primals, axis)
    return y, y * (tangent - jnp.sum(y * tangent, axis, keepdims=True))


def _shifted(x: Any, axis: Any) -> jax.Array:
    """Return x minus its maximum; if that is +inf, 0 where x is +inf and -inf elsewhere."""
    highest = lax.stop_gradient(jnp.max(x, axis, keepdims=True))
    return jnp.where(x == jnp.inf, jnp.zeros_like(x), x - highest)
