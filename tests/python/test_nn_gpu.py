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
images, rows = (8, 4, 12, 10), (16, 6)
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
            return (y**2).sum(), (y, after)
        return jax.value_and_grad(loss, (0, 1), has_aux=True)(params, x)

    return step(*jax.device_put((params, state, x, key), device))

def close(a, b):
    scale = np.abs(b).max(initial=1e-3)
    assert np.abs(a - b).max(initial=0) <= 1e-5 * scale, np.abs(a - b).max() / scale

for layer, shape in LAYERS:
    found, expected = run(gpu, layer, shape), run(cpu, layer, shape)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert a.devices() == {gpu}
        close(np.asarray(a), np.asarray(b))

for layer in (nn.Dropout(0.3), nn.Dropout(0.7, dims=0)):
    masks = [np.asarray(run(device, layer, (257, 129))[0][1][0] != 0) for device in (gpu, cpu)]
    assert (masks[0] == masks[1]).all()
print("same numbers")
"""


@pytest.mark.gpu
@pytest.mark.skipif(not Path("/dev/nvidiactl").exists(), reason="no NVIDIA GPU on this machine")
def test_the_cpus_numbers() -> None:
    """Values, statistics and gradients to 1e-5 of the largest, masks exactly."""
    environment = {**os.environ, "JAX_PLATFORMS": "", "XLA_FLAGS": ""}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    assert "same numbers" in done.stdout
