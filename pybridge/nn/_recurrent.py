"""Layers that carry a hidden state along a sequence: one scan for any length."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from .._errors import ArgumentTypeError, ArgumentValueError, explain
from ..primitives import select
from ._activations import tanh
from ._cell import Cell, starting
from ._cells import GRUCell, GRUv3Cell, LSTMCell, RNNCell
from ._dtypes import input_array
from ._init import glorot_uniform
from ._layer import Layer
from ._mode import Mode
from ._options import settle, switch


@dataclasses.dataclass(frozen=True, init=False, repr=False)
class Recurrence(Layer):
    """Apply a recurrent cell to each step of a sequence, one `jax.lax.scan` for all of them.

    The input has shape (time, features) or (batch, time, features), Flux's order reversed; the
    output has the cell's outputs in place of the features.

    Options of `apply`:
        hidden: the hidden state to start from, one for each sequence or one for all; zeros by
            default. h of shape (out_features,) or (batch, out_features), for LSTM (h, c).
        mask: bool, of shape (batch, time) or (batch, time, 1), without batch (time,) or
            (time, 1): where False, a step is padding. It leaves the hidden state as it is, its
            output is 0, it has gradient 0 and may be NaN.

    Parameters are the cell's own. There is no `state`: the hidden state belongs to the caller.

    Args:
        cell: a `Cell`, of Flux's or of one's own.
        return_state: whether the output is `(y, hidden)`, with the hidden state after the last
            step, in place of y.

    Raises:
        ArgumentTypeError: `cell` is no cell, `return_state` no bool; in `apply`, the input is a
            list, the mask is not bool, or `hidden` has another tree.
        ArgumentValueError: in `apply`, the input has no step, another number of axes or of
            features, or `hidden` or `mask` another shape.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> import pybridge as pb
        >>> layer = pb.nn.Recurrence(pb.nn.GRUCell(2, 3), return_state=True)
        >>> params, state = layer.init(jax.random.key(0))
        >>> (y, hidden), state = layer.apply(params, state, jnp.ones((5, 7, 2)))
        >>> y.shape, hidden.shape
        ((5, 7, 3), (5, 3))

    The twin in Julia is `PyBridge.Recurrence`, Flux's is `Recurrence`.
    """

    cell: Cell
    return_state: bool = False

    def __init__(self, cell: Cell, *, return_state: bool = False):
        """Check and keep the configuration."""
        where = type(self).__name__
        if not isinstance(cell, Cell):
            raise ArgumentTypeError(
                explain(
                    where,
                    expected="a recurrent cell",
                    got=f"a {type(cell).__name__}",
                    fix="LSTMCell(2, 3) is one, and so is what derives from pb.nn.Cell.",
                )
            )
        settle(self, cell=cell, return_state=switch(where, "return_state", return_state))

    @classmethod
    def around(cls, cell: Any, return_state: bool) -> Recurrence:
        """Return the layer of this kind with a cell that is there."""
        layer = object.__new__(cls)
        Recurrence.__init__(layer, cell, return_state=return_state)
        return layer

    def init(self, key: Any, dtype: Any = jnp.float32) -> tuple[Any, Any]:
        """Initialise the cell."""
        return self.cell.init(key, dtype)

    def forward(
        self,
        params: Any,
        state: Any,
        x: Any,
        *,
        key: Any,
        mode: Mode,
        hidden: Any = None,
        mask: Any = None,
    ) -> tuple[Any, Any]:
        """Return the outputs of all steps and the state as it is; see `Layer.forward`."""
        where = type(self).__name__
        x = _sequences(where, x)
        mask = _steps_that_count(where, mask, x)
        if mask is not None:
            x = _without_padding(x, mask)
        hidden = starting(where, self.cell, params, x.shape[:-2], hidden)
        time = x.ndim - 2
        steps = jax.tree.map(lambda leaf: jnp.moveaxis(leaf, time, 0), self.cell.prepare(params, x))

        def step(hidden: Any, inputs: Any) -> Any:
            x, counts = inputs
            y, following = self.cell.step(params, x, hidden)
            if counts is None:
                return following, y
            kept = jax.tree.map(lambda new, old: select(counts, new, old), following, hidden)
            return kept, jax.tree.map(lambda y: select(counts, y, jnp.zeros_like(y)), y)

        counts = None if mask is None else jnp.moveaxis(mask, -1, 0)
        hidden = _as_carried(step, hidden, (steps, counts))
        hidden, ys = lax.scan(step, hidden, (steps, counts))
        y = jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 0, time), ys)
        return ((y, hidden) if self.return_state else y), state


def _without_padding(x: jax.Array, mask: jax.Array) -> jax.Array:
    """Return `x` with the first step of each sequence that counts in the place of padding.

    Padding may be NaN, or where a cell of one's own has no derivative, as log(x) at 0. A sequence
    in which no step counts is zero.
    """
    zeros, first = jnp.zeros_like(x), mask & (jnp.cumsum(mask, -1) == 1)
    step = jnp.sum(select(first, x, zeros), -2, keepdims=True)
    return select(mask, x, jnp.broadcast_to(lax.stop_gradient(step), x.shape))


def _as_carried(step: Callable[..., Any], hidden: Any, inputs: Any) -> Any:
    """Return the first hidden state sharded over a mesh as those that follow it.

    A scan wants one type for all of them, and zeros are on no axis of the mesh. The step that tells
    their type is not run: XLA removes it.
    """
    if all(jax.typeof(leaf).sharding.mesh.empty for leaf in jax.tree.leaves(inputs)):
        return hidden
    following, _ = step(hidden, jax.tree.map(lambda leaf: leaf[0], inputs))
    following = lax.stop_gradient(following)
    return jax.tree.map(lambda new, old: select(np.False_, new, old), following, hidden)


class _OfCell(Recurrence):
    """A recurrence that makes its own cell."""

    kind: ClassVar[type[Any]]

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        return_state: bool = False,
        bias: bool = True,
        init: Callable[..., Any] = glorot_uniform,
        recurrent_init: Callable[..., Any] = glorot_uniform,
        **options: Any,
    ):
        """Make the cell."""
        options |= {"bias": bias, "init": init, "recurrent_init": recurrent_init}
        super().__init__(self.kind(in_features, out_features, **options), return_state=return_state)

    def __repr__(self) -> str:
        """Return the call that makes the layer."""
        options = repr(self.cell).removeprefix(self.kind.__name__).removesuffix(")")
        last = ", return_state=True)" if self.return_state else ")"
        return f"{type(self).__name__}{options}{last}"


class RNN(_OfCell):
    """A plain recurrent network over sequences: `RNNCell` in a `Recurrence`.

    Input, options of `apply` (`hidden=`, `mask=`), parameters and errors are those of
    `Recurrence` and `RNNCell`.

    Args:
        in_features: size of the input's last axis.
        out_features: size of the output's last axis.
        activation: elementwise function of each step's result.
        return_state: whether the output is `(y, hidden)` in place of y.
        bias: whether to add a bias, zero at first.
        init: initialiser of `weight_in`, called as `init(key, shape, dtype)`.
        recurrent_init: the same of `weight_hidden`.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> import pybridge as pb
        >>> layer = pb.nn.RNN(2, 3, pb.nn.relu)
        >>> params, state = layer.init(jax.random.key(0))
        >>> layer.apply(params, state, jnp.ones((5, 7, 2)))[0].shape
        (5, 7, 3)

    The twin in Julia is `PyBridge.RNN`, Flux's is `RNN`.
    """

    kind: ClassVar[type[Any]] = RNNCell

    def __init__(
        self,
        in_features: int,
        out_features: int,
        activation: Callable[..., Any] = tanh,
        *,
        return_state: bool = False,
        bias: bool = True,
        init: Callable[..., Any] = glorot_uniform,
        recurrent_init: Callable[..., Any] = glorot_uniform,
    ):
        """Make the cell."""
        super().__init__(
            in_features,
            out_features,
            activation=activation,
            return_state=return_state,
            bias=bias,
            init=init,
            recurrent_init=recurrent_init,
        )


class LSTM(_OfCell):
    """A long short-term memory over sequences: `LSTMCell` in a `Recurrence`.

    Input, options of `apply` (`hidden=`, a tuple (h, c), and `mask=`), parameters and errors
    are those of `Recurrence` and `LSTMCell`; arguments are those of `RNN`, without activation.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> import pybridge as pb
        >>> layer = pb.nn.LSTM(2, 3, return_state=True)
        >>> params, state = layer.init(jax.random.key(0))
        >>> x = jnp.ones((5, 7, 2))
        >>> lengths = jnp.array([7, 3, 1, 7, 2])
        >>> mask = jnp.arange(7) < lengths[:, None]
        >>> (y, (h, c)), state = layer.apply(params, state, x, mask=mask)
        >>> bool((h[1] == y[1, 2]).all())
        True

    The twin in Julia is `PyBridge.LSTM`, Flux's is `LSTM`.
    """

    kind: ClassVar[type[Any]] = LSTMCell


class GRU(_OfCell):
    """A gated recurrent unit over sequences: `GRUCell` in a `Recurrence`.

    Input, options of `apply` (`hidden=`, `mask=`), parameters and errors are those of
    `Recurrence` and `GRUCell`; arguments are those of `RNN`, without activation.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> import pybridge as pb
        >>> layer = pb.nn.GRU(2, 3)
        >>> params, state = layer.init(jax.random.key(0))
        >>> layer.apply(params, state, jnp.ones((7, 2)))[0].shape
        (7, 3)

    The twin in Julia is `PyBridge.GRU`, Flux's is `GRU`.
    """

    kind: ClassVar[type[Any]] = GRUCell


class GRUv3(_OfCell):
    """The gated recurrent unit of `GRUv3Cell` over sequences; else as `GRU`.

    The twin in Julia is `PyBridge.GRUv3`, Flux's is `GRUv3`.
    """

    kind: ClassVar[type[Any]] = GRUv3Cell


def _sequences(where: str, x: Any) -> jax.Array:
    """Return the input as an array with a time axis that has steps.

    Raises:
        ArgumentTypeError: it is a list.
        ArgumentValueError: it has another number of axes, or no step.
    """
    if isinstance(x, list | tuple) and any(hasattr(one, "shape") for one in x):
        raise ArgumentTypeError(
            explain(
                f"{where}.apply",
                expected="sequences in one array, (batch, time, features)",
                got=f"a {type(x).__name__} of {len(x)} arrays",
                fix="Pad them to one length, and pass `mask=`, bool of shape (batch, time), "
                "that is True where there is no padding.",
            )
        )
    shape = jnp.shape(input_array(f"{where}.apply", x))
    # Whether a symbolic length is zero shows when it gets a value.
    if len(shape) not in (2, 3) or (isinstance(shape[-2], int) and shape[-2] < 1):
        raise ArgumentValueError(
            explain(
                f"{where}.apply",
                expected="(time, features) or (batch, time, features), with one step or more",
                got=f"shape {shape}",
                fix="This is the reverse of Flux's order of axes. A single step is for the cell.",
            )
        )
    return jnp.asarray(x)


def _steps_that_count(where: str, mask: Any, x: jax.Array) -> jax.Array | None:
    """Return the mask with the shape (*batch, time).

    Raises:
        ArgumentTypeError: it is not bool.
        ArgumentValueError: it has another shape.
    """
    if mask is None:
        return None
    mask = jnp.asarray(input_array(f"{where}.apply", mask))
    fix = "It is True where a step counts, and False where it is padding."
    if mask.dtype != jnp.bool_:
        raise ArgumentTypeError(
            explain(
                f"{where}.apply", expected="a bool array as `mask`", got=f"{mask.dtype}", fix=fix
            )
        )
    expected = x.shape[:-1]
    if mask.shape not in (expected, (*expected, 1)):
        raise ArgumentValueError(
            explain(
                f"{where}.apply",
                expected=f"`mask` of shape {expected}",
                got=f"shape {mask.shape}",
                fix=fix,
            )
        )
    return mask.reshape(expected)
