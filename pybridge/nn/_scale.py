"""The elementwise layer: a scale and a bias for each feature."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

from .._errors import ArgumentValueError, explain
from ._activations import identity
from ._dtypes import input_array, match_dtype
from ._init import fresh, ones
from ._layer import Layer, positive
from ._mode import Mode
from ._options import elementwise, function, settle, switch


@dataclasses.dataclass(frozen=True, init=False, repr=False)
class Scale(Layer):
    """Scale and shift each feature: `y = activation(scale * x + bias)`.

    The input has shape (..., *size), with any number of leading axes, and is converted to the
    scale's dtype. An axis of size one is broadcast, as in Flux.

    Parameters are `scale` and, with `bias=True`, `bias`, each of shape `size`. There is no state.

    Args:
        size: of the input's last axes, an int or a tuple in JAX's order, the reverse of Flux's.
        activation: elementwise function of the result.
        bias: whether to add a bias, zero at first.
        init: initialiser of the scale, called as `init(key, shape, dtype)`.

    Raises:
        ArgumentTypeError: `activation` or `init` is no function, or `bias` no bool.
        ArgumentValueError: a size is no positive integer; in `apply`, the input's last axes have
            other sizes.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> import pybridge as pb
        >>> layer = pb.nn.Scale(2, pb.nn.relu)
        >>> params, state = layer.init(jax.random.key(0))
        >>> layer.apply(params, state, jnp.array([[1.0, -2.0]]))[0].tolist()
        [[1.0, 0.0]]

    The twin in Julia is `PyBridge.Scale`, Flux's is `Scale`.
    """

    size: int | tuple[int, ...]
    activation: Callable[..., Any] = identity
    bias: bool = True
    scale_init: Callable[..., Any] = dataclasses.field(default=ones, metadata={"option": "init"})

    def __init__(
        self,
        size: Any,
        activation: Callable[..., Any] = identity,
        *,
        bias: bool = True,
        init: Callable[..., Any] = ones,
    ):
        """Check and keep the configuration."""
        sizes = tuple(size) if isinstance(size, tuple | list) else (size,)
        sizes = tuple(positive("Scale", "size", one) for one in sizes)
        settle(
            self,
            size=sizes if len(sizes) != 1 else sizes[0],
            activation=elementwise("Scale", activation),
            bias=switch("Scale", "bias", bias),
            scale_init=function("Scale", "init", init),
        )

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes as a tuple."""
        return self.size if isinstance(self.size, tuple) else (self.size,)

    def init(self, key: Any, dtype: Any = jnp.float32) -> tuple[Any, Any]:
        """Return fresh parameters and no state; see `Layer.init`."""
        params = {"scale": fresh("Scale.init", self.scale_init, key, self.shape, dtype)}
        if self.bias:
            params["bias"] = jnp.zeros(self.shape, dtype)
        return params, {}

    def forward(self, params: Any, state: Any, x: Any, *, key: Any, mode: Mode) -> tuple[Any, Any]:
        """Return the output and the state as it is; see `Layer.forward`."""
        shape = jnp.shape(input_array("Scale.apply", x))
        rank = len(self.shape)
        pairs = zip(shape[len(shape) - rank :], self.shape, strict=False)
        if len(shape) < rank or any(n != m and 1 not in (n, m) for n, m in pairs):
            raise ArgumentValueError(
                explain(
                    "Scale.apply",
                    expected=f"an input whose last axes are {self.shape}",
                    got=f"shape {shape}",
                    fix="Sizes are in JAX's order, the reverse of Flux's.",
                )
            )
        y = params["scale"] * match_dtype("Scale", x, params["scale"])
        if self.bias:
            y = y + params["bias"]
        return self.activation(y), state
