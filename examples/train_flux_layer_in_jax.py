"""A Flux layer, trained by optax inside a jitted JAX step.

    python examples/train_flux_layer_in_jax.py

The digits that come with scikit-learn, 8 by 8 pixels each. The hidden layer is Flux's, in Julia,
the output layer and the loss are JAX's, and one `jax.value_and_grad` goes through both. Needs
optax and scikit-learn: `pip install "pybridge[peers]"`.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import pybridge as pb

# A JAX batch of shape (N, 64) is a Julia array of size (64, N), as Flux wants it.
hidden = pb.from_julia(
    "(p, x) -> Flux.Dense(p.weight, p.bias, Flux.relu)(x)", using="Flux", layout="reversed"
)


def logits(params, x):
    """Apply the Julia layer, then the JAX layer."""
    return hidden(params["hidden"], x) @ params["out"]["weight"] + params["out"]["bias"]


def loss(params, x, labels):
    """Take the mean cross-entropy."""
    return optax.softmax_cross_entropy_with_integer_labels(logits(params, x), labels).mean()


def layer(key, n_in, n_out):
    """Make a layer's parameters; weights of shape (in, out) are (out, in) in Julia."""
    scale = (2 / n_in) ** 0.5
    weight = scale * jax.random.normal(key, (n_in, n_out), jnp.float32)
    return {"weight": weight, "bias": jnp.zeros(n_out, jnp.float32)}


def main(epochs=20, batch=100):
    """Train, and print the accuracy on digits that were not trained on."""
    images, labels = load_digits(return_X_y=True)
    images = (images / 16).astype(np.float32)
    labels = labels.astype(np.int32)
    x, x_test, y, y_test = train_test_split(images, labels, test_size=0.25, random_state=0)

    keys = jax.random.split(jax.random.key(0))
    params = {"hidden": layer(keys[0], 64, 64), "out": layer(keys[1], 64, 10)}
    optimizer = optax.adam(3e-3)
    state = optimizer.init(params)

    @jax.jit
    def step(params, state, x, y):
        value, gradient = jax.value_and_grad(loss)(params, x, y)
        updates, state = optimizer.update(gradient, state)
        return optax.apply_updates(params, updates), state, value

    rng = np.random.default_rng(0)
    for epoch in range(epochs):
        order = rng.permutation(len(x))
        for start in range(0, len(x) - batch + 1, batch):
            chosen = order[start : start + batch]
            params, state, value = step(params, state, x[chosen], y[chosen])
        if (epoch + 1) % 5 == 0:
            print(f"epoch {epoch + 1:2}  loss {value:.3f}")
    accuracy = jnp.mean(jnp.argmax(logits(params, x_test), axis=1) == y_test)
    print(f"test accuracy: {accuracy:.3f}")


if __name__ == "__main__":
    main()
