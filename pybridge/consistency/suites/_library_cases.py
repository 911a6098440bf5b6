"""The functions of other libraries and the arguments that each of them gets.

Functions are found by looking into the library, so that a new one is seen: without arguments that
suit it, it is listed as not asked, never passed over.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import itertools
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

import numpy as np

from ..._errors import BridgeError
from ...interop import from_julia


@dataclass(frozen=True)
class LibraryCase:
    """A function of a library and its arguments.

    Attributes:
        name: its full name, such as `"jax.nn.relu"`.
        function: a function of the arguments that are differentiated.
        args: float64 arrays.
        reason: why it is not asked; empty where it is.
    """

    name: str
    function: Callable[..., Any] | None = None
    args: tuple[Any, ...] = ()
    reason: str = ""

    @property
    def title(self) -> str:
        """Why it is not asked, or the shapes of its arguments."""
        shapes = ", ".join(str(np.shape(arg)) for arg in self.args)
        return f"not asked: {self.reason}" if self.reason else f"arguments of shape {shapes}"


def _pairs(*axes: Sequence[float]) -> list[list[float]]:
    """Return all combinations of numbers, as one argument for each axis."""
    return list(map(list, zip(*itertools.product(*axes), strict=True)))


@functools.cache
def _table() -> tuple[dict[str, Any], dict[str, Any]]:
    """Read the libraries, and the names that their expressions use."""
    folder = resources.files("pybridge.consistency.suites")
    libraries = tomllib.loads(folder.joinpath("libraries.toml").read_text("utf-8"))
    scope: dict[str, Any] = {"np": np, "pairs": _pairs}
    for name, expression in libraries.pop("names").items():
        scope[name] = eval(expression.strip(), scope)
    return libraries, scope


def libraries() -> tuple[str, ...]:
    """List the libraries of the table."""
    return tuple(_table()[0])


def library_cases(library: str) -> Iterator[LibraryCase]:
    """List every function of a library with its arguments.

    Args:
        library: one of `libraries`.

    Yields:
        A case for each public function, in the order of their names; a single one with the
        reason where the library is not installed.
    """
    table = _table()[0][library]
    try:
        module = importlib.import_module(library)
    except ImportError as error:
        yield LibraryCase(library, reason=f"not installed ({error})")
        return
    for name in sorted(vars(module)):
        function = getattr(module, name)
        if name.startswith("_") or not callable(function) or inspect.isclass(function):
            continue
        entry = table["functions"].get(name, table["others"])
        fields: dict[str, Any] = {"args": entry} if isinstance(entry, str) else entry
        yield _case(f"{library}.{name}", function, **fields)


def _case(
    name: str,
    function: Callable[..., Any],
    *,
    args: str = "[]",
    first: str = "[]",
    fixed: str = "[]",
    named: dict[str, Any] | None = None,
    reason: str = "",
) -> LibraryCase:
    """Read an entry; arguments that are not differentiated go around those that are."""
    if reason:
        return LibraryCase(name, reason=reason)
    before = _evaluated(first)
    behind = [
        np.asarray(value) if isinstance(value, list) else value for value in _evaluated(fixed)
    ]

    def called(*args: Any) -> Any:
        return function(*before, *args, *behind, **(named or {}))

    called.__qualname__ = name  # as reports have it
    return LibraryCase(name, called, _arrays(args))


def _evaluated(expression: str) -> Sequence[Any]:
    return eval(expression, _table()[1])


def _arrays(expression: str) -> tuple[np.ndarray, ...]:
    return tuple(np.asarray(arg, float) for arg in _evaluated(expression))


def nnlib_cases() -> Iterator[LibraryCase]:
    """List NNlib's activation functions, by its own list of them; starts Julia."""
    try:
        names = from_julia("() -> collect(codeunits(join(NNlib.ACTIVATIONS, ' ')))")()
    except BridgeError as error:
        yield LibraryCase("NNlib", reason=str(error).splitlines()[0])
        return
    for name in sorted(bytes(names).decode().split()):
        f = from_julia(f"x -> NNlib.{name}.(x)")
        yield LibraryCase(f"NNlib.{name}", f, _arrays("[line]"))
