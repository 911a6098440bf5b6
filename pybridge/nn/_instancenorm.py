"""Instance normalisation."""

from __future__ import annotations

import dataclasses
from typing import Any

from ._batchnorm import ChannelNorm
from ._statistics import Over


@dataclasses.dataclass(frozen=True, repr=False)
class InstanceNorm(ChannelNorm):
    """Normalise each channel of each example over the spatial axes.

    y = activation(scale * (x - mean) / sqrt(var + eps) + bias), as `BatchNorm` with the
    statistics of one example. With `track_stats=True` the running statistics follow the
    mean over the batch, and test mode uses them.

    Args:
        channels: size of axis 1.
        activation: applied at the end, elementwise.
        affine: whether there are a scale and a bias; not by default.
        track_stats: whether there are running statistics; not by default.
        eps: added to the variance, inside the square root.
        momentum: the weight of the new batch, in [0, 1].
        axis_name: of a `vmap` or `shard_map` over the batch; only running statistics need
            it.

    Input:
        (N, C, *spatial), real floating point, and `mask=` as for `BatchNorm`.

    Raises:
        ArgumentValueError: a wrong number of channels; one value per channel in training.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> import pybridge as pb
        >>> layer = pb.nn.InstanceNorm(1)
        >>> y, _ = layer.apply({}, {}, jnp.array([[[1.0, 3.0]], [[5.0, 9.0]]]))
        >>> jnp.round(y, 3).tolist()
        [[[-1.0, 1.0]], [[-1.0, 1.0]]]

    The twin in Julia is `PyBridge.InstanceNorm`. Source: Ulyanov et al. 2016, and Flux.
    """

    affine: bool = dataclasses.field(default=False, kw_only=True)
    track_stats: bool = dataclasses.field(default=False, kw_only=True)

    def _over(self, ndim: int) -> Over:
        return Over(self._axes_but_channels(ndim, first=1))

    def _instances(self) -> Any:
        return self.axis_name
