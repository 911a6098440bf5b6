"""Functions of Flux that stand in chains and connections."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp


def flatten(x: Any) -> jax.Array:
    """Return x with all axes but the first in one: Flux's `flatten`."""
    return jnp.reshape(x, (x.shape[0], -1))


def plus(*xs: Any) -> jax.Array:
    """Return the sum of any number of arrays of one shape: Julia's `+`."""
    return functools.reduce(jnp.add, xs)


def vcat(*xs: Any) -> jax.Array:
    """Concatenate along the last axis, Julia's first: `vcat`."""
    return jnp.concatenate(xs, axis=-1)
