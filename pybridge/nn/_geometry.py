"""Kernels, strides and padding per spatial axis: what convolutions and pools have in common."""

from __future__ import annotations

import dataclasses
from typing import Any, NoReturn

import jax.numpy as jnp

from .._errors import ArgumentValueError, explain
from ._dtypes import input_array


@dataclasses.dataclass(frozen=True)
class Window:
    """A kernel that moves over spatial axes, given in JAX's order (the reverse of Flux's).

    Attributes:
        kernel: its size on each axis.
        stride: steps on each axis.
        dilation: distance of neighbouring kernel elements.
        pad: (before, after) on each axis.
    """

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    pad: tuple[tuple[int, int], ...]

    @classmethod
    def of(
        cls, kernel: tuple[int, ...], stride: Any, dilation: Any, pad: Any, *, transposed: bool
    ) -> Window:
        """Return the window of a layer's options, as `shortest` keeps them.

        Args:
            kernel: one size for each spatial axis.
            stride: an int, or one for each axis.
            dilation: the same.
            pad: "same", an int, one for each axis, or two for each axis.
            transposed: whether the output is what the window moves over, so that "same"
                means that n becomes n * stride.
        """
        stride, dilation = _each(stride, kernel), _each(dilation, kernel)
        window = cls(kernel, stride, dilation, ())
        if pad == "same":
            fixed = stride if transposed else _each(1, kernel)
            sums = (e - f for e, f in zip(window.extent, fixed, strict=True))
            # Flux's choice where the sum is odd; XLA's "SAME" has the larger part behind.
            pairs = tuple((-(-total // 2), total // 2) for total in sums)
        elif isinstance(pad, tuple) and len(pad) == 2 * len(kernel):
            pairs = tuple(zip(pad[::2], pad[1::2], strict=True))
        else:
            pairs = tuple((n, n) for n in _each(pad, kernel))
        return dataclasses.replace(window, pad=pairs)

    @property
    def extent(self) -> tuple[int, ...]:
        """How many elements the dilated kernel spans on each axis."""
        return tuple((k - 1) * d + 1 for k, d in zip(self.kernel, self.dilation, strict=True))

    def outputs(self, where: str, spatial: tuple[int, ...]) -> tuple[int, ...]:
        """Return how many steps the window takes over an input of size `spatial`.

        Raises:
            ArgumentValueError: it has no place there on some axis.
        """
        return _not_empty(
            where,
            spatial,
            tuple(
                (size + sum(pad) - extent) // step + 1
                for size, pad, extent, step in zip(
                    spatial, self.pad, self.extent, self.stride, strict=True
                )
            ),
        )

    def inputs(
        self, where: str, steps: tuple[int, ...], outpad: tuple[int, ...]
    ) -> tuple[int, ...]:
        """Return over how many elements the window takes `steps`: the reverse of `outputs`.

        Raises:
            ArgumentValueError: there are none on some axis.
        """
        return _not_empty(
            where,
            steps,
            tuple(
                (size - 1) * step + extent - sum(pad) + more
                for size, step, extent, pad, more in zip(
                    steps, self.stride, self.extent, self.pad, outpad, strict=True
                )
            ),
        )


def kernel_size(where: str, kernel: Any) -> tuple[int, ...]:
    """Return a kernel's or window's size, one int for each spatial axis.

    Raises:
        ArgumentValueError: it is no sequence of positive integers.
    """
    if not isinstance(kernel, tuple | list) or not kernel or not all(map(_is_size, kernel)):
        raise ArgumentValueError(
            explain(
                where,
                expected="a tuple of positive integers, one for each spatial axis, as its size",
                got=repr(kernel),
                fix="(3, 3) is for images, (3,) for sequences.",
            )
        )
    return tuple(size.__index__() for size in kernel)


def per_axis(where: str, name: str, value: Any, rank: int, least: int = 1) -> tuple[int, ...]:
    """Return an option as one int for each of `rank` spatial axes.

    Raises:
        ArgumentValueError: it is neither an int nor `rank` of them, or one is too small.
    """
    values = tuple(value) if isinstance(value, tuple | list) else (value,) * rank
    if len(values) != rank or not all(_is_size(v, least) for v in values):
        _refuse_option(where, f"an integer of at least {least}, or {rank} of them,", name, value)
    return tuple(v.__index__() for v in values)


def padding(where: str, value: Any, rank: int) -> tuple[int, ...] | str:
    """Return padding as "same", or as (before, after) of every spatial axis, flat.

    Args:
        where: the layer, for the error.
        value: "same", an int, one for each axis, or two for each axis.
        rank: how many spatial axes there are.

    Raises:
        ArgumentValueError: it is something else.
    """
    if isinstance(value, str) and value == "same":
        return value
    values: tuple[Any, ...] = tuple(value) if isinstance(value, tuple | list) else (value,) * rank
    if len(values) == rank:
        values = tuple(v for v in values for _ in range(2))
    if len(values) != 2 * rank or not all(_is_size(v, 0) for v in values):
        _refuse_option(
            where, f'"same", a natural number, {rank} or {2 * rank} of them,', "pad", value
        )
    return tuple(v.__index__() for v in values)


def shortest(values: Any) -> Any:
    """Return an option as the user would write it: one number where all are equal."""
    return values[0] if len(set(values)) == 1 else values


def shortest_pad(pad: Any) -> Any:
    """Return padding as the user would write it: by axis where both sides are equal."""
    if isinstance(pad, tuple) and pad[::2] == pad[1::2]:
        return shortest(pad[::2])
    return pad


def spatial_size(where: str, x: Any, rank: int) -> tuple[int, ...]:
    """Return the spatial part of the shape of x, (batch, channels, *spatial).

    Raises:
        ArgumentValueError: there are not `rank` spatial axes.
    """
    shape = jnp.shape(input_array(where, x))
    if len(shape) != rank + 2:
        raise ArgumentValueError(
            explain(
                where,
                expected=f"an input with {rank + 2} axes, (batch, channels, *spatial)",
                got=f"shape {shape}",
                fix="Add a batch axis to a single example, `x[None]`.",
            )
        )
    return shape[2:]


def _not_empty(where: str, spatial: tuple[int, ...], outputs: tuple[int, ...]) -> tuple[int, ...]:
    # Whether a symbolic size is empty shows when it gets a value.
    if any(isinstance(n, int) and n < 1 for n in (*spatial, *outputs)):
        raise ArgumentValueError(
            explain(
                where,
                expected="at least one element of output on every spatial axis",
                got=f"{outputs} for an input of {spatial}",
                fix="Change the kernel, stride, dilation or padding, or pass a larger input.",
            )
        )
    return outputs


def _each(value: Any, kernel: tuple[int, ...]) -> tuple[int, ...]:
    return value if isinstance(value, tuple) else (value,) * len(kernel)


def _is_size(value: Any, least: int = 1) -> bool:
    return (
        not isinstance(value, bool) and hasattr(value, "__index__") and value.__index__() >= least
    )


def _refuse_option(where: str, expected: str, name: str, value: Any) -> NoReturn:
    raise ArgumentValueError(
        explain(
            where,
            expected=f"{expected} as `{name}`",
            got=repr(value),
            fix="Spatial axes are in JAX's order, the reverse of Flux's.",
        )
    )
