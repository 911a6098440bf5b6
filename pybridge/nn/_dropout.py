"""Dropout and alpha dropout, with masks that JAX and Julia draw alike."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from .._errors import ArgumentTypeError, ArgumentValueError, explain
from ..primitives import keep_mask
from ._dtypes import real_input
from ._layer import Layer, check_key
from ._mode import Mode
from ._options import settle


@dataclasses.dataclass(frozen=True, repr=False)
class Dropout(Layer):
    """Set elements to 0 with probability `p` in training, and scale the others.

    y = x / (1 - p) where the mask keeps, else 0; in test mode y = x. The mask is
    `jax.random.bernoulli(key, 1 - p)`, the one that Flax's and Equinox's dropout draws
    from the same key.

    Args:
        p: probability to drop an element, in [0, 1].
        dims: the axes along which the mask varies, all by default. The mask is the same
            along the others: `dims=(0, 1)` drops whole channels of (N, C, H, W).

    Input:
        any shape, real floating-point dtype. `apply` needs `key=` in training, unless p is 0.

    Raises:
        ArgumentTypeError: `p` is no number; `dims` are no integers; `key` is not one key.
        ArgumentValueError: `p` is outside of [0, 1]; no key in training; `dims` names an
            axis that the input does not have, or one twice.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> import pybridge as pb
        >>> layer = pb.nn.Dropout(0.5)
        >>> f = lambda x: layer.apply({}, {}, x, key=jax.random.key(0))[0].sum()
        >>> float(f(jnp.ones(4)))
        4.0
        >>> jax.grad(f)(jnp.ones(4)).tolist()
        [0.0, 0.0, 2.0, 2.0]

    Where the mask drops, the output is 0 also for NaN and Inf. (Flux multiplies by 0 and
    gives NaN there.) With p = 1 all outputs and derivatives are 0.

    The twin in Julia is `PyBridge.Dropout`. Source: Srivastava et al. 2014, and Flux.
    """

    p: float
    _: dataclasses.KW_ONLY
    dims: int | tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        """Check the configuration."""
        settle(self, p=_probability("Dropout", self.p), dims=_axes(self.dims))

    def forward(self, params: Any, state: Any, x: Any, *, key: Any, mode: Mode) -> tuple[Any, Any]:
        """Drop in training."""
        x, mode = _checked("Dropout", self.p, x, key, mode)
        shape = _mask_shape(x.shape, self.dims)

        def train(x: Any) -> Any:
            if key is None or self.p == 1:
                return jnp.zeros_like(x)
            scale, nothing = _representable(x.dtype, 1 / (1 - self.p), 0)
            return jnp.where(keep_mask(key, self.p, shape), x * scale, nothing)

        return (x if self.p == 0 else mode.choose(train, _same, x)), state


@dataclasses.dataclass(frozen=True, repr=False)
class AlphaDropout(Layer):
    """Dropout for self-normalising networks: keeps mean and variance of the input.

    With a = selu(-inf) = -1.7580993408473766, A = ((1 - p) (1 + p a^2))^(-1/2) and
    B = -A a p: y = A x + B where the mask keeps, else A a + B; in test mode y = x.

    Args:
        p: probability to drop an element, in [0, 1].

    Input:
        any shape, real floating-point dtype. `apply` needs `key=` in training, unless p is 0.

    Raises:
        ArgumentTypeError: `p` is no number; `key` is not one key.
        ArgumentValueError: `p` is outside of [0, 1]; no key in training.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> import pybridge as pb
        >>> layer = pb.nn.AlphaDropout(0.5)
        >>> f = lambda x: layer.apply({}, {}, x, key=jax.random.key(0))[0].sum()
        >>> [round(g, 4) for g in jax.grad(f)(jnp.ones(4)).tolist()]
        [0.0, 0.0, 0.8864, 0.8864]

    The twin in Julia is `PyBridge.AlphaDropout`. Source: Klambauer et al. 2017, and Flux,
    where p = 1 gives zeros as well.
    """

    p: float

    def __post_init__(self) -> None:
        """Check the configuration."""
        settle(self, p=_probability("AlphaDropout", self.p))

    def forward(self, params: Any, state: Any, x: Any, *, key: Any, mode: Mode) -> tuple[Any, Any]:
        """Drop in training."""
        x, mode = _checked("AlphaDropout", self.p, x, key, mode)

        def train(x: Any) -> Any:
            if key is None or self.p == 1:
                return jnp.zeros_like(x)
            floor = -1.7580993408473766
            scale = 1 / math.sqrt((1 - self.p) * (1 + self.p * floor**2))
            shift = -scale * floor * self.p
            a, b, low = _representable(x.dtype, scale, shift, scale * floor + shift)
            return jnp.where(keep_mask(key, self.p, x.shape), x * a + b, low)

        return (x if self.p == 0 else mode.choose(train, _same, x)), state


def _representable(dtype: Any, *numbers: float) -> list[np.ndarray]:
    """Round numbers to a dtype, to its largest number rather than to infinity.

    With p close to 1 a scale overflows half precision, and infinity times the zero cotangent of
    a dropped element would be NaN.
    """
    largest = float(jnp.finfo(dtype).max)
    return [np.asarray(min(number, largest), dtype) for number in numbers]


def _same(x: Any) -> Any:
    return x


def _probability(where: str, p: Any) -> float:
    number = not isinstance(p, Tracer) and isinstance(p, int | float | np.number | np.ndarray)
    # True is 1 in Python, and here a mistake.
    if not number or np.ndim(p) != 0 or np.asarray(p).dtype.kind not in "iuf":
        raise ArgumentTypeError(
            explain(
                where,
                expected="a Python number as p",
                got=f"a {type(p).__name__}",
                fix="The probability is part of the layer, not of the traced program.",
            )
        )
    if not 0 <= p <= 1:
        raise ArgumentValueError(
            explain(
                where,
                expected="a probability 0 <= p <= 1",
                got=f"p = {p}",
                fix="p is the probability to drop an element.",
            )
        )
    return float(p)


def _axes(dims: Any) -> Any:
    """Return axes as an integer or a tuple of integers."""
    if dims is None:
        return None
    many = isinstance(dims, list | tuple)
    axes = tuple(dims) if many else (dims,)
    if not all(isinstance(d, int | np.integer) and not isinstance(d, bool) for d in axes):
        raise ArgumentTypeError(
            explain(
                "Dropout",
                expected="an integer or a tuple of integers as dims",
                got=repr(dims),
                fix="dims are the axes along which the mask varies.",
            )
        )
    axes = tuple(map(int, axes))
    return axes if many else axes[0]


def _checked(where: str, p: float, x: Any, key: Any, mode: Mode) -> tuple[jax.Array, Mode]:
    """Return the input as an array, and the mode; refuse training without a key."""
    x = real_input(where, x)
    if key is not None:
        check_key(f"{where}.apply", key)
    if key is None and p > 0:
        mode = mode.refuse_training(
            ArgumentValueError(
                explain(
                    f"{where}.apply",
                    expected="a key in training",
                    got="key=None",
                    fix="Pass `key=jax.random.key(...)`, a new one for every step, or "
                    "`training=False`.",
                )
            )
        )
    return x, mode


def _mask_shape(shape: tuple[int, ...], dims: Any) -> tuple[int, ...]:
    """Return `shape` with 1 on all axes but `dims`."""
    if dims is None:
        return shape
    axes = dims if isinstance(dims, tuple) else (dims,)
    if any(not -len(shape) <= axis < len(shape) for axis in axes):
        raise ArgumentValueError(
            explain(
                "Dropout.apply",
                expected=f"an input with the axes {axes} of dims",
                got=f"shape {shape}",
                fix="dims are the axes along which the mask varies.",
            )
        )
    varying = {axis % len(shape) for axis in axes}
    if len(varying) < len(axes):
        raise ArgumentValueError(
            explain(
                "Dropout.apply",
                expected="each axis once in dims",
                got=f"dims = {axes} for an input with {len(shape)} axes",
                fix="Axes from the end count from -1.",
            )
        )
    return tuple(size if axis in varying else 1 for axis, size in enumerate(shape))
