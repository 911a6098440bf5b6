"""Find reads and writes of JAX that are out of bounds at given arguments."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...jaxprs import contains
from ..findings import Finding
from ..subject import Place, Seen, walk
from ._context import Context

_GATHERS = frozenset({"gather", "dynamic_slice", "dynamic_update_slice"})
_SCATTERS = frozenset(
    {"scatter", "scatter-add", "scatter_add", "scatter-mul", "scatter_mul", "scatter-sub",
     "scatter_sub", "scatter-min", "scatter_min", "scatter-max", "scatter_max"}
)  # fmt: skip
NAMES = _GATHERS | _SCATTERS

_WRITES = _SCATTERS | {"dynamic_update_slice"}

_READ = (
    'Read with pb.take(x, indices, mode="clip"), "fill" or "wrap", which mean the same in value, '
    'forward and reverse mode, or with mode="error" to be told.'
)
_WRITE = (
    'Keep the index within the axis; x.at[index].set(y, mode="clip") writes to the last element '
    "where that is meant."
)
_FATE = {
    "PROMISE_IN_BOUNDS": "JAX was promised that there is none: the value and each derivative do "
    "something else with it",
    "FILL_OR_DROP": "JAX reads NaN or drops the write, and the derivative is 0",
    "CLAMPED": "JAX moves the whole window inside",
}


def detect_out_of_bounds(context: Context) -> list[Finding]:
    """Report reads and writes that are out of bounds at the point, once for each line."""
    point, closed = context.point, context.point.subject.jaxpr
    if point.subject.is_julia or closed is None or not contains(closed, NAMES):
        return []
    found: dict[Any, Finding] = {}

    def visit(seen: Seen) -> None:
        name, fault = seen.eqn.primitive.name, _fault(seen.eqn, seen.ins)
        if fault is None:
            return
        index, axis, size, mode = fault
        verb, cure = ("written", _WRITE) if name in _WRITES else ("read", _READ)
        finding = point.finding(
            "out-of-bounds",
            "error" if mode == "PROMISE_IN_BOUNDS" else "warning",
            f"index {index} is {verb} on axis {axis}, which has size {size}",
            ["jax"],
            mode="value",
            place=Place(seen.line, name),
            numbers={"index": index, "axis": axis, "size": size},
            advice=f"{_FATE[mode]}. {cure}",
        )
        found.setdefault((seen.line, name, axis), finding)

    try:
        walk(closed, point.xs, NAMES, visit)
    except Exception as error:
        context.say(f"{point.probe.name}: indices could not be followed: {error}")
        return []
    return list(found.values())


def _fault(eqn: Any, ins: list[Any]) -> tuple[int, int, int, str] | None:
    """Find an index out of bounds, its axis, the axis' size and what JAX does with it."""
    name, params = eqn.primitive.name, eqn.params
    if name in ("dynamic_slice", "dynamic_update_slice"):
        skip = 1 if name == "dynamic_slice" else 2
        window = params["slice_sizes"] if skip == 1 else np.shape(ins[1])
        shape = np.shape(ins[0])
        for axis, start in enumerate(ins[skip:]):
            start = int(np.asarray(start))
            if not 0 <= start <= shape[axis] - window[axis]:
                outside = start if start < 0 else start + window[axis] - 1
                return outside, axis, shape[axis], "CLAMPED"
        return None
    mode = getattr(params["mode"], "name", str(params["mode"]))
    if mode == "CLIP" and name == "gather" and not params["dimension_numbers"].collapsed_slice_dims:
        mode = "CLAMPED"  # what vmap makes of a dynamic_slice
    if mode not in _FATE:
        return None  # CLIP: somebody chose it, and all modes agree on it
    filled = params.get("fill_value")
    if filled is not None and not np.isnan(filled):
        return None  # Somebody chose that as well. NaN is what `jnp.take` fills with unasked.
    numbers, shape = params["dimension_numbers"], np.shape(ins[0])
    indices = np.asarray(ins[1]).astype(np.int64)
    if name == "gather":
        axes, window = numbers.start_index_map, params["slice_sizes"]
    else:
        axes = numbers.scatter_dims_to_operand_dims
        window = _update_window(numbers, shape, np.shape(ins[2]))
    for column, axis in enumerate(axes):
        # Python's own negative indices were resolved before.
        starts = indices[..., column]
        last = shape[axis] - window[axis]
        bad = starts[(starts < 0) | (starts > last)]
        if bad.size:
            first = int(bad.flat[0])
            outside = first if first < 0 else first + window[axis] - 1
            return outside, int(axis), shape[axis], mode
    return None


def _update_window(numbers: Any, shape: tuple[int, ...], updates: tuple[int, ...]) -> list[int]:
    """Find how many elements a scatter writes along each axis of its operand."""
    single = {*numbers.inserted_window_dims, *getattr(numbers, "operand_batching_dims", ())}
    sizes = iter(updates[d] for d in numbers.update_window_dims)
    return [1 if axis in single else next(sizes) for axis in range(len(shape))]
