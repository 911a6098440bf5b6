"""Convolution and transposed convolution."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax import lax

from .._errors import ArgumentValueError, explain
from ._activations import identity
from ._dtypes import match_dtype, precision_for
from ._geometry import (
    Window,
    kernel_size,
    padding,
    per_axis,
    shortest,
    shortest_pad,
    spatial_size,
)
from ._init import fresh, glorot_uniform
from ._layer import Layer, check_axis, positive
from ._mode import Mode
from ._options import elementwise, function, settle, switch


@dataclasses.dataclass(frozen=True, init=False, repr=False)
class Convolution(Layer):
    """What the two layers share: configuration, parameters, and the end of the forward pass."""

    kernel: tuple[int, ...]
    in_channels: int
    out_channels: int
    activation: Callable[..., Any] = identity
    stride: Any = 1
    pad: Any = 0
    dilation: Any = 1
    groups: int = 1
    bias: bool = True
    weight_init: Callable[..., Any] = dataclasses.field(
        default=glorot_uniform, metadata={"option": "init"}
    )

    def __init__(
        self,
        kernel: Any,
        in_channels: int,
        out_channels: int,
        activation: Callable[..., Any] = identity,
        *,
        stride: Any = 1,
        pad: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        bias: bool = True,
        init: Callable[..., Any] = glorot_uniform,
    ):
        """Check and keep the configuration."""
        where = type(self).__name__
        kernel = kernel_size(where, kernel)
        rank = len(kernel)
        settle(
            self,
            kernel=kernel,
            in_channels=positive(where, "in_channels", in_channels),
            out_channels=positive(where, "out_channels", out_channels),
            activation=elementwise(where, activation),
            stride=shortest(per_axis(where, "stride", stride, rank)),
            pad=shortest_pad(padding(where, pad, rank)),
            dilation=shortest(per_axis(where, "dilation", dilation, rank)),
            groups=positive(where, "groups", groups),
            bias=switch(where, "bias", bias),
            weight_init=function(where, "init", init),
        )
        if self.in_channels % self.groups or self.out_channels % self.groups:
            raise ArgumentValueError(
                explain(
                    where,
                    expected=f"numbers of channels that {self.groups} groups divide",
                    got=f"{self.in_channels} => {self.out_channels}",
                    fix="Each group has its own input and output channels, equally many.",
                )
            )

    def init(self, key: Any, dtype: Any = jnp.float32) -> tuple[Any, Any]:
        """Return fresh parameters and no state; see `Layer.init`."""
        where = f"{type(self).__name__}.init"
        params = {"weight": fresh(where, self.weight_init, key, self._weight_shape, dtype)}
        if self.bias:
            params["bias"] = jnp.zeros(self.out_channels, dtype)
        return params, {}

    def forward(self, params: Any, state: Any, x: Any, *, key: Any, mode: Mode) -> tuple[Any, Any]:
        """Return the output and the state as it is; see `Layer.forward`."""
        where, weight = type(self).__name__, params["weight"]
        spatial = spatial_size(where, x, len(self.kernel))
        check_axis(where, x, 1, self.in_channels, "channels")
        y = self._convolve(match_dtype(where, x, weight), weight, spatial)
        if self.bias:
            y = y + params["bias"].reshape(-1, *(1 for _ in self.kernel))
        return self.activation(y), state

    @property
    def _weight_shape(self) -> tuple[int, ...]:
        raise NotImplementedError

    def _convolve(self, x: jax.Array, weight: jax.Array, spatial: tuple[int, ...]) -> jax.Array:
        raise NotImplementedError


class Conv(Convolution):
    """A convolution: `y = activation(weight * x + bias)`, along the spatial axes.

    As in Flux it is a convolution in the sense of mathematics: the kernel is reversed
    along its spatial axes. Other frameworks' layers of this name do not reverse it.

    The input has shape (batch, in_channels, *spatial), any number of spatial axes, and is
    converted to the weight's dtype. A spatial axis of size n becomes
    `(n + before + after - (kernel - 1) * dilation - 1) // stride + 1`.

    Parameters are `weight`, of shape (out_channels, in_channels // groups, *kernel),
    Flux's with its axes reversed, and `bias`, of shape (out_channels,), with `bias=True`.
    There is no state.

    Args:
        kernel: its size on each spatial axis. All such options are in JAX's order, for
            images (height, width), the reverse of Flux's.
        in_channels: channels of the input.
        out_channels: channels of the output.
        activation: elementwise function of the result.
        stride: an int, or one for each axis.
        pad: zeros around the input: an int, one for each axis, (before, after) for each
            axis in one flat tuple, or "same" (Flux's `SamePad()`): n becomes n / stride,
            rounded up.
        dilation: distance of kernel elements, an int or one for each axis.
        groups: into how many independent convolutions the channels are divided.
        bias: whether to add a bias, zero at first.
        init: initialiser of the weight, called as `init(key, shape, dtype)`.

    Raises:
        ArgumentTypeError: `activation` or `init` is no function, or `bias` no bool.
        ArgumentValueError: an option is out of range, or `groups` does not divide the
            channels; in `apply`, the input has another number of axes or channels, or the
            output would be empty.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> import pybridge as pb
        >>> layer = pb.nn.Conv((3, 3), 1, 8, pb.nn.relu, pad="same", stride=2)
        >>> params, state = layer.init(jax.random.key(0))
        >>> y, state = layer.apply(params, state, jnp.ones((5, 1, 28, 28)))
        >>> y.shape
        (5, 8, 14, 14)

    The twin in Julia is `PyBridge.Conv`, Flux's is `Conv`.
    """

    _reverses: ClassVar[bool] = True

    @property
    def _weight_shape(self) -> tuple[int, ...]:
        return (self.out_channels, self.in_channels // self.groups, *self.kernel)

    def _convolve(self, x: jax.Array, weight: jax.Array, spatial: tuple[int, ...]) -> jax.Array:
        window = Window.of(self.kernel, self.stride, self.dilation, self.pad, transposed=False)
        steps = window.outputs(type(self).__name__, spatial)
        options = {
            "window_strides": window.stride,
            "padding": window.pad,
            "lhs_dilation": (1,) * len(spatial),
            "rhs_dilation": window.dilation,
        }
        if _has_small_patches(x, steps, self.groups, weight):
            return _patches_product(x, weight, self.groups, reverse=self._reverses, **options)
        if self._reverses:  # which XLA does not do
            weight = lax.rev(weight, tuple(range(2, weight.ndim)))
        return _convolution(x, weight, self.groups, **options)


@dataclasses.dataclass(frozen=True, init=False, repr=False)
class ConvTranspose(Convolution):
    """A transposed convolution: the gradient of `Conv` with respect to its input.

    The input has shape (batch, in_channels, *spatial), any number of spatial axes, and is
    converted to the weight's dtype. A spatial axis of size n becomes
    `(n - 1) * stride + (kernel - 1) * dilation + 1 - before - after + outpad`.

    Parameters are `weight`, of shape (in_channels, out_channels // groups, *kernel),
    Flux's with its axes reversed, and `bias`, of shape (out_channels,), with `bias=True`.
    There is no state.

    Args:
        kernel: its size on each spatial axis. All such options are in JAX's order, for
            images (height, width), the reverse of Flux's.
        in_channels: channels of the input.
        out_channels: channels of the output.
        activation: elementwise function of the result.
        stride: an int, or one for each axis.
        pad: what is cut from the output: an int, one for each axis, (before, after) for
            each axis in one flat tuple, or "same": n becomes n * stride. (Flux's
            `SamePad()` misses that where both stride and dilation are above one.)
        outpad: what is added behind, an int or one for each axis, smaller than `stride`:
            several sizes of the input of a `Conv` give the same output.
        dilation: distance of kernel elements, an int or one for each axis.
        groups: into how many independent convolutions the channels are divided.
        bias: whether to add a bias, zero at first.
        init: initialiser of the weight, called as `init(key, shape, dtype)`.

    Raises:
        ArgumentTypeError: `activation` or `init` is no function, or `bias` no bool.
        ArgumentValueError: an option is out of range, or `groups` does not divide the
            channels; in `apply`, the input has another number of axes or channels, or the
            output would be empty.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> import pybridge as pb
        >>> layer = pb.nn.ConvTranspose((3, 3), 8, 1, pad="same", stride=2)
        >>> params, state = layer.init(jax.random.key(0))
        >>> y, state = layer.apply(params, state, jnp.ones((5, 8, 14, 14)))
        >>> y.shape
        (5, 1, 28, 28)

    The twin in Julia is `PyBridge.ConvTranspose`, Flux's is `ConvTranspose`.
    """

    outpad: Any = 0

    def __init__(
        self,
        kernel: Any,
        in_channels: int,
        out_channels: int,
        activation: Callable[..., Any] = identity,
        *,
        stride: Any = 1,
        pad: Any = 0,
        outpad: Any = 0,
        **options: Any,
    ):
        """Check and keep the configuration."""
        super().__init__(
            kernel, in_channels, out_channels, activation, stride=stride, pad=pad, **options
        )
        sizes = per_axis("ConvTranspose", "outpad", outpad, len(self.kernel), least=0)
        settle(self, outpad=shortest(sizes))
        if any(more >= step for more, step in zip(sizes, self._window.stride, strict=True)):
            raise ArgumentValueError(
                explain(
                    "ConvTranspose",
                    expected=f"`outpad` below the stride {self.stride}",
                    got=repr(outpad),
                    fix="Elements further out belong to another number of steps.",
                )
            )

    @property
    def _weight_shape(self) -> tuple[int, ...]:
        return (self.in_channels, self.out_channels // self.groups, *self.kernel)

    @property
    def _window(self) -> Window:
        return Window.of(self.kernel, self.stride, self.dilation, self.pad, transposed=True)

    def _convolve(self, x: jax.Array, weight: jax.Array, spatial: tuple[int, ...]) -> jax.Array:
        window = self._window
        outpad = self.outpad if isinstance(self.outpad, tuple) else (self.outpad,) * len(spatial)
        # XLA wants (out, in // groups); the kernel's reversal and that of the gradient cancel.
        grouped = weight.reshape(self.groups, -1, *weight.shape[1:]).swapaxes(1, 2)
        window.inputs("ConvTranspose", spatial, outpad)
        return _convolution(
            x,
            grouped.reshape(self.out_channels, -1, *self.kernel),
            self.groups,
            window_strides=(1,) * len(spatial),
            padding=[
                (extent - 1 - before, extent - 1 - after + more)
                for extent, (before, after), more in zip(
                    window.extent, window.pad, outpad, strict=True
                )
            ],
            lhs_dilation=window.stride,
            rhs_dilation=window.dilation,
        )


def _convolution(x: jax.Array, kernel: jax.Array, groups: int, **options: Any) -> jax.Array:
    """Convolve, with the precision of the kernel's dtype; see `lax.conv_general_dilated`.

    In groups it is a matrix product where `x` is sharded: the derivative by the kernel that JAX
    0.10.2 has is a multiple of the right one there.
    """
    if groups > 1 and _is_sharded(x):
        return _patches_product(x, kernel, groups, reverse=False, **options)
    precision = precision_for(kernel.dtype)
    return lax.conv_general_dilated(
        x, kernel, feature_group_count=groups, precision=precision, **options
    )


def _is_sharded(x: jax.Array) -> bool:
    """Tell whether an array is sharded over an explicit mesh axis, or may be over one of several.

    Over which automatic axes it is sharded is not known before it is compiled.
    """
    sharding = jax.typeof(x).sharding
    return any(sharding.spec) or sum(size > 1 for size in sharding.mesh.shape.values()) > 1


def _has_small_patches(
    x: jax.Array, steps: tuple[int, ...], groups: int, weight: jax.Array
) -> bool:
    """Say whether there is less to copy into patches, see `_patches_product`, than in the kernel.

    XLA's convolution on CPUs copies the kernel to have its channels last. In the last layers of a
    network for images this, and the same for the gradients, takes longer than the convolution.
    """
    positions = (x.shape[0], *steps)
    is_known = all(isinstance(n, int) for n in positions)  # and not the size of an exported program
    return is_known and not _is_sharded(x) and groups * math.prod(positions) < weight.shape[0]


def _patches_product(
    x: jax.Array,
    weight: jax.Array,
    groups: int,
    *,
    window_strides: Sequence[int],
    padding: Sequence[tuple[int, int]],
    lhs_dilation: Sequence[int],
    rhs_dilation: Sequence[int],
    reverse: bool,
) -> jax.Array:
    """Convolve as a matrix product of the kernel as it is and what it meets at each step."""
    rank = weight.ndim - 2
    widened = [(*pad, step - 1) for pad, step in zip(padding, lhs_dilation, strict=True)]
    patches = lax.pad(x, jnp.zeros((), x.dtype), [(0, 0, 0)] * 2 + widened)
    axes = range(2, 2 + 2 * rank, 2)  # of the kernel; behind each comes that of its steps
    for axis, size, step, distance in zip(
        axes, weight.shape[2:], window_strides, rhs_dilation, strict=True
    ):
        last = patches.shape[axis] - (size - 1) * distance
        starts = [distance * i for i in range(size)]
        met = [
            lax.slice_in_dim(patches, start, start + last, step, axis)
            for start in (starts[::-1] if reverse else starts)
        ]
        patches = jnp.stack(met, axis)
    y = lax.dot_general(
        weight.reshape(groups, weight.shape[0] // groups, *weight.shape[1:]),
        patches.reshape(x.shape[0], groups, x.shape[1] // groups, *patches.shape[2:]),
        (((2, *range(3, 3 + rank)), (2, *(axis + 1 for axis in axes))), ((0,), (1,))),
        precision=precision_for(weight.dtype),
    )  # (groups, output channels of each, batch, *steps)
    return jnp.moveaxis(y.reshape(weight.shape[0], *y.shape[2:]), 0, 1)
