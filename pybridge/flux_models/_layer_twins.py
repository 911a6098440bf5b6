"""Which layer and function of Flux is which of ours: the tables behind `from_flux` and `to_flux`.

A Flux layer arrives as the fields that `outline` in flux_text.jl lists, and is made by Julia source
with its fields in Flux's order. One row says both.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .. import nn
from ..nn import (
    AlphaDropout,
    BatchNorm,
    Conv,
    ConvTranspose,
    Dense,
    Dropout,
    Embedding,
    GlobalMeanPool,
    GroupNorm,
    InstanceNorm,
    LayerNorm,
    MaxPool,
    MeanPool,
)
from ..nn.internals import Window


class NoTwin(Exception):
    """A value has no equal on the other side; the text says which."""


# --- functions -------------------------------------------------------------------------------

_NAMES = """celu elu gelu_erf gelu_sigmoid gelu_tanh hardswish hardtanh hardσ identity leakyrelu
lisht logcosh logσ mish relu6 selu softplus softshrink softsign swish tanhshrink trelu""".split()

# Julia's name, ours, and functions of JAX that do the same. Of two names for one of ours the first
# is written.
FUNCTIONS: dict[str, tuple[Callable[..., Any], ...]] = {
    **{name: (getattr(nn, name),) for name in _NAMES},
    "relu": (nn.relu, jax.nn.relu),
    "σ": (nn.sigmoid, jax.nn.sigmoid),
    "tanh": (nn.tanh, jnp.tanh),
    "sigmoid_fast": (nn.sigmoid_fast,),
    "tanh_fast": (nn.tanh_fast,),
    "softmax": (nn.softmax,),
    "logsoftmax": (nn.logsoftmax,),
    "flatten": (nn.flatten,),
    "+": (nn.plus, jnp.add),
    "vcat": (nn.vcat,),
    "first": (nn.first,),
}
_HOMES = ("Base", "Flux", "MLUtils", "NNlib")
# Broadcast they are other functions.
_OF_WHOLE_ARRAYS = {"softmax", "logsoftmax", "flatten", "vcat", "first"}


def read_function(value: Any) -> Callable[..., Any]:
    """Return our function for one of Julia's."""
    name, home = value.get("call"), value.get("from", "")
    is_known = name in FUNCTIONS and home.partition(".")[0] in _HOMES
    if is_known and not (value.get("broadcast") and name in _OF_WHOLE_ARRAYS):
        return FUNCTIONS[name][0]
    raise NoTwin(f"the function {name or value.get('type')}{'.' * bool(value.get('broadcast'))}")


def write_function(function: Any) -> str:
    """Return Julia's name for a function."""
    for name, ours in FUNCTIONS.items():
        if function in ours:
            return f"Flux.{name}" if name == "flatten" else name
    raise NoTwin(f"the function {getattr(function, '__name__', function)}")


# --- single values ---------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Setting:
    """A field of a Flux layer, and how its value becomes an argument of ours and Julia source."""

    field: str
    read: Callable[[Any], Any] = lambda value: value
    write: Callable[[Any], str] = lambda value: julia_number(value)


def julia_number(value: Any) -> str:
    """Write a bool, an int, or a float: as Float32, Flux's default, where that is exact."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return str(value)
    exact = float(np.float32(value)) == value
    return f"Float32({value!r})" if exact else f"Float64({value!r})"


def julia_tuple(values: Any) -> str:
    """Write a tuple."""
    return f"({', '.join(map(str, values))},)"


def function_setting(field: str) -> Setting:
    """Return the setting of a field that is a function."""
    return Setting(field, read_function, write_function)


def reversed_setting(field: str) -> Setting:
    """Return the setting of a field that has a number for each axis."""
    return Setting(
        field, lambda value: tuple(value["list"][::-1]), lambda value: julia_tuple(value[::-1])
    )


def _pairs(values: Any) -> tuple[Any, ...]:
    """Reverse the order of the axes in a flat list of (before, after)."""
    return tuple(n for axis in range(len(values) - 2, -1, -2) for n in values[axis : axis + 2])


def _pad(field: str) -> Setting:
    return Setting(
        field, lambda value: _pairs(value["list"]), lambda value: julia_tuple(_pairs(value))
    )


def present(field: str) -> Setting:
    """Return the setting that tells whether there is an array in a field."""
    return Setting(field, lambda value: value is not False)


def _read_dims(value: Any) -> Any:
    if value == {"symbol": ":"}:
        return None
    # Julia's dimension d, from 1, is axis -d here, whatever the number of axes.
    return tuple(-d for d in value["list"]) if isinstance(value, dict) else -value


def _write_dims(dims: Any) -> str:
    if dims is None:
        return ":"
    axes = dims if isinstance(dims, tuple) else (dims,)
    if any(axis >= 0 for axis in axes):
        raise NoTwin(f"dims={dims}, counted from the first axis (write them as negative numbers)")
    return julia_tuple(-axis for axis in axes) if isinstance(dims, tuple) else str(-dims)


# --- layers ----------------------------------------------------------------------------------

Shapes = Mapping[str, tuple[int, ...]]


@dataclasses.dataclass(frozen=True)
class Twin:
    """One layer.

    Attributes:
        layer: our class, with Flux's name.
        source: Julia source; `{name}` is a setting or an array.
        settings: our keyword arguments.
        params: our parameters by name, with their paths in Flux's tree.
        state: the same for state.
        sizes: our positional arguments, from the arrays' shapes and the keyword arguments.
        absent: what Flux has in place of an array that is not there.
        values: the values of `settings` that a layer has, in full.
        extra: more names for `source`, from those that there are.
        complete: writes out what Flux's fields leave open.
    """

    layer: type
    source: str
    settings: Mapping[str, Setting] = dataclasses.field(default_factory=dict)
    params: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    state: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    sizes: Callable[[Shapes, Mapping[str, Any]], tuple[Any, ...]] = lambda shapes, settings: ()
    absent: str = "nothing"
    values: Callable[[Any], Mapping[str, Any]] = lambda layer: {}
    extra: Callable[[Mapping[str, str]], Mapping[str, str]] = lambda texts: {}
    complete: Callable[[Mapping[str, Any]], Mapping[str, Any]] = lambda fields: fields


def window_values(layer: Any) -> dict[str, Any]:
    """Return a convolution's or pool's options with one number for each axis (and side)."""
    kernel = layer.window if hasattr(layer, "window") else layer.kernel
    stride = kernel if layer.stride is None else layer.stride
    dilation = getattr(layer, "dilation", 1)
    transposed = isinstance(layer, ConvTranspose)
    window = Window.of(kernel, stride, dilation, layer.pad, transposed=transposed)
    outpad = getattr(layer, "outpad", 0)
    return {
        "stride": window.stride,
        "dilation": window.dilation,
        "pad": tuple(n for pair in window.pad for n in pair),
        "outpad": outpad if isinstance(outpad, tuple) else (outpad,) * len(kernel),
    }


def both_sides(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Write padding as (before, after) for each axis; Flux may have one number for both."""
    pad = fields["pad"]["list"]
    if len(pad) == len(fields["stride"]["list"]):
        pad = [n for n in pad for _ in range(2)]
    return {**fields, "pad": {"list": pad}}


WEIGHT = {"weight": ("weight",), "bias": ("bias",)}
CONVOLUTION = {
    "activation": function_setting("σ"),
    "stride": reversed_setting("stride"),
    "pad": _pad("pad"),
    "dilation": reversed_setting("dilation"),
    "groups": Setting("groups"),
    "bias": present("bias"),
}
_POOL = {"window": reversed_setting("k"), "pad": _pad("pad"), "stride": reversed_setting("stride")}
_GROUPED = {
    "channels": Setting("chs"),
    "activation": function_setting("λ"),
    "affine": Setting("affine"),
    "eps": Setting("ϵ"),
}
_TRACKED = {
    **_GROUPED,
    "track_stats": Setting("track_stats"),
    "momentum": Setting("momentum"),
}
_AFFINE = {"scale": ("γ",), "bias": ("β",)}
_STATISTICS = {"mean": ("μ",), "var": ("σ²",)}
_TRACKED_SOURCE = (
    "({activation}, {bias}, {scale}, {mean}, {var}, promote({eps}, {momentum})..., {affine}, "
    "{track_stats}, nothing, {channels})"
)

TWINS = {
    twin.layer.__name__: twin
    for twin in (
        Twin(
            Dense,
            "Dense({weight}, {bias}, {activation})",
            {"activation": function_setting("σ"), "bias": present("bias")},
            WEIGHT,
            sizes=lambda shapes, _: shapes["weight"],
            absent="false",
        ),
        Twin(
            Conv,
            "Conv({activation}, {weight}, {bias}, {stride}, {pad}, {dilation}, {groups})",
            CONVOLUTION,
            WEIGHT,
            sizes=lambda shapes, settings: (
                shapes["weight"][2:],
                shapes["weight"][1] * settings["groups"],
                shapes["weight"][0],
            ),
            absent="false",
            values=window_values,
            complete=both_sides,
        ),
        Twin(
            ConvTranspose,
            "ConvTranspose({activation}, {weight}, {bias}, {stride}, {pad}, {outpad}, {dilation}, "
            "{groups})",
            {**CONVOLUTION, "outpad": reversed_setting("outpad")},
            WEIGHT,
            sizes=lambda shapes, settings: (
                shapes["weight"][2:],
                shapes["weight"][0],
                shapes["weight"][1] * settings["groups"],
            ),
            absent="false",
            values=window_values,
            complete=both_sides,
        ),
        Twin(
            MaxPool,
            "MaxPool({window}, {pad}, {stride})",
            _POOL,
            values=window_values,
            complete=both_sides,
        ),
        Twin(
            MeanPool,
            "MeanPool({window}, {pad}, {stride})",
            _POOL,
            values=window_values,
            complete=both_sides,
        ),
        Twin(GlobalMeanPool, "GlobalMeanPool()"),
        Twin(
            Embedding,
            "Embedding({weight})",
            params={"weight": ("weight",)},
            sizes=lambda shapes, _: shapes["weight"],
        ),
        Twin(
            Dropout,
            "Dropout({p}, {dims}, nothing)",
            {"p": Setting("p"), "dims": Setting("dims", _read_dims, _write_dims)},
        ),
        Twin(AlphaDropout, "AlphaDropout({p}, nothing)", {"p": Setting("p")}),
        Twin(BatchNorm, "BatchNorm" + _TRACKED_SOURCE, _TRACKED, _AFFINE, _STATISTICS),
        Twin(InstanceNorm, "InstanceNorm" + _TRACKED_SOURCE, _TRACKED, _AFFINE, _STATISTICS),
        Twin(
            GroupNorm,
            "GroupNorm({groups}, {activation}, {bias}, {scale}, nothing, nothing, "
            "promote({eps}, 0.1f0)..., {affine}, false, nothing, {channels})",
            {**_GROUPED, "groups": Setting("G")},
            _AFFINE,
        ),
        Twin(
            LayerNorm,
            "LayerNorm({activation}, {diag}, {eps}, {size}, {affine})",
            {
                "size": reversed_setting("size"),
                "activation": function_setting("λ"),
                "affine": Setting("affine"),
                # Flux 0.16 adds eps^2 to the variance, against its documentation.
                "eps": Setting("ϵ", lambda eps: eps**2, lambda eps: julia_number(math.sqrt(eps))),
            },
            {"scale": ("diag", "scale"), "bias": ("diag", "bias")},
            values=lambda layer: {"size": layer.shape},
            extra=lambda texts: {"diag": _diagonal(**texts)},
        ),
    )
}


def _diagonal(*, affine: str, scale: str, bias: str, activation: str, **_: str) -> str:
    """Write what Flux's LayerNorm does after normalising."""
    if affine == "true":
        return f"Flux.Scale({scale}, {bias}, {activation})"
    return "identity" if activation == "identity" else f"Base.Fix1(broadcast, {activation})"
