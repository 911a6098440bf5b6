"""Flux models as layers of `pybridge.nn`, and back."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from .._errors import ArgumentTypeError, explain
from ..nn import (
    Chain,
    Layer,
    Maxout,
    MultiHeadAttention,
    PairwiseFusion,
    Parallel,
    Recurrence,
    SkipConnection,
    Tied,
    WeightNorm,
)
from ..nn.internals import check_trees
from ._flux_model import FluxModel, flux
from ._layer_twins import TWINS as FIRST_TWINS
from ._layer_twins import NoTwin, Twin, read_function, write_function
from ._registry import (
    read_registered,
    registered_layer,
    registered_struct,
    unknown,
    write_registered,
)
from ._sequence_twins import (
    RECURRENT,
    SEQUENCE_TWINS,
    read_attention,
    read_recurrence,
    write_attention,
    write_recurrence,
)
from ._ties import Place, settle_places, write_tied
from ._written import Written, zeros

TWINS = FIRST_TWINS | SEQUENCE_TWINS


def from_flux(
    model: Any, params: Any = None, state: Any = None
) -> tuple[Layer | Callable[..., Any], Any, Any]:
    """Build the layer of `pybridge.nn` that is the twin of a Flux model.

    The result needs no Julia. It has the model's weights, bit for bit, and gives Flux's numbers
    up to rounding; dropout draws the masks that `flux(model)` draws from the same key.

    Args:
        model: what `pybridge.flux` takes or returns: Julia source, a juliacall value, or a
            `FluxModel`.
        params: of a `FluxModel`, as training from JAX has left them; by default those that the
            model has now.
        state: the same.

    Returns:
        `(layer, params, state)`. Containers with names keep them. An array that stands in
        several places is one parameter of a layer `Tied`. An `Embedding` counts from 0 here,
        from 1 in Flux. `LayerNorm` has the square of Flux's `eps`: Flux 0.16 adds that square
        to the variance.

    Raises:
        ArgumentTypeError: a layer or function has no twin, or a layer is held in a mode; the
            message has the path. Of a struct of one's own it says how `register_flux` names
            its twin. Otherwise as for `flux`.

    Example:
        >>> import jax.numpy as jnp
        >>> import pybridge as pb
        >>> layer, params, state = pb.nn.from_flux("Chain(Dense(2 => 3, relu), Dense(3 => 1))")
        >>> layer
        Chain(Dense(2, 3, activation=relu), Dense(3, 1))
        >>> layer.apply(params, state, jnp.ones((5, 2)))[0].shape
        (5, 1)

    The way back is `to_flux`.
    """
    known = model if isinstance(model, FluxModel) else flux(model)
    now = known.init()
    params, state = (now[0] if params is None else params), (now[1] if state is None else state)
    known.check(params, state)
    layer, params, state = _read(known.structure, params, state, "model")
    try:
        return settle_places(layer, params, state)
    except NoTwin as error:
        raise _no_twin("from_flux", str(error), "model") from None


def to_flux(layer: Layer, params: Any, state: Any) -> Any:
    """Build the Flux model that is the twin of a layer of `pybridge.nn`.

    Args:
        layer: a layer.
        params: its parameters; the Flux model has them bit for bit.
        state: its state.

    Returns:
        A juliacall value. Make it trainable from JAX with `pybridge.flux`.

    Raises:
        ArgumentTypeError: a layer or function has no twin, with its path; or `params` and `state`
            are not those of `layer`.
        ArgumentValueError: a shape does not fit.
        JuliaUnavailableError: Julia cannot be started.
        BackendNotLoadedError: Flux cannot be installed or loaded.

    Example:
        >>> import jax
        >>> import pybridge as pb
        >>> layer = pb.nn.Chain(pb.nn.Dense(2, 3, pb.nn.relu), pb.nn.BatchNorm(3))
        >>> pb.nn.to_flux(layer, *layer.init(jax.random.key(0)))
        Julia:
        Chain(
          Dense(2 => 3, relu),                  # 9 parameters
          BatchNorm(3),                         # 6 parameters, plus 6
        )         # Total: 4 trainable arrays, 15 parameters,
                  # plus 2 non-trainable, 6 parameters, summarysize ... bytes.

    The way back is `from_flux`.
    """
    check_trees(layer, params, state)
    written = _write(layer, params, state, "layer")
    model: FluxModel = flux(written.source)
    model.load(written.params, written.state)
    return model.model


def _no_twin(where: str, what: str, path: str) -> ArgumentTypeError:
    there = {"from_flux": "pybridge.nn", "to_flux": "Flux"}[where]
    return ArgumentTypeError(
        explain(
            where,
            expected=f"layers and functions that have a twin in {there}",
            got=f"{what} at {path}",
            fix="pb.flux(model) calls Flux itself, whatever the layers."
            if where == "from_flux"
            else "Those of pb.nn, but for options that Flux lacks, have one.",
        )
    )


# --- from Flux -------------------------------------------------------------------------------


def _read(node: Any, params: Any, state: Any, path: str) -> tuple[Any, Any, Any]:
    """Build a layer, or a function, from the outline and the arrays of a Flux layer."""
    try:
        if not isinstance(node, dict):
            raise NoTwin(f"the value {node!r}")
        if "call" in node:
            return read_function(node), {}, {}
        name, fields = node.get("type"), node.get("fields", {})
        fields = {**fields, "parameters": node.get("parameters", {"list": []})}
        if (entry := registered_struct(name)) and node.get("from") != "Flux":
            return read_registered(entry, _read, fields, params, state, path)
        if node.get("from") != "Flux" or name not in {*_READERS, *TWINS}:
            raise NoTwin(unknown(node))
        if name in _READERS:
            return _READERS[name](fields, params, state, path)
        return _read_leaf(TWINS[name], fields, params, state)
    except NoTwin as error:
        raise _no_twin("from_flux", str(error), path) from None


def _read_leaf(twin: Twin, fields: Any, params: Any, state: Any) -> tuple[Any, Any, Any]:
    if fields.get("active") is not None:
        raise NoTwin(f"{twin.layer.__name__} held in a mode, active={fields['active']},")
    found, kept = (
        {
            ours: _place(fields, path, tree)
            for ours, path in names.items()
            if _is_array(_at(fields, path[:1]))
        }
        for names, tree in ((twin.params, params), (twin.state, state))
    )
    fields = twin.complete(fields)
    settings = {ours: each.read(fields[each.field]) for ours, each in twin.settings.items()}
    shapes = {ours: array.shape for ours, array in found.items()}
    return twin.layer(*twin.sizes(shapes, settings), **settings), found, kept


def _at(tree: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        tree = tree.get(name) if isinstance(tree, dict) else None
    return tree


def _place(fields: Any, path: tuple[str, ...], tree: Any) -> Place:
    field = fields[path[0]]
    for name in path[1:]:
        field = field["fields"][name]
    if "array" not in field:
        raise NoTwin(f"{field.get('type')} for an array")
    return Place(tuple(field["array"]), tuple(field["shape"]), _at(tree, path))


def _is_array(field: Any) -> bool:
    """Tell whether a field is an array, or the layer that holds a LayerNorm's arrays."""
    return isinstance(field, dict) and ("array" in field or field.get("type") == "Scale")


def _read_children(field: Any, params: Any, state: Any, path: str) -> tuple[Any, ...]:
    """Read the children of a container: layers, params, state, each a tuple; and the names."""
    names = field.get("names") or range(len(field["list"]))
    children = [
        _read(child, _child(params, name), _child(state, name), f"{path}[{name!r}]")
        for name, child in zip(names, field["list"], strict=True)
    ]
    return *(zip(*children, strict=True) if children else ((), (), ())), field.get("names")


def _child(tree: Any, name: Any) -> Any:
    """Return a child's arrays: a container without any has an empty dict for a tree."""
    return tree[name] if tree else {}


def _below(field: str, params: Any, state: Any) -> tuple[Any, Any]:
    return params.get(field, {}), state.get(field, {})


def _read_chain(fields: Any, params: Any, state: Any, path: str) -> tuple[Any, Any, Any]:
    return _read_container(Chain, fields, params, state, path)


def _read_container(
    make: Callable[..., Any], fields: Any, params: Any, state: Any, path: str
) -> tuple[Any, Any, Any]:
    params, state = _below("layers", params, state)
    layers, params, state, names = _read_children(fields["layers"], params, state, f"{path}.layers")
    if names is None:
        return make(*layers), params, state
    named, params, state = (
        dict(zip(names, values, strict=True)) for values in (layers, params, state)
    )
    return make(**named), params, state


def _read_parallel(fields: Any, params: Any, state: Any, path: str) -> tuple[Any, Any, Any]:
    make = functools.partial(Parallel, _read_plain(fields["connection"], path))
    return _read_container(make, fields, params, state, path)


def _read_fusion(fields: Any, params: Any, state: Any, path: str) -> tuple[Any, Any, Any]:
    make = functools.partial(PairwiseFusion, _read_plain(fields["connection"], path))
    return _read_container(make, fields, params, state, path)


def _read_maxout(fields: Any, params: Any, state: Any, path: str) -> tuple[Any, Any, Any]:
    return _read_container(Maxout, fields, params, state, path)


def _read_skip(fields: Any, params: Any, state: Any, path: str) -> tuple[Any, Any, Any]:
    params, state = _below("layers", params, state)
    layer, params, state = _read(fields["layers"], params, state, f"{path}.layers")
    return SkipConnection(layer, _read_plain(fields["connection"], path)), params, state


def _read_plain(connection: Any, path: str) -> Any:
    return _read(connection, {}, {}, f"{path}.connection")[0]


def _read_weightnorm(fields: Any, params: Any, state: Any, path: str) -> tuple[Any, Any, Any]:
    inner, inner_state = _below("layer", params, state)
    layer, inner, state = _read(fields["layer"], inner, inner_state, f"{path}.layer")
    if "g" not in params:
        raise NoTwin("WeightNorm whose g is no array (dims = :)")
    names = {path[-1]: ours for ours, path in TWINS[type(layer).__name__].params.items()}
    dims, rank = fields["dims"], params["g"].ndim
    axis = tuple(rank - d for d in dims["list"]) if isinstance(dims, dict) else rank - dims
    which = names[fields["which"]["symbol"]]
    return WeightNorm(layer, which, axis=axis), {"layer": inner, "g": params["g"]}, state


_READERS = {
    "Chain": _read_chain,
    "Parallel": _read_parallel,
    "SkipConnection": _read_skip,
    "WeightNorm": _read_weightnorm,
    "PairwiseFusion": _read_fusion,
    "Maxout": _read_maxout,
    "MultiHeadAttention": functools.partial(read_attention, _read),
    **{name: functools.partial(read_recurrence, name, _read) for name in RECURRENT},
}


# --- to Flux ---------------------------------------------------------------------------------


def _write(layer: Any, params: Any, state: Any, path: str) -> Written:
    try:
        if not isinstance(layer, Layer):
            return Written(write_function(layer))
        for kind, write in _WRITERS.items():
            if isinstance(layer, kind):
                return write(layer, params, state, path)
        if entry := registered_layer(type(layer)):
            return write_registered(entry, _write, layer, params, state, path)
        twin = TWINS.get(type(layer).__name__)
        if twin is None or type(layer) is not twin.layer:
            raise NoTwin(f"the layer {type(layer).__name__}")
        return _write_leaf(twin, layer, params, state)
    except NoTwin as error:
        raise _no_twin("to_flux", str(error), path) from None


def _write_leaf(twin: Twin, layer: Any, params: Any, state: Any) -> Written:
    if getattr(layer, "axis_name", None) is not None:
        raise NoTwin(f"{twin.layer.__name__} with axis_name={layer.axis_name!r}")
    full = twin.values(layer)
    texts = {
        ours: each.write(full[ours] if ours in full else getattr(layer, ours))
        for ours, each in twin.settings.items()
    }
    trees = []
    for names, arrays in ((twin.params, params), (twin.state, state)):
        texts |= {ours: zeros(arrays[ours]) if ours in arrays else twin.absent for ours in names}
        tree: dict[str, Any] = {}
        for ours, array in arrays.items():
            *outer, last = names[ours]
            place = tree
            for name in outer:
                place = place.setdefault(name, {})
            place[last] = array
        trees.append(tree)
    return Written(twin.source.format(**texts, **twin.extra(texts)), *trees)


def _write_children(layers: Any, params: Any, state: Any, names: Any, path: str) -> Written:
    keys = names or range(len(layers))
    children = [
        _write(layer, params[key], state[key], f"{path}[{key!r}]")
        for key, layer in zip(keys, layers, strict=True)
    ]
    trees = []
    for name in ("params", "state"):
        trees_below = tuple(getattr(child, name) for child in children)
        some = any(bool(tree) for tree in trees_below)
        packed = dict(zip(names, trees_below, strict=True)) if names else trees_below
        trees.append(packed if some else {})
    sources = [child.source for child in children]
    if names:
        sources = [f'var"{key}" = {s}' for key, s in zip(names, sources, strict=True)]
    return Written(", ".join(sources), *trees)


def _write_chain(layer: Chain, params: Any, state: Any, path: str) -> Written:
    inner = _write_children(layer.layers, params, state, layer.names, path)
    return inner.below("layers", f"Chain({inner.source})")


def _write_parallel(
    layer: Parallel | PairwiseFusion, params: Any, state: Any, path: str
) -> Written:
    inner = _write_children(layer.layers, params, state, layer.names, path)
    connection = _write(layer.connection, {}, {}, f"{path}.connection").source
    comma = "; " if layer.names else ", "
    return inner.below("layers", f"{type(layer).__name__}({connection}{comma}{inner.source})")


def _write_maxout(layer: Maxout, params: Any, state: Any, path: str) -> Written:
    inner = _write_children(layer.layers, params, state, None, path)
    return inner.below("layers", f"Maxout({inner.source})")


def _write_skip(layer: SkipConnection, params: Any, state: Any, path: str) -> Written:
    inner = _write(layer.layer, params, state, f"{path}.layer")
    connection = _write(layer.connection, {}, {}, f"{path}.connection").source
    return inner.below("layers", f"SkipConnection({inner.source}, {connection})")


def _write_weightnorm(layer: WeightNorm, params: Any, state: Any, path: str) -> Written:
    inner = _write(layer.layer, params["layer"], state, f"{path}.layer")
    g = params["g"]
    which = TWINS[type(layer.layer).__name__].params[layer.which][-1]
    axes = range(g.ndim) if layer.axis is None else layer.axis
    axes = [axes] if isinstance(axes, int) else axes
    dims = [g.ndim - axis % g.ndim for axis in axes]
    text = str(dims[0]) if isinstance(layer.axis, int) else f"({', '.join(map(str, dims))},)"
    held = inner.below("layer", f"Flux.WeightNorm({inner.source}, {zeros(g)}, :{which}, {text})")
    return Written(held.source, {**held.params, "g": g}, held.state)


_WRITERS: dict[type, Callable[..., Written]] = {
    Chain: _write_chain,
    Parallel: _write_parallel,
    SkipConnection: _write_skip,
    WeightNorm: _write_weightnorm,
    PairwiseFusion: _write_parallel,
    Maxout: _write_maxout,
    Tied: functools.partial(write_tied, _write),
    MultiHeadAttention: functools.partial(write_attention, _write),
    Recurrence: functools.partial(write_recurrence, _write),
}
