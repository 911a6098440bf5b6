"""Layers made of layers: one after the other, around, and side by side."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp

from .._errors import ArgumentTypeError, ArgumentValueError, explain
from ._layer import Layer, check_key, shown
from ._mode import Mode
from ._options import settle

Child = Layer | Callable[[Any], Any]


@dataclasses.dataclass(frozen=True, init=False, repr=False)
class Chain(Layer):
    """Apply layers one after the other.

    Args:
        *layers: layers, or plain functions of one array.
        **named: the same with names; a chain has either names for all or for none.

    Params and state:
        tuples of the children's; with names, dicts. Child i gets the key
        `jax.random.fold_in(key, i)`.

    Options of `apply`, such as `mask=`, go to every child that takes them, as they are.

    A chain has a length, can be iterated, and indexed by number, slice and name.

    Raises:
        ArgumentTypeError: a child is neither a layer nor a function.
        ArgumentValueError: some children have names and others have not.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> import pybridge as pb
        >>> model = pb.nn.Chain(pb.nn.Dense(2, 3, jnp.tanh), pb.nn.BatchNorm(3), jnp.sum)
        >>> model
        Chain(Dense(2, 3, activation=tanh), BatchNorm(3), sum)
        >>> params, state = model.init(jax.random.key(0))
        >>> y, state = model.apply(params, state, jnp.ones((4, 2)))
        >>> y.shape, state[1]["mean"].shape
        ((), (3,))

    The twin in Julia is `PyBridge.Chain`.
    """

    layers: tuple[Child, ...]
    names: tuple[str, ...] | None = None

    def __init__(self, *layers: Child, **named: Child) -> None:
        """Take children with names or without."""
        if layers and named:
            raise ArgumentValueError(
                explain(
                    "Chain",
                    expected="layers that all have a name, or none of them",
                    got=f"{len(layers)} without and {len(named)} with a name",
                    fix="Give every layer a name, `Chain(first=..., second=...)`, or none.",
                )
            )
        children = _children("Chain", layers or tuple(named.values()))
        settle(self, layers=children, names=tuple(named) or None)

    def init(self, key: Any, dtype: Any = jnp.float32) -> tuple[Any, Any]:
        """Initialise every child."""
        params, state = _init(self.layers, key, dtype)
        return self._packed(params), self._packed(state)

    def forward(
        self, params: Any, state: Any, x: Any, *, key: Any, mode: Mode, **options: Any
    ) -> tuple[Any, Any]:
        """Apply every child to the output of the one before it."""
        states = []
        for i, (layer, p, s) in enumerate(
            zip(self.layers, self._unpacked(params), self._unpacked(state), strict=True)
        ):
            x, s = _forward(layer, p, s, x, _child_key(key, i), mode, options)
            states.append(s)
        return x, self._packed(tuple(states))

    def accepts(self, option: str) -> bool:
        """Tell whether a child takes an option."""
        return _any_accepts(self.layers, option)

    def _packed(self, values: tuple[Any, ...]) -> Any:
        return dict(zip(self.names, values, strict=True)) if self.names else values

    def _unpacked(self, values: Any) -> tuple[Any, ...]:
        return tuple(values[name] for name in self.names) if self.names else tuple(values)

    def __len__(self) -> int:
        """Return the number of children."""
        return len(self.layers)

    def __iter__(self) -> Iterator[Child]:
        """Iterate over the children."""
        return iter(self.layers)

    def __getitem__(self, index: Any) -> Any:
        """Return a child by number or name, or a chain of some by slice."""
        if isinstance(index, str):
            return dict(zip(self.names or (), self.layers, strict=False))[index]
        if not isinstance(index, slice):
            return self.layers[index]
        if self.names:
            return Chain(**dict(zip(self.names[index], self.layers[index], strict=True)))
        return Chain(*self.layers[index])

    def __repr__(self) -> str:
        """Return the call that makes the chain."""
        names = [f"{name}=" for name in self.names] if self.names else [""] * len(self)
        parts = (name + shown(layer) for name, layer in zip(names, self.layers, strict=True))
        return f"Chain({', '.join(parts)})"


@dataclasses.dataclass(frozen=True, repr=False)
class SkipConnection(Layer):
    """Combine a layer's output with its input: `connection(layer(x), x)`.

    Options of `apply`, such as `mask=`, go to the layer.

    Args:
        layer: a layer, or a function of one array. It gets the key
            `jax.random.fold_in(key, 0)`.
        connection: a function of two arrays, for example `jnp.add`.

    Params and state:
        the layer's own.

    Raises:
        ArgumentTypeError: `layer` is neither a layer nor a function, or `connection` is
            no function.

    Example:
        >>> import jax.numpy as jnp
        >>> import pybridge as pb
        >>> layer = pb.nn.SkipConnection(jnp.sin, jnp.add)
        >>> float(layer.apply({}, {}, jnp.array(0.0))[0])
        0.0

    The twin in Julia is `PyBridge.SkipConnection`.
    """

    layer: Child
    connection: Callable[[Any, Any], Any]

    def __post_init__(self) -> None:
        """Check the configuration."""
        _children("SkipConnection", (self.layer, self.connection))

    def init(self, key: Any, dtype: Any = jnp.float32) -> tuple[Any, Any]:
        """Initialise the layer."""
        (params,), (state,) = _init((self.layer,), key, dtype)
        return params, state

    def forward(
        self, params: Any, state: Any, x: Any, *, key: Any, mode: Mode, **options: Any
    ) -> tuple[Any, Any]:
        """Apply the layer, then the connection."""
        y, state = _forward(self.layer, params, state, x, _child_key(key, 0), mode, options)
        return self.connection(y, x), state

    def accepts(self, option: str) -> bool:
        """Tell whether the layer takes an option."""
        return _any_accepts((self.layer,), option)


@dataclasses.dataclass(frozen=True, init=False, repr=False)
class Parallel(Layer):
    """Apply layers side by side and combine their outputs.

    `connection(layer1(x), layer2(x), ...)`; with a tuple for an input, layer i gets its
    element i. So it is with options such as `mask=`: those that take it get it, and with a
    tuple for an input a tuple of options is one for each layer.

    Args:
        connection: a function of as many arrays as there are layers.
        *layers: layers, or functions of one array. Layer i gets the key
            `jax.random.fold_in(key, i)`.

    Params and state:
        tuples of the layers'.

    Raises:
        ArgumentTypeError: a layer is neither a layer nor a function.
        ArgumentValueError: the input is a tuple of another length.

    Example:
        >>> import jax.numpy as jnp
        >>> import pybridge as pb
        >>> layer = pb.nn.Parallel(jnp.add, jnp.sin, jnp.cos)
        >>> float(layer.apply(*layer.init(None), jnp.array(0.0))[0])
        1.0
        >>> float(layer.apply(*layer.init(None), (jnp.array(0.0), jnp.array(0.0)))[0])
        1.0

    The twin in Julia is `PyBridge.Parallel`.
    """

    connection: Callable[..., Any]
    layers: tuple[Child, ...]

    def __init__(self, connection: Callable[..., Any], *layers: Child) -> None:
        """Take the connection first, as Flux does."""
        _children("Parallel", (connection,))
        settle(self, connection=connection, layers=_children("Parallel", layers))

    def init(self, key: Any, dtype: Any = jnp.float32) -> tuple[Any, Any]:
        """Initialise every layer."""
        return _init(self.layers, key, dtype)

    def forward(
        self, params: Any, state: Any, x: Any, *, key: Any, mode: Mode, **options: Any
    ) -> tuple[Any, Any]:
        """Apply every layer, then the connection."""
        count = len(self.layers)
        inputs = x if isinstance(x, tuple) else (x,) * count
        if len(inputs) != count:
            raise ArgumentValueError(
                explain(
                    "Parallel.apply",
                    expected=f"one array, or a tuple of {count}, one for each layer",
                    got=f"a tuple of {len(inputs)}",
                    fix="Pass an input for every layer.",
                )
            )
        outs, states = [], []
        for i, (layer, p, s, value) in enumerate(
            zip(self.layers, params, state, inputs, strict=True)
        ):
            own = {
                name: option[i] if isinstance(option, tuple) and inputs is x else option
                for name, option in options.items()
            }
            y, s = _forward(layer, p, s, value, _child_key(key, i), mode, own)
            outs.append(y)
            states.append(s)
        return self.connection(*outs), tuple(states)

    def accepts(self, option: str) -> bool:
        """Tell whether a child takes an option."""
        return _any_accepts(self.layers, option)

    def __repr__(self) -> str:
        """Return the call that makes the layer."""
        return f"Parallel({', '.join(map(shown, (self.connection, *self.layers)))})"


def _children(where: str, children: tuple[Any, ...]) -> tuple[Child, ...]:
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


def _child_key(key: Any, number: int) -> Any:
    if key is None:
        return None
    check_key("Layer.init", key)  # `apply` has checked its own
    return jax.random.fold_in(key, number)


def _init(children: tuple[Child, ...], key: Any, dtype: Any) -> tuple[Any, Any]:
    """Return the tuples of the children's parameters and states."""
    pairs = [
        child.init(_child_key(key, i), dtype) if isinstance(child, Layer) else ({}, {})
        for i, child in enumerate(children)
    ]
    return tuple(params for params, _ in pairs), tuple(state for _, state in pairs)


def _forward(
    child: Child, params: Any, state: Any, x: Any, key: Any, mode: Mode, options: dict[str, Any]
) -> Any:
    if isinstance(child, Layer):
        own = {name: value for name, value in options.items() if child.accepts(name)}
        return child.forward(params, state, x, key=key, mode=mode, **own)
    return child(x), state


def _any_accepts(children: tuple[Child, ...], option: str) -> bool:
    return any(isinstance(child, Layer) and child.accepts(option) for child in children)
