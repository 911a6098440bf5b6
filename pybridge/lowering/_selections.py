"""The derivatives of pooling: of each window an element is chosen."""

from __future__ import annotations

from typing import Any

from jax.extend.core import ClosedJaxpr

from ._indexing import geometry
from ._registry import emits
from ._text import val


@emits("select_and_gather_add", "select_and_scatter_add")
def _select(eqn: Any) -> str:
    choice = val(f":{eqn.params['select_prim'].name}")
    return eqn.call(eqn.name, *eqn.args, choice, val(geometry(eqn.params)))


@emits("select_and_scatter")
def _select_and_scatter(eqn: Any) -> str:
    p = eqn.params
    better = eqn.source.function(_closed(p, "select"), "better")
    combine = eqn.source.function(_closed(p, "scatter"), "combine")
    return eqn.call(eqn.name, *eqn.args, better, combine, val(geometry(p)))


def _closed(params: dict[str, Any], name: str) -> ClosedJaxpr:
    return ClosedJaxpr(params[f"{name}_jaxpr"], params[f"{name}_consts"])
