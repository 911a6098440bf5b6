"""The C functions of `boundary.jl`, as Python functions. All of them run on the worker.

They are reached through ctypes and not through juliacall because ctypes gives up the
interpreter lock: other Python threads go on, Ctrl-C arrives, and a collection in Julia can
never wait for a thread that waits for Python.
"""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Sequence
from typing import Any

import numpy as np

from .._errors import (
    ArgumentTypeError,
    BackendNotLoadedError,
    BridgeError,
    DetectionError,
    JuliaError,
    UnsupportedModeError,
)
from ._wire import Structure

_SEPARATOR = "\x1f"
_I64, _POINTER = ctypes.c_int64, ctypes.c_void_p

# Julia's exceptions that have a class of their own here.
_ERRORS: dict[str, type[BridgeError]] = {
    "BackendNotLoadedError": BackendNotLoadedError,
    "DetectionError": DetectionError,
    "NonScalarError": ArgumentTypeError,
    "NotCallableError": ArgumentTypeError,
    "OutputChangedError": ArgumentTypeError,
    "UnsupportedModeError": UnsupportedModeError,
    "UnsupportedValueError": ArgumentTypeError,
}


class Library:
    """Julia's side of the bridge.

    Attributes:
        structures: what the numbers mean under which Julia names result types.
        ffi_handler: the address of XLA's handler.
    """

    def __init__(self, addresses: tuple[int, ...]):
        """Bind the addresses that `PyBridge.boundary()` returns."""
        request, run, shapes, fetch, program, ffi, gc_safe_enter = addresses
        self._request = ctypes.CFUNCTYPE(_I64, ctypes.c_char_p, _I64, _POINTER)(request)
        self._run = ctypes.CFUNCTYPE(_I64, _I64, _POINTER, _POINTER)(run)
        self._shapes = ctypes.CFUNCTYPE(_I64, _I64, _POINTER)(shapes)
        self._fetch = ctypes.CFUNCTYPE(_I64, _I64, _POINTER, _POINTER)(fetch)
        self._program = ctypes.CFUNCTYPE(_I64, ctypes.c_uint64, _POINTER, _POINTER, _POINTER)(
            program
        )
        self.ffi_handler = ffi
        self._gc_safe_enter = ctypes.CFUNCTYPE(ctypes.c_int8)(gc_safe_enter)
        self._out = array("q", bytes(8 * 64))
        self._out_address = self._out.buffer_info()[0]
        self.structures: dict[int, Structure] = {}

    def leave_to_collector(self) -> None:
        """Put this thread, which is in Julia no more, into the GC-safe state.

        A collection on another thread then does not wait for it. Calls into Julia leave the state
        and come back to it by themselves.
        """
        self._gc_safe_enter()

    def request(self, verb: str, *fields: object) -> str:
        """Ask for something rare: text in, text out.

        Raises:
            BridgeError: what Julia threw, by `_ERRORS`, else a `JuliaError`.
        """
        text = _SEPARATOR.join((verb, *map(str, fields))).encode()
        if self._request(text, len(text), self._out_address):
            raise self._failure()
        address, length = self._out[:2]
        return ctypes.string_at(address, length).decode()

    def run(self, prepared: int, arguments: array) -> tuple[Structure, list[np.ndarray]]:
        """Run a prepared call.

        Args:
            prepared: its number.
            arguments: address and shape of each argument's leaf.

        Returns:
            The structure of the result, and its leaves as new arrays.
        """
        if self._run(prepared, arguments.buffer_info()[0], self._out_address):
            raise self._failure()
        number, kind, extents = self._out[:3]
        structure = self.structures.get(kind)
        shapes: Any = self._out[3 : 3 + extents]
        if extents > 61:
            shapes = array("q", bytes(8 * extents))
            self._check(self._shapes(number, shapes.buffer_info()[0]))
        if structure is None:
            structure = Structure(self.request("structure", kind))
            self.structures[kind] = structure
        leaves = structure.empty(shapes)
        addresses = _data(leaves)
        self._check(self._fetch(number, addresses.buffer_info()[0], self._out_address))
        return structure, leaves

    def run_program(
        self, key: int, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]
    ) -> None:
        """Run a program from arrays to arrays, all of them in Julia's order."""
        sources, targets = _data(inputs), _data(outputs)
        status = self._program(
            key, sources.buffer_info()[0], targets.buffer_info()[0], self._out_address
        )
        self._check(status)

    def _check(self, status: int) -> None:
        if status:
            raise self._failure()

    def _failure(self) -> BaseException:
        return exception_of(*self.request("failure", self._out[0]).split(_SEPARATOR))


def _data(arrays: Sequence[np.ndarray]) -> array:
    return array("q", [x.__array_interface__["data"][0] for x in arrays])


def exception_of(kind: str, message: str, lines: str) -> BaseException:
    """Build the exception for what Julia threw.

    Args:
        kind: the name of the Julia exception's type.
        message: what `showerror` says.
        lines: the user's lines of the backtrace.
    """
    if kind == "InterruptException":
        return KeyboardInterrupt()
    if kind in _ERRORS:
        return _ERRORS[kind](message)
    return JuliaError(kind, message, lines)
