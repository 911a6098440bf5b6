"""How a bridged call runs: by XLA itself, or through a callback.

On CPUs, and with CUDA.jl on NVIDIA's GPUs, XLA calls Julia through its foreign function interface,
with the key of the program as an attribute and pointers to the arrays; no Python takes part.
Elsewhere `jax.pure_callback` brings the arrays to Python, and Python calls the same program.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.experimental import io_callback
from jax.interpreters import mlir

from .._errors import UnsupportedModeError, explain
from ..julia import TARGET, as_julia_error
from ._julia_program import PRIMITIVES, Program, bind

# Where Julia does it faster: it goes by squares, to memory of the last call (axes.jl).
_JULIA_TRANSPOSES = {"cpu"}


def _lowering_for(platform: str) -> Callable[..., Any]:
    def lower(ctx: Any, *operands: Any, program: Program) -> Any:
        _refuse_export(ctx)
        executable = program.function.executable(program)
        refusal = executable.refusal(platform)
        if refusal is not None:
            if platform != "cpu":
                _say_that_arrays_are_copied(refusal)
            return _callback(ctx, *operands, program=program)
        # The compiled program calls Julia's as long as it lives.
        ctx.module_context.add_keepalive(executable)
        # XLA drops a call that gives nothing but empty arrays, and with it the error that the
        # arrays are not empty in truth.
        rule = jax.ffi.ffi_lowering(
            TARGET, has_side_effect=_gives_nothing(program), **_layouts(program, platform)
        )
        return rule(ctx, *operands, program=np.int64(executable.key))

    return lower


def _gives_nothing(program: Program) -> bool:
    count = len(program.result_types) - program.gives_ticket
    return all(0 in result.shape for result in program.results[:count])


def _layouts(program: Program, platform: str) -> dict[str, Any]:
    """Ask XLA for arrays whose first axis is fastest, as Julia's is, where it is to transpose."""
    if platform in _JULIA_TRANSPOSES or program.function.layout == "reversed":
        return {}
    counts = len(program.operand_types), len(program.result_types)
    operands, results = (
        [_julias_order(program, i, result=result) for i in range(count)]
        for count, result in zip(counts, (False, True), strict=True)
    )
    return {"operand_layouts": operands, "result_layouts": results}


def _julias_order(program: Program, i: int, *, result: bool) -> tuple[int, ...]:
    """List the axes of an operand or result, the fastest first; loops are outside of everything."""
    loops = len(program.loop_shape(i, result=result))
    rank = loops + len(program.lane_shape(i, result=result))
    # XLA divides by the size of an array that it puts into another order.
    if 0 in program.shape(i, result=result):
        return tuple(range(rank))[::-1]
    return (*range(loops, rank), *range(loops)[::-1])


def _run_by_callback(*operands: Any, program: Program) -> list[Any]:
    executable = program.function.executable(program)

    def call(*arrays: Any) -> list[np.ndarray]:
        return executable.call([np.asarray(x) for x in arrays])

    callback = io_callback if _gives_nothing(program) else jax.pure_callback
    return callback(call, program.results, *operands)


_callback = mlir.lower_fun(_run_by_callback, multiple_results=True)


@functools.cache
def _say_that_arrays_are_copied(reason: str) -> None:
    warnings.warn(
        "from_julia: on this device, arrays are copied to the host and back for each call of a "
        f"Julia function. Why: {reason}",
        stacklevel=2,
    )


def _refuse_export(ctx: Any) -> None:
    if ctx.module_context.lowering_parameters.for_export:
        raise UnsupportedModeError(
            explain(
                "jax.export",
                expected="a program that can run in another process",
                got="a call of a Julia function, which lives in this process",
                fix="Export the JAX parts alone, or rewrite the Julia function in JAX "
                "(pb.nn.from_flux does that for Flux models).",
            )
        )


def _impl(*operands: Any, program: Program) -> list[Any]:
    """Run outside of `jit`: compile the one call, and wait for it, so that errors are Julia's."""
    jitted = program.function.jitted
    compiled = jitted.get(program)
    if compiled is None:
        compiled = jitted[program] = jax.jit(lambda *xs: bind(program, xs))
    try:
        # Under `jax.disable_jit()`, too: what is not compiled would come back here for ever.
        with jax.disable_jit(False):
            return jax.block_until_ready(compiled(*operands))
    except (jax.errors.JaxRuntimeError, ValueError) as error:  # JAX raises either
        raise as_julia_error(error) from None


for _primitive in PRIMITIVES.values():
    _primitive.def_impl(_impl)
    for _platform in ("cpu", "cuda"):
        mlir.register_lowering(_primitive, _lowering_for(_platform), platform=_platform)
    mlir.register_lowering(_primitive, _lowering_for("other devices"))
