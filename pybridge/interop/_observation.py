"""What a Julia function does on the way to its value: the twin is `observation.jl`."""

from __future__ import annotations

import linecache
from dataclasses import dataclass
from typing import Any

from ..jaxprs import Location
from ..julia import session
from ._julia_function import JuliaFunction

# The name of the file that source given to `from_julia` has in Julia.
_SOURCE = "julia source"


@dataclass(frozen=True)
class Sighting:
    """Something that a Julia function did.

    Attributes:
        kind: `"asks"`, `"flat"`, `"narrow"`, `"writes"`, `"tie"`, `"singular"`, `"rule"`,
            `"wrong_rule"`, `"other_value"` or `"stopped"`, see `observation.jl`.
        name: the operation, or the function whose rule it is.
        location: the line of the caller's code; None where it is not known.
    """

    kind: str
    name: str
    location: Location | None


def observe(f: JuliaFunction, args: tuple[Any, ...], backend: str) -> tuple[Sighting, ...]:
    """Run a Julia function on numbers, or under rules, that tell what it does.

    Args:
        f: the function.
        args: its arguments.
        backend: `"forwarddiff"` for numbers, `"zygote"` for rules.

    Returns:
        What was seen, in order; what came before an exception, if there was one.
    """
    running = session()
    result = f.handle.run("observation", args, backend=backend, layout=f.layout)
    number = int(result.raw())
    text = running.call(lambda library: library.request("observation", number))
    return tuple(_parse(line, f.source or "") for line in text.splitlines())


def _parse(line: str, source: str) -> Sighting:
    kind, name, file, number, caller = line.split("\t")
    if not file:
        return Sighting(kind, name, None)
    lines = source.splitlines()
    own = file == _SOURCE and int(number) <= len(lines)
    text = lines[int(number) - 1] if own else linecache.getline(file, int(number))
    # Julia numbers functions without a name.
    function = "anonymous" if caller.startswith("#") else caller
    return Sighting(kind, name, Location(file, int(number), function, text.strip()))
