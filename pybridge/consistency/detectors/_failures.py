"""Systems that refuse to differentiate a function, or fail."""

from __future__ import annotations

from collections.abc import Iterator

from ..._errors import JuliaError, first_line
from ..findings import Finding
from ..subject import is_refused_by_julia, is_unsupported
from ._context import Context


def detect_failures(context: Context) -> Iterator[Finding]:
    """Turn each exception of a system into a finding."""
    for name, mode, error in context.point.answers.failures:
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
