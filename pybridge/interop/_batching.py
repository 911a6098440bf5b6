"""Batching rules: `vmap` around a bridged call.

A function that takes a batch as its last Julia dimension gets it in one call. For all others
the lanes become a loop inside Julia. The flags of a `Level` say which operands have lanes of
their own, so that nothing is broadcast.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax.numpy as jnp
from jax.interpreters import batching

from ._julia_program import PRIMITIVES, Level, Program, bind


def _batch(axis: Any, operands: Any, dims: Any, *, program: Program) -> tuple[Any, Any]:
    ins = tuple(dim is not None for dim in dims)
    count = len(program.result_types)
    if not any(ins):  # JAX asks this rule even then
        return bind(program, operands), [None] * count
    native = _native_flags(program, ins)
    if native is not None:
        last = program.function.layout == "logical"
        level = Level(axis.size, native, (True,) * count, native=True)
        operands = [
            _lanes(x, dim, axis.size, last) if flag else x
            for x, dim, flag in zip(operands, dims, native, strict=True)
        ]
        outs = bind(replace(program, levels=(level,)), operands)
        return outs, [out.ndim - 1 if last else 0 for out in outs]
    level = Level(axis.size, ins, (True,) * count)
    operands = [
        x if dim is None else jnp.moveaxis(x, dim, 0) for x, dim in zip(operands, dims, strict=True)
    ]
    outs = bind(replace(program, levels=(level, *program.levels)), operands)
    return outs, [0] * count


def _lanes(x: Any, dim: int | None, size: int, last: bool) -> Any:
    if dim is None:
        shape = (*x.shape, size) if last else (size, *x.shape)
        return jnp.broadcast_to(x[..., None] if last else x, shape)
    return jnp.moveaxis(x, dim, -1 if last else 0)


def _native_flags(program: Program, ins: tuple[bool, ...]) -> tuple[bool, ...] | None:
    """Find which operands have to have lanes for all to go in one call, if that can be.

    Tangents have lanes where their arguments do; a cotangent has them always. It cannot be
    where a tangent has lanes and its argument has not, or where the gradient of an argument
    without lanes is asked for lane by lane.
    """
    if not program.function.batched or program.levels:
        return None
    args = ins[: len(program.args)]
    if any(not args[i] for i in program.wrt) and program.kind != "call":
        return None
    seeds = (True,) * len(program.seeds)
    tangents = tuple(args[i] for direction in program.directions for i in direction)
    start = len(args) + len(seeds)
    if any(has and not may for has, may in zip(ins[start:], tangents, strict=True)):
        return None
    # Without lanes in the arguments the value has none.
    return (*args, *seeds, *tangents) if any(args) else None


for _primitive in PRIMITIVES.values():
    batching.fancy_primitive_batchers[_primitive] = _batch
