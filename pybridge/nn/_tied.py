"""Tied weights: one array that stands in several places of a layer."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from .._errors import ArgumentTypeError, ArgumentValueError, explain
from ._layer import Layer
from ._mode import Mode
from ._options import settle

Path = tuple[Any, ...]


@dataclasses.dataclass(frozen=True, repr=False)
class Tied(Layer):
    """Use one parameter in several places of a layer; its gradient is the sum of theirs.

    Args:
        layer: any layer.
        ties: pairs of paths into its parameters, `(place, source)`: what stands at `source`
            stands at `place`, too. A path is a tuple of numbers and names.

    Params and state:
        those of the layer, without the parameters at the places.

    Raises:
        ArgumentTypeError: `layer` is no layer.
        ArgumentValueError: a path does not lead to a parameter, or only to itself, or the two have
            other shapes.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> import pybridge as pb
        >>> chain = pb.nn.Chain(pb.nn.Dense(3, 3), jnp.tanh, pb.nn.Dense(3, 3))
        >>> layer = pb.nn.Tied(chain, (((2, "weight"), (0, "weight")),))
        >>> params, state = layer.init(jax.random.key(0))
        >>> jax.tree.map(jnp.shape, params)
        ({'bias': (3,), 'weight': (3, 3)}, {}, {'bias': (3,)})
        >>> layer.apply(params, state, jnp.ones((5, 3)))[0].shape
        (5, 3)

    `from_flux` makes it of a Flux model in which an array stands in two places.
    """

    layer: Layer
    ties: tuple[tuple[Path, Path], ...]

    def __post_init__(self) -> None:
        """Check the configuration; what is tied to a place has the source of that."""
        example = 'For example `Tied(chain, (((2, "weight"), (0, "weight")),))`.'
        if not isinstance(self.layer, Layer):
            got = f"a {type(self.layer).__name__}"
            raise ArgumentTypeError(explain("Tied", expected="a layer", got=got, fix=example))
        sources = {tuple(place): tuple(source) for place, source in self.ties}
        ties = []
        for place, source in sources.items():
            passed = {place}
            while source in sources and source not in passed:
                passed.add(source)
                source = sources[source]
            if source in passed:
                raise ArgumentValueError(
                    explain(
                        "Tied",
                        expected="ties that lead to a parameter of the layer's own",
                        got=f"{place} tied to itself",
                        fix=example,
                    )
                )
            ties.append((place, source))
        settle(self, ties=tuple(ties))

    def init(self, key: Any, dtype: Any = jnp.float32) -> tuple[Any, Any]:
        """Return the layer's parameters but for those that are tied, and its state."""
        params, state = self.layer.init(key, dtype)
        for place, source in self.ties:
            shapes = [_shape_at(params, path) for path in (place, source)]
            if shapes[0] != shapes[1]:
                raise ArgumentValueError(
                    explain(
                        "Tied",
                        expected="two parameters of one shape",
                        got=f"{shapes[0]} at {place}, and {shapes[1]} at {source}",
                        fix="A tie is (place, source), both paths into what `layer.init` gives.",
                    )
                )
        return without(params, [place for place, _ in self.ties]), state

    def forward(
        self, params: Any, state: Any, x: Any, *, key: Any, mode: Mode, **options: Any
    ) -> tuple[Any, Any]:
        """Apply the layer with its parameters in all their places."""
        return self.layer.forward(self.filled(params), state, x, key=key, mode=mode, **options)

    def accepts(self, option: str) -> bool:
        """Tell whether the layer takes an option."""
        return self.layer.accepts(option)

    def filled(self, params: Any) -> Any:
        """Return the parameters of the layer, with what is tied in all its places."""
        for place, source in self.ties:
            params = placed(params, place, at(params, source))
        return params


def at(tree: Any, path: Path) -> Any:
    """Return what stands at a path."""
    for name in path:
        tree = tree[name]
    return tree


def placed(tree: Any, path: Path, value: Any) -> Any:
    """Return a tree with `value` at a path; its last step is the name of a dict's item."""
    if not path:
        return value
    name, *rest = path
    if isinstance(tree, dict):
        return {**tree, name: placed(tree.get(name), tuple(rest), value)}
    children = list(tree)
    children[name] = placed(children[name], tuple(rest), value)
    return tuple(children)


def without(tree: Any, paths: list[Path], here: Path = ()) -> Any:
    """Return a tree without what stands at some paths."""
    if isinstance(tree, dict):
        return {
            name: without(value, paths, (*here, name))
            for name, value in tree.items()
            if (*here, name) not in paths
        }
    if isinstance(tree, tuple):
        return tuple(without(value, paths, (*here, i)) for i, value in enumerate(tree))
    return tree


def _shape_at(tree: Any, path: Path) -> tuple[int, ...]:
    try:
        found = at(tree, path)
    except (KeyError, IndexError, TypeError):
        found = None
    shape = getattr(found, "shape", None)
    if shape is None:
        raise ArgumentValueError(
            explain(
                "Tied",
                expected="paths that lead to parameters of the layer",
                got=f"{path} in {jax.tree.map(jnp.shape, tree)}",
                fix="A path is a tuple of numbers and names.",
            )
        )
    return shape
