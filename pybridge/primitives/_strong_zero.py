"""Differentiate with strong zeros: `strong_zero`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from .._errors import ArgumentTypeError, explain
from . import _strong_programs as _strong_programs
from . import _strong_rules as _strong_rules
from ._strong_trace import is_plain_evaluation, run_strong

_P = ParamSpec("_P")
_T = TypeVar("_T")


def strong_zero(f: Callable[_P, _T]) -> Callable[_P, _T]:
    """Return `f` with a derivative in which zero times anything is zero.

    A derivative is a sum of products. Where a part of `f` is computed and then dropped, by a
    `where`, a mask, an index, a product with zero, one factor is zero, and the other may be
    infinite or NaN: `0 * inf` is NaN, and the gradient is lost. Here each product in a
    derivative that has a zero factor is zero. So the gradient is finite wherever that of
    the part that is kept is.

    The values of `f` do not change, bit for bit, and outside of derivatives nothing is added to
    what runs. The zeros are strong in forward and reverse mode and in any order; under jit,
    vmap, scan, while_loop, cond, switch, `pb.cond`, checkpoint and shard_map; in the user's
    own `custom_jvp` and `custom_vjp` rules; in matrix products, convolutions and solves. What
    `f` closes over is differentiated as usual. Without jit, `f` sees what it sees under
    `jax.grad`: values that can be looked at, as an index by a mask does.

    Args:
        f: a function of any arguments, keywords included, that JAX can differentiate.

    Returns:
        A function of the same arguments and results, to be passed to `jax.grad`, `jax.jvp`
        and so on.

    Raises:
        ArgumentTypeError: `f` is not callable.
        UnsupportedModeError: when differentiated: `f` contains an operation that holds a
            program which cannot be seen into, for example a Pallas kernel. The message names
            the operation and the line.

    Example:
        >>> import jax
        >>> import jax.numpy as jnp
        >>> import pybridge as pb
        >>> f = lambda x: jnp.where(x > 0, jnp.sqrt(x), 0.0)
        >>> float(jax.grad(f)(0.0)), float(jax.grad(pb.strong_zero(f))(0.0))
        (nan, 0.0)

    The Julia side has no twin: there `PyBridge.cond` does not evaluate what is dropped. The
    name and the idea are those of ChainRules.jl, whose `ZeroTangent` is a strong zero.
    """
    if not callable(f):
        raise ArgumentTypeError(
            explain(
                "pb.strong_zero",
                expected="a function",
                got=f"a {type(f).__module__}.{type(f).__qualname__}",
                fix="Pass the function itself and call the result: pb.strong_zero(f)(x).",
            )
        )

    @functools.wraps(f)
    def strong(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        if is_plain_evaluation():
            return f(*args, **kwargs)
        return run_strong(f, args, kwargs)

    return strong
