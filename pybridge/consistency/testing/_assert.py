"""`assert_consistent`: what `pb.check` finds, as the failure of a test."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ..._backends import Backend
from ..._config import setting
from ..._errors import BackendNotLoadedError, BridgeError, JuliaUnavailableError, explain
from ..findings import Report
from ..subject import why_absent
from ._known_gaps import Allow, describe_failure, heading, is_allowed, read_gaps


class ConsistencyError(BridgeError, AssertionError):
    """A function is not consistent: the failure of `assert_consistent`.

    Attributes:
        report: everything that was found.
    """

    def __init__(self, message: str, report: Report):
        """Keep the report beside the text."""
        super().__init__(message)
        self.report = report


def assert_consistent(
    f: Callable[..., Any],
    *args: Any,
    allow: Iterable[Allow | tuple[str, str]] = (),
    backends: Sequence[str] | None = None,
    probes: Sequence[str] = ("given",),
    seed: int = 0,
    rtol: float = 0.0,
    atol: float = 0.0,
    strict: bool = False,
) -> Report:
    """Check a function with `pb.check`, and fail with what was found.

    Args:
        f: a function as `pb.check` takes it: of Python or from `pb.from_julia`.
        *args: its arguments: trees of arrays and numbers.
        allow: known gaps: `Allow` entries, or pairs of `"kind"` or `"kind:system,system"` and the
            reason. One that no longer occurs is a failure, like a strict xfail; it is not judged
            for systems that were not asked or are absent.
        backends: the AD systems, as in `pb.check`.
        probes: the points, as in `pb.check`.
        seed: of random points and directions, as in `pb.check`.
        rtol: by which part of their size derivatives may differ, as in `pb.check`.
        atol: and by how much, as in `pb.check`.
        strict: let warnings and notes count, not errors alone.

    Returns:
        The report, where nothing that counts was found.

    Raises:
        ConsistencyError: findings that count and are not allowed, or allowed ones that are gone.
            It is an AssertionError and has the report.
        BackendNotLoadedError: no AD system is there to compare with finite differences.
        ArgumentTypeError: an entry of `allow` is neither an `Allow` nor a pair.
        ArgumentValueError: an entry names an unknown kind or system, or gives no reason.

    Example:
        >>> import jax.numpy as jnp
        >>> from pybridge.consistency import assert_consistent
        >>> assert_consistent(lambda x: jnp.sum(jnp.sin(x)), jnp.array([1.0, 2.0])).ok
        True

    It has no twin in Julia: functions from `pb.from_julia` are checked from here.
    """
    __tracebackhide__ = True
    gaps = read_gaps(allow)
    options = {"probes": probes, "seed": seed, "rtol": rtol, "atol": atol}
    report = _check(f, args, backends=backends, **options)
    if not _compares(report):
        rows = [row for row in report.systems if not row.available]
        raise BackendNotLoadedError(
            explain(
                "assert_consistent",
                expected="at least one AD system beside finite differences",
                got=_without(rows),
                fix="The fixture of the same name skips a test in this case.",
            )
        )
    if complaint := describe_failure(report, gaps, strict=strict):
        raise ConsistencyError(complaint, report)
    return report


def assert_in_test(
    f: Callable[..., Any],
    args: tuple[Any, ...],
    *,
    allow: Iterable[Allow | tuple[str, str]] = (),
    backends: Sequence[str] | None = None,
    strict: bool = False,
    marked: tuple[str, ...],
    option: tuple[str, ...] | None,
    record: Callable[[str, object], None],
    absent: Callable[[str, bool], None],
    **options: Any,
) -> Report:
    """Do what `assert_consistent` does, for the fixture of the pytest plugin.

    Args:
        f: see `assert_consistent`.
        args: its arguments.
        allow: see `assert_consistent`.
        backends: see `assert_consistent`.
        strict: see `assert_consistent`.
        marked: the systems of the test's marker; empty without one.
        option: the systems that the run is restricted to; None where it is not.
        record: writes a property of the test, name and value.
        absent: skips the test with a reason, or fails it; told whether one of Julia's systems
            is what is missing.
        **options: `probes`, `seed`, `rtol` and `atol`.

    Returns:
        The report.
    """
    __tracebackhide__ = True
    gaps = read_gaps(allow)
    wanted = tuple(backends) if backends is not None else marked or None
    if option is not None:
        wanted = tuple(name for name in wanted or option if name in option)
    if wanted is not None and not set(wanted) - {"finite"}:
        chooser = "`backends` or the marker" if option is None else "--ad-systems"
        absent(f"{chooser} leaves no AD system to compare with finite differences", False)
    try:
        report = _check(f, args, backends=wanted, **options)
    except JuliaUnavailableError as error:
        absent(str(error), True)
        raise
    rows = [row for row in report.systems if not row.available]
    lost = [row.name for row in rows if row.language == "julia" and why_absent(row.name)]
    if (lost and setting("PYBRIDGE_REQUIRE_JULIA").value) or not _compares(report):
        absent(_without(rows), bool(lost))
    for finding in report.findings:
        note = ", allowed" if is_allowed(finding, gaps) else ""
        record("pybridge.finding", f"{finding.severity}{note} {heading(finding)}")
    for row in rows:
        record("pybridge.absent", f"{row.name}: {row.reason}")
    if complaint := describe_failure(report, gaps, strict=strict, partial=option is not None):
        raise ConsistencyError(complaint, report)
    return report


def _compares(report: Report) -> bool:
    """Tell whether more than finite differences were asked."""
    return any(row.available and row.name != "finite" for row in report.systems)


def _without(rows: list[Backend]) -> str:
    """Say which systems are absent, and why."""
    return "; ".join(f"{row.name} is absent: {row.reason}" for row in rows) or "no AD system"


def _check(f: Callable[..., Any], args: tuple[Any, ...], **options: Any) -> Report:
    """Call the checker, which brings much along."""
    from .._check import check

    return check(f, *args, **options)
