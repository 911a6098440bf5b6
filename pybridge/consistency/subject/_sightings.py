"""What a Julia function was seen to do at a point, for findings about it.

Three things are not seen: what code does that ForwardDiff's numbers do not get through (signatures
of `Float64`, LAPACK, other languages), rules that Zygote passes by in broadcasts, and lines inside
of packages, for which the line that calls them stands.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import jax.numpy as jnp

from ..._errors import BridgeError
from ...interop import JuliaFunction, Sighting, observe


class Sightings:
    """What a function does at a point: on numbers that tell, and under rules that do.

    Each run is made when it is asked for.
    """

    def __init__(self, f: JuliaFunction, args: tuple[Any, ...]):
        """Keep the function and its arguments."""
        self._f, self._args = f, args

    @cached_property
    def numbers(self) -> tuple[Sighting, ...]:
        """What was seen on ForwardDiff's numbers."""
        return self._observe("forwarddiff")

    @cached_property
    def rules(self) -> tuple[Sighting, ...]:
        """What was seen under Zygote's rules."""
        return self._observe("zygote")

    def _observe(self, backend: str) -> tuple[Sighting, ...]:
        try:
            return observe(self._f, self._args, backend)
        except BridgeError:  # of a system that cannot be had
            return (Sighting("stopped", backend, None),)

    @property
    def is_stopped(self) -> bool:
        """Whether the numbers did not get through."""
        return any(sighting.kind == "stopped" for sighting in self.numbers)

    @property
    def asks(self) -> Sighting | None:
        """The first question whether a derivative is being taken."""
        found = self.first("asks")
        return found if found is not None or not self.is_stopped else _first(self.rules, "asks")

    @property
    def rounding(self) -> float:
        """The relative rounding error of the narrowest numbers that it casts to; 0 if to none."""
        names = [s.name for s in self.numbers if s.kind == "narrow"]
        return max((float(jnp.finfo(name.lower()).eps) for name in names), default=0.0)

    def first(self, *kinds: str) -> Sighting | None:
        """Give the first sighting of some kinds among the numbers."""
        return _first(self.numbers, *kinds)

    def first_rule(self, *kinds: str) -> Sighting | None:
        """Give the first rule of some kinds."""
        return _first(self.rules, *kinds)


def _first(sightings: tuple[Sighting, ...], *kinds: str) -> Sighting | None:
    return next((sighting for sighting in sightings if sighting.kind in kinds), None)
