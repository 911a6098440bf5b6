"""Weight normalisation."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np

from .._errors import ArgumentTypeError, ArgumentValueError, explain
from ._layer import Layer
from ._mode import Mode
from ._options import settle


@dataclasses.dataclass(frozen=True, repr=False)
class WeightNorm(Layer):
    """Train the length and the direction of a layer's weight apart.

    weight = g * v / sqrt(sum(v^2, axis) + eps), with v the wrapped layer's own parameter,
    eps the machine epsilon of its dtype, and g a parameter that starts as the length of v,
    so that the layer starts with the weight that it has.

    Args:
        layer: any layer with a parameter of that name.
        which: the name of the parameter.
        axis: along which squares are summed: an integer, a tuple, or None for all.
            The default 0 is Flux's (its last dimension). The paper's length of each
            output unit is `axis=0` for `Dense` and `axis=(1, 2, ...)` for `Conv`.

    Raises:
        ArgumentTypeError: `layer` is no layer.
        ArgumentValueError: it has no parameter of that name.

    Params:
        `{"layer": the layer's own, "g": of the parameter's shape with 1 along axis}`.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> import pybridge as pb
        >>> layer = pb.nn.WeightNorm(pb.nn.Dense(2, 1, bias=False))
        >>> params, state = layer.init(jax.random.key(0))
        >>> params["layer"]["weight"] = jnp.array([[3.0], [4.0]])
        >>> params["g"] = jnp.array([[10.0]])
        >>> layer.apply(params, state, jnp.array([[1.0, 1.0]]))[0].tolist()
        [[14.0]]

    The twin in Julia is `PyBridge.WeightNorm`. Source: Salimans and Kingma 2016, and Flux.
    """

    layer: Layer
    which: str = "weight"
    _: dataclasses.KW_ONLY
    axis: int | tuple[int, ...] | None = 0

    def __post_init__(self) -> None:
        """Check the configuration."""
        if not isinstance(self.layer, Layer):
            raise ArgumentTypeError(
                explain(
                    "WeightNorm",
                    expected="a layer",
                    got=f"a {type(self.layer).__name__}",
                    fix="For example `WeightNorm(Dense(4, 8))`.",
                )
            )
        if isinstance(self.axis, list):
            settle(self, axis=tuple(self.axis))

    def init(self, key: Any, dtype: Any = jnp.float32) -> tuple[Any, Any]:
        """Return the layer's own parameters and state, and the length of the weight."""
        params, state = self.layer.init(key, dtype)
        if not isinstance(params, dict) or self.which not in params:
            raise ArgumentValueError(
                explain(
                    "WeightNorm",
                    expected=f"a layer with a parameter {self.which!r}",
                    got=repr(self.layer),
                    fix="Wrap the layer itself, not a chain, and name its parameter.",
                )
            )
        return {"layer": params, "g": self._length(params[self.which])}, state

    def forward(
        self, params: Any, state: Any, x: Any, *, key: Any, mode: Mode, **options: Any
    ) -> tuple[Any, Any]:
        """Apply the layer with the normalised weight."""
        v = params["layer"][self.which]
        weight = params["g"] * v / self._length(v)
        inner = {**params["layer"], self.which: weight}
        return self.layer.forward(inner, state, x, key=key, mode=mode, **options)

    def accepts(self, option: str) -> bool:
        """Tell whether the layer takes an option."""
        return self.layer.accepts(option)

    def _length(self, v: Any) -> Any:
        tiny = np.asarray(jnp.finfo(v.dtype).eps, v.dtype)
        length = jnp.sqrt(jnp.sum(v * v, self.axis, keepdims=True) + tiny)
        # An overflow: divided by infinity, the weight would be zero without a word.
        return jnp.where(jnp.isinf(length), np.asarray(np.nan, v.dtype), length)
