"""The table of AD systems, and of what each can do: the one place in Python that knows."""

from __future__ import annotations

import re
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
        needs: packages that have to be loaded before its own.
        experimental: whether it is written and not yet run by pybridge's own tests.
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
    needs: tuple[str, ...] = field(default=(), repr=False)
    experimental: bool = field(default=False, repr=False)

    @property
    def packages(self) -> tuple[str, ...]:
        """The packages to load, in order; its own is the last."""
        return (*self.needs, self.package)

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
    Backend(
        "mooncake",
        "julia",
        "both",
        "Mooncake",
        second_order=True,
        detection="program",
        needs=("ForwardDiff",),
    ),
    Backend("reversediff", "julia", "reverse", "ReverseDiff", detection="value"),
    Backend(
        "enzyme",
        "julia",
        "both",
        "Enzyme",
        second_order=True,
        detection="program",
        needs=("DifferentiationInterface",),
        experimental=True,
    ),
)

NAMES = tuple(row.name for row in TABLE)
JULIA_NAMES = tuple(row.name for row in TABLE if row.language == "julia")

# What DifferentiationInterface reaches has no row: its name is an expression of ADTypes, whose
# constructor is `Auto` and the name of the package, but for Mooncake's second one. Julia reads the
# arguments; nothing is evaluated.
INTERFACE = "di:"
_ADTYPE = re.compile(r"di:Auto([A-Za-z0-9]+?)(?:(?<=Mooncake)Forward)?\(.*\)", re.DOTALL)


def row(name: str, *, argument: str = "backend", names: tuple[str, ...] = NAMES) -> Backend:
    """Look an AD system up.

    Args:
        name: what the caller gave: a name in the table, or `di:` and an expression of ADTypes.
        argument: the argument's name, for the error.
        names: the names that are allowed there.

    Returns:
        Its row in the table.

    Raises:
        UnknownBackendError: there is no such system; the message lists those that there are.
    """
    if name.startswith(INTERFACE):
        return _reached_by_interface(name, argument)
    for candidate in TABLE:
        if candidate.name == name and name in names:
            return candidate
    raise UnknownBackendError(
        explain(
            argument,
            expected="one of " + ", ".join(map(repr, names)),
            got=repr(name),
            fix="The names are lower case. Other systems of Julia have the names of ADTypes, such "
            "as 'di:AutoFiniteDiff()'.",
        )
    )


def _reached_by_interface(name: str, argument: str) -> Backend:
    found = _ADTYPE.fullmatch(name)
    if found is None:
        raise UnknownBackendError(
            explain(
                argument,
                expected="'di:' and a constructor of ADTypes with literal arguments",
                got=repr(name),
                fix="Write it as in Julia: 'di:AutoFiniteDiff()' or "
                "'di:AutoForwardDiff(; chunksize=4)'.",
            )
        )
    package = found[1]
    known = next((row for row in TABLE if row.package == package), None)
    detection = "none" if known is None else known.detection
    return Backend(
        name,
        "julia",
        "both",
        package,
        second_order=True,
        detection=detection,
        needs=("DifferentiationInterface",),
    )
