"""Reductions and running reductions."""

from __future__ import annotations

from typing import Any

from ._registry import emits
from ._text import axes, axis, julia_type, val


@emits(
    "reduce_sum",
    "reduce_prod",
    "reduce_max",
    "reduce_min",
    "reduce_and",
    "reduce_or",
    "reduce_xor",
)
def _reduce(eqn: Any) -> str:
    return eqn.call(eqn.name, eqn.args[0], val(axes(eqn.params["axes"], eqn.ndim())))


@emits("argmax", "argmin")
def _arg(eqn: Any) -> str:
    (dim,) = eqn.params["axes"]
    return eqn.call(
        eqn.name, eqn.args[0], val(axis(dim, eqn.ndim())), val(julia_type(eqn.out().dtype))
    )


@emits("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp")
def _running(eqn: Any) -> str:
    dim = axis(eqn.params["axis"], eqn.ndim())
    return eqn.call(eqn.name, eqn.args[0], val(dim), val(bool(eqn.params["reverse"])))
