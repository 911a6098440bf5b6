"""Systems that refuse to differentiate a function, or fail."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..._errors import JuliaError, first_line
from ..findings import Finding
from ..subject import Place, is_refused_by_julia, is_unsupported
from ._context import Context

# An operation that has no method for a cotangent which ChainRules has not computed yet.
_THUNK = re.compile(r"no method matching \S*\(.*ChainRulesCore\.(Inplaceable)?Thunk\b")
_FRAME = re.compile(r"^  \S+ at (julia source:(\d+))$", re.MULTILINE)
_RULE = re.compile(r"\brrule\(.*?::typeof\(([\w.!]+)\)")


_UNTHUNK = (
    "A cotangent may be one that ChainRules has not computed yet. Begin the pullback with "
    "`ȳ = unthunk(ȳ)`, from ChainRulesCore."
)


def detect_failures(context: Context) -> Iterator[Finding]:
    """Turn each exception of a system into a finding."""
    for name, mode, error in context.point.answers.failures:
        raises, primitive = "raises an exception", None
        if isinstance(error, JuliaError) and _THUNK.search(str(error)):
            severity, primitive = "error", "rrule"
            what = f"{raises}: {_rule_that_met_thunk(context.point.subject.name, str(error))}"
            advice = _UNTHUNK
        elif is_unsupported(error):
            severity = "note"
            in_julia = isinstance(error, JuliaError) and is_refused_by_julia(str(error))
            reason = "cannot run the function" if in_julia else "has no such rule"
            what = f"{reason}: {first_line(error)}"
            advice = "Other modes and systems were compared without it."
        else:
            severity = "error"
            what = f"{raises}: {first_line(error)}"
            advice = "Differentiate the function with this system alone to see all of it."
        yield context.point.finding(
            "unsupported" if severity == "note" else "exception",
            severity,
            f"{name} in {mode} mode {what}",
            [name],
            mode=mode,
            place=Place(None, primitive),
            advice=advice,
        )


def _rule_that_met_thunk(source: str, text: str) -> str:
    """Name the rule whose pullback computes with a cotangent that is not computed yet."""
    frame = _FRAME.search(text)
    lines = source.splitlines()[: int(frame[2]) if frame else 0]
    rules = [found[1] for line in lines if (found := _RULE.search(line))]
    rule = f"the rrule of {rules[-1]}" if rules else "an rrule"
    return f"{rule} meets a Thunk" + (f" ({frame[1]})" if frame else "")
