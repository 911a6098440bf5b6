"""How Julia's systems write a derivative that is zero."""

from __future__ import annotations

from collections.abc import Iterator

from .._backends import row
from .._errors import BridgeError
from ..interop import JuliaFunction, representations
from ._ask import Arrays
from ._findings import Finding
from ._subject import Subject


def find_zeros(subject: Subject, xs: Arrays, names: list[str], probe: str) -> Iterator[Finding]:
    """Report where a system returns something else than an array of zeros.

    The bridge makes it one; in Julia, code that adds or scales gradients has to know.

    Args:
        subject: a function from `pb.from_julia`.
        xs: the point.
        names: the systems that are asked.
        probe: the point's name.
    """
    assert isinstance(subject.f, JuliaFunction)
    args, numbers = subject.args_at(xs), subject.argnums()
    for name in names:
        if not row(name).structural_zeros:
            continue
        try:
            kinds = representations(subject.f, args, numbers, name)
        except BridgeError:
            continue  # a system that fails has a finding of its own
        for number, kind in zip(numbers, kinds, strict=False):
            if kind:
                yield Finding(
                    "zero",
                    "note",
                    f"{name} writes a derivative that is zero as {kind}",
                    systems=(name,),
                    mode="reverse",
                    probe=probe,
                    argument=f"args[{number}]",
                    advice="pybridge makes it zeros of the argument's shape. In Julia, handle "
                    f"{kind} before computing with it.",
                )
