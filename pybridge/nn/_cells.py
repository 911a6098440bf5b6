"""The recurrent cells of Flux: RNNCell, LSTMCell, GRUCell, GRUv3Cell."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from .._errors import ArgumentValueError, explain
from ._activations import sigmoid_fast, tanh, tanh_fast
from ._cell import Cell
from ._dtypes import match_dtype
from ._init import fresh, glorot_uniform
from ._layer import child_key, positive
from ._linear_map import linear_map
from ._options import elementwise, function, settle, switch


@dataclasses.dataclass(frozen=True, init=False, repr=False)
class _GatedCell(Cell):
    """What Flux's cells share: two weights and a bias for a number of gates."""

    in_features: int
    out_features: int
    bias: bool = True
    weight_init: Callable[..., Any] = dataclasses.field(
        default=glorot_uniform, metadata={"option": "init"}
    )
    recurrent_init: Callable[..., Any] = glorot_uniform
    gates: ClassVar[int]

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        bias: bool = True,
        init: Callable[..., Any] = glorot_uniform,
        recurrent_init: Callable[..., Any] = glorot_uniform,
    ):
        """Check and keep the configuration."""
        where = type(self).__name__
        settle(
            self,
            in_features=positive(where, "in_features", in_features),
            out_features=positive(where, "out_features", out_features),
            bias=switch(where, "bias", bias),
            weight_init=function(where, "init", init),
            recurrent_init=function(where, "recurrent_init", recurrent_init),
        )

    def init(self, key: Any, dtype: Any = jnp.float32) -> tuple[Any, Any]:
        """Return fresh parameters and no state; see `Layer.init`."""
        where, size = f"{type(self).__name__}.init", self.gates * self.out_features
        draws = {"weight_in": (self.weight_init, self.in_features, size)}
        draws["weight_hidden"] = (self.recurrent_init, self.out_features, size)
        draws |= self._more_weights()
        params = {
            name: fresh(where, draw, child_key(key, i), shape, dtype)
            for i, (name, (draw, *shape)) in enumerate(draws.items())
        }
        if self.bias:
            params["bias"] = jnp.zeros(size, dtype)
        return params, {}

    def _more_weights(self) -> dict[str, tuple[Callable[..., Any], int, int]]:
        return {}

    def initial_hidden(self, params: Any, batch: tuple[int, ...]) -> Any:
        """Return zeros; see `Cell.initial_hidden`."""
        # A bias may have been kept in single precision: a step has the dtype of both.
        dtype = jnp.result_type(params["weight_hidden"], *([params["bias"]] if self.bias else []))
        return jnp.zeros((*batch, self.out_features), dtype)

    def prepare(self, params: Any, x: Any) -> jax.Array:
        """Return the input's part of the gates; see `Cell.prepare`."""
        where, weight = type(self).__name__, params["weight_in"]
        shape = jnp.shape(x)
        if not shape or shape[-1] != self.in_features:
            raise ArgumentValueError(
                explain(
                    f"{where}.apply",
                    expected=f"an input with {self.in_features} features on its last axis",
                    got=f"shape {shape}",
                    fix="Sequences are (batch, time, features), the reverse of Flux's order.",
                )
            )
        gates = linear_map(match_dtype(where, x, weight), weight)
        return gates + params["bias"] if self.bias else gates

    def _split(self, gates: jax.Array) -> list[jax.Array]:
        return jnp.split(gates, self.gates, -1)


@dataclasses.dataclass(frozen=True, init=False, repr=False)
class RNNCell(_GatedCell):
    """One step of a plain recurrent network: `h = activation(x @ Wi + h @ Wh + b)`.

    The input has shape (in_features,) or (..., in_features) and is converted to the weights'
    dtype. `apply` takes `hidden=`, of shape (..., out_features) or (out_features,), zeros by
    default, and returns `((y, hidden), state)` with y = hidden = h, as Flux's cell does.

    Parameters are `weight_in`, of shape (in_features, out_features), `weight_hidden`, of shape
    (out_features, out_features), and `bias`, of shape (out_features,), with `bias=True`. There
    is no `state`: the hidden state belongs to the caller.

    Args:
        in_features: size of the input's last axis.
        out_features: size of the hidden state.
        activation: elementwise function of the result.
        bias: whether to add a bias, zero at first.
        init: initialiser of `weight_in`, called as `init(key, shape, dtype)`.
        recurrent_init: the same of `weight_hidden`.

    Raises:
        ArgumentTypeError: `activation` or an initialiser is no function, `bias` is no bool; in
            `apply`, `hidden` is no array.
        ArgumentValueError: a size is no positive integer; in `apply`, the input has another
            number of features, or `hidden` another shape.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> import pybridge as pb
        >>> cell = pb.nn.RNNCell(2, 3)
        >>> params, state = cell.init(jax.random.key(0))
        >>> (y, hidden), state = cell.apply(params, state, jnp.ones((5, 2)))
        >>> (y, hidden), state = cell.apply(params, state, jnp.ones((5, 2)), hidden=hidden)
        >>> y.shape
        (5, 3)

    The twin in Julia is `PyBridge.RNNCell`, Flux's is `RNNCell`.
    """

    activation: Callable[..., Any] = tanh
    gates: ClassVar[int] = 1

    def __init__(
        self,
        in_features: int,
        out_features: int,
        activation: Callable[..., Any] = tanh,
        *,
        bias: bool = True,
        init: Callable[..., Any] = glorot_uniform,
        recurrent_init: Callable[..., Any] = glorot_uniform,
    ):
        """Check and keep the configuration."""
        super().__init__(
            in_features, out_features, bias=bias, init=init, recurrent_init=recurrent_init
        )
        settle(self, activation=elementwise("RNNCell", activation))

    def step(self, params: Any, x: Any, hidden: Any) -> tuple[Any, Any]:
        """Return the next hidden state twice; see `Cell.step`."""
        h = self.activation(x + linear_map(hidden, params["weight_hidden"]))
        return h, h


class LSTMCell(_GatedCell):
    """One step of a long short-term memory.

    With the gates i, f, g, o = split(x @ Wi + h @ Wh + b):
    c = σ(f) c + σ(i) tanh(g) and h = σ(o) tanh(c). `hidden` is the tuple (h, c).

    Parameters are `weight_in`, of shape (in_features, 4 out_features), `weight_hidden`, of
    shape (out_features, 4 out_features), and `bias`, of shape (4 out_features,). Input,
    arguments and errors are those of `RNNCell`; there is no activation to choose.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> import pybridge as pb
        >>> cell = pb.nn.LSTMCell(2, 3)
        >>> params, state = cell.init(jax.random.key(0))
        >>> (y, (h, c)), state = cell.apply(params, state, jnp.ones((5, 2)))
        >>> h.shape, c.shape
        ((5, 3), (5, 3))

    The twin in Julia is `PyBridge.LSTMCell`, Flux's is `LSTMCell`. Source: Hochreiter and
    Schmidhuber 1997, with the forget gate of Gers et al. 2000.
    """

    gates: ClassVar[int] = 4

    def initial_hidden(self, params: Any, batch: tuple[int, ...]) -> Any:
        """Return zeros for h and for c; see `Cell.initial_hidden`."""
        # Two arrays, so that both can be donated.
        return super().initial_hidden(params, batch), super().initial_hidden(params, batch)

    def step(self, params: Any, x: Any, hidden: Any) -> tuple[Any, Any]:
        """Return h and (h, c); see `Cell.step`."""
        h, c = hidden
        write, forget, value, read = self._split(x + linear_map(h, params["weight_hidden"]))
        c = sigmoid_fast(forget) * c + sigmoid_fast(write) * tanh_fast(value)
        h = sigmoid_fast(read) * tanh_fast(c)
        return h, (h, c)


class GRUCell(_GatedCell):
    """One step of a gated recurrent unit, as in the first version of its paper.

    r = σ(x @ Wir + h @ Whr + br), z = σ(x @ Wiz + h @ Whz + bz),
    n = tanh(x @ Win + r (h @ Whn) + bn), and the new h = (1 - z) n + z h.

    Parameters are `weight_in`, of shape (in_features, 3 out_features), `weight_hidden`, of
    shape (out_features, 3 out_features), and `bias`, of shape (3 out_features,), each for r, z
    and n in this order. Input, arguments and errors are those of `RNNCell`; there is no
    activation to choose.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> import pybridge as pb
        >>> cell = pb.nn.GRUCell(2, 3)
        >>> params, state = cell.init(jax.random.key(0))
        >>> (y, hidden), state = cell.apply(params, state, jnp.ones(2))
        >>> y.shape
        (3,)

    The twin in Julia is `PyBridge.GRUCell`, Flux's is `GRUCell`. Source: Cho et al. 2014,
    arXiv:1406.1078v1.
    """

    gates: ClassVar[int] = 3

    def step(self, params: Any, x: Any, hidden: Any) -> tuple[Any, Any]:
        """Return the next hidden state twice; see `Cell.step`."""
        *gates, value = self._split(x)
        *recurrent, old = self._split(linear_map(hidden, params["weight_hidden"]))
        r, z = (sigmoid_fast(a + b) for a, b in zip(gates, recurrent, strict=True))
        candidate = tanh_fast(value + self._candidate(params, r, old, hidden))
        h = (1 - z) * candidate + z * hidden
        return h, h

    def _candidate(self, params: Any, r: jax.Array, old: jax.Array, hidden: Any) -> jax.Array:
        return r * old


class GRUv3Cell(GRUCell):
    """One step of a gated recurrent unit, as in the third version of its paper.

    As `GRUCell`, but for n = tanh(x @ Win + (r h) @ Wc + bn), with one more parameter
    `weight_candidate`, of shape (out_features, out_features). As in Flux the last third of
    `weight_hidden` has no effect. It is no newer variant, only a rarer one.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> import pybridge as pb
        >>> params, state = pb.nn.GRUv3Cell(2, 3).init(jax.random.key(0))
        >>> sorted(params)
        ['bias', 'weight_candidate', 'weight_hidden', 'weight_in']

    The twin in Julia is `PyBridge.GRUv3Cell`, Flux's is `GRUv3Cell`. Source: Cho et al. 2014,
    arXiv:1406.1078v3.
    """

    def _more_weights(self) -> dict[str, tuple[Callable[..., Any], int, int]]:
        return {"weight_candidate": (self.recurrent_init, self.out_features, self.out_features)}

    def _candidate(self, params: Any, r: jax.Array, old: jax.Array, hidden: Any) -> jax.Array:
        return linear_map(r * hidden, params["weight_candidate"])
