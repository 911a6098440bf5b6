"""What the tests of layers share."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

ignore_mode_warnings = pytest.mark.filterwarnings("ignore::pybridge.nn.ModeWarning")


def random(key, shape, dtype=np.float32):
    """Draw normal numbers with NumPy: JAX would compile a program for each shape."""
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    return jnp.asarray(rng.normal(size=shape), dtype)


def fresh(layer, key=None, dtype=np.float32):
    """Return parameters and state with numbers that differ from layer to layer."""
    key = jax.random.key(7) if key is None else key
    params, state = layer.init(key, dtype)
    moved = jax.tree.map(lambda s: jnp.asarray(np.asarray(s) + 0.25, s.dtype), state)
    return shaken(params, key), moved


def shaken(tree, key):
    leaves, treedef = jax.tree.flatten(tree)
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    moved = [jnp.asarray(np.asarray(x) + 0.1 * rng.normal(size=x.shape), x.dtype) for x in leaves]
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
    """Return the gradient of a scalar function of a tree by central differences, in float64."""
    leaves, treedef = jax.tree.flatten(x)
    leaves = [np.array(leaf, np.float64) for leaf in leaves]
    run = jax.jit(lambda leaves: f(jax.tree.unflatten(treedef, leaves)))
    slopes = [np.zeros_like(leaf) for leaf in leaves]
    for leaf, slope in zip(leaves, slopes, strict=True):
        for i in np.ndindex(leaf.shape):
            middle = leaf[i]
            leaf[i] = middle + h
            above = float(run(leaves))
            leaf[i] = middle - h
            below = float(run(leaves))
            leaf[i] = middle
            slope[i] = (above - below) / (2 * h)
    return jax.tree.unflatten(treedef, slopes)
