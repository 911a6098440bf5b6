"""Measure Julia functions inside compiled JAX programs on a GPU, against JAX on the same GPU.

    python benchmarks/gpu.py [--markdown]

Needs an NVIDIA GPU, and CUDA.jl in Julia's main environment. Everything that is compared runs in
turn, in one run, and each figure is the least of many. The rows "through the host" are those of a
second process, in which XLA does not call Julia on its own buffers.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from bridge import Row, blocked, least, ms, show
from models import MODELS

NETWORKS = ("MLP 784-256-256-10, batch 128", "CNN, two convolutions, batch 32 of 28 by 28")


def cases() -> dict[str, dict[str, Callable[[], Any]]]:
    """Make the calls that are compared: a function in Julia and its twin in JAX."""
    import jax
    import jax.numpy as jnp

    import pybridge as pb

    key = jax.random.key(0)
    few, many = jnp.ones(4, jnp.float32), jax.random.normal(key, (4096, 4096))
    product = lambda a: jnp.matmul(a, a, precision="highest")  # noqa: E731
    same = lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype)  # noqa: E731
    pairs = {
        "`x -> 2 .* x` of 4 numbers": ("x -> 2 .* x", lambda x: 2 * x, few),
        "`x -> tanh.(x)` of 64 MB": ("x -> tanh.(x)", jnp.tanh, many),
        "`a -> a * a` of 4096 by 4096": ("a -> a * a", product, many),
    }
    found = {
        name: {
            "julia": blocked(jax.jit(pb.from_julia(source, layout="reversed", out=same)), x),
            "jax": blocked(jax.jit(native), x),
        }
        for name, (source, native, x) in pairs.items()
    }
    return found | {f"gradient of the {name}": network(name) for name in NETWORKS}


def network(name: str) -> dict[str, Callable[[], Any]]:
    """Differentiate a network's loss, as Flux layers and as those of `pb.nn`."""
    import jax
    import jax.numpy as jnp

    import pybridge as pb

    model = pb.flux(MODELS[name].source)
    params, state = model.init(jax.random.key(0))
    twin, twin_params, twin_state = pb.nn.from_flux(model, params, state)
    x = jax.random.normal(jax.random.key(1), MODELS[name].size[::-1])

    def step(model: Any, state: Any) -> Any:
        def loss(params: Any) -> Any:
            return -jnp.mean(jax.nn.log_softmax(model.apply(params, state, x)[0])[:, 0])

        return jax.jit(jax.value_and_grad(loss))

    return {
        "julia": blocked(step(model, state), params),
        "jax": blocked(step(twin, twin_state), twin_params),
    }


def measure() -> dict[str, dict[str, float]]:
    return {name: least(calls, rounds=50) for name, calls in cases().items()}


def through_the_host() -> dict[str, dict[str, float]]:
    command = [sys.executable, __file__, "--json"]
    settings = {**os.environ, "PYBRIDGE_FFI": "off", "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(command, env=settings, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    """Run all measurements."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--markdown", action="store_true", help="print a table for the docs")
    parser.add_argument("--json", action="store_true", help="print the seconds alone")
    options = parser.parse_args()
    # CUDA.jl has to find memory that JAX has not taken.
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    import jax

    if jax.default_backend() != "gpu":
        raise SystemExit(f"expected a GPU, got {jax.devices()}: install jax[cuda12]")
    if options.json:
        print(json.dumps(measure()))
        return
    rows = []
    host = through_the_host()
    for name, times in measure().items():
        ours, theirs = times["julia"], times["jax"]
        rows.append(Row(name, ms(ours), f"JAX {ms(theirs)}", f"{ours / theirs:.2f} times"))
        copied = host[name]["julia"]
        rows.append(
            Row(
                "through the host",
                ms(copied),
                f"XLA's buffers {ms(ours)}",
                f"{copied / ours:.1f} times",
            )
        )
    from pybridge.julia._session import session

    julia = f"Julia {session().julia_version}, CUDA.jl {session().require('CUDA')}"
    show(rows, f"{jax.devices()[0].device_kind}; jax {jax.__version__}, {julia}", options.markdown)


if __name__ == "__main__":
    main()
