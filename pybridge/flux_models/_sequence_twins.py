"""Which of Flux's layers is which of ours: recurrent ones, attention, and other newer ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

from ..nn import (
    GRU,
    LSTM,
    RNN,
    AdaptiveMaxPool,
    AdaptiveMeanPool,
    Bilinear,
    CrossCor,
    Dense,
    EmbeddingBag,
    GlobalMaxPool,
    GRUCell,
    GRUv3,
    GRUv3Cell,
    LSTMCell,
    MultiHeadAttention,
    PixelShuffle,
    Recurrence,
    RNNCell,
    Scale,
    Upsample,
    identity,
)
from ._layer_twins import (
    CONVOLUTION,
    WEIGHT,
    NoTwin,
    Setting,
    Twin,
    both_sides,
    function_setting,
    julia_number,
    julia_tuple,
    present,
    reversed_setting,
    window_values,
)

_REDUCTIONS = {"mean": jnp.mean, "sum": jnp.sum, "maximum": jnp.max, "minimum": jnp.min}


def _read_reduction(value: Any) -> Callable[..., Any]:
    if value.get("call") not in _REDUCTIONS:
        raise NoTwin(f"the function {value.get('call') or value.get('type')}")
    return _REDUCTIONS[value["call"]]


def _write_reduction(reduction: Any) -> str:
    for name, ours in _REDUCTIONS.items():
        if reduction is ours:
            return "Flux.mean" if name == "mean" else name
    raise NoTwin(f"the function {getattr(reduction, '__name__', reduction)}")


def _read_per_axis(value: Any) -> Any:
    return tuple(value["list"][::-1]) if isinstance(value, dict) else value


def _write_per_axis(value: Any) -> str:
    if isinstance(value, tuple):
        return julia_tuple(map(julia_number, value[::-1]))
    return "nothing" if value is None else julia_number(value)


def _cell(layer: type, bias: str, **more: str) -> Twin:
    names = {"weight_in": "Wi", "weight_hidden": "Wh", "bias": bias, **more}
    arrays = ", ".join(f"{{{name}}}" for name in names)
    activated = layer is RNNCell
    return Twin(
        layer,
        f"{layer.__name__}({'{activation}, ' if activated else ''}{arrays})",
        ({"activation": function_setting("σ")} if activated else {}) | {"bias": present(bias)},
        {ours: (theirs,) for ours, theirs in names.items()},
        sizes=lambda shapes, _: (shapes["weight_in"][0], shapes["weight_hidden"][0]),
        absent="false",
    )


SEQUENCE_TWINS = {
    twin.layer.__name__: twin
    for twin in (
        _cell(RNNCell, "bias"),
        _cell(LSTMCell, "bias"),
        _cell(GRUCell, "b"),
        _cell(GRUv3Cell, "b", weight_candidate="Wh_h̃"),
        Twin(
            CrossCor,
            "CrossCor({activation}, {weight}, {bias}, {stride}, {pad}, {dilation})",
            {name: setting for name, setting in CONVOLUTION.items() if name != "groups"},
            WEIGHT,
            sizes=lambda shapes, _: (
                shapes["weight"][2:],
                shapes["weight"][1],
                shapes["weight"][0],
            ),
            absent="false",
            values=window_values,
            complete=both_sides,
        ),
        Twin(AdaptiveMaxPool, "AdaptiveMaxPool({size})", {"size": reversed_setting("out")}),
        Twin(AdaptiveMeanPool, "AdaptiveMeanPool({size})", {"size": reversed_setting("out")}),
        Twin(GlobalMaxPool, "GlobalMaxPool()"),
        Twin(
            Upsample,
            "Upsample(:{mode}; scale={scale}, size={size})",
            {
                "mode": Setting("parameters", lambda value: value["list"][0]["symbol"], str),
                "scale": Setting("scale", _read_per_axis, _write_per_axis),
                "size": Setting("size", _read_per_axis, _write_per_axis),
            },
        ),
        Twin(PixelShuffle, "PixelShuffle({factor})", {"factor": Setting("r")}),
        Twin(
            Bilinear,
            "Flux.Bilinear({weight}, {bias}, {activation})",
            {"activation": function_setting("σ"), "bias": present("bias")},
            WEIGHT,
            sizes=lambda shapes, _: (shapes["weight"][1::-1], shapes["weight"][2]),
            absent="false",
        ),
        Twin(
            Scale,
            "Flux.Scale({scale}, {bias}, {activation})",
            {"activation": function_setting("σ"), "bias": present("bias")},
            {"scale": ("scale",), "bias": ("bias",)},
            sizes=lambda shapes, _: (shapes["scale"],),
            absent="false",
        ),
        Twin(
            EmbeddingBag,
            "EmbeddingBag({weight}, {reduction})",
            {"reduction": Setting("reduction", _read_reduction, _write_reduction)},
            {"weight": ("weight",)},
            sizes=lambda shapes, _: shapes["weight"],
        ),
    )
}

# --- layers that hold layers ------------------------------------------------------------------
#
# `read` and `write` are those of _from_flux.py.

RECURRENT = {layer.__name__: layer for layer in (RNN, LSTM, GRU, GRUv3, Recurrence)}
_PROJECTIONS = ("q_proj", "k_proj", "v_proj", "out_proj")


def read_recurrence(name: str, read: Any, fields: Any, params: Any, state: Any, path: str) -> Any:
    """Read a recurrent layer."""
    inner = params.get("cell", {}), state.get("cell", {})
    cell, params, state = read(fields["cell"], *inner, f"{path}.cell")
    (return_state,) = fields["parameters"]["list"]
    return RECURRENT[name].around(cell, return_state), params, state


def write_recurrence(write: Any, layer: Recurrence, params: Any, state: Any, path: str) -> Any:
    """Write a recurrent layer."""
    inner = write(layer.cell, params, state, f"{path}.cell")
    name, keep = type(layer).__name__, julia_number(layer.return_state)
    return inner.below("cell", f"{name}({inner.source}; return_state={keep})")


def read_attention(read: Any, fields: Any, params: Any, state: Any, path: str) -> Any:
    """Read a MultiHeadAttention: four Dense layers and a Dropout."""
    found = {
        name: read(fields[name], params.get(name, {}), {}, f"{path}.{name}")
        for name in _PROJECTIONS
    }
    dropout, _, _ = read(fields["attn_drop"], {}, {}, f"{path}.attn_drop")
    layers = [layer for layer, _, _ in found.values()]
    if not all(isinstance(layer, Dense) and layer.activation is identity for layer in layers):
        raise NoTwin("MultiHeadAttention with other projections than Dense without activation")
    if len({layer.bias for layer in layers}) > 1:
        raise NoTwin("MultiHeadAttention with biases in some of its projections alone")
    q, k, v, out = layers
    layer = MultiHeadAttention(
        (q.in_features, k.in_features, v.in_features),
        (q.out_features, v.out_features),
        out.out_features,
        nheads=fields["nheads"],
        bias=q.bias,
        dropout_prob=dropout.p,
    )
    return layer, {name: arrays for name, (_, arrays, _) in found.items()}, {}


def write_attention(
    write: Any, layer: MultiHeadAttention, params: Any, state: Any, path: str
) -> Any:
    """Write a MultiHeadAttention."""
    parts = {
        name: write(dense, params[name], {}, f"{path}.{name}")
        for name, dense in layer.projections().items()
    }
    q, k, v, out = (parts[name].source for name in _PROJECTIONS)
    dropout = f"Dropout({julia_number(layer.dropout_prob)})"
    source = f"MultiHeadAttention({layer.nheads}, {q}, {k}, {v}, {dropout}, {out})"
    # In the order of Flux's fields.
    trees = {name: parts[name].params for name in _PROJECTIONS if parts[name].params}
    return type(parts["q_proj"])(source, trees, {})
