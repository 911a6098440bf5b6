"""Flux's initialisers: how fresh parameters are drawn.

All are called as `init(key, shape, dtype=float32)`, as JAX's initialisers are. Without
arguments they take options and return an initialiser: `glorot_uniform(gain=2)`.

Shapes are JAX's, the reverse of Flux's: (in, out) for `Dense`, (out, in, *kernel) for
`Conv`. Numbers for half precision are drawn in float32. The twins in Julia have the same
names; Flux's are in its `utils.jl`.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
import operator
from collections.abc import Callable
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np

from .._errors import ArgumentValueError, explain
from ._dtypes import at_least_single, parameter_dtype
from ._layer import check_key


@dataclasses.dataclass(frozen=True)
class _WithOptions:
    """An initialiser with some of its options set; equal to another one of the same."""

    draw: Callable[..., Any]
    options: tuple[tuple[str, Any], ...]

    def __call__(self, key: Any, shape: Any, dtype: Any = jnp.float32) -> jax.Array:
        return self.draw(key, shape, dtype, **dict(self.options))

    def __repr__(self) -> str:
        options = ", ".join(f"{name}={value!r}" for name, value in self.options)
        return f"{self.draw.__name__}({options})"


def _initialiser(draw: Callable[..., jax.Array]) -> Callable[..., Any]:
    """Check shape and dtype of `draw`, draw half precision in float32, and take options."""
    signature = inspect.signature(draw)

    @functools.wraps(draw)
    def initialiser(*args: Any, **options: Any) -> Any:
        if not args and "key" not in options:
            signature.bind_partial(**options)  # a misspelt option fails here, not in `init`
            return _WithOptions(initialiser, tuple(sorted(options.items())))
        return checked(*args, **options)

    def checked(key: Any, shape: Any, dtype: Any = jnp.float32, **options: Any) -> jax.Array:
        where = f"pb.nn.{draw.__name__}"
        dtype = parameter_dtype(where, dtype)
        working = at_least_single(dtype)
        return draw(key, _checked_shape(where, shape), working, **options).astype(dtype)

    return initialiser


def nfan(shape: tuple[int, ...]) -> tuple[int, int]:
    """Return how many inputs an output has, and how many outputs an input.

    Args:
        shape: of a weight: (in, out), or (out, in, *kernel). A vector is a matrix with
            one row in Flux, so its inputs are one.

    Returns:
        `(fan_in, fan_out)`.

    Example:
        >>> import pybridge as pb
        >>> pb.nn.nfan((10, 20)), pb.nn.nfan((10, 2, 3, 3))
        ((10, 20), (18, 90))

    Flux's `nfan` takes the reversed shape.
    """
    if len(shape) <= 2:
        return tuple((1, 1, *shape)[-2:])  # pyright: ignore[reportReturnType]
    taps = math.prod(shape[2:])
    return shape[1] * taps, shape[0] * taps


@_initialiser
def glorot_uniform(key: Any, shape: Any, dtype: Any = jnp.float32, *, gain: float = 1) -> jax.Array:
    """Draw from [-x, x), where x = gain sqrt(6 / (fan_in + fan_out)).

    Args:
        key: a JAX key.
        shape: of the array.
        dtype: floating.
        gain: a factor.

    Returns:
        The array.

    Raises:
        ArgumentTypeError: `dtype` is not floating, or float64 while JAX holds 32 bits.
        ArgumentValueError: `shape` is no sequence of natural numbers.

    Example:
        >>> import jax, pybridge as pb
        >>> weight = pb.nn.glorot_uniform(jax.random.key(0), (10, 20))
        >>> weight.shape, bool(abs(weight).max() < (6 / 30) ** 0.5)
        ((10, 20), True)
        >>> pb.nn.Dense(10, 20, init=pb.nn.glorot_uniform(gain=2))
        Dense(10, 20, init=glorot_uniform(gain=2))
    """
    return _centred(key, shape, dtype) * (gain * math.sqrt(24 / _positive(sum(nfan(shape)))))


@_initialiser
def glorot_normal(key: Any, shape: Any, dtype: Any = jnp.float32, *, gain: float = 1) -> jax.Array:
    """Draw from a normal distribution of deviation gain sqrt(2 / (fan_in + fan_out)).

    Arguments and errors are those of `glorot_uniform`.
    """
    return _normal(key, shape, dtype) * (gain * math.sqrt(2 / _positive(sum(nfan(shape)))))


@_initialiser
def kaiming_uniform(
    key: Any, shape: Any, dtype: Any = jnp.float32, *, gain: float = math.sqrt(2)
) -> jax.Array:
    """Draw from [-x, x), where x = gain sqrt(3 / fan_in).

    Arguments and errors are those of `glorot_uniform`.
    """
    return _centred(key, shape, dtype) * (2 * gain * math.sqrt(3 / _positive(nfan(shape)[0])))


@_initialiser
def kaiming_normal(
    key: Any, shape: Any, dtype: Any = jnp.float32, *, gain: float = math.sqrt(2)
) -> jax.Array:
    """Draw from a normal distribution of deviation gain / sqrt(fan_in).

    Arguments and errors are those of `glorot_uniform`.
    """
    return _normal(key, shape, dtype) * (gain / math.sqrt(_positive(nfan(shape)[0])))


@_initialiser
def truncated_normal(
    key: Any,
    shape: Any,
    dtype: Any = jnp.float32,
    *,
    mean: float = 0,
    std: float = 1,
    lo: float = -2,
    hi: float = 2,
) -> jax.Array:
    """Draw from the part of a normal distribution that lies in [lo, hi].

    As in Flux, `lo` and `hi` are values. JAX's `truncated_normal` counts them in
    deviations, and its `lecun_normal` cuts at two of them.

    Args:
        key: a JAX key.
        shape: of the array.
        dtype: floating.
        mean: of the distribution before it is cut.
        std: its deviation.
        lo: the least value.
        hi: the largest.

    Raises:
        ArgumentTypeError: as for `glorot_uniform`.
        ArgumentValueError: the same, or nothing lies between `lo` and `hi`.
    """
    low, high = (math.erf((bound - mean) / (std * math.sqrt(2))) for bound in (lo, hi))
    if not low < high:
        raise ArgumentValueError(
            explain(
                "pb.nn.truncated_normal",
                expected="lo < hi, with some of the distribution between them",
                got=f"lo={lo}, hi={hi}, mean={mean}, std={std}",
                fix="The bounds are values, not multiples of the deviation.",
            )
        )
    quantile = jax.random.uniform(key, shape, dtype) * (high - low) + low
    # A draw of zero would be the lowest value of all, -inf, however unlikely it is.
    quantile = jnp.maximum(quantile, np.nextafter(np.array(-1, dtype), np.array(0, dtype)))
    return jnp.clip(jax.lax.erf_inv(quantile) * (std * math.sqrt(2)) + mean, lo, hi)


@_initialiser
def lecun_normal(key: Any, shape: Any, dtype: Any = jnp.float32, *, gain: float = 1) -> jax.Array:
    """Draw from a normal distribution of deviation gain / sqrt(fan_in), cut at -2 and 2.

    Arguments and errors are those of `glorot_uniform`.
    """
    return truncated_normal(key, shape, dtype, std=gain / math.sqrt(_positive(nfan(shape)[0])))


@_initialiser
def orthogonal(key: Any, shape: Any, dtype: Any = jnp.float32, *, gain: float = 1) -> jax.Array:
    """Draw a matrix whose rows or columns, whichever are fewer, are orthonormal.

    For more than two axes the matrix has a row for each element of the first axis.

    Args:
        key: a JAX key.
        shape: of the array, of at least two axes.
        dtype: floating.
        gain: a factor.

    Raises:
        ArgumentTypeError: as for `glorot_uniform`.
        ArgumentValueError: `shape` has fewer than two axes.
    """
    if len(shape) < 2:
        _refuse_shape("pb.nn.orthogonal", "a shape with at least two axes", shape)
    rows, columns = shape[0], math.prod(shape[1:])
    tall = (max(rows, columns), min(rows, columns))
    q, r = jnp.linalg.qr(jax.random.normal(key, tall, dtype))
    q = q * (jnp.sign(jnp.diagonal(r)) * gain)
    return (q if rows >= columns else q.T).reshape(shape)


@_initialiser
def sparse_init(
    key: Any, shape: Any, dtype: Any = jnp.float32, *, sparsity: float, std: float = 0.01
) -> jax.Array:
    """Draw a matrix with the same number of zeros in each row, normal elsewhere.

    A row holds the weights of one input, which is a column in Flux.

    Args:
        key: a JAX key.
        shape: (in, out).
        dtype: floating.
        sparsity: the share of zeros in a row, rounded up to a whole number of them.
        std: the deviation of the others.

    Raises:
        ArgumentTypeError: as for `glorot_uniform`.
        ArgumentValueError: `shape` has not two axes.
    """
    if len(shape) != 2:
        _refuse_shape("pb.nn.sparse_init", "a shape with two axes", shape)
    zeros = math.ceil(min(1.0, sparsity) * shape[1])
    for_values, for_places = jax.random.split(key)
    values = (jax.random.normal(for_values, shape, dtype) * std).at[:, :zeros].set(0)
    return jax.random.permutation(for_places, values, axis=1, independent=True)


@_initialiser
def identity_init(
    key: Any, shape: Any, dtype: Any = jnp.float32, *, gain: float = 1, shift: Any = 0
) -> jax.Array:
    """Return the weight with which a `Dense` or `Conv` layer returns its input.

    A vector is zeros, a matrix the identity; a kernel has its element in the middle set
    for equal channels. (A `Conv` also needs `pad="same"`.)

    Args:
        key: not used.
        shape: of the array.
        dtype: floating.
        gain: the value in place of one.
        shift: rotate the array: an int on the last axis, or one for each axis.

    Raises:
        ArgumentTypeError: as for `glorot_uniform`.
        ArgumentValueError: the same, or `shift` has another length than `shape`.
    """
    weight = np.zeros(shape, dtype)
    if len(shape) > 1:
        channels = np.arange(min(shape[:2]))
        weight[(channels, channels, *((size - 1) // 2 for size in shape[2:]))] = gain
    steps = (shift,) if isinstance(shift, int) else tuple(shift)
    if not isinstance(shift, int) and len(steps) != len(shape):
        _refuse_shape("pb.nn.identity_init", f"{len(steps)} axes, as `shift` has,", shape)
    return jnp.asarray(np.roll(weight, steps, range(-len(steps), 0)))


@_initialiser
def zeros(key: Any, shape: Any, dtype: Any = jnp.float32) -> jax.Array:
    """Return zeros, Flux's `zeros32`. The key is not used."""
    return jnp.zeros(shape, dtype)


@_initialiser
def ones(key: Any, shape: Any, dtype: Any = jnp.float32) -> jax.Array:
    """Return ones, Flux's `ones32`. The key is not used."""
    return jnp.ones(shape, dtype)


@_initialiser
def rand(key: Any, shape: Any, dtype: Any = jnp.float32) -> jax.Array:
    """Draw from [0, 1), Flux's `rand32`."""
    return jax.random.uniform(key, shape, dtype)


@_initialiser
def randn(key: Any, shape: Any, dtype: Any = jnp.float32) -> jax.Array:
    """Draw from the standard normal distribution, Flux's `randn32`."""
    return _normal(key, shape, dtype)


def fresh(where: str, init: Callable[..., Any], key: Any, shape: Any, dtype: Any) -> jax.Array:
    """Return the weight that `init`, one of the above or any other function, makes.

    Raises:
        ArgumentTypeError: `key` is no key, or `dtype` is none for parameters.
        ArgumentValueError: the weight has another shape than it was asked for.
    """
    if key is not None:
        check_key(where, key)
    dtype = parameter_dtype(where, dtype)
    try:
        weight = init(key, shape, dtype)
    except Exception:
        check_key(where, key)  # an initialiser that draws nothing takes None
        raise
    weight = jnp.asarray(weight, dtype)
    if weight.shape != tuple(shape):
        raise ArgumentValueError(
            explain(
                where,
                expected=f"an initialiser that returns shape {shape}",
                got=f"shape {weight.shape}",
                fix="It is called as `init(key, shape, dtype)`.",
            )
        )
    return weight


def _checked_shape(where: str, shape: Any) -> tuple[int, ...]:
    try:
        sizes = tuple(operator.index(size) for size in shape)
    except TypeError:
        sizes = (-1,)
    if any(size < 0 for size in sizes):
        _refuse_shape(where, "a sequence of natural numbers as the shape", shape)
    return sizes


def _refuse_shape(where: str, expected: str, shape: Any) -> NoReturn:
    fix = "Initialisers are called as `init(key, shape, dtype)`."
    raise ArgumentValueError(explain(where, expected=expected, got=repr(shape), fix=fix))


def _centred(key: Any, shape: Any, dtype: Any) -> jax.Array:
    return jax.random.uniform(key, shape, dtype) - 0.5


def _normal(key: Any, shape: Any, dtype: Any) -> jax.Array:
    return jax.random.normal(key, shape, dtype)


def _positive(fan: int) -> int:
    """Return the fan, or one for an array without elements."""
    return max(fan, 1)
