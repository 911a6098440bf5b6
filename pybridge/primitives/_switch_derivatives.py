"""The derivative of a switch, and its transpose: again switches.

The JVP rule makes one switch of values and tangents. Where JAX linearizes, `_switch_partial_eval`
divides it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.interpreters import ad

from ..jaxprs import jaxpr_as_fun
from ._detection import within_gradient_p
from ._masking import concrete_index, is_the_same_on_all_devices
from ._switch_primitive import bind_switch, nth_branch, spell_out, switch_p, without

if TYPE_CHECKING:
    from jax.extend.core import ClosedJaxpr


def _jvp(primals: Any, tangents: Any, *, branches: Any) -> tuple[list[Any], list[Any]]:
    index, *xs = primals
    avals = branches[0].out_avals
    moving = [_is_nonzero(tangent) for tangent in tangents[1:]]
    if not any(moving):
        return bind_switch(index, branches, xs), list(map(_zero_tangent, avals))
    xs_dot = _where(moving, tangents[1:])
    known = concrete_index(index)
    if known is not None:
        branches = (nth_branch(branches, known),)
    differentiated = [_jvp_branch(branch, moving, xs, xs_dot) for branch in branches]
    # An output has a tangent if it has one in any branch that may be taken.
    carried = [any(flags) for flags in zip(*(flags for _, flags in differentiated), strict=True)]
    has_dot = [flag for flag, aval in zip(carried, avals, strict=True) if _is_inexact(aval)]
    left_out = [None] * len(avals) + [None if flag else 0 for flag in has_dot]
    jvp_branches = tuple(without(branch, left_out) for branch, _ in differentiated)
    if known is not None or is_the_same_on_all_devices(index):
        outs = bind_switch(index, jvp_branches, [*xs, *xs_dot])
    else:  # what the types of the branches have in common is found there
        linear = [False] * len(xs) + [True] * len(xs_dot)
        outs = spell_out(index, jvp_branches, [*xs, *xs_dot], linear)
    outs_dot = iter(outs[len(avals) :])
    return outs[: len(avals)], [
        next(outs_dot) if is_carried else _zero_tangent(aval)
        for is_carried, aval in zip(carried, avals, strict=True)
    ]


def _jvp_branch(
    branch: ClosedJaxpr, moving: list[bool], xs: list[Any], xs_dot: list[Any]
) -> tuple[ClosedJaxpr, list[bool]]:
    """Differentiate a branch with respect to the operands that carry a tangent.

    Args:
        branch: the branch.
        moving: for each operand whether it carries a tangent.
        xs: the operands; only their types are used.
        xs_dot: the tangents of the moving ones; only their types are used.

    Returns:
        A branch that takes operands and tangents and returns outputs and the tangents of
        the inexact ones, and for each output whether it has more than a symbolic zero.
    """
    carried: list[bool] = []

    def with_tangents(xs: list[Any], xs_dot: list[Any]) -> list[Any]:
        of_moving = _of_moving(branch, moving, xs, carried)
        outs, outs_dot = jax.jvp(of_moving, tuple(_where(moving, xs)), tuple(xs_dot))
        return [*outs, *_where(map(_is_inexact, branch.out_avals), outs_dot)]

    traced = jax.make_jaxpr(with_tangents)(xs, xs_dot)
    return traced, carried


# ---------------------------------------------------------------------------- transpose


def _transpose(cts: Any, index: Any, *operands: Any, branches: Any) -> list[Any]:
    is_linear = [ad.is_undefined_primal(x) for x in operands]
    avals = [x.aval for x in _where(is_linear, operands)]
    is_known = [not flag for flag in is_linear]
    known = _where(is_known, operands)
    arrives = [type(ct) is not ad.Zero for ct in cts]

    def transposed(branch: ClosedJaxpr) -> ClosedJaxpr:
        def function(known: list[Any], cts: list[Any]) -> Any:
            def of_linear(*xs: Any) -> list[Any]:
                linear, rest = iter(xs), iter(known)
                mixed = [next(linear if flag else rest) for flag in is_linear]
                return _where(arrives, jaxpr_as_fun(branch)(*mixed))

            return jax.linear_transpose(of_linear, *avals)(cts)

        return jax.make_jaxpr(function)(known, _where(arrives, cts))

    flat = [*known, *_where(arrives, cts)]
    outs = iter(bind_switch(index, tuple(map(transposed, branches)), flat))
    return [None, *(next(outs) if flag else None for flag in is_linear)]


# ------------------------------------------------------------------------------- shared


def _of_moving(
    branch: ClosedJaxpr, moving: list[bool], xs: Sequence[Any], carried: list[bool]
) -> Callable[..., list[Any]]:
    """Return a branch as a function of the operands that carry a tangent.

    Each time that it is differentiated it notes in `carried` which of its outputs have more
    than a symbolic zero for a tangent.
    """

    def function(*moved: Any) -> list[Any]:
        remaining = iter(moved)
        mixed = [next(remaining) if m else x for m, x in zip(moving, xs, strict=True)]
        outs = list(jaxpr_as_fun(branch)(*mixed))
        # Traced on its own, the branch has no outer derivative that could answer.
        carried[:] = [
            _is_inexact(aval) and concrete_index(within_gradient_p.bind(out)) == 1
            for out, aval in zip(outs, branch.out_avals, strict=True)
        ]
        return outs

    return function


def _where(flags: Iterable[bool], values: Iterable[Any]) -> list[Any]:
    return [value for flag, value in zip(flags, values, strict=True) if flag]


def _is_inexact(aval: Any) -> bool:
    return jnp.issubdtype(aval.dtype, np.inexact)


def _is_nonzero(tangent: Any) -> bool:
    return type(tangent) is not ad.Zero and jax.typeof(tangent).dtype != jax.dtypes.float0


def _zero_tangent(aval: Any) -> ad.Zero:
    return ad.Zero(aval.to_tangent_aval())


ad.primitive_jvps[switch_p] = _jvp
ad.primitive_transposes[switch_p] = _transpose
