"""What `to_flux` writes: Julia source of a layer, and the arrays in Flux's tree."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from ._layer_twins import NoTwin


@dataclasses.dataclass(frozen=True, eq=False)
class Shared:
    """An array that stands in several places, in source by a name."""

    name: str
    array: Any

    @property
    def dtype(self) -> Any:
        """The array's dtype."""
        return self.array.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """The array's shape."""
        return self.array.shape


@dataclasses.dataclass(frozen=True)
class Written:
    """Julia source of a layer, with zeros for arrays, and the arrays in Flux's tree."""

    source: str
    params: Any = dataclasses.field(default_factory=dict)
    state: Any = dataclasses.field(default_factory=dict)

    def below(self, field: str, source: str) -> Written:
        """Return what holds this in a field."""
        held = ({field: tree} if tree else {} for tree in (self.params, self.state))
        return Written(source, *held)


def zeros(array: Any) -> str:
    """Write an array of zeros, or the name of one that is shared."""
    if isinstance(array, Shared):
        return array.name
    dtype = np.dtype(array.dtype)
    if dtype.name not in ("float16", "float32", "float64"):
        raise NoTwin(f"an array of dtype {dtype}")
    sizes = "".join(f", {n}" for n in array.shape[::-1])
    return f"zeros({dtype.name.capitalize()}{sizes})"
