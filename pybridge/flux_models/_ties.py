"""Arrays that stand in several places of a Flux model: found when it is read and written."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax

from ..nn import Layer, Tied
from ..nn.internals import Path, at, placed, without
from ._layer_twins import NoTwin
from ._written import Shared, Written, zeros


@dataclasses.dataclass(frozen=True, eq=False)
class Place:
    """A place of an array in a layer's parameters or state, by the number of the array.

    Attributes:
        number: of the array in the Flux model.
        shape: of the array.
        array: the array, None where it stands in another place as well, and there before.
    """

    number: tuple[str, int]
    shape: tuple[int, ...]
    array: Any


def settle_places(layer: Any, params: Any, state: Any) -> tuple[Any, Any, Any]:
    """Put arrays into their places, and tie those that lack one to where it stands.

    Raises:
        NoTwin: an array that lacks one is no parameter.
    """
    found = {leaf.number: path for path, leaf in _places(params) if leaf.array is not None}
    ties = []
    for path, leaf in _places(params):
        if leaf.array is None:
            if leaf.number not in found:
                raise NoTwin("an array that stands among parameters and in state, too,")
            ties.append((path, found[leaf.number]))
    if any(leaf.array is None for _, leaf in _places(state)):
        raise NoTwin("an array of the state that stands in another place, too,")
    params, state = (
        jax.tree.map(lambda leaf: leaf.array if isinstance(leaf, Place) else leaf, tree)
        for tree in (without(params, [path for path, _ in ties]), state)
    )
    return (Tied(layer, tuple(ties)) if ties else layer), params, state


def _places(tree: Any) -> list[tuple[Path, Place]]:
    leaves = jax.tree.leaves_with_path(tree)
    return [
        (tuple(getattr(step, "key", getattr(step, "idx", None)) for step in path), leaf)
        for path, leaf in leaves
        if isinstance(leaf, Place)
    ]


def share(layer: Layer, params: Any) -> tuple[Any, list[Shared]]:
    """Return the parameters of a tied layer's inside, and what is shared in them."""
    assert isinstance(layer, Tied)
    sources = list(dict.fromkeys(source for _, source in layer.ties))
    shared = {source: Shared(f"shared{i}", at(params, source)) for i, source in enumerate(sources)}
    for source, one in shared.items():
        params = placed(params, source, one)
    for place, source in layer.ties:
        params = placed(params, place, shared[source])
    return params, list(shared.values())


def first_only(tree: Any, seen: set[Shared], name: str = "") -> Any:
    """Return Flux's tree of arrays with what is shared in its first place alone."""
    if isinstance(tree, Shared):
        if tree in seen:
            return {}
        seen.add(tree)
        return tree.array
    if isinstance(tree, tuple):
        children = tuple(first_only(child, seen) for child in tree)
        return children if any(_holds(child) for child in children) else {}
    if isinstance(tree, dict):
        items = {key: first_only(value, seen, key) for key, value in tree.items()}
        if name == "layers" and any(map(_holds, items.values())):
            return items  # layers with names: each has its place
        return {key: value for key, value in items.items() if _holds(value)}
    return tree


def _holds(tree: Any) -> bool:
    return bool(jax.tree.leaves(tree))


def write_tied(write: Any, layer: Tied, params: Any, state: Any, path: str) -> Written:
    """Write a layer with shared arrays; `write` is that of _from_flux.py."""
    params, shared = share(layer, params)
    inner = write(layer.layer, params, state, path)
    names = ", ".join(f"{one.name} = {zeros(one.array)}" for one in shared)
    source = f"let {names}\n{inner.source}\nend"
    return Written(source, first_only(inner.params, set()), inner.state)
