"""Random rounding: what float32 may make of a program, by chance.

A program is evaluated in float64, and the result of each of its equations is rounded to one of the
two neighbouring numbers of float32, up or down at random. What float32 can represent stays as it
is, so selections, sorts and integers are untouched. How far the results of several seeds are from
those of float64 shows what the rounding of intermediate results does, cancellation included.
This is the CESTAC method: J. Vignes, A stochastic arithmetic for reliable scientific computation,
Mathematics and Computers in Simulation 35 (1993).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import ClosedJaxpr

from pybridge.jaxprs import Rebuilding


def run_rounded(program: ClosedJaxpr, args: Sequence[Any], seed: jax.Array) -> list[jax.Array]:
    """Evaluate a program with random rounding.

    Args:
        program: in float64.
        args: its arguments.
        seed: uint64; the same numbers are rounded the same way by the same seed.

    Returns:
        Its results; those that are not float64 are not rounded.
    """
    return _Rounding(seed).run(program, args, None)


class _Rounding(Rebuilding):
    def __init__(self, seed: jax.Array):
        self._seed = seed

    def apply(self, program: Any, eqn: Any, operands: list[Any], here: None) -> list[Any]:
        outs = super().apply(program, eqn, operands, here)
        return [rounded(x, self._seed) if x.dtype == np.float64 else x for x in outs]


@jax.jit
def rounded(x: jax.Array, seed: jax.Array) -> jax.Array:
    """Round float64 to neighbours in float32."""
    near = x.astype(np.float32)
    above = jnp.where(near < x, jnp.nextafter(near, np.inf), near)
    below = jnp.where(near > x, jnp.nextafter(near, -np.inf), near)
    return jnp.where(_is_up(x, seed), above, below).astype(x.dtype)


def _is_up(x: jax.Array, seed: jax.Array) -> jax.Array:
    """Draw a bit for each number: the last step of the generator SplitMix64."""
    bits = lax.bitcast_convert_type(x, np.uint64) + seed * np.uint64(0x9E3779B97F4A7C15)
    bits = (bits ^ (bits >> 30)) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> 27)) * np.uint64(0x94D049BB133111EB)
    return bits >> 63 == 1
