"""Batch normalisation, and the running statistics that instance normalisation shares."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._errors import ArgumentValueError, explain
from ..primitives import select
from ._activations import identity
from ._channel_axis import ChannelLayer
from ._dtypes import at_least_single, parameter_dtype, real_input
from ._layer import check_axis, positive
from ._mode import Mode
from ._options import settle
from ._statistics import (
    Over,
    Standardised,
    affine,
    affine_params,
    checked_eps,
    checked_mask,
    inverse_deviation,
    masked,
    standardise,
    total,
    value_count,
    widened,
)


@dataclasses.dataclass(frozen=True, repr=False)
class ChannelNorm(ChannelLayer):
    """What `BatchNorm` and `InstanceNorm` have in common: all but the axes and defaults."""

    channels: int
    activation: Callable[..., Any] = identity
    _: dataclasses.KW_ONLY
    affine: bool = True
    track_stats: bool = True
    eps: float = 1e-5
    momentum: float = 0.1
    axis_name: Any = None

    def __post_init__(self) -> None:
        """Check the configuration."""
        where = type(self).__name__
        channels = positive(where, "channels", self.channels)
        settle(self, channels=channels, eps=checked_eps(where, self.eps))
        if isinstance(self.axis_name, list):
            settle(self, axis_name=tuple(self.axis_name))
        if not isinstance(self.momentum, int | float | np.number) or not 0 <= self.momentum <= 1:
            raise ArgumentValueError(
                explain(
                    where,
                    expected="a momentum in [0, 1]",
                    got=repr(self.momentum),
                    fix="It is the weight of the new batch; Flax's is one minus this one.",
                )
            )

    def init(self, key: Any, dtype: Any = jnp.float32) -> tuple[Any, Any]:
        """Return scale 1 and bias 0, mean 0 and variance 1, each of shape (channels,)."""
        dtype = parameter_dtype(f"{type(self).__name__}.init", dtype)
        params, state = {}, {}
        if self.affine:
            params = affine_params((self.channels,), dtype)
        if self.track_stats:
            wide = at_least_single(dtype)
            state["mean"] = jnp.zeros(self.channels, wide)
            state["var"] = jnp.ones(self.channels, wide)
        return params, state

    def forward(
        self, params: Any, state: Any, x: Any, *, key: Any, mode: Mode, mask: Any = None
    ) -> tuple[Any, Any]:
        """Normalise by the input's statistics in training, by the running ones in test."""
        where = type(self).__name__
        x = real_input(where, x)
        check_axis(f"{where}.apply", x, 1, self.channels, "channels")
        mask = checked_mask(where, mask, x)
        over = self._over(x.ndim)
        shape = self._along_channels(self.channels, x.ndim)

        def train(params: Any, state: Any, x: Any, mask: Any) -> Any:
            done = standardise(widened(x), mask, over, self.eps)
            y = affine(params, shape, done.values, self.activation)
            return masked(mask, y).astype(x.dtype), self._updated(state, done)

        def test(params: Any, state: Any, x: Any, mask: Any) -> Any:
            wide = masked(mask, widened(x))
            mean, var = (state[name].reshape(shape).astype(wide.dtype) for name in ("mean", "var"))
            values = (wide - mean) * inverse_deviation(var, self.eps)
            y = affine(params, shape, values, self.activation)
            return masked(mask, y).astype(x.dtype), state

        values = self._inside(x)
        if _is_single(values, over):
            mode = mode.refuse_training(_too_few(where, x.shape))
        elif not self.track_stats:
            mode = Mode(training=True)
        operands = (params, state, values, self._inside(mask))
        y, state = mode.choose(train, test if self.track_stats else train, *operands)
        return self._outside(y), state

    def _over(self, ndim: int) -> Over:
        """Return over what statistics are taken, for an input with `ndim` axes."""
        raise NotImplementedError

    def _updated(self, state: Any, done: Standardised) -> Any:
        """Return the running statistics after a batch; they carry no derivative.

        The running variance is the unbiased one. Where a mask leaves fewer than two
        values they say nothing about a variance, and are left out.
        """
        if not self.track_stats:
            return state
        mean, var = jax.lax.stop_gradient((done.mean, done.var))
        count = jnp.broadcast_to(jnp.asarray(done.count, mean.dtype), mean.shape)
        one = np.ones((), mean.dtype)
        var = var * (count / jnp.maximum(count - one, one))
        weight = (count > one).astype(mean.dtype)
        total = self._per_channel(weight)
        new = {}
        for name, batch in (("mean", mean), ("var", var)):
            batch = self._per_channel(select(weight > 0, batch, jnp.zeros_like(batch)))
            batch = (batch / jnp.maximum(total, one)).astype(state[name].dtype)
            momentum = np.asarray(self.momentum, batch.dtype)
            moved = (np.ones((), batch.dtype) - momentum) * state[name] + momentum * batch
            new[name] = select(total > 0, moved, state[name])
        return jax.lax.stop_gradient(new)

    def _per_channel(self, x: jax.Array) -> jax.Array:
        """Sum the statistics of all instances."""
        over = Over(self._axes_but_channels(x.ndim), self._instances())
        return total(over, x).reshape(self.channels)

    def _instances(self) -> Any:
        """Return the named axis whose lanes have statistics of their own, or None."""
        return None


class BatchNorm(ChannelNorm):
    """Normalise each channel over the batch and the spatial axes.

    y = activation(scale * (x - mean) / sqrt(var + eps) + bias). In training mean and
    (biased) variance are the batch's, and the state moves towards them:
    new = (1 - momentum) * old + momentum * batch, with the unbiased variance. In test
    mode they are the state's. No derivative flows through the state.

    Args:
        channels: size of axis 1.
        activation: applied at the end, elementwise.
        affine: whether there are a scale and a bias.
        track_stats: whether there are running statistics; without, test mode uses the
            batch's as training does.
        eps: added to the variance, inside the square root.
        momentum: the weight of the new batch, in [0, 1].
        axis_name: of a `vmap` or `shard_map` over the batch, one or several names: the
            statistics are those of all lanes together. Under `jit` with sharded arrays
            nothing is needed.

    Input:
        (N, C) or (N, C, *spatial), real floating point. Statistics are computed in float32
        for half precision. Values whose squares overflow that, 1e19 and more in float32,
        have no variance in it: they give NaN, and so does test mode after them. Scale
        such data first. `apply` takes `mask=`, bool and broadcastable to the input:
        only values where it is True count; the others give 0, have gradient 0 and may be
        NaN.

    Raises:
        ArgumentValueError: a wrong number of channels; one value per channel in training,
            which has no variance.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> import pybridge as pb
        >>> layer = pb.nn.BatchNorm(1)
        >>> params, state = layer.init(jax.random.key(0))
        >>> def loss(params, state, x):
        ...     y, state = layer.apply(params, state, x)
        ...     return y[0, 0], state
        >>> x = jnp.array([[1.0], [2.0], [3.0], [4.0]])
        >>> gradient, state = jax.grad(loss, has_aux=True)(params, state, x)
        >>> round(float(state["mean"][0]), 4), round(float(state["var"][0]), 4)
        (0.25, 1.0667)

    The twin in Julia is `PyBridge.BatchNorm`. Source: Ioffe and Szegedy 2015, and Flux.
    """

    def _over(self, ndim: int) -> Over:
        return Over(self._axes_but_channels(ndim), self.axis_name)


def _is_single(x: jax.Array, over: Over) -> bool:
    count = value_count(x, None, over)
    return isinstance(count, int) and count < 2


def _too_few(where: str, shape: tuple[int, ...]) -> ArgumentValueError:
    return ArgumentValueError(
        explain(
            f"{where}.apply",
            expected="more than one value per channel in training",
            got=f"an input of shape {shape}",
            fix="One value has no variance. Use a larger batch, or `training=False`.",
        )
    )
