"""Bridged functions on a GPU. Runs wherever one is present.

With CUDA.jl in Julia's environment XLA calls Julia on its own buffers; the tests of that are
skipped without it. Without it, or where it is switched off, arrays go through the host.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PREPARE = """
import warnings
import jax
import jax.numpy as jnp
import numpy as np
import pybridge as pb
from pybridge.julia._ffi import xla_calls_julia

refusal = xla_calls_julia("cuda")
gpu, cpu = jax.devices("gpu")[0], jax.devices("cpu")[0]

def close(a, b, rtol=1e-5, atol=1e-6):
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        assert x.devices() == {gpu}, x.devices()
        np.testing.assert_allclose(x, y, rtol=rtol, atol=atol)
"""

# What needs XLA to call Julia on the GPU.
DIRECT = """
if refusal is not None:
    print("no way without the host:", refusal)
    raise SystemExit
"""

NUMBERS = """
f = pb.from_julia("(w, x) -> sum(abs2, tanh.(w * x))")
w, x = np.arange(6, dtype=np.float32).reshape(2, 3) / 10, np.ones(3, np.float32)

def run(device):
    args = jax.device_put((w, x), device)
    value = jax.jit(jax.value_and_grad(f, argnums=(0, 1)))(*args)
    lanes = jax.jit(jax.vmap(f, (None, 0)))(args[0], jnp.stack([args[1], 2 * args[1]]))
    shared = jax.grad(lambda w: jax.vmap(f, (None, 0))(w, jnp.stack([args[1], -args[1]])).sum())
    return value, jax.hessian(f)(*args), lanes, shared(args[0]), f(*args)

expected = run(cpu)
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    found = run(gpu)
copied = [w for w in said if "copied to the host" in str(w.message)]
assert len(copied) == (refusal is not None), (refusal, said)
close(found, expected)
print("as it should be")
"""

NO_COPY = """
jax.config.update("jax_enable_x64", True)
address = pb.from_julia("x -> [UInt64(UInt(pointer(x)))]",
                        out=jax.ShapeDtypeStruct((1,), jnp.uint64))
x = jax.device_put(np.ones(1 << 20), gpu)
assert jax.jit(address)(x).tolist() == [x.unsafe_buffer_pointer()]
on_gpu = pb.from_julia("x -> (x isa Array ? 1 : 2) .* x",
                       out=lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype))
close(jax.jit(on_gpu)(x), 2 * np.ones(1 << 20))
print("as it should be")
"""

ORDER = """
f = pb.from_julia("x -> tanh.(x) .+ sum(x) / length(x)",
                  out=lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype))
def g(x): return jnp.tanh(x) + x.sum() / x.size

def steps(h, x):
    # Enough work before each call that reading too early would show, and after it.
    for _ in range(4):
        for _ in range(8):
            x = jnp.tanh(x @ x / 50)
        x = h(x) / 2
    return x @ x

xs = [jax.random.normal(jax.random.key(i), (1500, 1500)) for i in range(4)]
ours, natives = jax.jit(lambda x: steps(f, x)), jax.jit(lambda x: steps(g, x))
for _ in range(5):
    found = [ours(jax.device_put(x, gpu)) for x in xs]   # nobody waits in between
    pb.from_julia("() -> (GC.gc(); 0)")()
    close(found, [natives(jax.device_put(x, gpu)) for x in xs], rtol=1e-3, atol=1e-2)
print("as it should be")
"""

CAPTURE = """
# A program that XLA would like to capture and replay. Each run calls Julia again.
source = "let n = Threads.Atomic{Int}(0); x -> (Threads.atomic_add!(n, 1); x .+ n[]); end"
count = pb.from_julia(source, out=lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype))
run = jax.jit(lambda x: count(x * 2 + 1) * 3)
for i in range(1, 5):
    close(run(jax.device_put(np.zeros(4, np.float32), gpu)), np.full(4, 3.0 * (1 + i)))
print("as it should be")
"""

ERRORS = """
f = pb.from_julia('x -> (s = sum(x); s < 0 && throw(DomainError(s, "below")); 2 .* x)',
                  out=lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype))
x = jax.device_put(np.ones(3, np.float32), gpu)
for _ in range(20):
    try:
        jax.jit(f)(-x).block_until_ready()
    except (jax.errors.JaxRuntimeError, ValueError) as error:
        assert "DomainError" in str(error) and "below" in str(error), error
    else:
        raise AssertionError("no error")
    close(jax.jit(f)(x), np.full(3, 2.0))
source = "let kept = []; x -> (isempty(kept) ? (push!(kept, x); x) : copy(kept[1])); end"
kept = pb.from_julia(source, out=lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype))
close(jax.jit(kept)(x), np.ones(3))
try:
    jax.jit(kept)(x).block_until_ready()
except (jax.errors.JaxRuntimeError, ValueError) as error:
    assert "freed" in str(error), error
else:
    raise AssertionError("an array that was XLA's again could be read")
print("as it should be")
"""

DEVICES = """
f = pb.from_julia("x -> x .* 2")
for device in jax.devices("gpu"):
    y = jax.jit(f)(jax.device_put(np.arange(5, dtype=np.float32), device))
    assert y.devices() == {device}
    np.testing.assert_allclose(y, 2 * np.arange(5))
print("as it should be")
"""

NETWORK = """
from pybridge.julia._session import session
try:
    session().require("cuDNN")
    images = "Conv((3, 3), 2 => 4, tanh), BatchNorm(4, relu), MaxPool((2, 2)), Flux.flatten, "
except pb.BridgeError:
    images = "Flux.flatten, Dense(72 => 16, tanh), BatchNorm(16), "
model = pb.flux(f"Chain({images} Dense(16 => 5, gelu), LayerNorm(5), Dense(5 => 3))")
params, state = jax.device_get(model.init(jax.random.key(0)))
x = np.asarray(jax.random.normal(jax.random.key(1), (7, 2, 6, 6)))

def train(device):
    params_, state_, x_ = jax.device_put((params, state, x), device)

    @jax.jit
    def step(params, state):
        def loss(params):
            y, after = model.apply(params, state, x_)
            return (y[:, 0] ** 2 - jnp.tanh(y[:, 1:]).sum(1)).mean(), after
        (value, after), grads = jax.value_and_grad(loss, has_aux=True)(params)
        return value, jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), after

    values = []
    for _ in range(5):
        value, params_, state_ = step(params_, state_)
        values.append(value)
    return values, params_, state_

expected = train(cpu)
with warnings.catch_warnings():
    warnings.simplefilter("ignore", UserWarning)  # that arrays are copied, where they are
    close(train(gpu), expected, rtol=1e-4, atol=1e-5)
assert expected[0][-1] < expected[0][0]
print("as it should be")
"""

# XLA captures custom calls that allow it, in graphs as small as can be.
CAPTURING = "--xla_gpu_enable_command_buffer=+CUSTOM_CALL --xla_gpu_graph_min_graph_size=1"


def run(script: str, **settings: str) -> None:
    """Run a script in a process of its own, where JAX sees the GPU."""
    # CUDA.jl has to find memory that JAX has not taken.
    memory = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    environment = {**os.environ, "JAX_PLATFORMS": "", "XLA_FLAGS": "", **memory, **settings}
    done = subprocess.run(
        [sys.executable, "-c", PREPARE + script],
        env=environment,
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr
    if "no way without the host" in done.stdout:
        pytest.skip(done.stdout.strip())
    assert "as it should be" in done.stdout


pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not Path("/dev/nvidiactl").exists(), reason="no NVIDIA GPU on this machine"),
]


def test_the_cpus_numbers() -> None:
    """Values and derivatives on a GPU are those of the CPU; copies, if any, are mentioned."""
    run(NUMBERS)


def test_through_the_host() -> None:
    """Without the direct way the numbers are the same, and the copies are mentioned once."""
    run(NUMBERS, PYBRIDGE_FFI="off")


def test_a_flux_model_is_trained() -> None:
    """Five steps on a GPU, with running statistics, are those of the CPU."""
    run(NETWORK)


@pytest.mark.parametrize(
    ("script", "flags"),
    [
        pytest.param(NO_COPY, "", id="no-copy"),
        pytest.param(ORDER, "", id="order"),
        pytest.param(CAPTURE, CAPTURING, id="capture"),
        pytest.param(ERRORS, "", id="errors"),
        pytest.param(DEVICES, "", id="devices"),
    ],
)
def test_on_xlas_buffers(script: str, flags: str) -> None:
    """With CUDA.jl: Julia works on XLA's memory, in the order of XLA's stream."""
    run(DIRECT + script, XLA_FLAGS=flags)
