"""Measure a training step of `pybridge.nn` against the same network in Flax and in Equinox.

    python benchmarks/layers.py [--threads 1] [--rounds 40]

A step is the forward pass, the backward pass and optax's Adam, jitted, of an MLP and of a small
CNN, both with batch normalisation and dropout, in "auto" mode and in explicit training mode. All
run in turn, in one run; each figure is the median of the rounds' ratios to `pybridge.nn` in auto
mode. Each framework gets the axes it likes best. `benchmarks/layers.jl` measures the Julia twins.
"""

from __future__ import annotations

import argparse
import os
import platform
import time
from collections.abc import Callable
from typing import Any


def networks(which: str) -> dict[str, tuple[Callable[..., Any], Any]]:
    """Return a jitted step and its arguments for each framework."""
    import jax
    import numpy as np
    import optax

    random = np.random.default_rng(0)
    shape = (128, 784) if which == "MLP" else (64, 1, 28, 28)
    x = random.standard_normal(shape, np.float32)
    y = random.integers(0, 10, shape[0])
    adam = optax.adam(1e-3)
    found = {}
    for name, make in (
        ("pybridge auto", lambda: ours(which, "auto")),
        ("pybridge training=True", lambda: ours(which, True)),
        ("Flax linen", lambda: linen(which)),
        ("Equinox", lambda: equinox(which)),
    ):
        data = np.moveaxis(x, 1, -1).copy() if name == "Flax linen" and x.ndim == 4 else x
        params, state, logits = make()

        def step(params, state, moments, key, x, y, logits=logits):
            def loss(params):
                out, after = logits(params, state, x, key)
                return optax.softmax_cross_entropy_with_integer_labels(out, y).mean(), after

            (value, after), slopes = jax.value_and_grad(loss, has_aux=True)(params)
            updates, moments = adam.update(slopes, moments)
            return optax.apply_updates(params, updates), after, moments, value

        arguments = (params, state, adam.init(params), jax.random.key(1), data, y)
        found[name] = (jax.jit(step), jax.device_put(arguments))
    return found


def ours(which: str, training: Any) -> tuple[Any, Any, Callable[..., Any]]:
    """Return parameters, state and the function of `pybridge.nn`."""
    import jax

    from pybridge import nn

    def flat(x: jax.Array) -> jax.Array:
        return x.reshape(x.shape[0], -1)

    if which == "MLP":
        hidden = [
            layer
            for i, o in ((784, 256), (256, 256))
            for layer in (nn.Dense(i, o), nn.BatchNorm(o, nn.relu), nn.Dropout(0.2))
        ]
        model = nn.Chain(*hidden, nn.Dense(256, 10))
    else:
        blocks = [
            layer
            for i, o in ((1, 16), (16, 32))
            for layer in (
                nn.Conv((3, 3), i, o, pad=1),
                nn.BatchNorm(o, nn.relu),
                nn.MaxPool((2, 2)),
            )
        ]
        model = nn.Chain(*blocks, flat, nn.Dropout(0.2), nn.Dense(32 * 49, 10))
    params, state = model.init(jax.random.key(0))

    def logits(params: Any, state: Any, x: Any, key: Any) -> Any:
        return model.apply(params, state, x, key=key, training=training)

    return params, state, logits


def linen(which: str) -> tuple[Any, Any, Callable[..., Any]]:
    """Return the same for Flax."""
    import flax.linen as fl
    import jax
    import jax.numpy as jnp

    class Model(fl.Module):
        @fl.compact
        def __call__(self, x: Any) -> Any:
            if which == "MLP":
                for _ in range(2):
                    x = fl.Dense(256)(x)
                    x = fl.relu(fl.BatchNorm(use_running_average=False, momentum=0.9)(x))
                    x = fl.Dropout(0.2, deterministic=False)(x)
                return fl.Dense(10)(x)
            for size in (16, 32):
                x = fl.Conv(size, (3, 3), padding=1)(x)
                x = fl.relu(fl.BatchNorm(use_running_average=False, momentum=0.9)(x))
                x = fl.max_pool(x, (2, 2), (2, 2))
            x = fl.Dropout(0.2, deterministic=False)(x.reshape(x.shape[0], -1))
            return fl.Dense(10)(x)

    model = Model()
    shape = (2, 784) if which == "MLP" else (2, 28, 28, 1)
    keys = {"params": jax.random.key(0), "dropout": jax.random.key(1)}
    variables = model.init(keys, jnp.ones(shape))

    def logits(params: Any, state: Any, x: Any, key: Any) -> Any:
        return model.apply(
            {"params": params, "batch_stats": state},
            x,
            rngs={"dropout": key},
            mutable=["batch_stats"],
        )

    def unwrapped(*arguments: Any) -> Any:
        out, after = logits(*arguments)
        return out, after["batch_stats"]

    return variables["params"], variables["batch_stats"], unwrapped


def equinox(which: str) -> tuple[Any, Any, Callable[..., Any]]:
    """Return the same for Equinox, which maps one example over the batch."""
    import equinox as eqx
    import jax

    keys = iter(jax.random.split(jax.random.key(0), 9))

    def norm(size: int) -> Any:
        return eqx.nn.BatchNorm(size, axis_name="batch", momentum=0.9, mode="batch")

    if which == "MLP":
        layers = []
        for i, o in ((784, 256), (256, 256)):
            layers += [eqx.nn.Linear(i, o, key=next(keys)), norm(o)]
            layers += [eqx.nn.Lambda(jax.nn.relu), eqx.nn.Dropout(0.2)]
        model = eqx.nn.Sequential([*layers, eqx.nn.Linear(256, 10, key=next(keys))])
    else:
        layers = []
        for i, o in ((1, 16), (16, 32)):
            layers += [eqx.nn.Conv2d(i, o, 3, padding=1, key=next(keys)), norm(o)]
            layers += [eqx.nn.Lambda(jax.nn.relu), eqx.nn.MaxPool2d(2, 2)]
        layers += [eqx.nn.Lambda(jax.numpy.ravel), eqx.nn.Dropout(0.2)]
        model = eqx.nn.Sequential([*layers, eqx.nn.Linear(32 * 49, 10, key=next(keys))])
    state = eqx.nn.State(model)
    params, static = eqx.partition(eqx.nn.delete_init_state(model), eqx.is_inexact_array)

    def logits(params: Any, state: Any, x: Any, key: Any) -> Any:
        model = eqx.combine(params, static)
        keys = jax.random.split(key, x.shape[0])
        run = jax.vmap(
            lambda x, key: model(x, state, key=key), axis_name="batch", out_axes=(0, None)
        )
        return run(x, keys)

    return params, state, logits


def measured(which: str, rounds: int, repeat: int) -> dict[str, tuple[float, float, int]]:
    """Return median seconds, median ratio and number of fusions of each."""
    import jax
    import numpy as np

    compiled = {
        name: (step.lower(*arguments).compile(), arguments)
        for name, (step, arguments) in networks(which).items()
    }
    seconds: dict[str, list[float]] = {name: [] for name in compiled}
    for _ in range(rounds):
        for name, (step, arguments) in compiled.items():
            start = time.perf_counter()
            for _ in range(repeat):
                jax.block_until_ready(step(*arguments))
            seconds[name].append((time.perf_counter() - start) / repeat)
    base = np.array(seconds["pybridge auto"])
    return {
        name: (
            float(np.median(seconds[name])),
            float(np.median(base / np.array(seconds[name]))),
            step.as_text().count(" fusion("),
        )
        for name, (step, _) in compiled.items()
    }


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
    from importlib.metadata import version

    packages = ", ".join(f"{name} {version(name)}" for name in ("jax", "flax", "equinox"))
    print(f"{platform.machine()}, {platform.system()}, {options.threads} threads; {packages}\n")
    print("| network | layers | step | time of pybridge auto over it | fusions |")
    print("| --- | --- | --- | --- | --- |")
    for which in ("MLP", "CNN"):
        for name, (seconds, ratio, fusions) in measured(which, options.rounds, 5).items():
            print(f"| {which} | {name} | {1e3 * seconds:.2f} ms | {ratio:.2f} | {fusions} |")


if __name__ == "__main__":
    main()
