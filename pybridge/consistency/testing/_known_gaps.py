"""Known gaps: findings that a test lets pass, with the reason, as strict as a strict xfail."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..._backends import NAMES
from ..._errors import ArgumentTypeError, ArgumentValueError, explain
from ..findings import KINDS, SEVERITIES, Finding, Report

# So many numbers are written out; the report has them all.
_MOST_NUMBERS = 8


@dataclass(frozen=True)
class Allow:
    """A known gap: findings that a test lets pass, and why.

    It is strict: where the finding no longer occurs, the test fails until the entry is gone.

    Attributes:
        kind: the kind of the findings, for example `"kink"`; a report's findings have it.
        systems: the AD systems that may have it; empty for any.
        reason: why it is let pass; may not be empty.
        argument: the argument that it is about, as the report names it: `"args[0]"`; empty for
            any.

    Raises:
        ArgumentValueError: an unknown kind or system, or no reason.

    Example:
        >>> from pybridge.consistency import Allow
        >>> Allow("kink", systems=("zygote",), reason="relu at 0").systems
        ('zygote',)
    """

    kind: str
    systems: tuple[str, ...] = ()
    reason: str = ""
    argument: str = ""

    def __post_init__(self) -> None:
        """Refuse what can never match, and gaps without a reason."""
        systems = (self.systems,) if isinstance(self.systems, str) else tuple(self.systems)
        object.__setattr__(self, "systems", systems)
        if self.kind not in KINDS:
            raise _refused("a kind of finding: " + ", ".join(KINDS), self.kind)
        for name in self.systems:
            if name not in NAMES:
                raise _refused("AD systems out of " + ", ".join(NAMES), name)
        if not isinstance(self.reason, str) or not self.reason.strip():
            raise _refused("a reason why it is let pass", self.reason)

    def is_about(self, finding: Finding) -> bool:
        """Tell whether kind and place of a finding are those of this gap."""
        return self.kind == finding.kind and self.argument in ("", finding.argument)

    def pardons(self, finding: Finding) -> set[str]:
        """Pick the systems of a finding that this gap lets pass."""
        about = set(finding.systems) if self.is_about(finding) else set()
        return about & set(self.systems) if self.systems else about


def read_gaps(allow: Iterable[Allow | tuple[str, str]]) -> list[Allow]:
    """Read the entries of an `allow` argument.

    Args:
        allow: `Allow` entries, or pairs of `"kind"`, `"kind:system"` or
            `"kind:system,system"` and the reason.

    Raises:
        ArgumentTypeError: an entry is something else, for example a string without a reason.
        ArgumentValueError: an entry names an unknown kind or system, or gives no reason.
    """
    if isinstance(allow, str | Allow):
        raise _no_entry(allow)
    return [entry if isinstance(entry, Allow) else _from_pair(entry) for entry in allow]


def describe_failure(
    report: Report, gaps: list[Allow], *, strict: bool, partial: bool = False
) -> str:
    """Say what a test has to fail for.

    Args:
        report: what was found.
        gaps: what is let pass.
        strict: whether warnings and notes count as well.
        partial: whether a gap that names no system is let be: not every system that may have
            it was asked.

    Returns:
        The text of the failure; empty where there is nothing to fail for.
    """
    counted = SEVERITIES if strict else SEVERITIES[:1]
    open_, allowed = [], []
    for finding in report.findings:
        if is_allowed(finding, gaps):
            allowed.append(finding)
        elif finding.severity in counted:
            open_.append(finding)
    gone = [line for gap in gaps for line in _gone(gap, report, partial)]
    if not open_ and not gone:
        return ""
    asked = ", ".join(row.name for row in report.systems if row.available)
    total = f"{len(open_)} finding{'s'[: len(open_) != 1]}"
    lines = [f"{report.name} is not consistent on {asked}: {total}, {len(allowed)} allowed"]
    for finding in open_:
        lines += ["", *_describe(finding, gaps)]
    for line in gone:
        lines += ["", line]
    return "\n".join(lines)


def is_allowed(finding: Finding, gaps: list[Allow]) -> bool:
    """Tell whether gaps, each alone or several together, let a finding pass."""
    about = [gap for gap in gaps if gap.is_about(finding)]
    if any(not gap.systems for gap in about):
        return True
    pardoned = set().union(*(gap.pardons(finding) for gap in about))
    return bool(finding.systems) and pardoned == set(finding.systems)


def heading(finding: Finding) -> str:
    """Write a finding in one line: kind and systems as `allow` takes them, place, title."""
    systems = f":{','.join(finding.systems)}" if finding.systems else ""
    element = "".join(f"[{i}]" for i in finding.element or ())
    place = f" {finding.argument}{element}" if finding.argument else ""
    return f"[{finding.kind}{systems}]{place}: {finding.title}"


def _gone(gap: Allow, report: Report, partial: bool) -> list[str]:
    """List what a gap allows and no longer occurs, among the systems that were asked."""
    asked = {row.name for row in report.systems if row.available}
    if gap.systems:
        seen = set().union(*(gap.pardons(finding) for finding in report.findings))
        over = [name for name in gap.systems if name in asked and name not in seen]
    else:
        complete = not partial and all(row.available for row in report.systems)
        occurs = any(gap.is_about(finding) for finding in report.findings)
        over = [] if occurs or not complete else [""]
    place = f" {gap.argument}" if gap.argument else ""
    return [
        f"[{gap.kind}{f':{name}' if name else ''}]{place} is allowed "
        f'("{gap.reason}") and no longer occurs: remove it from allow.'
        for name in over
    ]


def _describe(finding: Finding, gaps: list[Allow]) -> list[str]:
    """Write a finding that counts in a few lines."""
    lines = [f"{finding.severity} {heading(finding)}"]
    seen = [finding.mode and f"{finding.mode} mode", f"point: {finding.probe}"]
    seen += [finding.primitive and f"operation: {finding.primitive}"]
    lines.append("  " + ", ".join(part for part in seen if part))
    if finding.location is not None:
        lines.append(f"  {finding.location}: {finding.location.source}".rstrip(": "))
    numbers = list(finding.numbers.items())
    lines += [f"  {name}: {_short(value)}" for name, value in numbers[:_MOST_NUMBERS]]
    if len(numbers) > _MOST_NUMBERS:
        lines.append(f"  and {len(numbers) - _MOST_NUMBERS} more numbers in the report")
    if finding.advice:
        lines.append(f"  {finding.advice}")
    pardoned = sorted(set().union(*(gap.pardons(finding) for gap in gaps)))
    if pardoned:
        lines.append(f"  It is allowed on {', '.join(pardoned)} alone.")
    return lines


def _short(value: Any) -> str:
    """Write a number, or the beginning of an array, in one line."""
    if isinstance(value, float | np.floating):
        return f"{value:.10g}"
    if isinstance(value, np.ndarray):
        return " ".join(np.array2string(value, threshold=6, precision=8).split())
    return " ".join(str(value).split())


def _from_pair(entry: Any) -> Allow:
    """Read `("kind:system,system", "reason")`."""
    is_pair = isinstance(entry, tuple) and len(entry) == 2
    if not is_pair or not isinstance(entry[0], str):
        raise _no_entry(entry)
    kind, colon, systems = entry[0].partition(":")
    return Allow(kind, tuple(systems.split(",")) if colon else (), entry[1])


def _no_entry(entry: Any) -> ArgumentTypeError:
    name = entry if isinstance(entry, str) else "kink:zygote"
    return ArgumentTypeError(
        explain(
            "allow",
            expected="a list of Allow entries and pairs of kind and reason",
            got=repr(entry),
            fix=f'A gap needs a reason: allow=[("{name}", "why it is let pass")].',
        )
    )


def _refused(expected: str, got: Any) -> ArgumentValueError:
    fix = 'For example Allow("kink", systems=("zygote",), reason="relu at 0").'
    return ArgumentValueError(explain("Allow", expected=expected, got=repr(got), fix=fix))
