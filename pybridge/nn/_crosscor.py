"""Relatives of the convolution: cross-correlation and depthwise convolution."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ._activations import identity
from ._conv import Conv
from ._init import glorot_uniform


class CrossCor(Conv):
    """A cross-correlation: a convolution whose kernel is not reversed.

    It is what other frameworks call a convolution. Input, parameters, arguments, errors and
    sizes are those of `Conv`, without `groups`.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> import pybridge as pb
        >>> layer = pb.nn.CrossCor((2,), 1, 1, bias=False)
        >>> params = {"weight": jnp.array([[[1.0, -1.0]]])}
        >>> layer.apply(params, {}, jnp.array([[[1.0, 2.0, 4.0]]]))[0].tolist()
        [[[-1.0, -2.0]]]

    The twin in Julia is `PyBridge.CrossCor`, Flux's is `CrossCor`.
    """

    _reverses = False

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
        bias: bool = True,
        init: Callable[..., Any] = glorot_uniform,
    ):
        """Check and keep the configuration."""
        super().__init__(
            kernel,
            in_channels,
            out_channels,
            activation,
            stride=stride,
            pad=pad,
            dilation=dilation,
            bias=bias,
            init=init,
        )


def DepthwiseConv(
    kernel: Any,
    in_channels: int,
    out_channels: int,
    activation: Callable[..., Any] = identity,
    **options: Any,
) -> Conv:
    """Return the `Conv` with as many groups as input channels: Flux's `DepthwiseConv`.

    Each input channel has output channels of its own, `out_channels / in_channels` of them.

    Args:
        kernel: as for `Conv`, and so is all else but `groups`.
        in_channels: channels of the input.
        out_channels: channels of the output, a multiple.
        activation: elementwise function of the result.
        **options: `stride`, `pad`, `dilation`, `bias`, `init`.

    Raises:
        ArgumentTypeError: as for `Conv`.
        ArgumentValueError: as for `Conv`; `in_channels` does not divide `out_channels`.

    Example:
        >>> import pybridge as pb
        >>> pb.nn.DepthwiseConv((3, 3), 4, 8, pad=1)
        Conv((3, 3), 4, 8, pad=1, groups=4)
    """
    return Conv(kernel, in_channels, out_channels, activation, groups=in_channels, **options)
