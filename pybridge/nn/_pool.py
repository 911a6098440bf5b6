"""Pooling: the largest or the mean value of a window that moves over the spatial axes."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from .._errors import ArgumentTypeError, ArgumentValueError, explain
from ._channel_axis import ChannelLayer
from ._dtypes import at_least_single, floating, input_array
from ._geometry import (
    Window,
    kernel_size,
    padding,
    per_axis,
    shortest,
    shortest_pad,
    spatial_size,
)
from ._layer import Layer
from ._mode import Mode
from ._options import settle

# Up to this sum of window sizes, pooling by slices is faster than XLA's `reduce_window`.
_FEW_SLICES = 12


@dataclasses.dataclass(frozen=True, init=False, repr=False)
class _Pool(ChannelLayer):
    """What the two moving windows share."""

    window: tuple[int, ...]
    stride: Any = None
    pad: Any = 0

    def __init__(self, window: Any, *, stride: Any = None, pad: Any = 0):
        """Check and keep the configuration."""
        where = type(self).__name__
        window = kernel_size(where, window)
        rank = len(window)
        steps = window if stride is None else per_axis(where, "stride", stride, rank)
        settle(
            self,
            window=window,
            stride=None if steps == window else shortest(steps),
            pad=shortest_pad(padding(where, pad, rank)),
        )

    @property
    def _geometry(self) -> Window:
        stride = self.window if self.stride is None else self.stride
        return Window.of(self.window, stride, 1, self.pad, transposed=False)

    def forward(self, params: Any, state: Any, x: Any, *, key: Any, mode: Mode) -> tuple[Any, Any]:
        """Return the output and the state as it is; see `Layer.forward`."""
        where, window = type(self).__name__, self._geometry
        window.outputs(where, spatial_size(where, x, len(self.window)))
        return self._outside(self._pooled(self._inside(jnp.asarray(x)), window)), state

    def _pooled(self, x: jax.Array, window: Window) -> jax.Array:
        raise NotImplementedError


class MaxPool(_Pool):
    """The largest value of each window.

    The input has shape (batch, channels, *spatial), any number of spatial axes, and any
    real dtype, which the output keeps. A spatial axis of size n becomes
    `(n + before + after - window) // stride + 1`.

    Padding is -inf (for integers the least one). A window with a NaN gives NaN; NNlib's
    `maxpool` passes over it, and takes -inf for the lowest finite number. At a tie the
    gradient goes to the first of the largest values in memory order, exactly; NNlib's
    goes to the first that is approximately equal to it.

    There are no parameters and no state.

    Args:
        window: its size on each spatial axis, in JAX's order, for images (height, width).
        stride: an int, or one for each axis; `None` for the window's size.
        pad: an int, one for each axis, (before, after) for each axis in one flat tuple,
            or "same": n becomes n / stride, rounded up. Less than the window, which
            otherwise could hold nothing but padding.

    Raises:
        ArgumentTypeError: in `apply`, the input is complex or bool.
        ArgumentValueError: an option is out of range; in `apply`, the input has another
            number of axes, or the output would be empty.

    Example:
        >>> import jax.numpy as jnp
        >>> import pybridge as pb
        >>> x = jnp.arange(6.0).reshape(1, 1, 2, 3)
        >>> y, _ = pb.nn.MaxPool((2, 2), stride=1).apply({}, {}, x)
        >>> y.tolist()
        [[[[4.0, 5.0]]]]

    The twin in Julia is `PyBridge.MaxPool`, Flux's is `MaxPool`.
    """

    def __init__(self, window: Any, *, stride: Any = None, pad: Any = 0):
        """Check and keep the configuration."""
        super().__init__(window, stride=stride, pad=pad)
        if any(max(pad) >= size for pad, size in zip(self._geometry.pad, self.window, strict=True)):
            raise ArgumentValueError(
                explain(
                    "MaxPool",
                    expected=f"less padding than the window {self.window}",
                    got=f"pad={self.pad}",
                    fix="A window that holds nothing but padding has no largest value.",
                )
            )

    def _pooled(self, x: jax.Array, window: Window) -> jax.Array:
        return max_windows(x, window, self._axes_but_channels(x.ndim, first=1))


class MeanPool(_Pool):
    """The mean of each window, in which padding counts as zeros.

    The input has shape (batch, channels, *spatial), any number of spatial axes. Floating
    dtypes are kept (the sum is taken in float32 for half precision), integers become
    floating. A spatial axis of size n becomes
    `(n + before + after - window) // stride + 1`.

    There are no parameters and no state.

    Args:
        window: its size on each spatial axis, in JAX's order, for images (height, width).
        stride: an int, or one for each axis; `None` for the window's size.
        pad: an int, one for each axis, (before, after) for each axis in one flat tuple,
            or "same": n becomes n / stride, rounded up.

    Raises:
        ArgumentValueError: an option is out of range; in `apply`, the input has another
            number of axes, or the output would be empty.

    Example:
        >>> import jax.numpy as jnp
        >>> import pybridge as pb
        >>> y, _ = pb.nn.MeanPool((2,), pad=1).apply({}, {}, jnp.ones((1, 1, 4)))
        >>> y.tolist()
        [[[0.5, 1.0, 0.5]]]

    The twin in Julia is `PyBridge.MeanPool`, Flux's is `MeanPool`.
    """

    def _pooled(self, x: jax.Array, window: Window) -> jax.Array:
        return mean_windows(x, window, self._axes_but_channels(x.ndim, first=1))


@dataclasses.dataclass(frozen=True, repr=False)
class GlobalMeanPool(Layer):
    """The mean over all spatial axes, which stay with size one.

    The input has shape (batch, channels, *spatial), with at least one spatial axis.
    Floating dtypes are kept (the sum is taken in float32 for half precision), integers
    become floating. There are no parameters and no state.

    Raises:
        ArgumentValueError: in `apply`, the input has no spatial axis or no element on one.

    Example:
        >>> import jax.numpy as jnp
        >>> import pybridge as pb
        >>> y, _ = pb.nn.GlobalMeanPool().apply({}, {}, jnp.ones((5, 3, 8, 8)))
        >>> y.shape
        (5, 3, 1, 1)

    The twin in Julia is `PyBridge.GlobalMeanPool`, Flux's is `GlobalMeanPool`.
    """

    def forward(self, params: Any, state: Any, x: Any, *, key: Any, mode: Mode) -> tuple[Any, Any]:
        """Return the output and the state as it is; see `Layer.forward`."""
        shape = shape_with_elements("GlobalMeanPool", x)
        return jnp.mean(floating(x), tuple(range(2, len(shape))), keepdims=True), state


def shape_with_elements(where: str, x: Any) -> tuple[int, ...]:
    """Return the shape of an input that has spatial axes with elements.

    Raises:
        ArgumentValueError: it has no spatial axis, or no element on one.
    """
    shape = jnp.shape(input_array(where, x))
    if len(shape) < 3 or 0 in shape[2:]:
        raise ArgumentValueError(
            explain(
                where,
                expected="an input (batch, channels, *spatial) with spatial elements",
                got=f"shape {shape}",
                fix="Add a batch axis to a single example, `x[None]`.",
            )
        )
    return shape


def check_ordered(where: str, x: jax.Array) -> None:
    """Refuse an input that has no largest value.

    Raises:
        ArgumentTypeError: it is complex or bool.
    """
    if not jnp.issubdtype(x.dtype, jnp.floating) and not jnp.issubdtype(x.dtype, jnp.integer):
        raise ArgumentTypeError(
            explain(
                where,
                expected="an input of real numbers",
                got=f"dtype {x.dtype}",
                fix="Only they have a largest one. Convert bools, `x.astype(int)`.",
            )
        )


def max_windows(x: jax.Array, window: Window, axes: Sequence[int]) -> jax.Array:
    """Return the largest value of each window that moves over the axes of x."""
    check_ordered("MaxPool", x)
    real = jnp.issubdtype(x.dtype, jnp.floating)
    lowest = np.array(-np.inf if real else jnp.iinfo(x.dtype).min, x.dtype)

    def larger(first: jax.Array, second: jax.Array) -> jax.Array:
        # Not `jnp.maximum`: at a tie it halves the gradient, and Flux does not.
        take_second = second > first
        return jnp.where(take_second | (second != second) if real else take_second, second, first)

    return _windows(x, window, axes, lowest, larger, lax.max)


def mean_windows(x: jax.Array, window: Window, axes: Sequence[int]) -> jax.Array:
    """Return the mean of each window that moves over the axes of x."""
    x = floating(x)
    working = x.astype(at_least_single(x.dtype))
    total = _windows(working, window, axes, np.array(0, working.dtype), lax.add, lax.add)
    return (total / math.prod(window.kernel)).astype(x.dtype)


def _windows(
    x: jax.Array,
    window: Window,
    axes: Sequence[int],
    neutral: np.ndarray,
    combine: Callable[[jax.Array, jax.Array], jax.Array],
    primitive: Callable[..., Any],
) -> jax.Array:
    """Reduce each window, one axis after the other where windows are small.

    XLA has a program for moving windows, but on the CPU that of strided slices is several
    times faster, and the gradient of the largest value ten times and more. The last axis
    comes first, so that the first of equal values in memory order wins.
    """
    moves = dict(zip(axes, zip(window.kernel, window.stride, window.pad, strict=True), strict=True))
    kernel, stride, pad = zip(*(moves.get(i, (1, 1, (0, 0))) for i in range(x.ndim)), strict=True)
    if sum(window.kernel) > _FEW_SLICES:
        return lax.reduce_window(x, neutral, primitive, kernel, stride, pad)
    x = lax.pad(x, neutral, [(*around, 0) for around in pad])
    for axis in reversed(axes):
        size, step = kernel[axis], stride[axis]
        reach = x.shape[axis] - size + 1  # up to here windows begin; may be a symbolic size
        y = lax.slice_in_dim(x, 0, reach, step, axis)
        for start in range(1, size):
            y = combine(y, lax.slice_in_dim(x, start, start + reach, step, axis))
        x = y
    return x
