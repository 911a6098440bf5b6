"""Multi-head attention."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._errors import ArgumentTypeError, ArgumentValueError, explain
from ._dense import Dense
from ._dropout import Dropout
from ._dtypes import input_array, match_dtype, precision_for
from ._init import glorot_uniform
from ._layer import Layer, child_key, positive
from ._mode import Mode
from ._options import function, settle, switch
from ._softmax import softmax

# The places of Flux's fields, by which the children's keys are numbered.
_PLACES = {"q_proj": 1, "k_proj": 2, "v_proj": 3, "attn_drop": 4, "out_proj": 5}


@dataclasses.dataclass(frozen=True, init=False, repr=False)
class MultiHeadAttention(Layer):
    """Scaled dot-product attention of several heads, between linear maps.

    Queries, keys and values go through `Dense` layers each and are divided into `nheads` parts;
    in each, `scores = softmax(q @ k.T / sqrt(size of a head) + bias)` over the keys, in training
    with dropout, weigh the values; the parts, side by side, go through another `Dense`.

    The input is an array (batch, length, features), or a tuple: `(q, kv)`, or `(q, k, v)`,
    where keys and values have one length. The output is `(y, scores)` as Flux's, of the shapes
    (batch, length, out_features) and (batch, nheads, length, length of the keys).

    Options of `apply`:
        mask: bool, broadcastable to the scores' shape: queries see keys where it is True.
            `make_causal_mask(x)` lets them see what is not behind them. A query that sees no
            key has scores of 0 and no gradient (Flux's are NaN).
        bias: added before the softmax, broadcastable to the scores' shape.

    Parameters are `q_proj`, `k_proj`, `v_proj` and `out_proj`, each those of a `Dense`. There is
    no state. Dropout draws from the key `jax.random.fold_in(key, 4)`.

    Args:
        in_features: of the input, an int or three: of queries, keys and values.
        qkv_features: size of all heads together, an int or two: of queries and keys, and of
            values; by default `in_features`. `nheads` divides them.
        out_features: of the output; by default `in_features`.
        nheads: how many heads there are.
        bias: whether the linear maps have a bias, zero at first.
        init: initialiser of their weights, called as `init(key, shape, dtype)`.
        dropout_prob: of the scores, in training.

    Raises:
        ArgumentTypeError: an option has another type; in `apply`, the input is no array, or the
            mask is not bool.
        ArgumentValueError: a size is no positive integer, or `nheads` does not divide it; in
            `apply`, the inputs do not fit, or bias or mask do not broadcast to the scores.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> import pybridge as pb
        >>> layer = pb.nn.MultiHeadAttention(16, nheads=4)
        >>> params, state = layer.init(jax.random.key(0))
        >>> x = jnp.ones((2, 5, 16))
        >>> (y, scores), _ = layer.apply(params, state, x, mask=pb.nn.make_causal_mask(x))
        >>> y.shape, scores.shape, float(scores[0, 0, 0, 1])
        ((2, 5, 16), (2, 4, 5, 5), 0.0)

    The twin in Julia is `PyBridge.MultiHeadAttention`, Flux's is `MultiHeadAttention`. Source:
    Vaswani et al. 2017.
    """

    in_features: Any
    qkv_features: Any = None
    out_features: int | None = None
    nheads: int = 8
    bias: bool = False
    weight_init: Callable[..., Any] = dataclasses.field(
        default=glorot_uniform, metadata={"option": "init"}
    )
    dropout_prob: float = 0.0

    def __init__(
        self,
        in_features: Any,
        qkv_features: Any = None,
        out_features: int | None = None,
        *,
        nheads: int = 8,
        bias: bool = False,
        init: Callable[..., Any] = glorot_uniform,
        dropout_prob: float = 0.0,
    ):
        """Check and keep the configuration."""
        where = "MultiHeadAttention"
        given = _sizes("in_features", in_features, 3)
        if len(set(given)) > 1 and None in (qkv_features, out_features):
            raise ArgumentValueError(
                explain(
                    where,
                    expected="`qkv_features` and `out_features` where inputs differ in size",
                    got=f"in_features={in_features} alone",
                    fix="For example `MultiHeadAttention((4, 6, 6), 8, 4)`.",
                )
            )
        inner = given[:2] if qkv_features is None else _sizes("qkv_features", qkv_features, 2)
        out = given[0] if out_features is None else positive(where, "out_features", out_features)
        plain = inner == given[:2]
        settle(
            self,
            in_features=_short(given),
            qkv_features=None if plain and out == given[0] else _short(inner),
            out_features=None if out == given[0] else out,
            nheads=positive(where, "nheads", nheads),
            bias=switch(where, "bias", bias),
            weight_init=function(where, "init", init),
            dropout_prob=Dropout(dropout_prob).p,
        )
        if any(size % self.nheads for size in inner):
            raise ArgumentValueError(
                explain(
                    where,
                    expected=f"`qkv_features` that {self.nheads} heads divide",
                    got=repr(_short(inner)),
                    fix="Each head has an equal part of the features; see `nheads`.",
                )
            )

    def projections(self) -> dict[str, Dense]:
        """Return the four linear maps by their names."""
        q, k, v = _sizes("in_features", self.in_features, 3)
        inner = self.in_features if self.qkv_features is None else self.qkv_features
        keys, values = _sizes("qkv_features", inner, 2)
        out = q if self.out_features is None else self.out_features
        sizes = {"q_proj": (q, keys), "k_proj": (k, keys), "v_proj": (v, values)}
        sizes["out_proj"] = (values, out)
        return {
            name: Dense(*size, bias=self.bias, init=self.weight_init)
            for name, size in sizes.items()
        }

    def init(self, key: Any, dtype: Any = jnp.float32) -> tuple[Any, Any]:
        """Return fresh parameters of the four linear maps, and no state; see `Layer.init`."""
        params = {
            name: layer.init(child_key(key, _PLACES[name]), dtype)[0]
            for name, layer in self.projections().items()
        }
        return params, {}

    def forward(
        self,
        params: Any,
        state: Any,
        x: Any,
        *,
        key: Any,
        mode: Mode,
        bias: Any = None,
        mask: Any = None,
    ) -> tuple[Any, Any]:
        """Return output and scores, and the state as it is; see `Layer.forward`."""
        layers, inputs = self.projections(), _queries_keys_values(x)
        q, k, v = (
            self._heads(layers[name].forward(params[name], {}, one, key=None, mode=mode)[0])
            for name, one in zip(("q_proj", "k_proj", "v_proj"), inputs, strict=True)
        )
        precision = precision_for(q.dtype)
        scaled = q / np.asarray(math.sqrt(q.shape[-1]), q.dtype)
        logits = jnp.einsum("bqhd,bkhd->bhqk", scaled, k, precision=precision)
        if bias is not None:
            _check_broadcast("bias", bias, logits.shape)
            logits = logits + match_dtype("MultiHeadAttention", bias, logits)
        scores = softmax(logits) if mask is None else _masked_softmax(logits, mask)
        scores, _ = Dropout(self.dropout_prob).forward(
            {}, {}, scores, key=child_key(key, _PLACES["attn_drop"]), mode=mode
        )
        y = jnp.einsum("bhqk,bkhd->bqhd", scores, v, precision=precision)
        y = y.reshape(*y.shape[:2], math.prod(y.shape[2:]))
        y, _ = layers["out_proj"].forward(params["out_proj"], {}, y, key=None, mode=mode)
        return (y, scores), state

    def _heads(self, x: jax.Array) -> jax.Array:
        return x.reshape(*x.shape[:2], self.nheads, x.shape[2] // self.nheads)


def make_causal_mask(x: Any, axis: int = -2) -> jax.Array:
    """Return the mask by which queries see no key that is behind them: NNlib's.

    Args:
        x: an array, (batch, length, features) for the default axis.
        axis: of the sequence.

    Returns:
        bool of shape (length, length), True where the key (last axis) is not behind the query.

    Example:
        >>> import jax.numpy as jnp, pybridge as pb
        >>> pb.nn.make_causal_mask(jnp.ones((1, 2, 4))).tolist()
        [[True, False], [True, True]]
    """
    length = jnp.shape(input_array("make_causal_mask", x))[axis]
    return jnp.tril(jnp.ones((length, length), bool))


def _masked_softmax(logits: jax.Array, mask: Any) -> jax.Array:
    """Return the softmax over the keys that the mask leaves; zeros where it leaves none."""
    mask = jnp.asarray(input_array("MultiHeadAttention.apply", mask))
    if mask.dtype != jnp.bool_:
        raise ArgumentTypeError(
            explain(
                "MultiHeadAttention.apply",
                expected="a bool array as `mask`",
                got=f"{mask.dtype}",
                fix="It is True where a query sees a key. Numbers to add are `bias=`.",
            )
        )
    _check_broadcast("mask", mask, logits.shape)
    seen = jnp.any(mask, -1, keepdims=True)
    nothing, hidden = (np.asarray(value, logits.dtype) for value in (0, -np.inf))
    # A row of -inf alone has no softmax, nor a gradient.
    scores = softmax(jnp.where(mask, logits, jnp.where(seen, hidden, nothing)))
    return jnp.where(mask, scores, nothing)


def _check_broadcast(name: str, array: Any, shape: tuple[int, ...]) -> None:
    got = jnp.shape(input_array("MultiHeadAttention.apply", array))
    fits = len(got) <= len(shape) and all(
        n in (1, m) for n, m in zip(got[::-1], shape[::-1], strict=False)
    )
    if not fits:
        raise ArgumentValueError(
            explain(
                "MultiHeadAttention.apply",
                expected=f"`{name}` that broadcasts to (batch, nheads, queries, keys) = {shape}",
                got=f"shape {got}",
                fix="A mask of the keys of each sequence is `mask[:, None, None, :]`.",
            )
        )


def _queries_keys_values(x: Any) -> tuple[Any, Any, Any]:
    """Return the three inputs.

    Raises:
        ArgumentTypeError: one is no array.
        ArgumentValueError: they are not two or three, have no batch, or do not fit.
    """
    where = "MultiHeadAttention.apply"
    given = x if isinstance(x, tuple) else (x,)
    shapes = tuple(jnp.shape(input_array(where, one)) for one in given)
    if len(given) not in (1, 2, 3) or any(len(shape) != 3 for shape in shapes):
        raise ArgumentValueError(
            explain(
                where,
                expected="(batch, length, features), or a tuple of two or three such arrays",
                got=f"shapes {shapes}",
                fix="Add a batch axis to a single example, `x[None]`.",
            )
        )
    q, k, v = shapes[0], shapes[min(1, len(given) - 1)], shapes[-1]
    if len({shape[0] for shape in shapes}) > 1 or k[1] != v[1] or k[1] == 0:
        raise ArgumentValueError(
            explain(
                where,
                expected="one batch size, and as many keys as values, one or more",
                got=f"queries {q}, keys {k}, values {v}",
                fix="Inputs are (queries, keys, values), or (queries, keys and values).",
            )
        )
    return given[0], given[min(1, len(given) - 1)], given[-1]


def _sizes(name: str, value: Any, count: int) -> tuple[int, ...]:
    """Return a size for each of queries, keys and values; of one tuple of three two are needed."""
    many = isinstance(value, tuple | list)
    values = tuple(value) if many else (value,) * count
    if len(values) != count:
        raise ArgumentValueError(
            explain(
                "MultiHeadAttention",
                expected=f"a positive integer or {count} of them as {name}",
                got=repr(value),
                fix="Inputs are of queries, keys and values; heads of queries and of values.",
            )
        )
    return tuple(positive("MultiHeadAttention", name, size) for size in values)


def _short(sizes: tuple[int, ...]) -> Any:
    return sizes[0] if len(set(sizes)) == 1 else sizes
