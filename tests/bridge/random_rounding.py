"""Random rounding: what float32 may make of a program, by chance.

Each call and each operator of a program is evaluated in float64, and its result is rounded to one
of the two neighbouring numbers of float32, up or down at random. What float32 can represent stays
as it is, so selections, sorts and integers are untouched. How far the results of several seeds are
from those of float64 shows what the rounding of intermediate results does, cancellation included.
This is the CESTAC method: J. Vignes, A stochastic arithmetic for reliable scientific computation,
Mathematics and Computers in Simulation 35 (1993).
"""

from __future__ import annotations

import ast
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

EPS = float(np.finfo(np.float32).eps)


def with_rounding(source: str) -> str:
    """Wrap each call and each operator of a function's source in a call of `rounded`."""
    return ast.unparse(_Rounding().visit(ast.parse(source)))


class _Rounding(ast.NodeTransformer):
    def visit_Call(self, node: ast.Call) -> ast.expr:
        return self.wrapped(node)

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        return self.wrapped(node)

    def wrapped(self, node: ast.expr) -> ast.expr:
        self.generic_visit(node)
        return ast.Call(ast.Name("rounded"), [node], [])


def rounded(tree: Any, *, seed: jax.Array) -> Any:
    """Round float64 arrays to neighbours in float32; all else is returned as it is.

    Args:
        tree: what an operation gave.
        seed: uint64; the same numbers are rounded the same way by the same seed.
    """

    def one(x: Any) -> Any:
        return _round(x, seed) if isinstance(x, jax.Array) and x.dtype == np.float64 else x

    return jax.tree.map(one, tree)


@jax.custom_jvp
@jax.jit
def _round(x: jax.Array, seed: jax.Array) -> jax.Array:
    near = x.astype(np.float32)
    above = jnp.where(near < x, jnp.nextafter(near, np.inf), near)
    below = jnp.where(near > x, jnp.nextafter(near, -np.inf), near)
    return jnp.where(_is_up(x, seed), above, below).astype(x.dtype)


@_round.defjvp
def _round_jvp(primals: Any, tangents: Any) -> Any:
    """Change tangents by a factor: linear, so that reverse mode changes cotangents by it."""
    up = _is_up(*primals)
    return _round(*primals), tangents[0] * (1 + jnp.where(up, EPS, -EPS))


@jax.jit
def _is_up(x: jax.Array, seed: jax.Array) -> jax.Array:
    """Draw a bit for each number: the last step of the generator SplitMix64."""
    bits = lax.bitcast_convert_type(x, np.uint64) + seed * np.uint64(0x9E3779B97F4A7C15)
    bits = (bits ^ (bits >> 30)) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> 27)) * np.uint64(0x94D049BB133111EB)
    return bits >> 63 == 1
