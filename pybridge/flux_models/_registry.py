"""Layers that are not Flux's own: how users say which struct is which layer."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from .._errors import ArgumentTypeError, explain
from ..nn import Layer
from ._written import Written, zeros


@dataclasses.dataclass(frozen=True)
class Registered:
    """A struct of Julia and a layer that are twins.

    Attributes:
        type_name: of the struct.
        from_: see `register_flux`.
        to: the same.
        layer: the class of the layer.
    """

    type_name: str
    from_: Callable[..., Any]
    to: Callable[..., Any] | None
    layer: type[Layer] | None


_BY_STRUCT: dict[str, Registered] = {}


def register_flux(
    type_name: str,
    from_: Callable[..., Any],
    to: Callable[..., Any] | None = None,
    *,
    layer: type[Layer] | None = None,
) -> None:
    """Tell `from_flux` and `to_flux` which layer is the twin of a struct of one's own.

    The struct has `Flux.@layer` in Julia. A second call with the same name replaces the first.

    Args:
        type_name: the struct's name, without its module.
        from_: called as `from_(fields, params, state, read)`, returns `(layer, params, state)`.
            `fields` has the struct's fields by name, numbers as they are; `params` and `state`
            are its arrays by the names of fields; `read(name)` returns the
            `(layer, params, state)` of a field that is a layer or a function.
        to: called as `to(layer, params, state, write)`, returns Julia source that makes the
            struct. `write(name, layer, params, state)` returns the source of a field that is a
            layer or a function, `write(name, array)` that of a field that is an array.
        layer: the class of the layers that `to` takes; with `to`.

    Raises:
        ArgumentTypeError: `from_` or `to` is no function, `layer` no class of layers, or only
            one of the two is given.

    Example:
        >>> import pybridge as pb
        >>> def from_residual(fields, params, state, read):
        ...     inner, inner_params, inner_state = read("inner")
        ...     return pb.nn.SkipConnection(inner, pb.nn.plus), inner_params, inner_state
        >>> pb.nn.register_flux("Residual", from_residual)
    """
    paired = (to is None) == (layer is None)
    known = layer is None or (isinstance(layer, type) and issubclass(layer, Layer))
    if not callable(from_) or not (to is None or callable(to)) or not paired or not known:
        raise ArgumentTypeError(
            explain(
                "register_flux",
                expected="a function `from_`, and both or neither of a function `to` and a class "
                "of layers `layer`",
                got=f"from_={from_!r}, to={to!r}, layer={layer!r}",
                fix="For example `register_flux('Residual', read, write, layer=Residual)`.",
            )
        )
    _BY_STRUCT[type_name] = Registered(type_name, from_, to, layer)


def registered_struct(type_name: Any) -> Registered | None:
    """Return the entry of a struct."""
    return _BY_STRUCT.get(type_name)


def registered_layer(kind: type) -> Registered | None:
    """Return the entry of a class of layers."""
    return next((entry for entry in _BY_STRUCT.values() if entry.layer is kind), None)


def unknown(node: Any) -> str:
    """Say what has no twin, and of a struct of one's own what to write."""
    name = node.get("type")
    if node.get("from") == "Flux" or not node.get("layer"):
        return f"the layer {name}"
    return f"the struct {name} (name its twin: nn.register_flux({name!r}, from_, to, layer=...))"


def read_registered(
    entry: Registered, read: Any, fields: Any, params: Any, state: Any, path: str
) -> Any:
    """Read a struct of one's own; `read` is that of _from_flux.py."""

    def field(name: str) -> Any:
        inner = params.get(name, {}), state.get(name, {})
        return read(fields[name], *inner, f"{path}.{name}")

    return entry.from_(fields, params, state, field)


def write_registered(
    entry: Registered, write: Any, layer: Any, params: Any, state: Any, path: str
) -> Written:
    """Write a struct of one's own; `write` is that of _from_flux.py."""
    trees: tuple[dict[str, Any], dict[str, Any]] = ({}, {})

    def field(name: str, value: Any, *arrays: Any) -> str:
        if not arrays and hasattr(value, "dtype"):
            trees[0][name] = value
            return zeros(value)
        inner = write(value, *(arrays or ({}, {})), f"{path}.{name}")
        for tree, below in zip(trees, (inner.params, inner.state), strict=True):
            if below:
                tree[name] = below
        return inner.source

    assert entry.to is not None  # it has a class of layers, and so a function that writes them
    return Written(entry.to(layer, params, state, field), *trees)
