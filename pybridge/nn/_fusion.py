"""More layers made of layers: the largest of several outputs, and a chain of several inputs."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp

from ._children import Child, Connected, Container, apply_child, check_any
from ._layer import child_key
from ._mode import Mode


@dataclasses.dataclass(frozen=True, init=False, repr=False)
class Maxout(Container):
    """Apply layers to the same input and take the largest of their outputs, elementwise.

    At a tie the gradient goes to the last of the equal outputs, as in Flux; NaN comes through.
    Options of `apply` go to every layer that takes them.

    Args:
        *layers: layers, or functions of one array. Layer i gets the key
            `jax.random.fold_in(key, i)`.

    Params and state:
        tuples of the layers'.

    Raises:
        ArgumentTypeError: a layer is neither a layer nor a function.
        ArgumentValueError: there is none.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> import pybridge as pb
        >>> layer = pb.nn.Maxout(pb.nn.Dense(3, 2), pb.nn.Dense(3, 2))
        >>> params, state = layer.init(jax.random.key(0))
        >>> layer.apply(params, state, jnp.ones((5, 3)))[0].shape
        (5, 2)

    The twin in Julia is `PyBridge.Maxout`, Flux's is `Maxout`. Source: Goodfellow et al. 2013.
    """

    def __init__(self, *layers: Child) -> None:
        """Take the layers."""
        check_any("Maxout", layers)
        self._adopt(layers, {})

    def forward(
        self, params: Any, state: Any, x: Any, *, key: Any, mode: Mode, **options: Any
    ) -> tuple[Any, Any]:
        """Apply every layer and keep the largest values; see `Layer.forward`."""
        outs, states = [], []
        for i, (layer, p, s) in enumerate(zip(self.layers, params, state, strict=True)):
            y, s = apply_child(layer, p, s, x, child_key(key, i), mode, options)
            outs.append(y)
            states.append(s)
        return functools.reduce(_larger, outs), tuple(states)


class PairwiseFusion(Connected):
    """Apply layers in turn, each to its input combined with the output of the one before it.

    With a tuple (x1, x2, ...) as input: y1 = layer1(x1), y2 = layer2(connection(y1, x2)), and so
    on; one array stands for all of them. The output is the tuple (y1, y2, ...). Options of
    `apply` go to every layer that takes them.

    Args:
        connection: a function of two arrays.
        *layers: layers, or functions of one array. Layer i gets the key
            `jax.random.fold_in(key, i)`.
        **named: the same with names; either all have one or none.

    Params and state:
        tuples of the layers'; with names, dicts.

    Raises:
        ArgumentTypeError: a layer is neither a layer nor a function.
        ArgumentValueError: there is no layer, or the input is a tuple of another length.

    Example:
        >>> import jax.numpy as jnp
        >>> import pybridge as pb
        >>> layer = pb.nn.PairwiseFusion(jnp.add, jnp.negative, jnp.abs)
        >>> y, _ = layer.apply(*layer.init(None), (jnp.array(1.0), jnp.array(-2.0)))
        >>> [float(one) for one in y]
        [-1.0, 3.0]

    The twin in Julia is `PyBridge.PairwiseFusion`, Flux's is `PairwiseFusion`.
    """

    def forward(
        self, params: Any, state: Any, x: Any, *, key: Any, mode: Mode, **options: Any
    ) -> tuple[Any, Any]:
        """Return the outputs of all layers; see `Layer.forward`."""
        outs, states = [], []
        for i, (layer, p, s, value) in enumerate(
            zip(
                self.layers,
                self._unpacked(params),
                self._unpacked(state),
                self._inputs(x),
                strict=True,
            )
        ):
            joined = self.connection(outs[-1], value) if outs else value
            y, s = apply_child(layer, p, s, joined, child_key(key, i), mode, options)
            outs.append(y)
            states.append(s)
        return tuple(outs), self._packed(tuple(states))


def _larger(first: jax.Array, second: jax.Array) -> jax.Array:
    # Not `jnp.maximum`: at a tie it halves the gradient, and Flux does not.
    first, second = jnp.asarray(first), jnp.asarray(second)
    return jnp.where((first > second) | (first != first), first, second)
