"""Pools whose window follows from the input: adaptive ones, and the largest value of all."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp

from .._errors import ArgumentValueError, explain
from ._geometry import Window, kernel_size, spatial_size
from ._layer import Layer
from ._mode import Mode
from ._options import settle
from ._pool import check_ordered, max_windows, mean_windows, shape_with_elements


@dataclasses.dataclass(frozen=True, init=False, repr=False)
class _AdaptivePool(Layer):
    """What the two share: the window."""

    size: tuple[int, ...]

    def __init__(self, size: Any):
        """Check and keep the configuration."""
        settle(self, size=kernel_size(type(self).__name__, size))

    def forward(self, params: Any, state: Any, x: Any, *, key: Any, mode: Mode) -> tuple[Any, Any]:
        """Return the output and the state as it is; see `Layer.forward`."""
        where = type(self).__name__
        spatial = spatial_size(where, x, len(self.size))
        if any(n < m for n, m in zip(spatial, self.size, strict=True)):
            raise ArgumentValueError(
                explain(
                    f"{where}.apply",
                    expected=f"at least {self.size} elements on the spatial axes",
                    got=f"{spatial}",
                    fix="A pool makes images smaller. `Upsample` makes them larger.",
                )
            )
        stride = tuple(n // m for n, m in zip(spatial, self.size, strict=True))
        kernel = tuple(
            n - (m - 1) * step for n, m, step in zip(spatial, self.size, stride, strict=True)
        )
        window = Window.of(kernel, stride, 1, 0, transposed=False)
        return self._pooled(jnp.asarray(x), window), state

    def _pooled(self, x: jax.Array, window: Window) -> jax.Array:
        raise NotImplementedError


class AdaptiveMaxPool(_AdaptivePool):
    """The largest value of each window, with windows that give an output of a certain size.

    A spatial axis of n elements becomes m, with stride n // m and a window of
    n - (m - 1) * stride: all windows are equally large, as in Flux. (PyTorch's differ where m
    does not divide n.) All else is as for `MaxPool`.

    Args:
        size: of the output on each spatial axis, in JAX's order, for images (height, width).

    Raises:
        ArgumentTypeError: in `apply`, the input is complex or bool.
        ArgumentValueError: `size` is no tuple of positive integers; in `apply`, the input has
            another number of axes, or less elements than that.

    Example:
        >>> import jax.numpy as jnp
        >>> import pybridge as pb
        >>> x = jnp.arange(5.0).reshape(1, 1, 5)
        >>> pb.nn.AdaptiveMaxPool((2,)).apply({}, {}, x)[0].tolist()
        [[[2.0, 4.0]]]

    The twin in Julia is `PyBridge.AdaptiveMaxPool`, Flux's is `AdaptiveMaxPool`.
    """

    def _pooled(self, x: jax.Array, window: Window) -> jax.Array:
        return max_windows(x, window, range(2, x.ndim))


class AdaptiveMeanPool(_AdaptivePool):
    """The mean of each window, with windows that give an output of a certain size.

    The windows are those of `AdaptiveMaxPool`, dtypes are as for `MeanPool`.

    Args:
        size: of the output on each spatial axis, in JAX's order, for images (height, width).

    Raises:
        ArgumentValueError: as for `AdaptiveMaxPool`.

    Example:
        >>> import jax.numpy as jnp
        >>> import pybridge as pb
        >>> x = jnp.arange(5.0).reshape(1, 1, 5)
        >>> pb.nn.AdaptiveMeanPool((2,)).apply({}, {}, x)[0].tolist()
        [[[1.0, 3.0]]]

    The twin in Julia is `PyBridge.AdaptiveMeanPool`, Flux's is `AdaptiveMeanPool`.
    """

    def _pooled(self, x: jax.Array, window: Window) -> jax.Array:
        return mean_windows(x, window, range(2, x.ndim))


@dataclasses.dataclass(frozen=True, repr=False)
class GlobalMaxPool(Layer):
    """The largest value over all spatial axes, which stay with size one.

    The input has shape (batch, channels, *spatial), with at least one spatial axis, and any
    real dtype, which the output keeps. A channel with a NaN gives NaN. At a tie the gradient
    goes to the first of the largest values in memory order. There are no parameters and no
    state.

    Raises:
        ArgumentTypeError: in `apply`, the input is complex or bool.
        ArgumentValueError: in `apply`, the input has no spatial axis or no element on one.

    Example:
        >>> import jax.numpy as jnp
        >>> import pybridge as pb
        >>> y, _ = pb.nn.GlobalMaxPool().apply({}, {}, jnp.ones((5, 3, 8, 8)))
        >>> y.shape
        (5, 3, 1, 1)

    The twin in Julia is `PyBridge.GlobalMaxPool`, Flux's is `GlobalMaxPool`.
    """

    def forward(self, params: Any, state: Any, x: Any, *, key: Any, mode: Mode) -> tuple[Any, Any]:
        """Return the output and the state as it is; see `Layer.forward`."""
        shape = shape_with_elements("GlobalMaxPool", x)
        check_ordered("GlobalMaxPool", jnp.asarray(x))
        values = jnp.reshape(x, (*shape[:2], math.prod(shape[2:])))
        place = jnp.argmax(values, -1, keepdims=True)  # the first one
        largest = jnp.take_along_axis(values, place, -1)
        return largest.reshape(*shape[:2], *(1 for _ in shape[2:])), state
