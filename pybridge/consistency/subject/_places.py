"""Places in a JAX program: an operation, and the user's line that asks for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from jax.extend.core import ClosedJaxpr

from ...jaxprs import Location, equations, user_line


class Place(NamedTuple):
    """Where in a program something happens; both are None where that is not known.

    Attributes:
        location: the user's line.
        primitive: the operation.
    """

    location: Location | None = None
    primitive: str | None = None


NOWHERE = Place()


def place_of(eqn: Any) -> Place:
    """Give the place of an equation."""
    return Place(user_line(eqn), eqn.primitive.name)


def first_place(closed: ClosedJaxpr | None, is_meant: Callable[[Any], bool]) -> Place:
    """Find the first equation of a kind in a program, inner programs included."""
    found = equations(closed) if closed is not None else ()
    return next((place_of(eqn) for eqn in found if is_meant(eqn)), NOWHERE)
