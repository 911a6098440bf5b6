"""One network, trained three ways: in `pybridge.nn`, as a Flux model inside JAX, and in Flux alone.

    python examples/digits.py [--plot digits.svg] [--steps 400]

A CNN with batch normalisation and dropout on the digits that come with scikit-learn, 8 by 8
pixels each. All three start from the same weights and see the same batches and the same keys; so
the dropout masks are the same, and the loss curves coincide. In double precision: training
magnifies rounding, and in single precision the losses are 2e-2 apart within 50 steps.

Needs optax and scikit-learn, and matplotlib for the plot: `pip install "pybridge[peers]"`.
"""

import argparse
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import pybridge as pb

FLUX_ALONE = Path(__file__).with_name("digits_in_flux.jl")
MODEL = """
f64(Chain(
    Conv((3, 3), 1 => 16; pad=1, bias=false), BatchNorm(16, relu), MeanPool((2, 2)),
    Conv((3, 3), 16 => 32; pad=1, bias=false), BatchNorm(32, relu), MeanPool((2, 2)),
    Flux.flatten, Dropout(0.3), Dense(128 => 10)))
"""
LEARNING_RATE, MOMENTUM = 0.05, 0.9


def train(model, params, state, data, batches, keys):
    """Train a layer; return the losses and the test accuracy.

    Nothing here knows whether JAX or Flux computes the layer.
    """
    x, y, x_test, y_test = data
    optimizer = optax.sgd(LEARNING_RATE, MOMENTUM)
    moments = optimizer.init(params)

    def loss(params, state, x, y, key):
        logits, state = model.apply(params, state, x, key=key)
        return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean(), state

    @jax.jit
    def step(params, state, moments, x, y, key):
        (value, state), gradients = jax.value_and_grad(loss, has_aux=True)(params, state, x, y, key)
        updates, moments = optimizer.update(gradients, moments)
        return optax.apply_updates(params, updates), state, moments, value

    losses = []
    for batch, key in zip(batches, keys, strict=True):
        params, state, moments, value = step(params, state, moments, x[batch], y[batch], key)
        losses.append(float(value))
    logits, _ = model.apply(params, state, x_test)
    return losses, float(jnp.mean(jnp.argmax(logits, axis=1) == y_test))


def train_in_flux(params, data, batches, keys):
    """Do the same in Julia, with Flux's own gradient and optimiser."""
    x, y, x_test, y_test = data
    run = pb.from_julia(
        FLUX_ALONE.read_text().replace("MODEL", MODEL), using=("Flux",), layout="reversed"
    )
    words = np.asarray(jax.random.key_data(keys))
    losses, accuracy = run(params, x, y, x_test, y_test, batches, words, LEARNING_RATE, MOMENTUM)
    return [float(value) for value in losses], float(accuracy)


def main():
    """Train three times, and compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plot", type=Path, help="where to draw the loss curves")
    parser.add_argument("--steps", type=int, default=400)
    options = parser.parse_args()

    jax.config.update("jax_enable_x64", True)
    images, labels = load_digits(return_X_y=True)
    images = (images / 16).reshape(-1, 1, 8, 8)
    parts = train_test_split(images, labels.astype(np.int32), test_size=0.2, random_state=0)
    data = parts[0], parts[2], parts[1], parts[3]
    draw = np.random.default_rng(0)
    batches = np.stack([draw.permutation(len(data[0]))[:64] for _ in range(options.steps)])
    keys = jax.random.split(jax.random.key(0), options.steps)

    flux = pb.flux(MODEL)
    weights, statistics = flux.init(jax.random.key(1))
    flux.load(weights, statistics)
    layer, params, state = pb.nn.from_flux(flux)
    runs = {
        "pybridge.nn": train(layer, params, state, data, batches, keys),
        "Flux inside JAX": train(flux, weights, statistics, data, batches, keys),
        "Flux alone": train_in_flux(weights, data, batches, keys),
    }
    first = np.array(runs["pybridge.nn"][0][:50])
    for name, (losses, accuracy) in runs.items():
        apart = np.max(np.abs(np.array(losses[:50]) - first) / first)
        print(
            f"{name:16} first loss {losses[0]:.4f}, last {losses[-1]:.4f}, largest relative "
            f"difference in 50 steps {apart:.1e}, test accuracy {accuracy:.3f}"
        )
    if options.plot:
        plot(runs, options.plot)


def plot(runs, path):
    """Draw the loss curves, one over the other."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4), layout="constrained")
    for (name, (losses, _)), width in zip(runs.items(), (6, 3, 1), strict=True):
        axes.semilogy(losses, label=name, linewidth=width)
    axes.set(xlabel="step", ylabel="cross-entropy of the batch")
    axes.legend()
    figure.savefig(path)


if __name__ == "__main__":
    main()
