"""The bilinear layer: fully connected between two inputs and the output."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

from .._errors import ArgumentValueError, explain
from ._activations import identity
from ._dtypes import input_array, match_dtype, precision_for
from ._init import fresh, glorot_uniform
from ._layer import Layer, positive
from ._mode import Mode
from ._options import elementwise, function, settle, switch


@dataclasses.dataclass(frozen=True, init=False, repr=False)
class Bilinear(Layer):
    """Combine two inputs: `z[o] = activation(sum over i, j of x[i] y[j] W[j, i, o] + bias[o])`.

    The input is a tuple of two arrays, (..., in1) and (..., in2) with the same leading axes,
    or one array that stands for both. They are converted to the weight's dtype; the output has
    shape (..., out_features).

    Parameters are `weight`, of shape (in2, in1, out_features), Flux's with its axes reversed,
    and `bias`, of shape (out_features,), with `bias=True`. There is no state.

    Args:
        in_features: sizes of the inputs' last axes, a tuple of two, or an int for both.
        out_features: size of the output's last axis.
        activation: elementwise function of the result.
        bias: whether to add a bias, zero at first.
        init: initialiser of the weight, called as `init(key, shape, dtype)`.

    Raises:
        ArgumentTypeError: `activation` or `init` is no function, or `bias` no bool; in `apply`,
            an input is no array.
        ArgumentValueError: a size is no positive integer; in `apply`, there are not one or two
            inputs, or their shapes do not fit.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> import pybridge as pb
        >>> layer = pb.nn.Bilinear((3, 4), 2)
        >>> params, state = layer.init(jax.random.key(0))
        >>> layer.apply(params, state, (jnp.ones((5, 3)), jnp.ones((5, 4))))[0].shape
        (5, 2)

    The twin in Julia is `PyBridge.Bilinear`, Flux's is `Bilinear`.
    """

    in_features: Any
    out_features: int
    activation: Callable[..., Any] = identity
    bias: bool = True
    weight_init: Callable[..., Any] = dataclasses.field(
        default=glorot_uniform, metadata={"option": "init"}
    )

    def __init__(
        self,
        in_features: Any,
        out_features: int,
        activation: Callable[..., Any] = identity,
        *,
        bias: bool = True,
        init: Callable[..., Any] = glorot_uniform,
    ):
        """Check and keep the configuration."""
        sizes = tuple(in_features) if isinstance(in_features, tuple | list) else (in_features,) * 2
        sizes = tuple(positive("Bilinear", "in_features", size) for size in sizes)
        if len(sizes) != 2:
            raise ArgumentValueError(
                explain(
                    "Bilinear",
                    expected="a positive integer or two of them as in_features",
                    got=repr(in_features),
                    fix="They are the sizes of the two inputs.",
                )
            )
        settle(
            self,
            in_features=sizes[0] if sizes[0] == sizes[1] else sizes,
            out_features=positive("Bilinear", "out_features", out_features),
            activation=elementwise("Bilinear", activation),
            bias=switch("Bilinear", "bias", bias),
            weight_init=function("Bilinear", "init", init),
        )

    @property
    def sizes(self) -> tuple[int, int]:
        """The sizes of the two inputs."""
        one = self.in_features
        return one if isinstance(one, tuple) else (one, one)

    def init(self, key: Any, dtype: Any = jnp.float32) -> tuple[Any, Any]:
        """Return fresh parameters and no state; see `Layer.init`."""
        shape = (*self.sizes[::-1], self.out_features)
        params = {"weight": fresh("Bilinear.init", self.weight_init, key, shape, dtype)}
        if self.bias:
            params["bias"] = jnp.zeros(self.out_features, dtype)
        return params, {}

    def forward(self, params: Any, state: Any, x: Any, *, key: Any, mode: Mode) -> tuple[Any, Any]:
        """Return the output and the state as it is; see `Layer.forward`."""
        given = x if isinstance(x, tuple) else (x, x)
        shapes = tuple(jnp.shape(input_array("Bilinear.apply", one)) for one in given)
        if tuple(s[-1:] for s in shapes) != tuple((n,) for n in self.sizes) or (
            shapes[0][:-1] != shapes[1][:-1]
        ):
            first, second = self.sizes
            raise ArgumentValueError(
                explain(
                    "Bilinear.apply",
                    expected=f"two inputs, (..., {first}) and (..., {second}), or one for both",
                    got=f"shapes {shapes}",
                    fix="They have the same leading axes: `(x, y)`.",
                )
            )
        weight = params["weight"]
        one, other = (match_dtype("Bilinear", each, weight) for each in given)
        precision = precision_for(weight.dtype)
        # As Flux: the second input first, then the first.
        inner = jnp.tensordot(other, weight, (-1, 0), precision=precision)
        y = jnp.einsum("...io,...i->...o", inner, one, precision=precision)
        if self.bias:
            y = y + params["bias"]
        return self.activation(y), state
