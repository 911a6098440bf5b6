"""Layers made of layers: one after the other, around, and side by side."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import jax.numpy as jnp

from .._errors import ArgumentValueError, explain
from ._channel_axis import ChannelLayer
from ._children import (
    Child,
    Connected,
    Container,
    any_accepts,
    apply_child,
    check_children,
    init_children,
)
from ._conv import Convolution
from ._layer import Layer, child_key
from ._mode import Mode


@dataclasses.dataclass(frozen=True, init=False, repr=False)
class Chain(Container):
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

    def __init__(self, *layers: Child, **named: Child) -> None:
        """Take children with names or without."""
        self._adopt(layers, named)

    def forward(
        self, params: Any, state: Any, x: Any, *, key: Any, mode: Mode, **options: Any
    ) -> tuple[Any, Any]:
        """Apply every child to the output of the one before it."""
        states = []
        for i, (layer, p, s) in enumerate(
            zip(
                _with_channels_last(self.layers),
                self._unpacked(params),
                self._unpacked(state),
                strict=True,
            )
        ):
            x, s = apply_child(layer, p, s, x, child_key(key, i), mode, options)
            states.append(s)
        return x, self._packed(tuple(states))

    def __getitem__(self, index: Any) -> Any:
        """Return a child by number or name, or a chain of some by slice."""
        if not isinstance(index, slice):
            return super().__getitem__(index)
        if self.names:
            return Chain(**dict(zip(self.names[index], self.layers[index], strict=True)))
        return Chain(*self.layers[index])


def _with_channels_last(layers: Iterable[Child]) -> Iterator[Child]:
    """Yield the layers as they are computed fastest: those that follow a convolution know it."""
    behind = False
    for layer in layers:
        if not isinstance(layer, ChannelLayer):
            behind = isinstance(layer, Convolution)
        elif behind:
            layer = layer.behind_convolution()
        yield layer


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
        check_children("SkipConnection", (self.layer, self.connection))

    def init(self, key: Any, dtype: Any = jnp.float32) -> tuple[Any, Any]:
        """Initialise the layer."""
        (params,), (state,) = init_children((self.layer,), key, dtype)
        return params, state

    def forward(
        self, params: Any, state: Any, x: Any, *, key: Any, mode: Mode, **options: Any
    ) -> tuple[Any, Any]:
        """Apply the layer, then the connection."""
        y, state = apply_child(self.layer, params, state, x, child_key(key, 0), mode, options)
        return self.connection(y, x), state

    def accepts(self, option: str) -> bool:
        """Tell whether the layer takes an option."""
        return any_accepts((self.layer,), option)


class Parallel(Connected):
    """Apply layers side by side and combine their outputs.

    `connection(layer1(x), layer2(x), ...)`; with a tuple for an input, layer i gets its
    element i, and one layer alone gets them all, one after the other. So it is with options such
    as `mask=`: those that take it get it, and with a tuple for an input a tuple of options is one
    for each element.

    Args:
        connection: a function of as many arrays as there are outputs.
        *layers: layers, or functions of one array. Layer i gets the key
            `jax.random.fold_in(key, i)`; one layer alone gets, for element j of a tuple after
            the first, `fold_in(fold_in(key, 0), j)`.
        **named: the same with names; either all have one or none.

    Params and state:
        tuples of the layers'; with names, dicts.

    Raises:
        ArgumentTypeError: a layer is neither a layer nor a function.
        ArgumentValueError: there is no layer, there are several and the input is a tuple of
            another length, or it is an empty one.

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

    def forward(
        self, params: Any, state: Any, x: Any, *, key: Any, mode: Mode, **options: Any
    ) -> tuple[Any, Any]:
        """Apply every layer, then the connection."""
        alone = len(self) == 1 and isinstance(x, tuple) and len(x) > 0
        inputs = x if alone else self._inputs(x)
        if inputs is x:
            self._check_options(options, len(inputs))
        children = tuple(zip(self.layers, self._unpacked(params), strict=True))
        outs, states = [], list(self._unpacked(state))
        for i, value in enumerate(inputs):
            own = {
                name: option[i] if isinstance(option, tuple) and inputs is x else option
                for name, option in options.items()
            }
            number = 0 if alone else i
            layer, p = children[number]
            own_key = child_key(key, number)
            if number < i:
                own_key = child_key(own_key, i)
            y, states[number] = apply_child(layer, p, states[number], value, own_key, mode, own)
            outs.append(y)
        return self.connection(*outs), self._packed(tuple(states))

    def _check_options(self, options: dict[str, Any], count: int) -> None:
        for name, option in options.items():
            if isinstance(option, tuple) and len(option) != count:
                raise ArgumentValueError(
                    explain(
                        f"{type(self).__name__}.apply",
                        expected=f"one `{name}`, or a tuple of {count}, one for each input",
                        got=f"a tuple of {len(option)}",
                        fix="None stands for an input without.",
                    )
                )
