"""The table of AD systems."""

from __future__ import annotations

from dataclasses import dataclass

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
    """

    name: str
    language: str
    mode: str
    package: str
    version: str | None = None
    available: bool = False
    reason: str | None = None


# One row for each system; a new Julia system also needs one file in julia_src/ext.
_TABLE = (
    Backend("jax", "python", "both", "jax"),
    Backend("finite", "python", "forward", "numpy"),
    Backend("zygote", "julia", "reverse", "Zygote"),
    Backend("forwarddiff", "julia", "forward", "ForwardDiff"),
    Backend("tracker", "julia", "reverse", "Tracker"),
    Backend("yota", "julia", "reverse", "Yota"),
)

NAMES = tuple(row.name for row in _TABLE)
JULIA_NAMES = tuple(row.name for row in _TABLE if row.language == "julia")


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
    for candidate in _TABLE:
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
