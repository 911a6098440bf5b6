"""Python functions that Julia calls: the C function that `jaxfunction.jl` reaches.

One C function serves all of them. Julia says which object it asks (by number) and what it asks
for (by text), and passes the addresses of the arguments' leaves; Python answers with the
addresses of the results' leaves, which it keeps until Julia says that it has copied them.
ctypes takes the interpreter lock by itself, on whichever thread Julia calls.
"""

from __future__ import annotations

import ctypes
import itertools
import site
import sys
import sysconfig
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ._session import session
from ._wire import addresses

_SEPARATOR = "\x1f"
_I64, _POINTER = ctypes.c_int64, ctypes.c_void_p
_OK, _FAILED = 0, 1
_MAX_LINES = 12


@dataclass
class Reply:
    """What an object answers.

    Attributes:
        text: the spec of the results; of a failure, its parts.
        leaves: the results.
        kept: an object that Julia may ask later on, such as a pullback.
        nbytes: how much memory `kept` holds.
    """

    text: str
    leaves: Sequence[np.ndarray] = ()
    kept: Any = None
    nbytes: int = 0


class Callee(Protocol):
    """An object that Julia can ask."""

    def answer(self, request: str, words: int) -> Reply:
        """Answer a request.

        Args:
            request: what is asked for.
            words: the address of the arguments' addresses and shapes.
        """
        ...


# What Julia holds, by number. Julia's finalizers send the numbers back.
_held: dict[int, Any] = {}
_numbers = itertools.count(1)


def hold(x: Any) -> int:
    """Keep an object for Julia until it releases the number."""
    number = next(_numbers)
    _held[number] = x
    return number


def read_leaves(words: int, kinds: Sequence[tuple[np.dtype, int]]) -> list[np.ndarray]:
    """See Julia's memory as arrays, without copying it.

    Args:
        words: the address of each leaf's address and shape, one after the other.
        kinds: dtype and rank of each leaf.

    Returns:
        Arrays that are valid until the call from Julia returns. Their axes are those of Julia in
        reverse, which is the same memory in Python's order.
    """
    count = sum(1 + rank for _, rank in kinds)
    numbers = (_I64 * count).from_address(words) if count else ()
    leaves, position = [], 0
    for dtype, rank in kinds:
        shape = tuple(numbers[position + 1 : position + 1 + rank])
        leaf = np.empty(shape, dtype)
        if leaf.size:
            memory: Any = (ctypes.c_char * leaf.nbytes).from_address(numbers[position])
            leaf = np.frombuffer(memory, dtype).reshape(shape)
        leaves.append(leaf)
        position += 1 + rank
    return leaves


@ctypes.CFUNCTYPE(_I64, _I64, _POINTER, _I64, _POINTER, _POINTER)
def _call(number: int, text: int, length: int, words: int, output: int) -> int:
    """Answer Julia.

    Args:
        number: the object that is asked; 0 to release objects.
        text: the request.
        length: its length.
        words: the address of the arguments' addresses and shapes; to release, a count and that
            many numbers.
        output: gets the number under which the reply is kept, address and length of its text, the
            address of its leaves' addresses and shapes, the number of what Julia may ask later,
            and how much memory that holds.
    """
    if number == 0:
        (count,) = (_I64 * 1).from_address(words)
        for released in (_I64 * (1 + count)).from_address(words)[1:]:
            _held.pop(released, None)
        return _OK
    status = _OK
    try:
        request = ctypes.string_at(text, length).decode()
        reply = _held[number].answer(request, words)
    except BaseException as error:  # ctypes would print it and go on
        status, reply = _FAILED, Reply(_SEPARATOR.join(_describe(error)))
    encoded, listed = reply.text.encode(), addresses(reply.leaves)
    buffer = np.frombuffer(encoded, np.uint8)
    kept = 0 if reply.kept is None else hold(reply.kept)
    (_I64 * 6).from_address(output)[:] = (
        hold((reply, buffer, listed)),
        buffer.__array_interface__["data"][0],
        len(encoded),
        listed.buffer_info()[0],
        kept,
        reply.nbytes,
    )
    return status


def _foreign_folders() -> tuple[str, ...]:
    paths = {sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")}
    paths |= {*site.getsitepackages(), str(Path(__file__).resolve().parents[1])}
    return tuple(str(Path(path)) + "/" for path in paths if path)


def _describe(error: BaseException) -> tuple[str, str, str]:
    """Put an exception into words: its type, the user's lines of its traceback, its message."""
    foreign = _foreign_folders()
    frames = traceback.extract_tb(error.__traceback__)
    lines = [
        f"  {frame.name} at {frame.filename}:{frame.lineno}"
        for frame in frames
        if not frame.filename.startswith((*foreign, "<frozen"))
    ]
    try:
        message = str(error)
    except Exception:  # the class is the user's
        message = "its __str__ method failed"
    return type(error).__name__, "\n".join(lines[-_MAX_LINES:]), message


def expose(callee: Callee, name: str) -> Any:
    """Make a `PyBridge.JaxFunction` that asks an object.

    Args:
        callee: the object.
        name: what Julia shows.

    Returns:
        The juliacall value.

    Raises:
        JuliaUnavailableError: Julia cannot be started.
    """
    address = ctypes.cast(_call, ctypes.c_void_p).value

    def work(_: Any) -> Any:
        bridge = sys.modules["juliacall"].Main.PyBridge
        bridge.connect(address)
        return bridge.JaxFunction(hold(callee), name)

    return session().call(work)
