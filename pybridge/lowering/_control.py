"""Control flow: branches and loops; their bodies become functions."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import jaxpr_as_fun

from ..jaxprs import scan_sizes, select_lanes
from ..primitives import least_place, read_at
from ._emit import is_key
from ._folds import traced
from ._registry import Many, emits
from ._text import tuple_text, val


@emits("cond")
def _cond(eqn: Any) -> str:
    index, *operands = eqn.args
    return _branches(eqn, index, operands, eqn.params["branches"])


@emits("pybridge_switch")
def _switch(eqn: Any) -> str:
    index, *operands = eqn.args
    return _branches(eqn, index, operands, eqn.params["branches"])


def _branches(eqn: Any, index: str, operands: list[str], branches: Any) -> str:
    if len(branches) == 1:
        return f"{eqn.function(branches[0], 'branch')}({', '.join(operands)})"
    if str(eqn.aval(0).dtype) == "bool":
        no, yes = (eqn.function(b, h) for b, h in zip(branches, ("no", "yes"), strict=True))
        return eqn.call("cond", index, no, yes, *operands)
    names = [eqn.function(branch, f"branch{i}") for i, branch in enumerate(branches)]
    return eqn.call("switch", index, tuple_text(names), *operands)


@emits("pybridge_first_place")
def _first_place(eqn: Any) -> str:
    return traced(eqn, functools.partial(least_place, **eqn.params))


@emits("pybridge_filler")
def _filler(eqn: Any) -> str:
    return eqn.call("stop_gradient", traced(eqn, functools.partial(read_at, **eqn.params)))


@emits("platform_index")
def _platform_index(eqn: Any) -> str:
    platforms = eqn.params["platforms"]
    for i, names in enumerate(platforms):
        if names is None or "cpu" in names:
            return eqn.source.constant(np.int32(i))
    raise eqn.refuse("a program without a branch for the CPU", "Add one, or a default.")


@emits("while")
def _while(eqn: Any) -> str:
    p = eqn.params
    m, n = p["cond_nconsts"], p["body_nconsts"]
    if p["cond_jaxpr"].out_avals[0].shape:
        return _while(_of_all_lanes(eqn))
    test = eqn.source.function(p["cond_jaxpr"], "test")
    body = eqn.tuple_function(p["body_jaxpr"], "body")
    groups = (eqn.args[:m], eqn.args[m : m + n], eqn.args[m + n :])
    return Many(eqn.call("while_loop", test, body, *map(tuple_text, groups)))


def _of_all_lanes(eqn: Any) -> Any:
    """Write a loop whose test has an answer for each lane of a batch as an ordinary one.

    That is what vmap makes where the test depends on the lane. It runs as long as any lane does,
    and lanes that are done keep what they have.
    """
    p = eqn.params
    m, n = p["cond_nconsts"], p["body_nconsts"]
    test, body = jaxpr_as_fun(p["cond_jaxpr"]), jaxpr_as_fun(p["body_jaxpr"])
    structs = [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in eqn.eqn.invars]

    def any_lane(*xs: Any) -> Any:
        return jnp.any(test(*xs)[0])

    def lanes(*xs: Any) -> list[Any]:
        asked, used, carry = xs[:m], xs[m : m + n], xs[m + n :]
        return select_lanes(test(*asked, *carry)[0], body(*used, *carry), carry)

    params = {
        **p,
        "cond_jaxpr": jax.make_jaxpr(any_lane)(*structs[:m], *structs[m + n :]),
        "body_jaxpr": jax.make_jaxpr(lanes)(*structs),
        "body_nconsts": m + n,
    }

    def again(items: Any) -> Any:
        return type(items)((*items[:m], *items[:m], *items[m:]))

    return replace(
        eqn,
        eqn=eqn.eqn.replace(invars=again(eqn.eqn.invars), params=params),
        args=again(eqn.args),
        moving=again(eqn.moving),
    )


@emits("scan")
def _scan(eqn: Any) -> str:
    p = eqn.params
    m, n = scan_sizes(p)
    if p["length"] == 0:
        # Only the types tell what the results of no steps are.
        empty = [_nothing(eqn, v.aval) for v in eqn.eqn.outvars[n:]]
        return Many(tuple_text([*eqn.args[m : m + n], *empty]))
    body = eqn.tuple_function(p["jaxpr"], "step")
    groups = (eqn.args[:m], eqn.args[m : m + n], eqn.args[m + n :])
    length, backwards = val(p["length"]), val(bool(p["reverse"]))
    return Many(eqn.call("scan", body, length, backwards, *map(tuple_text, groups)))


def _nothing(eqn: Any, aval: Any) -> str:
    """Write an array without elements; keys are their words."""
    if is_key(aval.dtype):
        aval = jax.eval_shape(jax.random.key_data, aval)
    return eqn.source.constant(np.zeros(aval.shape, aval.dtype))
