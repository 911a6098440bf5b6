"""The table of vectors, one for each member of a vocabulary."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from .._errors import ArgumentTypeError, ArgumentValueError, explain
from ..primitives import fill, gather, place
from ._dtypes import input_array, match_dtype
from ._init import fresh, randn
from ._layer import Layer, check_axis, positive
from ._linear_map import linear_map
from ._mode import Mode
from ._options import function, settle


@dataclasses.dataclass(frozen=True, init=False, repr=False)
class Embedding(Layer):
    """A table from which indices pick rows: `y = weight[x]`.

    The input is an array of integers in 0 ... vocabulary - 1, of any shape (Flux counts
    from 1), or of bools of shape (..., vocabulary), one-hot: those multiply the weight.
    The output has one more axis, or another last one, of size `features`.

    An index that is out of range is an error where its value is known. In a compiled
    program it gives NaN, and no gradient.

    The parameter is `weight`, of shape (vocabulary, features). There is no state.

    Args:
        vocabulary: how many vectors there are.
        features: size of each.
        init: initialiser of the weight, called as `init(key, shape, dtype)`.

    Raises:
        ArgumentTypeError: `init` is no function; in `apply`, the input is neither integer
            nor bool.
        ArgumentValueError: a size is no positive integer; in `apply`, an index is out of
            range, or the last axis of bools has another size.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> import pybridge as pb
        >>> layer = pb.nn.Embedding(26, 4)
        >>> params, state = layer.init(jax.random.key(0))
        >>> y, state = layer.apply(params, state, jnp.array([[0, 25, 3]]))
        >>> y.shape
        (1, 3, 4)

    The twin in Julia is `PyBridge.Embedding`, Flux's is `Embedding`.
    """

    vocabulary: int
    features: int
    weight_init: Callable[..., Any] = dataclasses.field(default=randn, metadata={"option": "init"})

    def __init__(self, vocabulary: int, features: int, *, init: Callable[..., Any] = randn):
        """Check and keep the configuration."""
        settle(
            self,
            vocabulary=positive("Embedding", "vocabulary", vocabulary),
            features=positive("Embedding", "features", features),
            weight_init=function("Embedding", "init", init),
        )

    def init(self, key: Any, dtype: Any = jnp.float32) -> tuple[Any, Any]:
        """Return a fresh table and no state; see `Layer.init`."""
        shape = (self.vocabulary, self.features)
        return {"weight": fresh("Embedding.init", self.weight_init, key, shape, dtype)}, {}

    def forward(self, params: Any, state: Any, x: Any, *, key: Any, mode: Mode) -> tuple[Any, Any]:
        """Return the vectors and the state as it is; see `Layer.forward`."""
        weight = jnp.asarray(params["weight"])
        dtype = jnp.result_type(input_array("Embedding", x))
        if dtype == jnp.bool_:
            check_axis("Embedding", x, -1, self.vocabulary, "bools, one-hot,")
            return linear_map(match_dtype("Embedding", x, weight), weight), state
        if not jnp.issubdtype(dtype, jnp.integer):
            raise ArgumentTypeError(
                explain(
                    "Embedding",
                    expected="indices as an integer array, or one-hot as a bool array",
                    got=f"an input of dtype {dtype}",
                    fix="Convert it, for example `x.astype(int)`.",
                )
            )
        self._check_range(x)
        positions, valid = place(x, self.vocabulary, "fill", where="Embedding", axis=0)
        valid = jnp.asarray(valid) & (jnp.asarray(x) >= np.zeros((), dtype))
        nothing = np.full((), np.nan, weight.dtype)
        return fill(gather(weight, (positions,)), valid, 0, nothing), state

    def _check_range(self, x: Any) -> None:
        if isinstance(x, Tracer) or np.size(x) == 0:
            return
        known = np.asarray(x)  # not by JAX, which would trace the comparison under `jit`
        least, largest = known.min(), known.max()
        if least < 0 or largest >= self.vocabulary:
            raise ArgumentValueError(
                explain(
                    "Embedding",
                    expected=f"indices from 0 to {self.vocabulary - 1}",
                    got=f"indices from {least} to {largest}",
                    fix="They count from 0 here, and from 1 in Flux.",
                )
            )
