"""The layers on a GPU: the CPU's numbers, and exactly its masks. Runs wherever one is present."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import jax
import jax.numpy as jnp
import numpy as np
from pybridge import nn

gpu, cpu = jax.devices("gpu")[0], jax.devices("cpu")[0]
key = jax.random.key(0)
images, rows, sequences = (8, 4, 12, 10), (16, 6), (5, 7, 6)
flat = lambda x: x.reshape(x.shape[0], -1)
LAYERS = [
    (nn.Dense(6, 5, nn.gelu), rows),
    (nn.Conv((3, 3), 4, 6, nn.relu, pad=1, stride=2), images),
    (nn.Conv((3, 3), 4, 8, groups=2, dilation=2), images),
    (nn.ConvTranspose((3, 3), 4, 2, stride=2), images),
    (nn.MaxPool((2, 2)), images),
    (nn.MeanPool((3, 3), stride=2, pad=1), images),
    (nn.GlobalMeanPool(), images),
    (nn.BatchNorm(4, nn.relu), images),
    (nn.InstanceNorm(4, affine=True), images),
    (nn.GroupNorm(4, 2), images),
    (nn.LayerNorm(6), rows),
    (nn.WeightNorm(nn.Dense(6, 5)), rows),
    (nn.Bilinear((6, 6), 3), rows),
    (nn.RNN(6, 4), sequences),
    (nn.LSTM(6, 4), sequences),
    (nn.GRU(6, 4), sequences),
    (nn.GRUv3(6, 4), sequences),
    (nn.MultiHeadAttention(6, nheads=2), sequences),
    (nn.Chain(nn.AdaptiveMaxPool((5, 4)), nn.AdaptiveMeanPool((2, 3))), images),
    (nn.Upsample("bilinear", scale=2), images),
    (nn.PixelShuffle(2), images),
    (nn.Chain(nn.Dense(6, 32, nn.selu), nn.AlphaDropout(0.3), nn.Dense(32, 3)), rows),
    (nn.Chain(nn.Conv((3, 3), 4, 4), nn.BatchNorm(4), nn.MaxPool((2, 2)), flat, nn.Dropout(0.5)),
     images),
]

def run(device, layer, shape):
    params, state = layer.init(key)
    x = jax.random.normal(jax.random.fold_in(key, 1), shape)
    params, state, x = jax.device_get((params, state, x))

    @jax.jit
    def step(params, state, x, key):
        def loss(params, x):
            y, after = layer.apply(params, state, x, key=key)
            first = jax.tree.leaves(y)[0]
            weights = jnp.cos(jnp.arange(first.size)).reshape(first.shape)
            return (weights * first**2).sum(), (y, after)
        return jax.grad(loss, (0, 1), has_aux=True)(params, x)

    return step(*jax.device_put((params, state, x, key), device))

def close(found, expected, scale=0):
    assert found.devices() == {gpu}
    found, expected = jax.device_get((found, expected))
    error = np.abs(found - expected).max(initial=0)
    assert error <= 1e-5 * max(np.abs(expected).max(initial=0), scale), (layer, error)

for layer, shape in LAYERS:
    grads, values = run(gpu, layer, shape)
    expected_grads, expected_values = run(cpu, layer, shape)
    jax.tree.map(close, values, expected_values)
    # One scale for all: where a derivative is zero because terms cancel, as that of a bias before
    # batch normalisation is, rounding errors of the terms are left.
    scale = max(float(jnp.abs(b).max()) for b in jax.tree.leaves(expected_grads))
    jax.tree.map(lambda a, b: close(a, b, scale), grads, expected_grads)

for layer in (nn.Dropout(0.3), nn.Dropout(0.7, dims=0)):
    masks = [np.asarray(run(device, layer, (257, 129))[1][0] != 0) for device in (gpu, cpu)]
    assert (masks[0] == masks[1]).all()
print("same numbers")
"""


@pytest.mark.gpu
@pytest.mark.skipif(not Path("/dev/nvidiactl").exists(), reason="no NVIDIA GPU on this machine")
def test_the_cpus_numbers() -> None:
    """Values, statistics and derivatives to 1e-5 of the largest, masks exactly."""
    environment = {**os.environ, "JAX_PLATFORMS": "", "XLA_FLAGS": ""}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    assert "same numbers" in done.stdout
