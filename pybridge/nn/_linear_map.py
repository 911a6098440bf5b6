"""The product with a matrix of parameters: where dense, recurrent and embedding layers begin."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

from ._dtypes import precision_for


def linear_map(x: jax.Array, weight: jax.Array) -> jax.Array:
    """Return `x @ weight`, with the precision of the weight's dtype.

    Leading axes are merged, as Flux does. Over several of them XLA on CPUs does not use its library
    for the weight's gradient. With more than one device they stay: merging would gather one that
    is sharded.
    """
    precision = precision_for(weight.dtype)
    if x.ndim < 3 or jax.device_count() > 1:
        return jnp.matmul(x, weight, precision=precision)
    *leading, features = x.shape
    y = jnp.matmul(x.reshape(math.prod(leading), features), weight, precision=precision)
    return y.reshape(*leading, weight.shape[-1])
