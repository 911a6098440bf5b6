"""Group normalisation."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

from .._errors import ArgumentValueError, explain
from ._activations import identity
from ._channel_axis import ChannelLayer
from ._dtypes import parameter_dtype, real_input
from ._layer import check_axis, positive
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
class GroupNorm(ChannelLayer):
    """Normalise each group of channels of each example.

    Channels 0 to C/G - 1 are the first group, and so on. y = activation(scale *
    (x - mean) / sqrt(var + eps) + bias), with mean and (biased) variance over a group's
    channels and the spatial axes. The same in training and in test mode.

    Args:
        channels: size of axis 1.
        groups: divides `channels`.
        activation: applied at the end, elementwise.
        affine: whether there are a scale and a bias for each channel.
        eps: added to the variance, inside the square root.

    Input:
        (N, C) or (N, C, *spatial), real floating point, and `mask=` as for `BatchNorm`.

    Raises:
        ArgumentValueError: `groups` does not divide `channels`; a wrong number of
            channels.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> import pybridge as pb
        >>> layer = pb.nn.GroupNorm(4, 2, affine=False)
        >>> jnp.round(layer.apply({}, {}, jnp.array([[1.0, 3.0, 5.0, 9.0]]))[0], 3).tolist()
        [[-1.0, 1.0, -1.0, 1.0]]

    The twin in Julia is `PyBridge.GroupNorm`. Source: Wu and He 2018, and Flux.
    """

    channels: int
    groups: int
    activation: Callable[..., Any] = identity
    _: dataclasses.KW_ONLY
    affine: bool = True
    eps: float = 1e-5

    def __post_init__(self) -> None:
        """Check the configuration."""
        settle(
            self,
            channels=positive("GroupNorm", "channels", self.channels),
            groups=positive("GroupNorm", "groups", self.groups),
            eps=checked_eps("GroupNorm", self.eps),
        )
        if self.channels % self.groups:
            raise ArgumentValueError(
                explain(
                    "GroupNorm",
                    expected=f"a number of groups that divides {self.channels} channels",
                    got=str(self.groups),
                    fix="Every group has the same number of channels.",
                )
            )

    def init(self, key: Any, dtype: Any = jnp.float32) -> tuple[Any, Any]:
        """Return scale 1 and bias 0, each of shape (channels,)."""
        if not self.affine:
            return {}, {}
        dtype = parameter_dtype("GroupNorm.init", dtype)
        return affine_params((self.channels,), dtype), {}

    def forward(
        self, params: Any, state: Any, x: Any, *, key: Any, mode: Mode, mask: Any = None
    ) -> tuple[Any, Any]:
        """Normalise; the mode plays no part."""
        x = real_input("GroupNorm", x)
        check_axis("GroupNorm.apply", x, 1, self.channels, "channels")
        mask = self._inside(checked_mask("GroupNorm", mask, x))
        values = self._inside(widened(x))
        where = self._channel_axis % x.ndim
        groups = (self.groups, self.channels // self.groups)
        split = (*values.shape[:where], *groups, *values.shape[where + 1 :])
        parts = None if mask is None else jnp.broadcast_to(mask, values.shape).reshape(split)
        over = Over(tuple(axis for axis in range(1, len(split)) if axis != where))
        done = standardise(values.reshape(split), parts, over, self.eps)
        shape = self._along_channels(self.channels, x.ndim)
        y = affine(params, shape, done.values.reshape(values.shape), self.activation)
        return self._outside(masked(mask, y).astype(x.dtype)), state
