"""A JAX function as a Julia function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .._errors import ArgumentTypeError, explain
from ._layout import check_layout


def to_julia(f: Callable[..., Any], *, layout: str = "logical") -> Any:
    """Make a Julia function of a function that JAX can trace.

    It is jitted once for each combination of argument types and shapes. Zygote and Yota
    differentiate it by its ChainRules rule, which is JAX's VJP; ForwardDiff by JAX's JVP, with
    all partials at once; Tracker by a method of its own. ForwardDiff may go over Zygote, and over
    itself.

    Arguments are numbers and arrays of Bool, Int8 to Int64, UInt8 to UInt64, Float16 to Float64,
    ComplexF32 and ComplexF64, and tuples and named tuples of them, which arrive as tuples and
    `collections.namedtuple`s. Results likewise; a list becomes a tuple, a dict a NamedTuple.
    Gradients have the argument's shape and element type; integers have none.

    Results follow JAX's dtype rules. While x64 is off, 64-bit integers that fit become 32-bit
    ones, and a Float64 is an error. JAX's settings are those of the thread where Julia runs: set
    them with `jax.config.update`, not with a context manager.

    Args:
        f: the function. It takes positional arguments, all of which are traced.
        layout: `"logical"`: `A[i, j]` is the same element on both sides (from 1 in Julia, from 0
            here). `"reversed"`: the axes are reversed, so Flux's arrays of size (W, H, C, N) are
            arrays of shape (N, C, H, W) here.

    Returns:
        A juliacall value, a `PyBridge.JaxFunction`, to be passed to Julia functions or to
        `from_julia`. In a Julia program, `pyconvert(Any, pb.to_julia(f))` is the Julia function.
        What `f` raises is a `PyBridge.JaxError` there.

    Raises:
        ArgumentTypeError: `f` is not callable.
        ArgumentValueError: `layout` is neither of the two.
        JuliaUnavailableError: Julia cannot be started.

    The way back is `from_julia`.

    Example:
        >>> import jax.numpy as jnp
        >>> import numpy as np
        >>> import pybridge as pb
        >>> g = pb.to_julia(lambda x: jnp.sum(x**2))
        >>> f = pb.from_julia(g)
        >>> x = np.array([3.0, 4.0], np.float32)
        >>> float(f(x))
        25.0
        >>> pb.grad(f, backend="forwarddiff")(x)
        array([6., 8.], dtype=float32)
    """
    if not callable(f):
        raise ArgumentTypeError(
            explain(
                "to_julia",
                expected="a function that JAX can trace",
                got=f"a {type(f).__name__}",
                fix="Pass a callable of arrays.",
            )
        )
    check_layout("to_julia", layout)
    # Not needed by those who only import pybridge.
    from ..julia import expose
    from ._exported_function import Exported

    return expose(Exported(f, layout), getattr(f, "__name__", type(f).__name__))
