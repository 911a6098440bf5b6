"""Primitives that move, repeat, cut and join elements."""

from __future__ import annotations

from typing import Any

from ._registry import emits
from ._text import axes, axis, julia_type, order, size, val


@emits("reshape")
def _reshape(eqn: Any) -> str:
    x, read = eqn.args[0], eqn.params.get("dimensions")
    if read is not None:
        x = eqn.call("transpose", x, val(order(read)))
    return eqn.call("reshape", x, val(size(eqn.out().shape)))


@emits("squeeze")
def _squeeze(eqn: Any) -> str:
    return eqn.call("reshape", eqn.args[0], val(size(eqn.out().shape)))


@emits("expand_dims")
def _expand_dims(eqn: Any) -> str:
    return eqn.call("reshape", eqn.args[0], val(size(eqn.out().shape)))


@emits("broadcast_in_dim")
def _broadcast_in_dim(eqn: Any) -> str:
    n, x, shape = len(eqn.out().shape), eqn.args[0], eqn.aval().shape
    dims = eqn.params["broadcast_dimensions"]
    ascending = sorted(range(len(dims)), key=dims.__getitem__)
    if ascending != list(range(len(dims))):
        x = eqn.call("transpose", x, val(order(ascending)))
        dims, shape = [dims[i] for i in ascending], [shape[i] for i in ascending]
    places = tuple(axis(d, n) for d in reversed(dims))
    kept = [d for d in eqn.out().shape if d != 1] == [d for d in shape if d != 1]
    if eqn.lazy:
        ones = [1] * n
        for d, length in zip(dims, shape, strict=True):
            ones[d] = length
        return eqn.call("reshape", x, val(size(ones)))
    if kept and eqn.ndim() > 0:
        return eqn.call("reshape", x, val(size(eqn.out().shape)))
    return eqn.call("broadcast_in_dim", x, val(size(eqn.out().shape)), val(places))


@emits("transpose")
def _transpose(eqn: Any) -> str:
    if not eqn.ndim():
        return eqn.args[0]
    return eqn.call("transpose", eqn.args[0], val(order(eqn.params["permutation"])))


@emits("rev")
def _rev(eqn: Any) -> str:
    return eqn.call("rev", eqn.args[0], val(axes(eqn.params["dimensions"], eqn.ndim())))


@emits("concatenate")
def _concatenate(eqn: Any) -> str:
    return eqn.call("concatenate", val(axis(eqn.params["dimension"], eqn.ndim())), *eqn.args)


@emits("split")
def _split(eqn: Any) -> str:
    n, dim = eqn.ndim(), eqn.params["axis"]
    start, parts = [0] * n, []
    for width, aval in zip(eqn.params["sizes"], [v.aval for v in eqn.eqn.outvars], strict=True):
        first = size(k + 1 for k in start)
        parts.append(
            eqn.call("slice", eqn.args[0], val(first), val((1,) * n), val(size(aval.shape)))
        )
        start[dim] += width
    return parts[0] if len(parts) == 1 else f"({', '.join(parts)})"


@emits("unstack")
def _unstack(eqn: Any) -> str:
    n, dim = eqn.ndim(), eqn.params["axis"] % eqn.ndim()
    shape = [1 if d == dim else length for d, length in enumerate(eqn.aval().shape)]
    parts = []
    for i, _ in enumerate(eqn.eqn.outvars):
        first = size(i + 1 if d == dim else 1 for d in range(n))
        cut = eqn.call("slice", eqn.args[0], val(first), val((1,) * n), val(size(shape)))
        parts.append(eqn.call("reshape", cut, val(size(eqn.out().shape))))
    return parts[0] if len(parts) == 1 else f"({', '.join(parts)})"


@emits("slice")
def _slice(eqn: Any) -> str:
    steps = eqn.params["strides"] or (1,) * eqn.ndim()
    if not eqn.ndim():
        return eqn.args[0]
    first = size(k + 1 for k in eqn.params["start_indices"])
    return eqn.call("slice", eqn.args[0], val(first), val(size(steps)), val(size(eqn.out().shape)))


@emits("pad")
def _pad(eqn: Any) -> str:
    low, high, interior = (
        zip(*eqn.params["padding_config"], strict=True) if eqn.ndim() else ((),) * 3
    )
    return eqn.call("pad", *eqn.args, val(size(low)), val(size(high)), val(size(interior)))


@emits("iota")
def _iota(eqn: Any) -> str:
    shape = eqn.out().shape
    return eqn.call(
        "iota",
        val(julia_type(eqn.out().dtype)),
        val(size(shape)),
        val(axis(eqn.params["dimension"], len(shape))),
    )


@emits("empty", "empty2")
def _empty(eqn: Any) -> str:
    zero = f"zero({julia_type(eqn.out().dtype)})"
    return eqn.call("broadcast_in_dim", zero, val(size(eqn.out().shape)), val(()))


@emits("stack")
def _stack(eqn: Any) -> str:
    shape = eqn.out().shape
    one = size(1 if d == eqn.params["axis"] else n for d, n in enumerate(shape))
    parts = [eqn.call("reshape", x, val(one)) for x in eqn.args]
    return eqn.call("concatenate", val(axis(eqn.params["axis"], len(shape))), *parts)


@emits("tile")
def _tile(eqn: Any) -> str:
    shape, reps = eqn.aval().shape, eqn.params["reps"]
    wide = [n for pair in zip(reps, shape, strict=True) for n in pair]
    places = tuple(axis(2 * d + 1, len(wide)) for d in reversed(range(len(shape))))
    repeated = eqn.call("broadcast_in_dim", eqn.args[0], val(size(wide)), val(places))
    return eqn.call("reshape", repeated, val(size(eqn.out().shape)))
