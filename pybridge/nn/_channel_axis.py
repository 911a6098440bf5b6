"""Where the channels of a layer lie between its input and its output."""

from __future__ import annotations

import copy
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp

from ._layer import Layer


class ChannelLayer(Layer):
    """The base of layers that treat channels alike, on axis 1 or, behind a convolution, last.

    XLA's convolutions on CPUs have their channels last. Values with channels on axis 1 are copied
    on the way from one convolution to the next, and back. Away from convolutions it is the other
    way round: with channels last everything would be copied.
    """

    _channel_axis: ClassVar[int] = 1

    def behind_convolution(self) -> Self:
        """Return the same layer with channels last between its input and its output."""
        layer = copy.copy(self)
        object.__setattr__(layer, "_channel_axis", -1)
        return layer

    def _inside(self, x: Any) -> Any:
        """Move the channels of an array, or of no array, to where they lie in between."""
        return None if x is None else jnp.moveaxis(x, 1, self._channel_axis)

    def _outside(self, y: jax.Array) -> jax.Array:
        return jnp.moveaxis(y, self._channel_axis, 1)

    def _along_channels(self, channels: int, ndim: int) -> tuple[int, ...]:
        """Return the shape that spreads one number for each channel over the values."""
        return tuple(channels if axis == self._channel_axis % ndim else 1 for axis in range(ndim))

    def _axes_but_channels(self, ndim: int, first: int = 0) -> tuple[int, ...]:
        return tuple(axis for axis in range(first, ndim) if axis != self._channel_axis % ndim)
