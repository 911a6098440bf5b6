"""Measure what `pb.cond` by elements costs: against `jnp.where` with a safe input, by hand.

    python benchmarks/cond.py [--threads 1] [--rounds 30] [--size 1000000]

Each program is written three times: with an array for a predicate, with a scalar one under
`jax.vmap`, and as `where(p, f(where(p, x, 1)), 0)`, the form that JAX's FAQ advises. The versions
run in turn, in one run; a ratio is the median of the rounds' ratios to the form by hand.
"""

from __future__ import annotations

import argparse
import os
import platform
import time
from collections.abc import Callable
from typing import Any


def programs() -> dict[str, tuple[Callable[..., Any], int]]:
    """Return branches for positive elements, and how many operands they take."""
    import jax.numpy as jnp

    return {
        "sqrt": (jnp.sqrt, 1),
        "log": (jnp.log, 1),
        "x log(x) / (1 + x)": (lambda x: x * jnp.log(x) / (1 + x), 1),
        "pow(x, y) + log(x) z": (lambda x, y, z: x**y + jnp.log(x) * z, 3),
    }


def versions(branch: Callable[..., Any]) -> dict[str, Callable[..., Any]]:
    """Return the ways to write a branch for positive elements, 0 elsewhere."""
    import jax
    import jax.numpy as jnp

    import pybridge as pb

    def by_elements(x: Any, *rest: Any) -> Any:
        return pb.cond(x > 0, branch, lambda x, *rest: jnp.zeros_like(x), x, *rest)

    def by_hand(x: Any, *rest: Any) -> Any:
        taken = x > 0
        return jnp.where(taken, branch(jnp.where(taken, x, 1.0), *rest), 0.0)

    return {"by hand": by_hand, "array": by_elements, "vmap": jax.vmap(by_elements)}


def median_times(
    steps: dict[str, Callable[..., Any]], arguments: Any, rounds: int
) -> tuple[float, dict[str, float]]:
    """Return the seconds of the first step, and the median ratio of each other to it."""
    import jax
    import numpy as np

    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(rounds):
        for name, step in steps.items():
            start = time.perf_counter()
            jax.block_until_ready(step(*arguments))
            seconds[name].append(time.perf_counter() - start)
    first, *others = (np.array(seconds[name]) for name in steps)
    ratios = [float(np.median(other / first)) for other in others]
    return float(np.median(first)), dict(zip([*steps][1:], ratios, strict=True))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--size", type=int, default=1_000_000)
    options = parser.parse_args()
    eigen = str(options.threads > 1).lower()
    os.environ["XLA_FLAGS"] = (
        f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_multi_thread_eigen={eigen} "
        f"intra_op_parallelism_threads={options.threads}"
    )
    import jax
    import jax.numpy as jnp
    import numpy as np

    random = np.random.default_rng(0)
    device = jax.devices()[0].device_kind
    print(f"{platform.machine()}, {device}, {options.threads} threads; jax {jax.__version__}\n")
    print(f"| {options.size:,} elements | by hand | array / by hand | vmap / by hand |")
    print("| --- | --- | --- | --- |")
    for name, (branch, count) in programs().items():
        arguments = [
            jnp.asarray(random.standard_normal(options.size, np.float32)) for _ in range(count)
        ]
        for what in ("value", "gradient"):
            steps = {}
            for version, f in versions(branch).items():
                step = f if what == "value" else jax.grad(lambda *xs, f=f: f(*xs).sum())
                steps[version] = jax.jit(step).lower(*arguments).compile()
            seconds, ratios = median_times(steps, arguments, options.rounds)
            said = " | ".join(f"{ratio:.2f}" for ratio in ratios.values())
            print(f"| {name}, {what} | {1e3 * seconds:.2f} ms | {said} |")


if __name__ == "__main__":
    main()
