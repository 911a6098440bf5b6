"""Measure what strong zeros cost: gradients through `pb.strong_zero` against plain ones.

    python benchmarks/strong_zero.py [--threads 1] [--rounds 40]

The jitted gradient of an MLP, of a small CNN and of an elementwise program, and the compiled
value. Both versions run in turn, in one run; a ratio is the median of the rounds' ratios of
strong to plain. The last column compares the time to trace and lower the gradient.
"""

from __future__ import annotations

import argparse
import os
import platform
import time
from collections.abc import Callable
from typing import Any


def programs() -> dict[str, tuple[Callable[..., Any], tuple[Any, ...]]]:
    """Return scalar functions and their arguments."""
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax import lax

    random = np.random.default_rng(0)

    def normal(*shape: int) -> Any:
        scale = 1 / np.sqrt(max(1, np.prod(shape[:-1])))
        return jnp.asarray(scale * random.standard_normal(shape, np.float32))

    def mlp(params: Any, x: Any) -> Any:
        for w in params[:-1]:
            x = jax.nn.relu(x @ w)
        return -jax.nn.log_softmax(x @ params[-1])[:, 0].mean()

    def cnn(params: Any, x: Any) -> Any:
        for kernel in params[:-1]:
            x = jax.nn.relu(lax.conv(x, kernel, (2, 2), "SAME"))
        return -jax.nn.log_softmax(x.reshape(x.shape[0], -1) @ params[-1])[:, 0].mean()

    def elementwise(x: Any) -> Any:
        y = jnp.where(x > 0, jnp.sqrt(x) * jnp.log(x), jnp.sin(x))
        return jnp.sum(jnp.tanh(y) / (1.0 + y * y) + jnp.exp(-x * x))

    layers = [normal(i, o) for i, o in ((784, 256), (256, 256), (256, 10))]
    kernels = [jnp.moveaxis(normal(3, 3, i, o), (3, 2), (0, 1)) for i, o in ((1, 16), (16, 32))]
    return {
        "MLP": (mlp, (layers, 28 * normal(128, 784))),
        "CNN": (cnn, ([*kernels, normal(32 * 49, 10)], 28 * normal(64, 1, 28, 28))),
        "elementwise": (elementwise, (1000 * normal(1_000_000),)),
    }


def median_ratio(plain: Any, strong: Any, arguments: Any, rounds: int) -> tuple[float, float]:
    """Return the plain median in seconds, and the median ratio of strong to plain."""
    import jax
    import numpy as np

    seconds: dict[str, list[float]] = {"plain": [], "strong": []}
    for _ in range(rounds):
        for name, step in (("plain", plain), ("strong", strong)):
            start = time.perf_counter()
            for _ in range(3):
                jax.block_until_ready(step(*arguments))
            seconds[name].append((time.perf_counter() - start) / 3)
    ratios = np.array(seconds["strong"]) / np.array(seconds["plain"])
    return float(np.median(seconds["plain"])), float(np.median(ratios))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=40)
    options = parser.parse_args()
    os.environ["NPROC"] = str(options.threads)
    eigen = str(options.threads > 1).lower()
    os.environ["XLA_FLAGS"] = (
        f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_multi_thread_eigen={eigen} "
        f"intra_op_parallelism_threads={options.threads}"
    )
    import jax

    from pybridge.primitives._strong_zero import strong_zero

    device = jax.devices()[0].device_kind
    print(f"{platform.machine()}, {device}, {options.threads} threads; jax {jax.__version__}\n")
    print("| program | plain gradient | strong / plain | value, strong / plain | tracing |")
    print("| --- | --- | --- | --- | --- |")
    for name, (f, arguments) in programs().items():
        plain = jax.jit(jax.grad(f)).lower(*arguments)
        start = time.perf_counter()
        jax.jit(jax.grad(f)).lower(*arguments)
        traced_plain = time.perf_counter() - start
        start = time.perf_counter()
        strong = jax.jit(jax.grad(strong_zero(f))).lower(*arguments)
        traced = time.perf_counter() - start
        seconds, ratio = median_ratio(plain.compile(), strong.compile(), arguments, options.rounds)
        _, value = median_ratio(
            jax.jit(f).lower(*arguments).compile(),
            jax.jit(strong_zero(f)).lower(*arguments).compile(),
            arguments,
            options.rounds,
        )
        print(
            f"| {name} | {1e3 * seconds:.2f} ms | {ratio:.2f} | {value:.2f} "
            f"| {traced / traced_plain:.1f} times as long |"
        )


if __name__ == "__main__":
    main()
