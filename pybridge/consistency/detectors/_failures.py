"""Systems that refuse to differentiate a function, or fail."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..._errors import JuliaError, first_line
from ..findings import Finding
from ..subject import is_refused_by_julia, is_unsupported
from ._context import Context

# An operation that has no method for a cotangent which ChainRules has not computed yet.
_THUNK = re.compile(r"no method matching \S*\(.*ChainRulesCore\.(Inplaceable)?Thunk\b")
_FRAME = re.compile(r"^  \S+ at (julia source:(\d+))$", re.MULTILINE)
_RULE = re.compile(r"\brrule\(.*?::typeof\(([\w.!]+)\)")


def detect_failures(context: Context) -> Iterator[Finding]:
    """Turn each exception of a system into a finding."""
    for name, mode, error in context.point.answers.failures:
        if isinstance(error, JuliaError) and _THUNK.search(str(error)):
            yield _thunk(context, name, mode, str(error))
            continue
        refused = is_unsupported(error)
        if not refused:
            what = "raises an exception"
        elif isinstance(error, JuliaError) and is_refused_by_julia(str(error)):
            what = "cannot run the function"
        else:
            what = "has no such rule"
        yield Finding(
            "unsupported" if refused else "exception",
            "note" if refused else "error",
            f"{name} in {mode} mode {what}: {first_line(error)}",
            systems=(name,),
            mode=mode,
            probe=context.point.probe.name,
            advice="Other modes and systems were compared without it."
            if refused
            else "Differentiate the function with this system alone to see all of it.",
        )


def _thunk(context: Context, name: str, mode: str, text: str) -> Finding:
    """Name the rule whose pullback computes with a cotangent that is not computed yet."""
    frame = _FRAME.search(text)
    lines = context.point.subject.name.splitlines()[: int(frame[2]) if frame else 0]
    rules = [found[1] for line in lines if (found := _RULE.search(line))]
    rule = f"the rrule of {rules[-1]}" if rules else "an rrule"
    where = f" ({frame[1]})" if frame else ""
    return Finding(
        "exception",
        "error",
        f"{name} in {mode} mode raises an exception: {rule} meets a Thunk{where}",
        systems=(name,),
        mode=mode,
        probe=context.point.probe.name,
        primitive="rrule",
        advice="A cotangent may be one that ChainRules has not computed yet. Begin the pullback "
        "with `ȳ = unthunk(ȳ)`, from ChainRulesCore.",
    )
