"""Batch normalisation of a batch that is spread over processes.

    python norms_in_processes.py results.npz localhost:1234 2 0

A program for one process of several, and what its test runs in one process alone.
"""

from __future__ import annotations

import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.multihost_utils import process_allgather

from pybridge import nn

X = np.sin(np.arange(48, dtype=np.float32)).reshape(8, 3, 2)
# Lanes have different numbers of values that count, some none.
MASK = (np.cos(np.arange(48)).reshape(X.shape) > 0.3) & (np.arange(8) > 1)[:, None, None]
WEIGHTS = np.cos(np.arange(48, dtype=np.float32)).reshape(X.shape)
BATCH, WHOLE = jax.P("i"), jax.P()


def results(layer, args, spread=lambda apply: apply):
    """Return a layer's values, state and derivatives of two orders.

    Args:
        layer: that normalises.
        args: input, mask and weights of the loss.
        spread: makes a function of params, state, input and mask run over all devices.
    """
    params, state = layer.init(jax.random.key(0))
    train = spread(lambda p, s, x, m: layer.apply(p, s, x, mask=m, training=True))
    test = spread(lambda p, s, x, m: layer.apply(p, s, x, mask=m, training=False))

    def loss(params, x, mask, weights):
        y, new = train(params, state, x, mask)
        return jnp.sum(jnp.tanh(y) * weights), (y, new)

    def size(x, *rest):
        slope = jax.grad(loss, (0, 1), has_aux=True)(params, x, *rest)[0]
        return sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(slope))

    def everything(x, mask, weights):
        first = jax.value_and_grad(loss, (0, 1), has_aux=True)(params, x, mask, weights)
        return first, jax.grad(size)(x, mask, weights), test(params, state, x, mask)

    return jax.jit(everything)(*args)


def main(path: str, address: str, count: str, number: str) -> None:
    """Write this process's results: the leaves of each case, by its name and a number."""
    jax.distributed.initialize(address, int(count), int(number))
    mesh = jax.make_mesh((jax.device_count(),), ("i",), axis_types=(jax.sharding.AxisType.Auto,))
    args = [jax.device_put(x, jax.NamedSharding(mesh, BATCH)) for x in (X, MASK, WEIGHTS)]
    specs = {"in_specs": (WHOLE, WHOLE, BATCH, BATCH), "out_specs": (BATCH, WHOLE)}

    def spread(apply):
        return jax.shard_map(apply, mesh=mesh, **specs)

    cases = {
        "shard_map": results(nn.BatchNorm(3, axis_name="i"), args, spread),
        "jit": results(nn.BatchNorm(3), args),
    }
    whole = {
        f"{name} {i}": process_allgather(leaf, tiled=True)
        for name, tree in cases.items()
        for i, leaf in enumerate(jax.tree.leaves(tree))
    }
    np.savez(path.format(number), **whole)


if __name__ == "__main__":
    main(*sys.argv[1:])
