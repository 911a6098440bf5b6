"""What `pb.check` finds, and the report that it returns."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from .._backends import Backend
from ..jaxprs import Location
from ._rendering import Rendered, render

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

# In the order in which a report lists them: an error is a wrong number or none at all, a warning
# is a number that may surprise, a note is a choice that the systems are free to make.
SEVERITIES = ("error", "warning", "note")

# What can be found, and what it means.
KINDS = {
    "value": "the value under differentiation differs from the plain value",
    "mode-dependent": "the function asks within_gradient, and does something else inside",
    "reverse-forward": "reverse and forward mode of one system differ",
    "minority": "a system differs from the other systems and from finite differences",
    "finite": "all systems agree, and differ from finite differences",
    "second-order": "second derivatives differ, or are not symmetric",
    "non-finite": "a derivative is NaN or infinite where the value is finite, or the value is",
    "kink": "the one-sided derivatives differ, and each system makes a choice",
    "special-case": "one point is treated apart from its neighbours, and the derivative shows it",
    "precision": "the caller's precision loses digits that another formula keeps",
    "out-of-bounds": "an index is out of bounds",
    "random": "two calls with the same arguments give different numbers",
    "unsupported": "a system cannot do this, and says so",
    "exception": "a system fails",
    "zero": "a derivative is zero everywhere, or comes as None, nothing, NoTangent or Fill",
}


@dataclass(frozen=True)
class Finding:
    """Something that a user should know about a derivative.

    Attributes:
        kind: one of `KINDS`.
        severity: one of `SEVERITIES`.
        title: one line, without a full stop, that names the fault.
        systems: the AD systems that it is about: those that are wrong, or choose.
        mode: `"value"`, `"forward"`, `"reverse"` or `"second"`; None where it is about several.
        probe: at which point it was seen: `"given"`, `"zeros"`, ...
        argument: which argument: `"args[0]"`, `"args[1]['w']"`; empty where it is about the value.
        element: the place in that argument (from 0); None for a scalar or all elements.
        location: the user's line; None where it is not known, as in Julia.
        primitive: the operation there, in JAX's name; None where it is not known.
        numbers: what was measured: `{"zygote": 1.0, "finite": 2.0}`.
        advice: what to do, in one or two sentences.
    """

    kind: str
    severity: str
    title: str
    systems: tuple[str, ...] = ()
    mode: str | None = None
    probe: str = "given"
    argument: str = ""
    element: tuple[int, ...] | None = None
    location: Location | None = None
    primitive: str | None = None
    numbers: dict[str, Any] = field(default_factory=dict)
    advice: str = ""


@dataclass(frozen=True)
class SystemAnswer:
    """What one AD system answers at one point in one mode.

    Attributes:
        system: its name.
        mode: `"forward"`, `"reverse"` or `"second"`.
        probe: the name of the point.
        value: the value's leaves under differentiation, by path; None after an exception.
        derivative: the derivative, by the path of the argument: of the sum of the value's leaves,
            each weighted (see `Probe.weights`), an array of the argument's shape. In `"second"`
            mode the derivative's own derivative along `Probe.direction`. None after an exception.
        deviation: the largest difference from the reference, relative to 1 + its size; None
            where there is nothing to compare.
        error: type and first line of the exception, else None.
        seconds: how long it took, compilation included.
    """

    system: str
    mode: str
    probe: str
    value: dict[str, np.ndarray] | None = None
    derivative: dict[str, np.ndarray] | None = None
    deviation: float | None = None
    error: str | None = None
    seconds: float = 0.0


@dataclass(frozen=True)
class Probe:
    """A point at which a function is checked.

    Attributes:
        name: `"given"`, `"large"`, `"small"`, `"zeros"`, `"ties"`, `"random 1"`, ...
        args: the arguments, in float64.
        weights: one array for each leaf of the value, by path: the derivatives are those of the
            weighted sum, so that every output takes part.
        direction: one array for each differentiated leaf of the arguments, by path, along which
            forward and second derivatives are compared.
    """

    name: str
    args: tuple[Any, ...]
    weights: dict[str, np.ndarray]
    direction: dict[str, np.ndarray]


@dataclass(frozen=True)
class SlopeCurve:
    """The function along a line through a kink, for drawing.

    Attributes:
        argument: the path of the argument that moves.
        element: which of its elements.
        steps: distances from the point, ascending, 0 among them.
        values: the weighted value at each.
        left: the derivative from the left.
        right: the derivative from the right.
        choices: the derivative that each system gives.
        probe: the name of the point.
    """

    argument: str
    element: tuple[int, ...]
    steps: np.ndarray
    values: np.ndarray
    left: float
    right: float
    choices: dict[str, float]
    probe: str = "given"


@dataclass(frozen=True)
class Report(Rendered):
    """What `pb.check` returns. It prints itself on the terminal and in notebooks.

    Attributes:
        name: what was checked: the function's name or Julia source.
        systems: the AD systems asked, absent ones with the reason.
        probes: the points.
        answers: what each system answered at each point in each mode.
        findings: what is to be said about them, the gravest first.
        curves: the function around each kink.
        sources: the program as each language sees it, by title (`"jaxpr"`, `"Julia"`).
    """

    name: str
    systems: tuple[Backend, ...]
    probes: tuple[Probe, ...]
    answers: tuple[SystemAnswer, ...]
    findings: tuple[Finding, ...]
    curves: tuple[SlopeCurve, ...] = ()
    sources: dict[str, str] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether no finding is an error."""
        return not any(finding.severity == "error" for finding in self.findings)

    @property
    def absent(self) -> bool:
        """Whether a system is absent that was asked."""
        return not all(system.available for system in self.systems)

    def of_kind(self, *kinds: str) -> list[Finding]:
        """List the findings of some kinds.

        Args:
            *kinds: keys of `KINDS`.
        """
        return [finding for finding in self.findings if finding.kind in kinds]

    def counts(self) -> Counter[str]:
        """Count the findings by severity."""
        return Counter(finding.severity for finding in self.findings)

    def table(self) -> str:
        """Write a table of systems and modes as plain text.

        Returns:
            One line a system. A cell has a symbol and the largest deviation from the reference
            at all points, relative to 1 + its size.

        Example:
            >>> from pybridge._backends import Backend
            >>> from pybridge.consistency import Probe, Report, SystemAnswer
            >>> jax = Backend("jax", "python", "both", "jax", "1.0", True)
            >>> answer = SystemAnswer("jax", "reverse", "given", {}, {"args[0]": 2.0}, 1e-16)
            >>> print(Report("f", (jax,), (Probe("given", (1.0,), {}, {}),), (answer,), ()).table())
             system   version   value   reverse
            ────────────────────────────────────
             jax      1.0       ✓       ✓ 1e-16
        """
        return render(self, "table")

    def to_json(self) -> str:
        """Write all of it as JSON.

        Returns:
            An object with `pybridge` (the version), `schema` (1; it grows when a field changes
            its meaning), `name`, `ok`, `summary`, `systems`, `probes`, `answers`, `findings`,
            `curves` and `sources`. Arrays are lists; NaN and infinity are strings.

        Example:
            >>> import json
            >>> from pybridge.consistency import Report
            >>> json.loads(Report("f", (), (), (), ()).to_json())["ok"]
            True
        """
        return super().to_json()

    def __str__(self) -> str:
        """Write table, findings and summary as plain text."""
        return render(self, "text")

    __repr__ = __str__

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Print in colour, for rich."""
        yield from render(self, "terminal")

    def _repr_markdown_(self) -> str:
        return self.to_markdown()

    def _repr_html_(self) -> str:
        return render(self, "notebook")
