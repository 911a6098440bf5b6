"""Larger images: repeated or interpolated values, and channels that become pixels."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from .._errors import ArgumentValueError, explain
from ._dtypes import at_least_single, floating, input_array
from ._geometry import kernel_size, spatial_size
from ._layer import Layer, positive
from ._mode import Mode
from ._options import settle

_AXES = {"nearest": None, "bilinear": 2, "trilinear": 3}


@dataclasses.dataclass(frozen=True, init=False, repr=False)
class Upsample(Layer):
    """Enlarge images, by repetition or by linear interpolation.

    The input has shape (batch, channels, *spatial). "nearest" repeats each value, for any number
    of spatial axes and any dtype. "bilinear" (two spatial axes) and "trilinear" (three)
    interpolate such that the corners stay what they are: of m elements in place of n, element i
    lies at i (n - 1) / (m - 1). They need floating numbers; integers are converted.

    There are no parameters and no state.

    Args:
        mode: "nearest", "bilinear" or "trilinear".
        scale: the factor of each spatial axis, one or a tuple in JAX's order; integers for
            "nearest". Otherwise sizes are rounded down.
        size: of the output on each spatial axis, in place of `scale`; for "nearest" multiples
            of the input's. A tuple for "nearest", of either, may leave out the first axes (Flux's
            last ones): those stay as they are.

    Raises:
        ArgumentValueError: `mode` is none of these, not exactly one of `scale` and `size` is
            given, or it is out of range; in `apply`, the input has another number of axes, or
            the output would be empty or no multiple.

    Example:
        >>> import jax.numpy as jnp
        >>> import pybridge as pb
        >>> x = jnp.array([[[[0.0, 1.0]]]])
        >>> pb.nn.Upsample(scale=(1, 2)).apply({}, {}, x)[0].tolist()
        [[[[0.0, 0.0, 1.0, 1.0]]]]
        >>> pb.nn.Upsample("bilinear", size=(1, 3)).apply({}, {}, x)[0].tolist()
        [[[[0.0, 0.5, 1.0]]]]

    The twin in Julia is `PyBridge.Upsample`, Flux's is `Upsample`. PyTorch's layer has these
    corners with `align_corners=True`.
    """

    mode: str = "nearest"
    scale: Any = None
    size: tuple[int, ...] | None = None

    def __init__(self, mode: str = "nearest", *, scale: Any = None, size: Any = None):
        """Check and keep the configuration."""
        if mode not in _AXES:
            raise ArgumentValueError(
                explain(
                    "Upsample",
                    expected=f"one of {', '.join(map(repr, _AXES))} as mode",
                    got=repr(mode),
                    fix="Flux has these, with a colon for the quotes.",
                )
            )
        if (scale is None) == (size is None):
            raise ArgumentValueError(
                explain(
                    "Upsample",
                    expected="either `scale` or `size`",
                    got=f"scale={scale!r}, size={size!r}",
                    fix="For example `Upsample(scale=2)`.",
                )
            )
        settle(
            self,
            mode=mode,
            scale=None if scale is None else _factors(mode, scale),
            size=None if size is None else kernel_size("Upsample", size),
        )

    def forward(self, params: Any, state: Any, x: Any, *, key: Any, mode: Mode) -> tuple[Any, Any]:
        """Return the output and the state as it is; see `Layer.forward`."""
        spatial = spatial_size("Upsample", x, self._rank(x))
        size, x = self._output_size(spatial), jnp.asarray(x)
        for axis, (n, m) in enumerate(zip(spatial, size, strict=True), start=2):
            if n != m:
                nearest = self.mode == "nearest"
                x = jnp.repeat(x, m // n, axis) if nearest else _interpolated(x, axis, m)
        return (x if self.mode == "nearest" else floating(x)), state

    def _rank(self, x: Any) -> int:
        """Return how many spatial axes there ought to be."""
        given = self.size if self.scale is None else self.scale
        least = len(given) if isinstance(given, tuple) else 1
        return _AXES[self.mode] or max(least, jnp.ndim(input_array("Upsample", x)) - 2)

    def _output_size(self, spatial: tuple[int, ...]) -> tuple[int, ...]:
        if self.scale is None:
            size = self.size or ()
        else:
            each = self.scale if isinstance(self.scale, tuple) else (self.scale,) * len(spatial)
            size = tuple(
                n * factor if isinstance(factor, int) else math.floor(n * factor)
                for n, factor in zip(spatial[-len(each) :], each, strict=True)
            )
        if self.mode == "nearest":
            size = (*spatial[: -len(size)], *size)
        multiples = self.mode != "nearest" or all(
            n and m % n == 0 for n, m in zip(spatial, size, strict=True)
        )
        if len(size) != len(spatial) or 0 in (*spatial, *size) or not multiples:
            wanted = "multiples of the input's size" if not multiples else "at least one element"
            raise ArgumentValueError(
                explain(
                    "Upsample.apply",
                    expected=f"{wanted} on each spatial axis",
                    got=f"{size} for an input of {spatial}",
                    fix='"bilinear" and "trilinear" take any size.',
                )
            )
        return size


@dataclasses.dataclass(frozen=True, repr=False)
class PixelShuffle(Layer):
    """Make channels into pixels: (N, C r^2, H, W) into (N, C, H r, W r).

    The input has shape (batch, channels, *spatial), with any number d of spatial axes, and any
    dtype; r^d divides the channels. There are no parameters and no state.

    The order of the channels is that of Flux: of the r^d channels that become one, the first
    spatial axis of Julia, the last one here, runs fastest. PyTorch's layer of this name has this
    order, too.

    Args:
        factor: r, by which each spatial axis grows.

    Raises:
        ArgumentValueError: `factor` is no positive integer; in `apply`, the input has no
            spatial axis, or r^d does not divide the channels.

    Example:
        >>> import jax.numpy as jnp
        >>> import pybridge as pb
        >>> x = jnp.arange(4.0).reshape(1, 4, 1, 1)
        >>> pb.nn.PixelShuffle(2).apply({}, {}, x)[0].tolist()
        [[[[0.0, 1.0], [2.0, 3.0]]]]

    The twin in Julia is `PyBridge.PixelShuffle`, Flux's is `PixelShuffle`. Source: Shi et al.
    2016.
    """

    factor: int

    def __post_init__(self) -> None:
        """Check the configuration."""
        settle(self, factor=positive("PixelShuffle", "factor", self.factor))

    def forward(self, params: Any, state: Any, x: Any, *, key: Any, mode: Mode) -> tuple[Any, Any]:
        """Return the output and the state as it is; see `Layer.forward`."""
        shape = jnp.shape(input_array("PixelShuffle", x))
        axes, r = len(shape) - 2, self.factor
        if axes < 1 or shape[1] % r**axes:
            raise ArgumentValueError(
                explain(
                    "PixelShuffle.apply",
                    expected=f"(batch, channels, *spatial) with channels that "
                    f"{r ** max(axes, 1)} divides",
                    got=f"shape {shape}",
                    fix="Each output channel is made of factor^d channels, d the number of "
                    "spatial axes.",
                )
            )
        batch, channels, *spatial = shape
        # (N, C, r, ..., r, H, ..., W), and then each r behind its axis.
        parts = jnp.reshape(x, (batch, channels // r**axes, *(r for _ in spatial), *spatial))
        order = [i for axis in range(axes) for i in (2 + axes + axis, 2 + axis)]
        y = jnp.transpose(parts, (0, 1, *order))
        for axis in range(2, 2 + axes):  # JAX merges two axes of a sharded array, and no more
            y = lax.collapse(y, axis, axis + 2)
        return y, state


def _factors(mode: str, scale: Any) -> Any:
    factors = tuple(scale) if isinstance(scale, tuple | list) else (scale,)
    kinds = (int, np.integer) if mode == "nearest" else (int, float, np.integer, np.floating)
    wrong = any(isinstance(n, bool) or not isinstance(n, kinds) or not n > 0 for n in factors)
    if wrong or not factors or (len(factors) > 1 and _AXES[mode] not in (None, len(factors))):
        number = "integer" if mode == "nearest" else "number"
        raise ArgumentValueError(
            explain(
                "Upsample",
                expected=f"a positive {number}, or one for each spatial axis, as scale",
                got=repr(scale),
                fix="Spatial axes are in JAX's order, the reverse of Flux's.",
            )
        )
    factors = tuple(int(n) if n == int(n) else float(n) for n in factors)
    return factors if isinstance(scale, tuple | list) else factors[0]


def _interpolated(x: jax.Array, axis: int, size: int) -> jax.Array:
    """Return x with `size` elements along an axis, of which the first and last stay."""
    last = x.shape[axis] - 1
    # In whole numbers, so that elements of x come out as they are.
    below, rest = np.divmod(np.arange(size) * last, max(size - 1, 1))
    above = np.minimum(below + 1, last)
    x = floating(x)
    wide = x.astype(at_least_single(x.dtype))
    weight = (rest / max(size - 1, 1)).astype(wide.dtype)
    weight = weight.reshape(-1, *(1 for _ in range(x.ndim - axis - 1)))
    low, high = (jnp.take(wide, place, axis) for place in (below, above))
    return (low * (1 - weight) + high * weight).astype(x.dtype)
