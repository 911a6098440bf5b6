"""Random masks that JAX and Julia draw alike."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np


def keep_mask(key: Any, p: float, shape: tuple[int, ...]) -> jax.Array:
    """Draw which elements dropout keeps: each with probability `1 - p`.

    The mask is `jax.random.bernoulli(key, 1 - p, shape)` in float32, whatever the dtype
    of the data and the x64 setting, with the counters that do not depend on how an array
    is spread over devices. The element at row-major position i depends on the key, p and
    i alone.

    Args:
        key: a JAX key. Those of the default generator, threefry, give masks that Julia
            draws too.
        p: the probability to drop an element, a Python number in [0, 1].
        shape: of the mask.

    Returns:
        A bool array.

    The twin in Julia is `PyBridge.keep_mask(key, p, dims)`, with `dims` reversed.
    """
    with jax.threefry_partitionable(True):
        return jax.random.bernoulli(key, np.float32(1 - p), shape)
