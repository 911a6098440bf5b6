"""One network under four trainers: optax, Equinox, Flax NNX, and Flux's own `train!`.

    python examples/four_trainers.py [--epochs 5]

The hidden layers are Flux's, a `Dense` and a `BatchNorm`; the output layer is JAX's. Three
trainers call the Flux layers inside a jitted JAX step; in the fourth, Flux calls the JAX layer.
The digits that come with scikit-learn, the initial weights and the batches are the same, so in
double precision the loss curves coincide.

Needs optax, Equinox, Flax and scikit-learn: `pip install "pybridge[peers]"`.
"""

import argparse
from pathlib import Path
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from sklearn.datasets import load_digits

import pybridge as pb

IN_FLUX = Path(__file__).with_name("four_trainers.jl")
LEARNING_RATE = 0.01


class Output(NamedTuple):
    """The parameters of the output layer; Julia's named tuples are named tuples here."""

    gate: jax.Array
    weight: jax.Array
    bias: jax.Array


def output_layer(params, x):
    """Apply JAX's layer: x of shape (N, 32), logits of shape (N, 10)."""
    return jax.nn.silu(x @ params.gate) * (x @ params.weight + params.bias)


def cross_entropy(logits, labels):
    """Take the mean over the batch."""
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


def with_optax(flux, output, batches):
    """Train a dict of parameters: what `init` returns is a pytree like any other."""
    weights, state = flux.init()
    params = {"flux": weights, "output": output}
    optimizer = optax.adam(LEARNING_RATE)
    moments = optimizer.init(params)

    def loss(params, state, x, labels):
        hidden, state = flux.apply(params["flux"], state, x)
        return cross_entropy(output_layer(params["output"], hidden), labels), state

    @jax.jit
    def step(params, state, moments, x, labels):
        (value, state), gradient = jax.value_and_grad(loss, has_aux=True)(params, state, x, labels)
        updates, moments = optimizer.update(gradient, moments)
        return optax.apply_updates(params, updates), state, moments, value

    for x, labels in batches:
        params, state, moments, value = step(params, state, moments, x, labels)
        yield float(value)


class EquinoxNetwork(eqx.Module):
    """A Flux model as a field of an Equinox module, its running statistics in a StateIndex."""

    flux: pb.nn.Layer
    weights: dict
    statistics: eqx.nn.StateIndex
    output: Output

    def __init__(self, flux, output):
        """Start from the weights that the Flux model has."""
        self.flux = flux
        self.weights, statistics = flux.init()
        self.statistics = eqx.nn.StateIndex(statistics)
        self.output = output

    def __call__(self, x, state):
        """Return logits, and Equinox's state with the new running statistics."""
        hidden, statistics = self.flux.apply(self.weights, state.get(self.statistics), x)
        return output_layer(self.output, hidden), state.set(self.statistics, statistics)


def with_equinox(flux, output, batches):
    """Train an Equinox module."""
    model, state = eqx.nn.make_with_state(EquinoxNetwork)(flux, output)
    optimizer = optax.adam(LEARNING_RATE)
    moments = optimizer.init(eqx.filter(model, eqx.is_array))

    @eqx.filter_value_and_grad(has_aux=True)
    def loss(model, state, x, labels):
        logits, state = model(x, state)
        return cross_entropy(logits, labels), state

    @eqx.filter_jit
    def step(model, state, moments, x, labels):
        (value, state), gradient = loss(model, state, x, labels)
        updates, moments = optimizer.update(gradient, moments)
        return eqx.apply_updates(model, updates), state, moments, value

    for x, labels in batches:
        model, state, moments, value = step(model, state, moments, x, labels)
        yield float(value)


class NnxNetwork(nnx.Module):
    """A Flux model wrapped for Flax NNX: one Param for each weight, one BatchStat per statistic."""

    def __init__(self, flux, output):
        """Start from the weights that the Flux model has."""
        weights, statistics = flux.init()
        self.flux = flux
        self.weights = nnx.data(jax.tree.map(nnx.Param, weights))
        self.statistics = nnx.data(jax.tree.map(nnx.BatchStat, statistics))
        self.output = nnx.data(jax.tree.map(nnx.Param, output))

    def __call__(self, x):
        """Return logits; in training the running statistics change."""
        weights, statistics, output = map(nnx.as_pure, (self.weights, self.statistics, self.output))
        hidden, statistics = self.flux.apply(weights, statistics, x)
        self.statistics = nnx.data(jax.tree.map(nnx.BatchStat, statistics))
        return output_layer(output, hidden)


def with_nnx(flux, output, batches):
    """Train a Flax NNX module, which holds its state itself."""
    model = NnxNetwork(flux, output)
    optimizer = nnx.Optimizer(model, optax.adam(LEARNING_RATE), wrt=nnx.Param)

    @nnx.jit
    def step(model, optimizer, x, labels):
        value, gradient = nnx.value_and_grad(lambda m: cross_entropy(m(x), labels))(model)
        optimizer.update(model, gradient)
        return value

    for x, labels in batches:
        yield float(step(model, optimizer, x, labels))


def with_flux(flux, output, batches):
    """Train by Flux's `train!`: JAX's layer is called, and differentiated, from Julia."""
    from juliacall import Main as julia  # here, since it is pybridge that starts Julia

    train = julia.seval(IN_FLUX.read_text())
    layer = pb.to_julia(output_layer, layout="reversed")
    return train(flux.model, layer, output._asdict(), batches, LEARNING_RATE)


def main():
    """Train four times, and compare the loss curves."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=5)
    options = parser.parse_args()

    jax.config.update("jax_enable_x64", True)
    images, labels = load_digits(return_X_y=True)
    draw = np.random.default_rng(0)
    batches = [
        (images[chosen] / 16, labels[chosen].astype(np.int32))
        for _ in range(options.epochs)
        for chosen in np.split(draw.permutation(len(images))[:1792], 28)
    ]
    gate, weight = jnp.asarray(draw.normal(size=(2, 32, 10)) / 32**0.5)
    output = Output(gate, weight, jnp.zeros(10))
    flux = pb.flux("f64(Chain(Dense(64 => 32, tanh), BatchNorm(32)))")

    trainers = {
        "optax": with_optax,
        "Equinox": with_equinox,
        "Flax NNX": with_nnx,
        "Flux.train!": with_flux,
    }
    curves = {
        name: np.array(list(train(flux, output, batches))) for name, train in trainers.items()
    }
    for name, losses in curves.items():
        apart = np.max(np.abs(losses - curves["optax"]) / curves["optax"])
        print(
            f"{name:12} first loss {losses[0]:.4f}, last {losses[-1]:.4f}, largest relative "
            f"difference from optax {apart:.1e}"
        )


if __name__ == "__main__":
    main()
