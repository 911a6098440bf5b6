"""A program of a Julia function, made ready to run: registered in Julia under a key."""

from __future__ import annotations

import ctypes
import hashlib
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..julia import code, session, spec, when_computed, xla_calls_julia
from ._julia_program import ArrayType, Program

if TYPE_CHECKING:
    from ..julia import Library, Session


class JuliaProgram:
    """A program in Julia's table; released when no compiled program may call it any more.

    Attributes:
        key: the number under which XLA's handler finds it, as a signed 64-bit integer.
    """

    def __init__(self, handles: Sequence[Any], ad: str, program: Program):
        """Register the program with Julia.

        Args:
            handles: the function, and the user's own jvp and vjp, or None for each.
            ad: the AD system for reverse mode.
            program: the program.

        Raises:
            BackendNotLoadedError: the AD system, or ForwardDiff, cannot be loaded.
        """
        self._session = session()
        # Compiled programs hold this object, and JAX caches them under jaxprs that mention the
        # program: a reference to it, or to its function, would keep all of them alive.
        self._handles = handles
        self._results = program.results
        fields = _describe(handles, ad, program)
        key = _key(handles, fields)
        self.key = ctypes.c_int64(key).value
        self._session.call(lambda library: library.request("compile", key, *fields))
        # When Python ends there is nothing to release, and a program may be running.
        weakref.finalize(self, _release, self._session, key).atexit = False

    def refusal(self, platform: str) -> str | None:
        """Tell why XLA does not call it on a platform; None where it does."""
        return xla_calls_julia(platform)

    def call(self, operands: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Run it on Julia's thread, on arrays in host memory."""
        inputs = [np.ascontiguousarray(x) for x in operands]
        outputs = [np.empty(result.shape, result.dtype) for result in self._results]
        self._session.run(lambda library: library.run_program(self.key, inputs, outputs))
        return outputs


def _release(session_: Session, key: int) -> None:
    def work(library: Library) -> None:
        library.request("release_program", key)

    when_computed(lambda: session_.post(work))


# --- what Julia is told --------------------------------------------------------------------


def _describe(handles: Sequence[Any], ad: str, program: Program) -> list[str]:
    """Write the fields that `compile` in programs.jl reads."""
    functions = ",".join("" if h is None else str(h.number) for h in handles)
    selections = "|".join(
        (
            _numbers(program.wrt),
            _numbers(program.seeds),
            ";".join(_numbers(direction) for direction in program.directions),
            _numbers(program.kept),
            "ticket" if program.ticket else "",
        )
    )
    levels = ";".join(
        f"{level.size}:{_flags(level.ins)}:{_flags(level.outs)}" for level in program.loops
    )
    return [
        program.kind,
        functions,
        ad,
        tree_spec(program.in_tree, program.args),
        tree_spec(program.out_tree, program.values),
        selections,
        _buffers(program, result=False),
        _buffers(program, result=True),
        levels,
        "true" if program.converts else "false",
        program.function.layout,
    ]


def tree_spec(tree: Any, types: Sequence[ArrayType]) -> str:
    """Describe a tree of arrays as `wire.jl` reads it."""
    return spec(tree, tuple((t.dtype, len(t.shape)) for t in types))


def _numbers(numbers: Sequence[int]) -> str:
    return ",".join(map(str, numbers))


def _flags(flags: Sequence[bool]) -> str:
    return "".join("01"[flag] for flag in flags)


def _buffers(program: Program, *, result: bool) -> str:
    types = program.result_types if result else program.operand_types
    texts = []
    for i, one in enumerate(types):
        shape = program.lane_shape(i, result=result)
        texts.append(f"{code(one.dtype)}:{extents(shape, program.function.layout)}")
    return ";".join(texts)


def extents(shape: Sequence[int], layout: str) -> str:
    """Write a shape as Julia's size."""
    return _numbers(shape if layout == "logical" else shape[::-1])


def _key(handles: Sequence[Any], fields: Sequence[str]) -> int:
    """Make the key of a program, 64 bits without a sign.

    XLA stores compiled programs on disk, with the key in them. A digest of the source and of
    everything else keeps a program that was compiled elsewhere from calling something else here.
    """
    names = [h.identity for h in handles if h is not None]
    text = "\x1f".join((*names, *fields)).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")
