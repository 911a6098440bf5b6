"""Findings about a Julia function, with what was seen of it: line, rule at fault, what to write."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from ..._backends import TABLE
from ...interop import Sighting
from .._wording import join
from ..findings import Finding
from ..subject import Place, Point, Sightings, system_names
from ._zero_gradients import FLAT_ADVICE

_WRONG = ("finite", "minority", "reverse-forward", "special-case")
_RULED = frozenset(system.name for system in TABLE if system.reads_chainrules)

# What Zygote says of a function that writes into an array. Yota says nothing.
_WRITES = "Mutating arrays is not supported"
_IN_PLACE = {
    "setindex!": "Make the array at once, with a broadcast, `map` or `[... for i in eachindex(x)]`",
    "materialize!": "Write `y = ...` in place of `y .= ...`",
    "push!": "Write a comprehension, or `vcat(y, v)` in place of `push!(y, v)`",
    "append!": "Write `vcat(y, v)` in place of `append!(y, v)`",
    "copyto!": "Write `y = copy(x)` in place of `copyto!(y, x)`",
    "mul!": "Write `y = A * x` in place of `mul!(y, A, x)`",
}

_COMPARES = (
    "ForwardDiff compares numbers along with their derivatives, so that equal values are not equal "
    "there. Compare PyBridge.primal(x)."
)


def explain_in_julia(findings: Sequence[Finding], point: Point) -> list[Finding]:
    """Add what was seen of a Julia function to the findings at a point.

    Args:
        findings: about a function from `pb.from_julia`.
        point: where they were found.

    Returns:
        The findings, with lines, and with advice for Julia. Those that come from writing into an
        array are one.
    """
    subject = point.subject
    given = point.probe.name == "given"
    seen = subject.sightings if given else subject.sightings_at(point.xs)
    joined = _join_writes(findings, seen)
    explained = [_explain(finding, seen, subject.name) for finding in joined]
    return [*explained, *_zeros(point, seen, explained)]


# --- arrays that are written into -----------------------------------------------------------------


def _join_writes(findings: Sequence[Finding], seen: Sightings) -> list[Finding]:
    """Let what comes from writing into an array be one finding."""
    said = [f for f in findings if f.kind == "exception" and _WRITES in f.title]
    lost = [f for f in findings if f.kind in (*_WRONG, "value") and set(f.systems) == {"yota"}]
    lost.sort(key=lambda f: f.kind == "value")  # the derivative tells more
    if not said and not lost:
        return list(findings)
    write = seen.first("writes")
    if not said and write is None:
        return list(findings)
    # An array of plain numbers does not take those of ForwardDiff and Tracker.
    refused = [f for f in findings if f.kind == "unsupported" and "MethodError" in f.title]
    refused = refused if write is not None else []
    about = [*said, *refused, *lost]
    rest = [f for f in findings if not any(f is one for one in about)]
    return [_written(said, refused, lost, write), *rest]


def _written(
    said: list[Finding], refused: list[Finding], lost: list[Finding], write: Sighting | None
) -> Finding:
    raising = list(dict.fromkeys(name for f in (*said, *refused) for name in f.systems))
    raising = [name for name in raising if name != "jax"] or raising
    parts = []
    if raising:
        parts.append(f"{join(raising)} {'raises' if len(raising) == 1 else 'raise'} an exception")
    for finding in lost[:1]:
        right = "plain" if finding.kind == "value" else "finite"
        got, want = finding.numbers["yota"], finding.numbers[right]
        parts.append(f"yota gives {got:.6g} for {want:.6g} without a word")
    name = write.name if write is not None else _named(said)
    advice = _IN_PLACE.get(name, f"Write `{name[:-1]}`, which makes a new array, for `{name}`")
    base = (lost or said)[0]
    return replace(
        base,
        title=f"the function mutates an array: {', and '.join(parts)}",
        systems=tuple(dict.fromkeys(n for f in (*said, *refused, *lost) for n in f.systems)),
        mode=None,
        location=write.location if write is not None else None,
        primitive=name,
        advice=f"{advice}: reverse mode needs the numbers that are overwritten.",
    )


def _named(said: list[Finding]) -> str:
    """Read in Zygote's message which function writes."""
    found = re.search(r"called (\w+!)", said[0].title)
    return found[1] if found else "setindex!"


# --- one finding ----------------------------------------------------------------------------------


def _explain(finding: Finding, seen: Sightings, source: str) -> Finding:
    """Add the line, and what is to be done in Julia."""
    if finding.location is not None:
        return finding
    if finding.kind in (*_WRONG, "second-order", "value") and _RULED & {*finding.systems}:
        ruled = _blame_rule(finding, seen)
        if ruled is not None:
            return ruled
    if finding.kind in ("non-finite", "value"):
        return _keep_away(finding, seen, source)
    kinds = {"finite": ("flat",), "special-case": ("tie",), "kink": ("tie",)}.get(finding.kind, ())
    sighting = seen.first(*kinds)
    return finding if sighting is None else _at(finding, sighting)


def _at(finding: Finding, sighting: Sighting) -> Finding:
    return replace(finding, location=sighting.location, primitive=sighting.name)


def _blame_rule(finding: Finding, seen: Sightings) -> Finding | None:
    """Name the function of the caller's own whose rule is wrong."""
    kinds = {"second-order": ("wrong_rule", "rule"), "value": ("other_value",)}
    rule = seen.first_rule(*kinds.get(finding.kind, ("wrong_rule",)))
    if rule is None:
        return None
    name = rule.name
    if finding.kind == "second-order" and rule.kind == "rule":
        advice = f"The gradient is right, and the rrule of {name} is written for it alone: let its "
        advice += "pullback compute with the arguments themselves."
    elif finding.kind == "value":
        advice = f"The rrule of {name} computes another value. Let it call {name} for its value."
    else:
        advice = f"The rrule of {name} is wrong: it differs from differences of {name} itself. "
        advice += "Mend it."
    return replace(finding, location=rule.location, primitive="rrule", advice=advice)


def _keep_away(finding: Finding, seen: Sightings, source: str) -> Finding:
    """Name the operation without a finite derivative, and how to go around it."""
    sighting = seen.first("singular")
    if sighting is None:
        sighting = seen.first("tie") if finding.systems == ("forwarddiff",) else None
        return finding if sighting is None else replace(_at(finding, sighting), advice=_COMPARES)
    v, name = _unused_name(source), sighting.name
    guarded = f"`PyBridge.cond(PyBridge.primal({v}) > 0, {'sqrt' if name == 'norm' else name}, "
    guarded += f"zero, {v})`, which runs the branch taken alone"
    if name in ("norm", "sqrt"):
        what = f"Let {v} be {'the sum of squares' if name == 'norm' else 'its argument'}, and "
        what += f"write {guarded}."
    else:
        what = f"Write {guarded}, with {v} its argument and what is right there for `zero`."
    return replace(_at(finding, sighting), advice=f"{name} has no finite derivative there. {what}")


def _unused_name(source: str) -> str:
    """Choose a name that the caller's code does not use."""
    used = set(re.findall(r"\w+", source))
    names = itertools.chain("vsu", (f"v{number}" for number in itertools.count()))
    return next(name for name in names if name not in used)


def _zeros(point: Point, seen: Sightings, findings: Sequence[Finding]) -> Iterator[Finding]:
    """Note arguments whose gradient is zero where the function takes a step."""
    flat = seen.first("flat")
    if flat is None or any(finding.severity == "error" for finding in findings):
        return
    for path in point.arguments_without_gradient():
        yield point.finding(
            "zero",
            "note",
            f"the gradient is zero everywhere, and the function calls {flat.name}",
            system_names(point.gradients),
            argument=path,
            place=Place(flat.location, flat.name),
            advice=FLAT_ADVICE,
        )
