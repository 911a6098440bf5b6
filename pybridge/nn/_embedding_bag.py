"""The table of vectors that takes several at once."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from .._errors import ArgumentTypeError, ArgumentValueError, explain
from ._dtypes import at_least_single, input_array
from ._embedding import Embedding
from ._init import randn
from ._layer import Layer, positive
from ._mode import Mode
from ._options import function, settle


@dataclasses.dataclass(frozen=True, init=False, repr=False)
class EmbeddingBag(Layer):
    """A table from which bags of indices pick rows, which are reduced to one: their mean.

    The input is an array of integers of shape (..., bag), from 0, Flux's order reversed (which
    counts from 1), or bools of shape (..., bag, vocabulary), one-hot. The output has shape
    (..., features). Bags that differ in length are a list of such arrays, one for each bag, or a
    tuple `(indices, starts)` of two vectors: bag i is `indices[starts[i]:starts[i + 1]]`, the last
    one goes to the end, and `starts[0] == 0`. The output has shape (bags, features).

    The parameter is `weight`, of shape (vocabulary, features). There is no state.

    Args:
        vocabulary: how many vectors there are.
        features: size of each.
        reduction: called as `reduction(vectors, axis)`, for example `jnp.mean`, `jnp.sum` or
            `jnp.max`.
        init: initialiser of the weight, called as `init(key, shape, dtype)`.

    Raises:
        ArgumentTypeError: `reduction` or `init` is no function; in `apply`, the input is neither
            integer nor bool, or `starts` is traced and `reduction` neither mean nor sum.
        ArgumentValueError: a size is no positive integer; in `apply`, an index is out of range
            where its value is known, a bag is empty, or `starts` does not begin with 0 and grow.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> import pybridge as pb
        >>> layer = pb.nn.EmbeddingBag(26, 4)
        >>> params, state = layer.init(jax.random.key(0))
        >>> layer.apply(params, state, jnp.array([[0, 25, 3], [1, 1, 2]]))[0].shape
        (2, 4)
        >>> layer.apply(params, state, [jnp.array([0, 25, 3]), jnp.array([1, 2])])[0].shape
        (2, 4)
        >>> bags = jnp.array([0, 25, 3, 1, 2]), jnp.array([0, 3])
        >>> layer.apply(params, state, bags)[0].shape
        (2, 4)

    The twin in Julia is `PyBridge.EmbeddingBag`, Flux's is `EmbeddingBag`.
    """

    vocabulary: int
    features: int
    reduction: Callable[..., Any] = jnp.mean
    weight_init: Callable[..., Any] = dataclasses.field(default=randn, metadata={"option": "init"})

    def __init__(
        self,
        vocabulary: int,
        features: int,
        reduction: Callable[..., Any] = jnp.mean,
        *,
        init: Callable[..., Any] = randn,
    ):
        """Check and keep the configuration."""
        settle(
            self,
            vocabulary=positive("EmbeddingBag", "vocabulary", vocabulary),
            features=positive("EmbeddingBag", "features", features),
            reduction=function("EmbeddingBag", "reduction", reduction),
            weight_init=function("EmbeddingBag", "init", init),
        )

    @property
    def _table(self) -> Embedding:
        return Embedding(self.vocabulary, self.features, init=self.weight_init)

    def init(self, key: Any, dtype: Any = jnp.float32) -> tuple[Any, Any]:
        """Return a fresh table and no state; see `Layer.init`."""
        return self._table.init(key, dtype)

    def forward(self, params: Any, state: Any, x: Any, *, key: Any, mode: Mode) -> tuple[Any, Any]:
        """Return the reduced vectors and the state as it is; see `Layer.forward`."""
        if isinstance(x, list):
            x = one_after_the_other(x)
        indices, starts = x if isinstance(x, tuple) and len(x) == 2 else (x, None)
        shape = jnp.shape(input_array("EmbeddingBag.apply", indices))
        axes = 1 + (getattr(indices, "dtype", None) == np.bool_)
        wanted = len(shape) == axes if starts is not None else len(shape) >= axes
        if not wanted or 0 in shape[-axes:]:
            raise _no_bags(f"shape {shape}")
        vectors, _ = self._table.forward(params, {}, indices, key=key, mode=mode)
        if starts is None:
            return self.reduction(vectors, -2), state
        return self._split(vectors, starts), state

    def _split(self, vectors: jax.Array, starts: Any) -> jax.Array:
        """Reduce the vectors from each start to the next."""
        starts = input_array("EmbeddingBag.apply", starts)
        if isinstance(starts, Tracer):
            return self._split_traced(vectors, starts)
        first = np.asarray(starts)
        bounds = np.append(first, len(vectors))
        if first.ndim != 1 or not first.size or first[0] != 0 or np.any(np.diff(bounds) < 1):
            raise ArgumentValueError(
                explain(
                    "EmbeddingBag.apply",
                    expected=f"starts that begin with 0, grow, and stay below {len(vectors)}",
                    got=f"{first.tolist()}",
                    fix="Bag i is `indices[starts[i]:starts[i + 1]]`, and has one index or more.",
                )
            )
        parts = itertools.pairwise(bounds)
        return jnp.stack([self.reduction(vectors[a:b], 0) for a, b in parts])

    def _split_traced(self, vectors: jax.Array, starts: jax.Array) -> jax.Array:
        if self.reduction not in (jnp.mean, jnp.sum):
            raise ArgumentTypeError(
                explain(
                    "EmbeddingBag.apply",
                    expected="starts whose values are known, as `reduction` is neither jnp.mean "
                    "nor jnp.sum",
                    got="a traced array",
                    fix="Pass them to jit as NumPy array in a closure, or a matrix of indices.",
                )
            )
        count = len(starts)
        bag = jnp.searchsorted(starts, jnp.arange(len(vectors)), side="right") - 1
        # As jnp.sum does: half precision has lost count long before the end of a large bag.
        wide = vectors.astype(at_least_single(vectors.dtype))
        total = jax.ops.segment_sum(wide, bag, count)
        if self.reduction is jnp.mean:
            sizes = jax.ops.segment_sum(jnp.ones(len(vectors), wide.dtype), bag, count)
            total = total / sizes[:, None]
        return total.astype(vectors.dtype)


def one_after_the_other(bags: list[Any]) -> tuple[Any, np.ndarray]:
    """Return the indices of all bags, and where each begins: known, as sizes are."""
    arrays = [input_array("EmbeddingBag.apply", bag) for bag in bags]
    shapes = [jnp.shape(array) for array in arrays]
    axes = {1 + (getattr(array, "dtype", None) == np.bool_) for array in arrays}
    if len(axes) != 1 or any(len(shape) not in axes or 0 in shape for shape in shapes):
        raise _no_bags(f"a list of arrays of shapes {shapes}")
    starts = np.cumsum([0, *(shape[0] for shape in shapes[:-1])])
    # What is known stays known under `jit`, so that its range can be checked.
    traced = any(isinstance(array, Tracer) for array in arrays)
    return (jnp if traced else np).concatenate(arrays), starts


def _no_bags(got: str) -> ArgumentValueError:
    return ArgumentValueError(
        explain(
            "EmbeddingBag.apply",
            expected="indices of shape (..., bag), a list of bags, or a tuple (indices, starts) of "
            "vectors",
            got=got,
            fix="A bag has one index or more. `Embedding` takes single ones.",
        )
    )
