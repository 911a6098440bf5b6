"""The table of AD systems, and of what each can do: the one place in Python that knows."""

from __future__ import annotations

from dataclasses import dataclass, field

from ._errors import UnknownBackendError, explain


@dataclass(frozen=True)
class Backend:
    """An AD system, as `pb.backends()` lists it.

    Attributes:
        name: what the `backend` argument calls it.
        language: `"python"` or `"julia"`.
        mode: `"reverse"`, `"forward"` or `"both"`: what the system does natively.
        package: the package that has it.
        version: the version that is loaded; None where it is not available.
        available: whether it can be used in this process.
        reason: why it is not available, and what to do; None where it is.
        second_order: whether it has second derivatives of its own, for `pb.hessian`.
        detection: what `within_gradient` can tell: `"value"`, whether this value carries a
            derivative; `"program"`, whether the program is being differentiated; `"none"`.
        reads_chainrules: whether rules of ChainRules in Julia code are used. With JAX they are:
            the bridge reads them for every system.
        structural_zeros: whether a derivative that is zero may come as something else than zeros,
            such as `nothing` or `NoTangent()`. The bridge makes zeros of it.
    """

    name: str
    language: str
    mode: str
    package: str
    version: str | None = None
    available: bool = False
    reason: str | None = None
    second_order: bool = field(default=False, repr=False)
    detection: str = field(default="value", repr=False)
    reads_chainrules: bool = field(default=False, repr=False)
    structural_zeros: bool = field(default=False, repr=False)

    @property
    def modes(self) -> tuple[str, ...]:
        """What it does natively, of `"reverse"`, `"forward"` and `"second"`."""
        first = ("reverse", "forward") if self.mode == "both" else (self.mode,)
        return (*first, "second") if self.second_order else first


# One row for each system; a new Julia system also needs one file in julia_src/ext.
TABLE = (
    Backend(
        "jax", "python", "both", "jax", second_order=True, detection="value", reads_chainrules=True
    ),
    Backend("finite", "python", "forward", "numpy", second_order=True, detection="none"),
    Backend(
        "zygote",
        "julia",
        "reverse",
        "Zygote",
        second_order=True,
        detection="program",
        reads_chainrules=True,
        structural_zeros=True,
    ),
    Backend("forwarddiff", "julia", "forward", "ForwardDiff", second_order=True, detection="value"),
    Backend("tracker", "julia", "reverse", "Tracker", detection="value", structural_zeros=True),
    Backend(
        "yota",
        "julia",
        "reverse",
        "Yota",
        detection="program",
        reads_chainrules=True,
        structural_zeros=True,
    ),
    Backend("reversediff", "julia", "reverse", "ReverseDiff", detection="value"),
)

NAMES = tuple(row.name for row in TABLE)
JULIA_NAMES = tuple(row.name for row in TABLE if row.language == "julia")


def row(name: str, *, argument: str = "backend", names: tuple[str, ...] = NAMES) -> Backend:
    """Look an AD system up.

    Args:
        name: what the caller gave.
        argument: the argument's name, for the error.
        names: the names that are allowed there.

    Returns:
        Its row in the table.

    Raises:
        UnknownBackendError: there is no such system; the message lists those that there are.
    """
    for candidate in TABLE:
        if candidate.name == name and name in names:
            return candidate
    raise UnknownBackendError(
        explain(
            argument,
            expected="one of " + ", ".join(map(repr, names)),
            got=repr(name),
            fix="The names are lower case.",
        )
    )
