"""Layer normalisation."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

from .._errors import ArgumentValueError, explain
from ._activations import identity
from ._dtypes import parameter_dtype, real_input
from ._layer import Layer, positive
from ._mode import Mode
from ._options import settle
from ._statistics import (
    Over,
    affine,
    affine_params,
    checked_eps,
    checked_mask,
    masked,
    standardise,
    widened,
)


@dataclasses.dataclass(frozen=True, repr=False)
class LayerNorm(Layer):
    """Normalise each example over its last axes.

    y = activation(scale * (x - mean) / sqrt(var + eps) + bias), with mean and (biased)
    variance over the last `len(size)` axes. The same in training and in test mode.

    Args:
        size: of the last axes, an integer or a tuple in JAX's order.
        activation: applied at the end, elementwise.
        affine: whether there are a scale and a bias, each of shape `size`.
        eps: added to the variance, inside the square root.

    Input:
        (..., *size), real floating point. Statistics are computed in float32 for half
        precision. `mask=` as for `BatchNorm`.

    Raises:
        ArgumentValueError: there are no sizes, or the last axes have others.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> import pybridge as pb
        >>> layer = pb.nn.LayerNorm(2)
        >>> params, state = layer.init(jax.random.key(0))
        >>> jnp.round(layer.apply(params, state, jnp.array([[1.0, 3.0]]))[0], 3).tolist()
        [[-1.0, 1.0]]

    The twin in Julia is `PyBridge.LayerNorm`. Flux 0.16.10 adds eps^2 in place of eps to
    the variance, unlike its documentation; `pb.nn.from_flux` gives the layer that eps.
    Source: Ba et al. 2016.
    """

    size: int | tuple[int, ...]
    activation: Callable[..., Any] = identity
    _: dataclasses.KW_ONLY
    affine: bool = True
    eps: float = 1e-5

    def __post_init__(self) -> None:
        """Check the configuration."""
        sizes = self.size if isinstance(self.size, tuple | list) else (self.size,)
        sizes = tuple(positive("LayerNorm", "size", size) for size in sizes)
        if not sizes:
            raise ArgumentValueError(
                explain(
                    "LayerNorm",
                    expected="one size or more",
                    got="()",
                    fix="Each number less its own mean would be 0.",
                )
            )
        size = sizes if len(sizes) != 1 else sizes[0]
        settle(self, size=size, eps=checked_eps("LayerNorm", self.eps))

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes as a tuple."""
        return self.size if isinstance(self.size, tuple) else (self.size,)

    def init(self, key: Any, dtype: Any = jnp.float32) -> tuple[Any, Any]:
        """Return scale 1 and bias 0, each of shape `size`."""
        if not self.affine:
            return {}, {}
        dtype = parameter_dtype("LayerNorm.init", dtype)
        return affine_params(self.shape, dtype), {}

    def forward(
        self, params: Any, state: Any, x: Any, *, key: Any, mode: Mode, mask: Any = None
    ) -> tuple[Any, Any]:
        """Normalise; the mode plays no part."""
        x = real_input("LayerNorm", x)
        rank = len(self.shape)
        if x.shape[x.ndim - rank :] != self.shape:
            raise ArgumentValueError(
                explain(
                    "LayerNorm.apply",
                    expected=f"an input whose last axes are {self.shape}",
                    got=f"shape {x.shape}",
                    fix="Sizes are in JAX's order, the reverse of Flux's.",
                )
            )
        mask = checked_mask("LayerNorm", mask, x)
        over = Over(tuple(range(x.ndim - rank, x.ndim)))
        done = standardise(widened(x), mask, over, self.eps)
        y = affine(params, self.shape, done.values, self.activation)
        return masked(mask, y).astype(x.dtype), state
