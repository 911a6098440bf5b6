"""How Julia's systems write a derivative that is zero."""

from __future__ import annotations

from collections.abc import Iterator

from ..._backends import row
from ..._errors import BridgeError
from ...interop import JuliaFunction, representations
from ..findings import Finding
from ._context import Context


def detect_zero_representations(context: Context) -> Iterator[Finding]:
    """Report where a system returns something else than an array of zeros.

    The bridge makes it one; in Julia, code that adds or scales gradients has to know.
    """
    point, subject = context.point, context.point.subject
    if not isinstance(subject.f, JuliaFunction):
        return
    wrong = {name for f in context.findings if f.severity == "error" for name in f.systems}
    args, numbers = subject.args_at(point.xs), subject.argnums()
    for name in (system.name for system in point.answers.systems if system.name not in wrong):
        if not row(name).structural_zeros:
            continue
        try:
            kinds = representations(subject.f, args, numbers, name)
        except BridgeError:
            continue  # a system that fails has a finding of its own
        for number, kind in zip(numbers, kinds, strict=False):
            if kind:
                yield point.finding(
                    "zero",
                    "note",
                    f"{name} writes a derivative that is zero as {kind}",
                    [name],
                    mode="reverse",
                    argument=f"args[{number}]",
                    advice="pybridge makes it zeros of the argument's shape. In Julia, handle "
                    f"{kind} before computing with it.",
                )
