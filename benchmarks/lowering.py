"""Measure what lowering a Python function to Julia costs, and how fast the result runs.

    python benchmarks/lowering.py [--rounds 30]

Compiling is given in seconds of this process's CPU time, which other programs do not change. Run
times are the least of many calls, of the lowered function and of the same layers written by hand
with Flux's functions, both called from Python in the same way and in turns. Gradients are
Zygote's. Beside each figure stands its limit; gradients have none.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import pybridge as pb
from pybridge.lowering import lower

RANDOM = np.random.default_rng(0)
# Axes are reversed, so these are Flux's own orders.
FLUX_MLP = """
(b1, w1, b2, w2, b3, w3, x) -> begin
    h = Flux.relu.(w1 * x .+ b1)
    h = Flux.relu.(w2 * h .+ b2)
    w3 * h .+ b3
end
"""
FLUX_CNN = """
(k1, k2, w, x) -> begin
    h = Flux.relu.(NNlib.conv(x, k1; pad=1, flipped=true))
    h = NNlib.maxpool(h, (2, 2))
    h = Flux.relu.(NNlib.conv(h, k2; pad=1, flipped=true))
    h = NNlib.maxpool(h, (2, 2))
    w * reshape(h, :, size(h, 4))
end
"""


def normal(*shape: int) -> jax.Array:
    """Random weights of a size that keeps activations near one."""
    return jnp.asarray(RANDOM.normal(size=shape) / np.sqrt(shape[0]), jnp.float32)


def mlp(params: Any, x: Any) -> Any:
    """Two hidden layers."""
    for layer in params[:-1]:
        x = jax.nn.relu(x @ layer["w"] + layer["b"])
    return x @ params[-1]["w"] + params[-1]["b"]


def loss(params: Any, x: Any, y: Any) -> Any:
    """Cross entropy."""
    return -jnp.mean(jnp.sum(y * jax.nn.log_softmax(mlp(params, x)), axis=1))


def cnn(params: Any, x: Any) -> Any:
    """Two convolutions with pooling, and a matrix."""
    for kernel in params[:-1]:
        x = jax.nn.relu(jax.lax.conv(x, kernel, (1, 1), ((1, 1), (1, 1))))
        x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")
    return x.reshape(x.shape[0], -1) @ params[-1]


def cnn_last(params: Any, x: Any) -> Any:
    """The same with the channels in the last axis, as Flax has them."""
    for kernel in params[:-1]:
        numbers = ("NHWC", "HWIO", "NHWC")
        x = jax.lax.conv_general_dilated(
            x, kernel, (1, 1), ((1, 1), (1, 1)), dimension_numbers=numbers
        )
        x = jax.lax.reduce_window(
            jax.nn.relu(x), -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID"
        )
    return x.reshape(x.shape[0], -1) @ params[-1]


def channels_last(params: Any, x: Any) -> Any:
    """Give the arguments of `cnn` the axes that `cnn_last` wants."""
    kernels = [kernel.transpose(2, 3, 1, 0) for kernel in params[:-1]]
    last = params[-1].reshape(kernels[-1].shape[-1], -1, params[-1].shape[-1])
    matrix = last.transpose(1, 0, 2).reshape(params[-1].shape)
    return [*kernels, matrix], x.transpose(0, 2, 3, 1)


def least(rounds: int, *calls: Callable[[], Any]) -> list[float]:
    """Take the least seconds of each call; they are made in turns."""
    times: list[list[float]] = [[] for _ in calls]
    for call in calls:
        call()
    for _ in range(rounds):
        for call, seconds in zip(calls, times, strict=True):
            start = time.perf_counter()
            call()
            seconds.append(time.perf_counter() - start)
    return [min(seconds) for seconds in times]


def compare(
    name: str, f: Any, args: Any, source: str, rounds: int, by_hand_args: Any = None
) -> None:
    """Print run times of a lowered function and of one written by hand: values, gradients."""
    lowered = lower(f, *args)
    leaves = jax.tree.leaves(args)
    theirs = leaves if by_hand_args is None else jax.tree.leaves(by_hand_args)
    by_hand = pb.from_julia(source, layout="reversed", using="Flux")
    want, got = np.asarray(by_hand(*theirs)), np.asarray(lowered(*args))
    np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-4)
    times = least(rounds, lambda: lowered.function(*leaves), lambda: by_hand(*theirs))
    show(f"{name} forward", *times, "at most 1.5x")
    summed = pb.from_julia(f"(xs...) -> sum(({source})(xs...))", layout="reversed", using="Flux")
    numbers = tuple(range(len(leaves)))
    total = lower(lambda *xs: f(*xs).sum(), *args).function
    mine = pb.value_and_grad(total, numbers, backend="zygote")
    flux = pb.value_and_grad(summed, numbers, backend="zygote")
    show(f"{name} gradient", *least(rounds, lambda: mine(*leaves), lambda: flux(*theirs)), "none")


def show(name: str, here: float, there: float, limit: str) -> None:
    """Print two run times and their ratio."""
    text = f"lowered {here * 1e3:.2f} ms, Flux {there * 1e3:.2f} ms, {here / there:.2f}x"
    print(f"{name}: {text} (limit: {limit})")


def show_calls() -> None:
    """Print what a call costs beyond the same call of a Julia function."""
    lowered = lower(lambda x: x * 2, 1.0)
    by_hand = pb.from_julia("x -> x * 2f0", layout="reversed")
    for kind, number in (("JAX", jnp.float32(1)), ("NumPy", np.float32(1))):
        here, there = least(3000, lambda x=number: lowered(x), lambda x=number: by_hand(x))
        extra = f"{(here - there) * 1e6:.1f} us"
        print(f"a call beyond the bridge's own cost, {kind} array: {extra} (limit: 20 us)")
    lowered_slope = pb.grad(lambda x: x * x, backend="zygote")
    slope = pb.grad(pb.from_julia("x -> x * x", layout="reversed"), backend="zygote")
    number = jnp.float32(1)
    here, there = least(3000, lambda: lowered_slope(number), lambda: slope(number))
    print(f"a gradient beyond the bridge's own cost: {(here - there) * 1e6:.1f} us (limit: 20 us)")


def main() -> None:
    """Print all figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=30)
    rounds = parser.parse_args().rounds
    sizes = (784, 256, 256, 10)
    params = [{"w": normal(a, b), "b": jnp.zeros(b)} for a, b in itertools.pairwise(sizes)]
    x, y = normal(784, 128).T, jax.nn.one_hot(jnp.arange(128) % 10, 10)
    pb.grad(lambda x: x * 2, backend="zygote")(1.0)  # a warm process
    start = time.process_time()
    gradient = pb.grad(loss, backend="zygote")
    gradient(params, x, y)
    seconds = f"{time.process_time() - start:.1f} s CPU"
    print(f"first gradient of an MLP under Zygote: {seconds} (limit: 10 s)")
    show_calls()
    compare("MLP", mlp, (params, x), FLUX_MLP, rounds)
    kernels = [normal(16, 3, 3, 3) / 3, normal(32, 16, 3, 3) / 3, normal(32 * 8 * 8, 10)]
    images = kernels, normal(16, 3, 32, 32)
    compare("CNN, NCHW,", cnn, images, FLUX_CNN, rounds)
    compare("CNN, NHWC,", cnn_last, channels_last(*images), FLUX_CNN, rounds, images)


if __name__ == "__main__":
    main()
