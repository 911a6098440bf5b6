"""Julia functions over several processes, and what the test of them runs in one.

python julia_in_processes.py results-{}.npz "rules,outside of jit" localhost:1234 2 0
"""

from __future__ import annotations

import functools
import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.multihost_utils import process_allgather
from jax.sharding import PartitionSpec as P

import pybridge as pb

# What Zygote compiles for half a minute, a rule of its own spares.
RULE = "x -> (sum(abs2, x), ȳ -> (2 .* ȳ .* x,))"
CASES = ("rules", "outside of shard_map", "outside of jit")
LONG_CASES = ("gradients", "pushforward", "hessian", "lanes")
NORM = pb.nn.BatchNorm(3, axis_name="i")


def results(cases):
    """Return the leaves of values and derivatives over all devices, for cases by their names."""
    mesh = jax.make_mesh((jax.device_count(),), ("i",), axis_types=(jax.sharding.AxisType.Auto,))
    batch = np.sin(np.arange(24, dtype=np.float32)).reshape(8, 3)
    x = jax.device_put(batch, jax.NamedSharding(mesh, P("i")))
    params, state = NORM.init(jax.random.key(0))
    w = jnp.array([0.5, 1.0, -1.0])
    square = pb.from_julia("x -> sum(abs2, x)", vjp=RULE)
    error = pb.from_julia("(w, h) -> sum(tanh.(h * w) .^ 2)")
    row = pb.from_julia("x -> cumsum(sin.(x))")

    def normalised(f):
        """Apply `f` to weights and the normalised batch on each device, and sum."""

        def part(w, x):
            h, new = NORM.apply(params, state, x, training=True)
            return jax.lax.psum(f(w, h), "i"), new

        return jax.shard_map(part, mesh=mesh, in_specs=(P(), P("i")), out_specs=(P(), P()))

    ruled, plain = normalised(lambda w, h: square(h * w)), normalised(error)
    lanes = jax.shard_map(jax.vmap(row), mesh=mesh, in_specs=P("i"), out_specs=P("i"))
    all_cases = {
        "rules": lambda: jax.jit(jax.value_and_grad(ruled, (0, 1), has_aux=True))(w, x),
        "outside of shard_map": lambda: jax.jit(jax.value_and_grad(square))(x),
        "outside of jit": lambda: (square(x), jax.grad(square)(x)),
        "gradients": lambda: jax.jit(jax.value_and_grad(plain, (0, 1), has_aux=True))(w, x),
        "pushforward": lambda: jax.jit(functools.partial(jax.jvp, plain))((w, x), (w, jnp.cos(x))),
        "hessian": lambda: jax.jit(jax.hessian(lambda w, x: plain(w, x)[0]))(w, x),
        "lanes": lambda: jax.jit(lambda x: jax.vjp(lanes, x)[1](jnp.cos(x)))(x),
    }
    return jax.tree.leaves([all_cases[name]() for name in cases])


def main(path: str, cases: str, address: str, count: str, number: str) -> None:
    """Write this process's results."""
    jax.distributed.initialize(address, int(count), int(number))
    leaves = [process_allgather(leaf, tiled=True) for leaf in results(cases.split(","))]
    np.savez(path.format(number), *leaves)


if __name__ == "__main__":
    main(*sys.argv[1:])
