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
        if program.takes_ticket and ins[-1]:
            # Each lane has a ticket, for a pullback of its own; here all lanes make one call.
            return _batch(axis, operands[:-1], dims[:-1], program=program.without_ticket())
        last = program.function.layout == "logical"
        of_lanes = [not program.gives_ticket or i < count - 1 for i in range(count)]
        level = Level(axis.size, native, tuple(of_lanes), native=True)
        operands = [
            _lanes(x, dim, axis.size, last) if flag else x
            for x, dim, flag in zip(operands, dims, native, strict=True)
        ]
        outs = bind(replace(program, levels=(level,)), operands)
        out_dims = [out.ndim - 1 if last else 0 for out in outs]
        return outs, [dim if has else None for dim, has in zip(out_dims, of_lanes, strict=True)]
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
    if any(has and not may for has, may in zip(ins[start:], tangents, strict=False)):
        return None
    ticket = (False,) * program.takes_ticket
    # Without lanes in the arguments the value has none.
    return (*args, *seeds, *tangents, *ticket) if any(args) else None


for _primitive in PRIMITIVES.values():
    batching.fancy_primitive_batchers[_primitive] = _batch
