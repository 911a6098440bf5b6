"""What layers made of layers share: their children, with names or without."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import jax.numpy as jnp

from .._errors import ArgumentTypeError, ArgumentValueError, explain
from ._layer import Layer, child_key, shown
from ._mode import Mode
from ._options import settle

Child = Layer | Callable[[Any], Any]


@dataclasses.dataclass(frozen=True, init=False, repr=False)
class Container(Layer):
    """The base of layers that have a number of children.

    Params and state are tuples of the children's; with names, dicts. Child i gets the key
    `jax.random.fold_in(key, i)`. A container has a length, can be iterated, and indexed by number
    and name.
    """

    layers: tuple[Child, ...]
    names: tuple[str, ...] | None = None

    def _adopt(self, layers: tuple[Child, ...], named: Mapping[str, Child]) -> None:
        """Take children with names or without.

        Raises:
            ArgumentTypeError: a child is neither a layer nor a function.
            ArgumentValueError: some have names and others have not.
        """
        where = type(self).__name__
        if layers and named:
            raise ArgumentValueError(
                explain(
                    where,
                    expected="layers that all have a name, or none of them",
                    got=f"{len(layers)} without and {len(named)} with a name",
                    fix=f"Give every layer a name, `{where}(first=..., second=...)`, or none.",
                )
            )
        children = check_children(where, layers or tuple(named.values()))
        settle(self, layers=children, names=tuple(named) or None)

    def init(self, key: Any, dtype: Any = jnp.float32) -> tuple[Any, Any]:
        """Initialise every child."""
        params, state = init_children(self.layers, key, dtype)
        return self._packed(params), self._packed(state)

    def accepts(self, option: str) -> bool:
        """Tell whether a child takes an option."""
        return any_accepts(self.layers, option)

    def _packed(self, values: tuple[Any, ...]) -> Any:
        return dict(zip(self.names, values, strict=True)) if self.names else values

    def _unpacked(self, values: Any) -> tuple[Any, ...]:
        return tuple(values[name] for name in self.names) if self.names else tuple(values)

    def _inputs(self, x: Any) -> tuple[Any, ...]:
        """Return an input for each child: the elements of a tuple, or the same for all.

        Raises:
            ArgumentValueError: the tuple has another length.
        """
        count = len(self.layers)
        if not isinstance(x, tuple):
            return (x,) * count
        if len(x) != count:
            raise ArgumentValueError(
                explain(
                    f"{type(self).__name__}.apply",
                    expected=f"one array, or a tuple of {count}, one for each layer",
                    got=f"a tuple of {len(x)}",
                    fix="Pass an input for every layer.",
                )
            )
        return x

    def __len__(self) -> int:
        """Return the number of children."""
        return len(self.layers)

    def __iter__(self) -> Iterator[Child]:
        """Iterate over the children."""
        return iter(self.layers)

    def __getitem__(self, index: Any) -> Any:
        """Return a child by number or name."""
        if isinstance(index, str):
            return dict(zip(self.names or (), self.layers, strict=False))[index]
        return self.layers[index]

    def __repr__(self) -> str:
        """Return the call that makes the container."""
        names = [f"{name}=" for name in self.names] if self.names else [""] * len(self)
        parts = [name + shown(layer) for name, layer in zip(names, self.layers, strict=True)]
        return f"{type(self).__name__}({', '.join(self._shown_first() + parts)})"

    def _shown_first(self) -> list[str]:
        """Return what stands before the children in the call that makes the container."""
        return []


@dataclasses.dataclass(frozen=True, init=False, repr=False)
class Connected(Container):
    """The base of containers that combine arrays with a function, their first argument."""

    connection: Callable[..., Any] = dataclasses.field(kw_only=True)

    def __init__(self, connection: Callable[..., Any], /, *layers: Child, **named: Child) -> None:
        """Take the connection first, as Flux does."""
        check_children(type(self).__name__, (connection,))
        check_any(type(self).__name__, layers or named)
        settle(self, connection=connection)
        self._adopt(layers, named)

    def _shown_first(self) -> list[str]:
        return [shown(self.connection)]


def check_children(where: str, children: tuple[Any, ...]) -> tuple[Child, ...]:
    """Return children that are layers or functions.

    Raises:
        ArgumentTypeError: one is neither.
    """
    for child in children:
        if not (isinstance(child, Layer) or callable(child)):
            raise ArgumentTypeError(
                explain(
                    where,
                    expected="layers and functions",
                    got=f"a {type(child).__name__}",
                    fix="Pass the layers one by one, not as a list.",
                )
            )
    return children


def check_any(where: str, layers: Collection[Any]) -> None:
    """Check that there is a layer.

    Raises:
        ArgumentValueError: there is none.
    """
    if not layers:
        raise ArgumentValueError(
            explain(
                where,
                expected="at least one layer",
                got="none",
                fix="Pass layers, or functions of one array.",
            )
        )


def init_children(children: tuple[Child, ...], key: Any, dtype: Any) -> tuple[Any, Any]:
    """Return the tuples of the children's parameters and states."""
    pairs = [
        child.init(child_key(key, i), dtype) if isinstance(child, Layer) else ({}, {})
        for i, child in enumerate(children)
    ]
    return tuple(params for params, _ in pairs), tuple(state for _, state in pairs)


def apply_child(
    child: Child, params: Any, state: Any, x: Any, key: Any, mode: Mode, options: dict[str, Any]
) -> Any:
    """Return a child's output and next state; it gets those of the options that it takes."""
    if isinstance(child, Layer):
        own = {name: value for name, value in options.items() if child.accepts(name)}
        return child.forward(params, state, x, key=key, mode=mode, **own)
    return child(x), state


def any_accepts(children: tuple[Child, ...], option: str) -> bool:
    """Tell whether one of the children takes an option."""
    return any(isinstance(child, Layer) and child.accepts(option) for child in children)
