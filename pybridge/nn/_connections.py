"""Functions of Flux that stand in chains and connections."""

from __future__ import annotations

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp

from .._errors import ArgumentTypeError, explain


def flatten(x: Any) -> jax.Array:
    """Return x with all axes but the first in one: Flux's `flatten`."""
    return jnp.reshape(x, (x.shape[0], math.prod(x.shape[1:])))


def first(xs: Any) -> Any:
    """Return the first of several outputs, as after `MultiHeadAttention`: Julia's `first`.

    Raises:
        ArgumentTypeError: `xs` is no tuple or list; of an array Julia takes a number.
    """
    if not isinstance(xs, tuple | list) or not xs:
        raise ArgumentTypeError(
            explain(
                "first",
                expected="a tuple of outputs",
                got=f"{xs!r}" if isinstance(xs, tuple | list) else f"a {type(xs).__name__}",
                fix="It goes after a layer with several outputs, such as MultiHeadAttention.",
            )
        )
    return xs[0]


def plus(*xs: Any) -> jax.Array:
    """Return the sum of any number of arrays of one shape: Julia's `+`."""
    return functools.reduce(jnp.add, xs)


def vcat(*xs: Any) -> jax.Array:
    """Concatenate along the last axis, Julia's first: `vcat`."""
    return jnp.concatenate(xs, axis=-1)
