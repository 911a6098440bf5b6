"""The C functions of `boundary.jl`, as Python functions. All of them run on the worker.

They are reached through ctypes, or the worker's mailbox, and not through juliacall because that
gives up the interpreter lock: other Python threads go on, Ctrl-C arrives, and a collection in
Julia can never wait for a thread that waits for Python.
"""

from __future__ import annotations

import ctypes
import functools
from array import array
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .._errors import (
    ArgumentTypeError,
    BackendNotLoadedError,
    BridgeError,
    DetectionError,
    IndexOutOfBoundsError,
    JuliaError,
    UnknownBackendError,
    UnsupportedModeError,
)
from ._wire import Structure, address, addresses

_SEPARATOR = "\x1f"

# How many integers there is room for in what Julia returns; boundary.jl has the 62 besides two.
_PLACES = 64

_I64 = ctypes.c_int64
_function = functools.cache(ctypes.CFUNCTYPE(_I64, _I64, _I64, _I64))

# Calls the C function at an address with three integers. The last argument is what has to stay
# in memory until the function has ended, even if the caller is interrupted.
Enter = Callable[[int, int, int, int, Any], int]


def directly(function: int, first: int, second: int, third: int, keep: Any) -> int:
    """Call the C function at an address; on the worker only."""
    return _function(function)(first, second, third)


# Julia's exceptions that have a class of their own here.
_ERRORS: dict[str, type[BridgeError]] = {
    "BackendNotLoadedError": BackendNotLoadedError,
    "DetectionError": DetectionError,
    "NoAuxiliaryError": ArgumentTypeError,
    "NonScalarError": ArgumentTypeError,
    "NotCallableError": ArgumentTypeError,
    "OutOfBoundsError": IndexOutOfBoundsError,
    "OutputChangedError": ArgumentTypeError,
    "RuleError": ArgumentTypeError,
    "UnknownBackendError": UnknownBackendError,
    "UnsupportedModeError": UnsupportedModeError,
    "UnsupportedNameError": ArgumentTypeError,
    "UnsupportedValueError": ArgumentTypeError,
}


class Expected:
    """What a call most likely returns: what it returned last.

    Attributes:
        structure: the result's.
        shapes: shape and dtype of each leaf.
        told: what Julia is told of it, before the leaves' addresses.
    """

    __slots__ = ("shapes", "structure", "told")

    def __init__(self, kind: int, structure: Structure, extents: Sequence[int]):
        """Keep a result: `kind` is the structure's number, `extents` are those of its leaves."""
        self.structure = structure
        self.shapes = structure.shapes(extents)
        self.told = [kind, len(extents), *extents]


class Prepared:
    """A call that is ready to run in Julia.

    Attributes:
        number: its number there.
        expected: what it most likely returns.
    """

    __slots__ = ("expected", "number")

    def __init__(self, number: int):
        """Keep the number."""
        self.number = number
        self.expected: Expected | None = None


class Library:
    """Julia's side of the bridge, for one user at a time."""

    def __init__(self, functions: Sequence[int], enter: Enter):
        """Keep the addresses of the five C functions, and the way to call them."""
        self._request, self._run, self._shapes, self._fetch, self._program = functions
        self._enter = enter
        self._out = array("q", bytes(8 * _PLACES))
        self._out_address = self._out.buffer_info()[0]
        self._structures: dict[int, Structure] = {}

    def request(self, verb: str, *fields: object) -> str:
        """Ask for something rare: text in, text out.

        Raises:
            BridgeError: what Julia threw, by `_ERRORS`, else a `JuliaError`.
        """
        self._call(self._request, array("B", _SEPARATOR.join((verb, *map(str, fields))).encode()))
        address, length = self._out[:2]
        return ctypes.string_at(address, length).decode()

    def run(
        self, prepared: Prepared, arrays: Sequence[np.ndarray]
    ) -> tuple[Structure, list[np.ndarray]]:
        """Run a prepared call.

        Args:
            prepared: the call.
            arrays: the arguments' leaves.

        Returns:
            The structure of the result, and its leaves as new arrays.
        """
        expected, leaves = prepared.expected, self._expect(prepared.expected)
        self._call(self._run, addresses(arrays), prepared.number, (arrays, leaves))
        if expected is not None and self._out[0] == 0:
            return expected.structure, leaves
        kind, extents = self._out[:2]
        shapes = self._out[2 : 2 + extents]
        if extents > _PLACES - 2:
            shapes = array("q", bytes(8 * extents))
            self._call(self._shapes, shapes)
        structure = self._structures.get(kind)
        if structure is None:
            structure = Structure(self.request("structure", kind))
            self._structures[kind] = structure
        latest = Expected(kind, structure, shapes)
        # Julia is told where there is room for it.
        prepared.expected = latest if len(latest.told) + len(latest.shapes) <= _PLACES else None
        leaves = _empty(latest)
        self._call(self._fetch, _data(leaves), keep=leaves)
        return structure, leaves

    def _expect(self, expected: Expected | None) -> list[np.ndarray]:
        """Make arrays for what is expected, and tell Julia; a call more is spared so."""
        if expected is None:
            self._out[0] = 0
            return []
        leaves = _empty(expected)
        told = array("q", [*expected.told, *map(address, leaves)])
        self._out[: len(told)] = told
        return leaves

    def run_program(
        self, key: int, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]
    ) -> None:
        """Run a program from arrays to arrays, all of them C-contiguous."""
        arrays = [*inputs, *outputs]
        self._call(self._program, _data(arrays), key, arrays)

    def _call(
        self, function: int, buffer: array, first: int | None = None, keep: Any = None
    ) -> None:
        address, length = buffer.buffer_info()
        first = length if first is None else first
        if self._enter(function, first, address, self._out_address, (buffer, keep)):
            raise self._failure()

    def _failure(self) -> BaseException:
        return exception_of(*self.request("failure", self._out_address).split(_SEPARATOR))


def _empty(expected: Expected) -> list[np.ndarray]:
    return [np.empty(shape, dtype) for shape, dtype in expected.shapes]


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
