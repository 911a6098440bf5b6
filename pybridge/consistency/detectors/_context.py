"""What a detector is given, and what it gives."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from ...finite import DirectionalDerivative
from ...jaxprs import Location
from ..findings import Finding, SlopeCurve, SystemAnswer
from ..subject import Arrays, OwnPrecision, Point


@dataclass(frozen=True)
class Cause:
    """Where a number that is not finite comes from, as `explain_nan` finds it.

    Attributes:
        operation: what to call the operation.
        location: the user's line.
        primitive: the operation in JAX's name.
        dropped_by: what leaves it out of the value; empty where nothing does.
        advice: what to do; empty where nothing is known.
    """

    operation: str
    location: Location | None
    primitive: str
    dropped_by: str = ""
    advice: str = ""


@dataclass(frozen=True)
class Context:
    """What a detector may look at.

    Attributes:
        point: the point, the answers of all systems there, and finite differences.
        seed: of random directions.
        findings: what the detectors before this one found at the point.
        is_stable: whether two calls give the same value.
        inside: the function as it is inside a gradient; None where it does not ask.
        repeats_inside: whether two calls of that give the same value.
        outside: the derivatives of the function outside of a gradient, along `point.lines`, where
            those of the point are the ones inside.
        own: what JAX gives in the caller's own precision; None where that is double precision.
        find_cause: says where a number at the point that is not finite comes from, in double
            precision or in the caller's own.
        say: takes a line of text for whoever waits.
    """

    point: Point
    seed: int = 0
    findings: tuple[Finding, ...] = ()
    is_stable: bool = True
    inside: Callable[[Arrays], Any] | None = None
    repeats_inside: bool = True
    outside: tuple[DirectionalDerivative, ...] = ()
    own: OwnPrecision | None = None
    find_cause: Callable[..., Cause | None] = lambda point, in_own_precision=False: None
    say: Callable[[str], None] = lambda text: None

    @property
    def is_comparable(self) -> bool:
        """Whether there is a derivative that systems can be compared with."""
        return self.is_stable and self.repeats_inside and self.point.references.is_finite()


class Detector(Protocol):
    """Finds one family of faults."""

    def __call__(self, context: Context) -> Iterable[Finding | SlopeCurve | SystemAnswer]:
        """Yield what is to be said, the curves to draw beside it, and answers to questions."""
        ...
