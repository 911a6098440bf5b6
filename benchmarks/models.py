"""Measure a training step of Flux models inside JAX against Flux by itself, and of their twins.

    python benchmarks/models.py [--markdown] [--threads 1] [--only ResNet]

The model is Flux's, the loss JAX's: `jax.jit(jax.value_and_grad(loss))` with `pb.flux`. Julia's own
step has the same loss in Julia and is timed inside of Julia, on the thread that XLA calls from, as
NNlib's convolutions are spread over the threads that wait for work. `pb.nn.from_flux` makes the
layers of `pb.nn`; Flax (flax_models.py) has channels last. All are timed in turn, in one process,
first the steps and then the forward passes; each figure is the least of many, but for the median
step, which has its share of Julia's garbage collections and of what they leave behind. The forward
pass is that of the test mode. "JAX's part alone" is a step without a network and without Julia: the
loss and its gradient, compiled. "The calls alone" has it between two calls of Julia on the same
arrays, of which the first returns zeros and the second the parameters. "The call alone" is that
first one, beside the forward pass. "The copy of the gradients" is NumPy's, of arrays like them: XLA
gives Julia no say in where its results are.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import flax_models
from bridge import LEAST, Row, blocked, in_a_row, least, limit_threads, machine, ms, show


@dataclass(frozen=True)
class Model:
    """A model in both languages.

    Attributes:
        source: Flux's.
        size: Julia's size of a batch.
        flax: the same in Flax.
        rounds: of timing.
    """

    source: str
    size: tuple[int, ...]
    flax: Any
    rounds: int = 30


def transformer(depth: int, width: int, heads: int) -> str:
    """Write blocks of attention and two dense layers, normalised before, in Julia."""
    block = (
        f"SkipConnection(Chain(LayerNorm({width}), "
        f"MultiHeadAttention({width}; nheads={heads}), first), +), "
        f"SkipConnection(Chain(LayerNorm({width}), "
        f"Dense({width} => {4 * width}, gelu), Dense({4 * width} => {width})), +), "
    )
    return f"Chain({block * depth}LayerNorm({width}), Dense({width} => 10))"


def resnet18() -> str:
    """Write a ResNet-18 for small images (He et al. 2015) in Julia."""

    def conv(before: int, after: int, size: int = 3, stride: int = 1) -> str:
        pad = size // 2
        return f"Conv(({size}, {size}), {before} => {after}; {pad=}, {stride=}, bias=false)"

    layers = [conv(3, 64), "BatchNorm(64, relu)"]
    widths = [64, *(width for width in (64, 128, 256, 512) for _ in range(2))]
    for before, after in itertools.pairwise(widths):
        stride = after // before
        main = f"{conv(before, after, 3, stride)}, BatchNorm({after}, relu), {conv(after, after)}"
        shortcut = f"Chain({conv(before, after, 1, stride)}, BatchNorm({after}))"
        layers.append(
            f"Parallel(+, Chain({main}, BatchNorm({after})), "
            f"{shortcut if stride == 2 else 'identity'}), x -> relu.(x)"
        )
    return f"Chain({', '.join(layers)}, GlobalMeanPool(), Flux.flatten, Dense(512 => 10))"


MODELS = {
    "MLP 784-256-256-10, batch 128": Model(
        "Chain(Dense(784 => 256, relu), Dense(256 => 256, relu), Dense(256 => 10))",
        (784, 128),
        flax_models.MLP((256, 256, 10)),
    ),
    "CNN, two convolutions, batch 32 of 28 by 28": Model(
        "Chain(Conv((3, 3), 1 => 16, relu; pad=1), MaxPool((2, 2)), "
        "Conv((3, 3), 16 => 32, relu; pad=1), MaxPool((2, 2)), Flux.flatten, Dense(1568 => 10))",
        (28, 28, 1, 32),
        flax_models.CNN((16, 32)),
    ),
    "transformer block, 128 wide, 32 of 16 tokens": Model(
        transformer(1, 128, 4), (128, 16, 32), flax_models.Transformer(1, 128, 4)
    ),
    "transformer, 6 blocks, 256 wide, 8 of 32 tokens": Model(
        transformer(6, 256, 8), (256, 32, 8), flax_models.Transformer(6, 256, 8), 10
    ),
    "ResNet-18, 8 of 32 by 32": Model(resnet18(), (32, 32, 3, 8), flax_models.ResNet18(), 15),
}


# What is timed of a model.
KINDS = {"step": "value and gradient", "forward": "forward pass"}


def inside(f: str, work: str) -> Callable[[int], float]:
    """Make a function that asks Julia, from a compiled program, for the least time of `work(f)`.

    Returns:
        A function of how often Julia does that.
    """
    import jax
    import numpy as np

    import pybridge as pb

    source = LEAST.format(f=f, work=work)
    out = jax.ShapeDtypeStruct((), np.float32)
    timer = jax.jit(pb.from_julia(source, using=("Flux", "Zygote"), out=out))
    return lambda repeat: float(timer(np.float32(repeat)))


def medians(calls: dict[str, Callable[[], float]], rounds: int) -> dict[str, float]:
    """Take the median of the seconds that each call returns, in turn."""
    times = [[call() for call in calls.values()] for _ in range(rounds)]
    return dict(zip(calls, map(statistics.median, zip(*times, strict=True)), strict=True))


def measure(name: str, model: Model) -> list[Row]:
    """Time the passes of a model in JAX, in Julia, as layers of `pb.nn` and in Flax."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    import pybridge as pb

    in_jax = pb.flux(model.source)
    params, state = in_jax.init(jax.random.key(0))
    twin, *trees = pb.nn.from_flux(in_jax, params, state)
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.standard_normal(model.size[::-1]), jnp.float32)
    channels_last = jnp.moveaxis(x, 1, -1) if x.ndim == 4 else x
    variables = model.flax.init(jax.random.key(0), channels_last, True)
    weights, statistics = variables["params"], {k: variables[k] for k in {*variables} - {"params"}}
    logits = jax.eval_shape(lambda: in_jax.apply(params, state, x)[0])
    y = jax.nn.one_hot(jnp.asarray(rng.integers(0, 10, logits.shape[:-1])), 10)

    def loss(logits: Any) -> Any:
        return -jnp.mean(jnp.sum(y * jax.nn.log_softmax(logits), axis=-1))

    def stepping(apply: Callable[..., Any]) -> Callable[..., Any]:
        return jax.jit(jax.value_and_grad(lambda params, x: loss(apply(params, x))))

    def flax(training: bool) -> Callable[..., Any]:
        def apply(weights: Any, x: Any) -> Any:
            variables = {"params": weights, **statistics}
            return model.flax.apply(variables, x, training, mutable=[*statistics])[0]

        return apply

    def ours(layer: Any, state: Any, training: bool) -> Callable[..., Any]:
        return lambda params, x: layer.apply(params, state, x, training=training)[0]

    dims, labels = (", ".join(map(str, size)) for size in (model.size, logits.shape[-2::-1]))
    data = (
        f"let m = Core.eval(Flux, :({model.source})), x = randn(Float32, {dims}), "
        f"y = Flux.onehotbatch(rand(0:9, {labels}), 0:9); (m, x, Float32.(y)) end"
    )
    size = ", ".join(map(str, logits.shape[::-1]))
    forward = pb.from_julia(f"(params, x) -> zeros(Float32, {size})", layout="reversed")
    backward = pb.from_julia("(params, x, cotangent) -> params", layout="reversed")

    @jax.jit
    def calls_alone(params: Any, x: Any) -> Any:
        value, cotangent = jax.value_and_grad(loss)(forward(params, x))
        return value, backward(params, x, cotangent)

    call_alone, jax_alone = jax.jit(forward), jax.jit(jax.value_and_grad(loss))
    zeros = jnp.zeros(logits.shape, logits.dtype)
    gradients = [(np.array(leaf), np.array(leaf)) for leaf in jax.tree.leaves(params)]

    def copy_gradients() -> None:
        for to, of in gradients:
            np.copyto(to, of)

    parts = {
        ("step", "the calls alone"): blocked(calls_alone, params, x),
        ("step", "JAX's part alone"): blocked(jax_alone, zeros),
        ("step", "the copy of the gradients"): copy_gradients,
        ("forward", "the call alone"): blocked(call_alone, params, x),
    }
    in_julia = "((m, x, y),) -> Flux.withgradient(m -> Flux.logitcrossentropy(m(x), y), m)"
    programs = {
        "pb.flux": (ours(in_jax, state, True), ours(in_jax, state, False), params, x),
        "pb.nn": (ours(twin, trees[1], True), ours(twin, trees[1], False), trees[0], x),
        "Flax": (flax(True), flax(False), weights, channels_last),
    }
    step_in_julia = inside(data, in_julia)
    forward_in_julia = inside(data, "((m, x, y),) -> m(x)")
    calls = {
        ("step", "Flux"): lambda: step_in_julia(3),
        ("forward", "Flux"): lambda: forward_in_julia(3),
        # Once, after a pass of Flux: with what is in the processor's caches when it ends.
        **{part: in_a_row(call, 1) for part, call in parts.items()},
    }
    steps = {}
    for which, (training, test, arrays, inputs) in programs.items():
        steps[which] = blocked(stepping(training), arrays, inputs)
        calls["step", which] = in_a_row(steps[which], 3)
        calls["forward", which] = in_a_row(blocked(jax.jit(test), arrays, inputs), 3)
    # The passes apart: what Julia allocated last decides where in memory the next call works.
    times = {}
    for kind in KINDS:
        times |= least({key: call for key, call in calls.items() if key[0] == kind}, model.rounds)
    rows = [
        Row(
            f"{name}: {what} of {which}",
            ms(times[key, which]),
            f"{peer} {ms(times[key, peer])}",
            f"{times[key, which] / times[key, peer]:.2f} times",
            target,
        )
        for key, what in KINDS.items()
        for which, peer, target in (
            ("pb.flux", "Flux", "1.10 times" if key == "step" else "1.05 times"),
            ("pb.nn", "Flax", "1.00 times"),
        )
    ]
    one_step = {"pb.flux": in_a_row(steps["pb.flux"], 1), "Flux": lambda: step_in_julia(1)}
    typical = medians(one_step, 3 * model.rounds)
    return [
        *rows,
        Row(
            f"{name}: the median step of pb.flux",
            ms(typical["pb.flux"]),
            f"Flux {ms(typical['Flux'])}",
            f"{typical['pb.flux'] / typical['Flux']:.2f} times",
        ),
        *(
            Row(
                f"{name}: {part}",
                ms(times[kind, part]),
                f"{KINDS[kind]} of Flux {ms(times[kind, 'Flux'])}",
                f"{times[kind, part] / times[kind, 'Flux']:.2f} of it",
            )
            for kind, part in parts
        ),
    ]


def main() -> None:
    """Run all measurements."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--markdown", action="store_true", help="print a table for the docs")
    parser.add_argument("--threads", type=int, default=1, help="threads of XLA and of BLAS")
    parser.add_argument("--only", default="", help="models whose name has this")
    options = parser.parse_args()
    limit_threads(options.threads)
    chosen = {name: model for name, model in MODELS.items() if options.only in name}
    rows = [row for name, model in chosen.items() for row in measure(name, model)]
    show(rows, machine(options.threads), options.markdown)


if __name__ == "__main__":
    main()
