"""Train over several processes, each with a Julia of its own.

    python examples/several_processes.py

is one process. Two that share the batch print the same losses:

    python examples/several_processes.py localhost:1234 2 0 &
    python examples/several_processes.py localhost:1234 2 1

The arguments are those of `jax.distributed.initialize`: the coordinator's address, the number of
processes, and the number of this one. On several machines the address is that of the first.
"""

import sys
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import pybridge as pb

NORM = pb.nn.BatchNorm(3, axis_name="batch")


def batch_loss(mesh):
    """Return the loss of a batch that is spread over the mesh, and the new state."""
    # Each process evaluates the source in its own Julia.
    error = pb.from_julia("(w, h, y) -> sum(abs2, tanh.(h * w) .- y)")

    @partial(
        jax.shard_map,
        mesh=mesh,
        in_specs=(P(), P(), P("batch"), P("batch")),
        out_specs=(P(), P()),
    )
    def loss(params, state, x, y):
        h, state = NORM.apply(params["norm"], state, x)
        return jax.lax.psum(error(params["w"], h, y), "batch"), state

    return loss


def start():
    """Return parameters, state and a batch, the same in each process."""
    norm, state = NORM.init(jax.random.key(0))
    x = np.sin(np.arange(24, dtype=np.float32)).reshape(8, 3)
    return {"norm": norm, "w": jnp.ones(3)}, state, x, np.cos(x[:, 0])


def main() -> None:
    """Print the loss of each step."""
    if len(sys.argv) > 1:
        address, count, number = sys.argv[1:]
        jax.distributed.initialize(address, int(count), int(number))
    mesh = jax.make_mesh((jax.device_count(),), ("batch",), axis_types=(AxisType.Auto,))
    params, state, *batch = start()
    x, y = jax.device_put(batch, NamedSharding(mesh, P("batch")))
    step = jax.jit(jax.value_and_grad(batch_loss(mesh), has_aux=True))
    for i in range(4):
        (loss, state), gradient = step(params, state, x, y)
        params = jax.tree.map(lambda p, g: p - 0.02 * g, params, gradient)
        print(f"step {i}: loss {loss:.4f}")


if __name__ == "__main__":
    main()
