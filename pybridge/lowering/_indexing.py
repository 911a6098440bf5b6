"""Indexing, sorting and moving windows."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..primitives import outside_text
from ._registry import emits
from ._text import axis, julia_type, literal, string, val


def _clips(mode: Any) -> bool:
    # A promise that was broken is undefined in JAX; here it does no harm.
    return "FILL" not in str(mode)


@emits("gather")
def _gather(eqn: Any) -> str:
    numbers = eqn.params["dimension_numbers"]
    spec = {
        "offset_dims": tuple(numbers.offset_dims),
        "collapsed": tuple(numbers.collapsed_slice_dims),
        "start_map": tuple(numbers.start_index_map),
        "operand_batching": tuple(numbers.operand_batching_dims),
        "indices_batching": tuple(numbers.start_indices_batching_dims),
        "slice_sizes": tuple(eqn.params["slice_sizes"]),
    }
    dtype = eqn.out().dtype
    fill = eqn.params["fill_value"]
    filler = literal(_filler(dtype) if fill is None else fill, dtype)
    return eqn.call("gather", *eqn.args, val(spec), val(_clips(eqn.params["mode"])), filler)


def _filler(dtype: Any) -> Any:
    if np.issubdtype(dtype, np.inexact):
        return np.nan
    if np.issubdtype(dtype, np.bool_):
        return True
    info = np.iinfo(dtype)
    return info.min if np.issubdtype(dtype, np.signedinteger) else info.max


@emits(
    "scatter",
    "scatter-add",
    "scatter_add",
    "scatter-sub",
    "scatter_sub",
    "scatter-mul",
    "scatter_mul",
    "scatter-min",
    "scatter_min",
    "scatter-max",
    "scatter_max",
)
def _scatter(eqn: Any) -> str:
    # The others have one, too, and it says what their name says.
    if eqn.name == "scatter" and eqn.params["update_jaxpr"] is not None:
        raise eqn.refuse(
            "'scatter' with a function of the old values, as in x.at[i].apply(f)",
            "Write x.at[i].set(f(x[i])), which has derivatives in JAX, too.",
        )
    numbers = eqn.params["dimension_numbers"]
    inserted, batching = numbers.inserted_window_dims, numbers.operand_batching_dims
    window = iter([eqn.aval(2).shape[d] for d in numbers.update_window_dims])
    spec = {
        "offset_dims": tuple(numbers.update_window_dims),
        "collapsed": tuple(inserted),
        "start_map": tuple(numbers.scatter_dims_to_operand_dims),
        "operand_batching": tuple(batching),
        "indices_batching": tuple(numbers.scatter_indices_batching_dims),
        "slice_sizes": tuple(
            1 if d in inserted or d in batching else next(window) for d in range(eqn.ndim())
        ),
    }
    name = eqn.name.replace("-", "_")
    return eqn.call(name, *eqn.args, val(spec), val(_clips(eqn.params["mode"])))


@emits("pybridge_in_bounds")
def _in_bounds(eqn: Any) -> str:
    size, where, axis = (eqn.params[name] for name in ("size", "where", "axis"))
    before, after = outside_text("\0", size, where, axis, "").split("\0")
    return eqn.call("in_bounds", *eqn.args, val(size), string(before), string(after))


@emits("dynamic_slice")
def _dynamic_slice(eqn: Any) -> str:
    x, *starts = eqn.args
    sizes = tuple(reversed(eqn.params["slice_sizes"]))
    return eqn.call("dynamic_slice", x, val(sizes), *reversed(starts)) if sizes else x


@emits("dynamic_update_slice")
def _dynamic_update_slice(eqn: Any) -> str:
    x, update, *starts = eqn.args
    return eqn.call("dynamic_update_slice", x, update, *reversed(starts))


@emits("sort")
def _sort(eqn: Any) -> str:
    dim = axis(eqn.params["dimension"], eqn.ndim())
    return eqn.call("sort", val(dim), val(eqn.params["num_keys"]), *eqn.args)


@emits("top_k")
def _top_k(eqn: Any) -> str:
    n = eqn.ndim()
    dim = axis(eqn.params.get("axis", n - 1) % n, n)
    return eqn.call(
        "top_k", *eqn.args, val(eqn.params["k"]), val(dim), val(julia_type(eqn.out(1).dtype))
    )


@emits("reduce_window_sum", "reduce_window_max", "reduce_window_min")
def _reduce_window(eqn: Any) -> str:
    return eqn.call(eqn.name, eqn.args[0], val(geometry(eqn.params)))


def geometry(p: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Describe moving windows, in Julia's order of the axes."""
    low, high = zip(*p["padding"], strict=True) if p["padding"] else ((), ())
    ones = (1,) * len(p["window_dimensions"])
    found = {
        "window": p["window_dimensions"],
        "stride": p["window_strides"],
        "low": low,
        "high": high,
        "base": p.get("base_dilation", ones),
        "dilation": p.get("window_dilation", ones),
    }
    return {key: tuple(reversed(value)) for key, value in found.items()}
