"""What the tests of layers share."""

from __future__ import annotations

import jax
import numpy as np
import pytest

ignore_mode_warnings = pytest.mark.filterwarnings("ignore::pybridge.nn.ModeWarning")


def random(key, shape, dtype=np.float32):
    return jax.random.normal(key, shape, dtype)


def fresh(layer, key=None, dtype=np.float32):
    """Return parameters and state with numbers that differ from layer to layer."""
    key = jax.random.key(7) if key is None else key
    params, state = layer.init(key, dtype)
    return shaken(params, key), jax.tree.map(lambda s: s + np.asarray(0.25, s.dtype), state)


def shaken(tree, key):
    leaves, treedef = jax.tree.flatten(tree)
    keys = jax.random.split(key, max(len(leaves), 1))
    moved = [
        leaf + np.asarray(0.1, leaf.dtype) * random(k, leaf.shape, leaf.dtype)
        for leaf, k in zip(leaves, keys, strict=False)
    ]
    return jax.tree.unflatten(treedef, moved)


def close(got, want, rtol=1e-5, atol=None):
    jax.tree.map(
        lambda g, w: np.testing.assert_allclose(
            np.asarray(g, np.float64),
            np.asarray(w, np.float64),
            rtol=rtol,
            atol=rtol if atol is None else atol,
        ),
        got,
        want,
    )


def central_difference(f, x, h=1e-6):
    """Return the gradient of a scalar function by central differences, in float64."""
    f, x = jax.jit(f), np.asarray(x, np.float64)
    slopes = np.zeros_like(x)
    for i in np.ndindex(x.shape):
        step = np.zeros_like(x)
        step[i] = h
        slopes[i] = (float(f(x + step)) - float(f(x - step))) / (2 * h)
    return slopes
