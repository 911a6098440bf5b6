"""A Julia function as a Python function."""

from __future__ import annotations

from typing import Any

from .._backends import JULIA_NAMES, row
from .._errors import ArgumentTypeError, ArgumentValueError, explain
from ..julia._functions import JuliaHandle

_LAYOUTS = ("logical", "reversed")


class JuliaFunction:
    """A Julia callable that is called like a Python function; `from_julia` makes it.

    Attributes:
        ad: the AD system that differentiates it unless a call names another.
        layout: how array axes map, `"logical"` or `"reversed"`.
        source: the Julia source, or None for a juliacall value.
    """

    def __init__(self, handle: JuliaHandle, source: str | None, ad: str, layout: str):
        """Keep the parts."""
        self.handle = handle
        self.source = source
        self.ad = ad
        self.layout = layout

    def __call__(self, *args: Any) -> Any:
        """Call the Julia function with numbers, arrays and trees of them."""
        return self.handle.run("call", args, layout=self.layout).tree()

    def __repr__(self) -> str:
        """Show the source, shortened."""
        source = self.source if self.source is not None else "juliacall value"
        short = source if len(source) <= 60 else source[:57] + "..."
        return f"from_julia({short!r}, ad={self.ad!r}, layout={self.layout!r})"


def from_julia(f: Any, ad: str = "zygote", *, layout: str = "logical") -> JuliaFunction:
    """Make a Python function of a Julia function.

    Source is evaluated at once, in a Julia module of its own where PyBridge and NNlib are
    imported. Arguments are numbers and arrays of bool, int8 to int64, uint8 to uint64, float16
    to float64, complex64 and complex128, and tuples, lists, named tuples and dicts of them (a
    list is a Julia tuple, a dict a NamedTuple). Numbers and arrays without axes are Julia
    numbers. Julia gets copies, so a function that mutates its argument changes nothing here.

    NumPy and Python arguments give NumPy results in Julia's own dtypes; a JAX array among the
    arguments gives JAX arrays.

    Args:
        f: Julia source whose value is callable, or a callable juliacall value.
        ad: the AD system that differentiates it: `"zygote"`, `"forwarddiff"`, `"tracker"` or
            `"yota"`.
        layout: `"logical"`: `A[i, j]` is the same element on both sides (from 0 here, from 1
            there). `"reversed"`: the axes are reversed, so an array of shape (N, C, H, W) is a
            Julia array of size (W, H, C, N), which is Flux's convention.

    Returns:
        A callable.

    Raises:
        UnknownBackendError: `ad` names no Julia AD system.
        ArgumentValueError: `layout` is neither of the two.
        ArgumentTypeError: the value of the source is not callable.
        JuliaError: the source does not parse, or throws; with Julia's message.
        JuliaUnavailableError: Julia cannot be started.

    Example:
        >>> import numpy as np
        >>> import pybridge as pb
        >>> f = pb.from_julia("x -> sum(abs2, x)")
        >>> float(f(np.array([3.0, 4.0])))
        25.0
        >>> pb.grad(f, backend="zygote")(np.array([3.0, 4.0]))
        array([6., 8.])
    """
    row(ad, argument="ad", names=JULIA_NAMES)
    if layout not in _LAYOUTS:
        raise ArgumentValueError(
            explain(
                "from_julia",
                expected='layout "logical" or "reversed"',
                got=repr(layout),
                fix='"logical" keeps the order of the axes, "reversed" is Flux\'s convention.',
            )
        )
    if isinstance(f, JuliaFunction):
        return JuliaFunction(f.handle, f.source, ad, layout)
    if not isinstance(f, str) and not type(f).__module__.startswith("juliacall"):
        raise ArgumentTypeError(
            explain(
                "from_julia",
                expected="Julia source or a callable juliacall value",
                got=f"a {type(f).__name__}",
                fix="A Python function needs no bridge: pass it to pb.grad itself.",
            )
        )
    return JuliaFunction(JuliaHandle(f), f if isinstance(f, str) else None, ad, layout)
