"""Measure a training step of Flux models inside JAX against Flux and Zygote by themselves.

    python benchmarks/models.py [--markdown] [--threads 1]

The model is Flux's, the loss JAX's: `jax.jit(jax.value_and_grad(loss))` with `pb.flux`. Julia's own
step has the same loss in Julia and is timed inside of Julia, on the thread that XLA calls from, as
NNlib's convolutions are spread over the threads that wait for work. All are timed in turn, in one
process; each figure is the least of many. The forward pass is that of the test mode.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from bridge import LEAST, Row, blocked, in_a_row, least, limit_threads, machine, ms, show

BLOCK = """
Chain(
    SkipConnection(Chain(LayerNorm(128), MultiHeadAttention(128; nheads=4), first), +),
    SkipConnection(Chain(LayerNorm(128), Dense(128 => 512, gelu), Dense(512 => 128)), +),
    x -> reshape(sum(x; dims=2), 128, :), Dense(128 => 10))
"""
# Name: source, and Julia's size of a batch.
MODELS = {
    "MLP 784-256-256-10, batch 128": (
        "Chain(Dense(784 => 256, relu), Dense(256 => 256, relu), Dense(256 => 10))",
        (784, 128),
    ),
    "CNN, two convolutions, batch 32 of 28 by 28": (
        "Chain(Conv((3, 3), 1 => 16, relu; pad=1), MaxPool((2, 2)), "
        "Conv((3, 3), 16 => 32, relu; pad=1), MaxPool((2, 2)), Flux.flatten, Dense(1568 => 10))",
        (28, 28, 1, 32),
    ),
    "transformer block, 128 wide, 32 of 16 tokens": (BLOCK, (128, 16, 32)),
}


def inside(f: str, work: str, repeat: int) -> Callable[[], float]:
    """Make a call that asks Julia, from a compiled program, for the least time of `work(f)`."""
    import jax
    import numpy as np

    import pybridge as pb

    source = LEAST.format(f=f, work=work)
    out = jax.ShapeDtypeStruct((), np.float32)
    timer = jax.jit(pb.from_julia(source, using=("Flux", "Zygote"), out=out))
    return lambda: float(timer(np.float32(repeat)))


def measure(name: str, source: str, size: tuple[int, ...]) -> list[Row]:
    """Time the passes of a model in JAX and in Julia."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    import pybridge as pb

    model = pb.flux(source)
    params, state = model.init(jax.random.key(0))
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.standard_normal(size[::-1]), jnp.float32)
    y = jax.nn.one_hot(jnp.asarray(rng.integers(0, 10, size[-1])), 10)

    def loss(params: Any, x: Any) -> Any:
        logits, _ = model.apply(params, state, x, training=True)
        return -jnp.mean(jnp.sum(y * jax.nn.log_softmax(logits), axis=1))

    step = jax.jit(jax.value_and_grad(loss))
    forward = jax.jit(lambda params, x: model.apply(params, state, x, training=False)[0])
    dims = ", ".join(map(str, size))
    data = (
        f"let m = Core.eval(Flux, :({source.strip()})), x = randn(Float32, {dims}), "
        f"y = Flux.onehotbatch(rand(0:9, {size[-1]}), 0:9); (m, x, Float32.(y)) end"
    )
    in_julia = "((m, x, y),) -> Flux.withgradient(m -> Flux.logitcrossentropy(m(x), y), m)"
    times = least(
        {
            "step": in_a_row(blocked(step, params, x), 3),
            "step in Julia": inside(data, in_julia, 3),
            "forward": in_a_row(blocked(forward, params, x), 3),
            "forward in Julia": inside(data, "((m, x, y),) -> m(x)", 3),
        },
        30,
    )
    return [
        Row(
            f"{name}: {what}",
            ms(times[key]),
            f"Flux alone {ms(times[f'{key} in Julia'])}",
            f"{times[key] / times[f'{key} in Julia']:.2f} times",
            target,
        )
        for what, key, target in (
            ("value and gradient", "step", "1.10 times"),
            ("forward pass", "forward", "1.05 times"),
        )
    ]


def main() -> None:
    """Run all measurements."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--markdown", action="store_true", help="print a table for the docs")
    parser.add_argument("--threads", type=int, default=1, help="threads of XLA and of BLAS")
    options = parser.parse_args()
    limit_threads(options.threads)
    rows = [row for name, model in MODELS.items() for row in measure(name, *model)]
    show(rows, machine(options.threads), options.markdown)


if __name__ == "__main__":
    main()
