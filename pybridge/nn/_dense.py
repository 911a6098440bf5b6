"""The fully connected layer."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

from ._activations import identity
from ._dtypes import match_dtype
from ._init import fresh, glorot_uniform
from ._layer import Layer, check_axis, positive
from ._linear_map import linear_map
from ._mode import Mode
from ._options import elementwise, function, settle, switch


@dataclasses.dataclass(frozen=True, init=False, repr=False)
class Dense(Layer):
    """A fully connected layer: `y = activation(x @ weight + bias)`.

    The input has shape (..., in_features) with any number of leading axes, none included,
    and is converted to the weight's dtype; the output has shape (..., out_features).

    Parameters are `weight`, of shape (in_features, out_features), Flux's with its axes
    reversed, and `bias`, of shape (out_features,), with `bias=True`. There is no state.

    Args:
        in_features: size of the input's last axis.
        out_features: size of the output's last axis.
        activation: elementwise function of the result.
        bias: whether to add a bias, zero at first.
        init: initialiser of the weight, called as `init(key, shape, dtype)`.

    Raises:
        ArgumentTypeError: `activation` or `init` is no function, or `bias` no bool.
        ArgumentValueError: a size is no positive integer, or `activation` needs a whole
            axis; in `apply`, the input's last axis has another size.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> import pybridge as pb
        >>> layer = pb.nn.Dense(3, 2, pb.nn.relu)
        >>> params, state = layer.init(jax.random.key(0))
        >>> y, state = layer.apply(params, state, jnp.ones((5, 3)))
        >>> y.shape
        (5, 2)

    The twin in Julia is `PyBridge.Dense`, Flux's is `Dense`.
    """

    in_features: int
    out_features: int
    activation: Callable[..., Any] = identity
    bias: bool = True
    weight_init: Callable[..., Any] = dataclasses.field(
        default=glorot_uniform, metadata={"option": "init"}
    )

    def __init__(
        self,
        in_features: int,
        out_features: int,
        activation: Callable[..., Any] = identity,
        *,
        bias: bool = True,
        init: Callable[..., Any] = glorot_uniform,
    ):
        """Check and keep the configuration."""
        settle(
            self,
            in_features=positive("Dense", "in_features", in_features),
            out_features=positive("Dense", "out_features", out_features),
            activation=elementwise("Dense", activation),
            bias=switch("Dense", "bias", bias),
            weight_init=function("Dense", "init", init),
        )

    def init(self, key: Any, dtype: Any = jnp.float32) -> tuple[Any, Any]:
        """Return fresh parameters and no state; see `Layer.init`."""
        shape = (self.in_features, self.out_features)
        params = {"weight": fresh("Dense.init", self.weight_init, key, shape, dtype)}
        if self.bias:
            params["bias"] = jnp.zeros(self.out_features, dtype)
        return params, {}

    def forward(self, params: Any, state: Any, x: Any, *, key: Any, mode: Mode) -> tuple[Any, Any]:
        """Return the output and the state as it is; see `Layer.forward`."""
        check_axis("Dense", x, -1, self.in_features, "features")
        weight = params["weight"]
        y = linear_map(match_dtype("Dense", x, weight), weight)
        if self.bias:
            y = y + params["bias"]
        return self.activation(y), state
