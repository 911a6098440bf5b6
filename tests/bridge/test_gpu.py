"""Bridged functions on a GPU. Runs wherever one is present."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import warnings
import jax
import jax.numpy as jnp
import numpy as np
import pybridge as pb

gpu, cpu = jax.devices("gpu")[0], jax.devices("cpu")[0]
f = pb.from_julia("(w, x) -> sum(abs2, tanh.(w * x))")
w, x = np.arange(6, dtype=np.float32).reshape(2, 3) / 10, np.ones(3, np.float32)

def run(device):
    args = jax.device_put((w, x), device)
    value = jax.jit(jax.value_and_grad(f, argnums=(0, 1)))(*args)
    lanes = jax.jit(jax.vmap(f, (None, 0)))(args[0], jnp.stack([args[1], 2 * args[1]]))
    return value, jax.hessian(f)(*args), lanes

expected = run(cpu)
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    found = run(gpu)
assert len([w for w in said if "copied to the host" in str(w.message)]) == 1, said
for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
    assert a.devices() == {gpu}
    np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
print("same numbers")
"""


@pytest.mark.gpu
@pytest.mark.skipif(not Path("/dev/nvidiactl").exists(), reason="no NVIDIA GPU on this machine")
def test_the_cpus_numbers() -> None:
    """Values and derivatives on a GPU are those of the CPU; the copies are mentioned once."""
    environment = {**os.environ, "JAX_PLATFORMS": "", "XLA_FLAGS": ""}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    assert "same numbers" in done.stdout
