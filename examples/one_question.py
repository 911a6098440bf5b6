"""One function, one question, every AD system that is there.

    python examples/one_question.py

A layer that doubles its input while it is being differentiated, written once for JAX and once
in Julia, asked for its value and gradient under every system.
"""

import jax.numpy as jnp

import pybridge as pb


def layer(x):
    """Double the input inside a gradient; leave it alone outside."""
    return jnp.sum(pb.cond(pb.within_gradient(x), lambda x: 2 * x, lambda x: x, x))


JULIA = pb.from_julia(
    "x -> sum(PyBridge.cond(PyBridge.within_gradient(x), x -> 2 .* x, x -> x, x))"
)


def main() -> None:
    """Print a line for each system."""
    x = jnp.array([1.0, 2.0, 3.0])
    print(f"plain call: JAX {layer(x)}, Julia {JULIA(x)}")
    for backend in pb.backends():
        if not backend.available:
            print(f"{backend.name:12} not available: {backend.reason}")
            continue
        f = layer if backend.language == "python" else JULIA
        value, gradient = pb.value_and_grad(f, backend=backend.name)(x)
        print(f"{backend.name:12} value {value}, gradient {gradient}")


if __name__ == "__main__":
    main()
