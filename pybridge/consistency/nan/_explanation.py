"""What `explain_nan` returns, and how it reads."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...jaxprs import Location

# What an operation that drops elements does to them, in words.
_DROPS = {
    "select_n": "chooses the other value",
    "gather": "does not index",
    "slice": "does not take",
    "dynamic_slice": "does not take",
    "mul": "multiplies with 0",
    "max": "takes the other operand's value",
    "min": "takes the other operand's value",
    "clamp": "clips",
    "reduce_max": "does not select",
    "reduce_min": "does not select",
    "dot_general": "multiplies with 0",
}
_SHOWN = 4
_WIDTH = 96


@dataclass(frozen=True)
class Operation:
    """One operation of the program.

    Attributes:
        primitive: its name in JAX.
        location: the user's line; None where the program holds none.
        text: how the user wrote it (`"d ** 0.5"`); empty where that is not sure.
        path: the loops and branches around it, the outermost first.
        rule: the name of the function whose custom derivative rule it is; else empty.
        function: the function of JAX's own that `text` calls, where the operation is a part of it.
    """

    primitive: str
    location: Location | None
    text: str = ""
    path: tuple[str, ...] = ()
    rule: str = ""
    function: str = ""

    @property
    def name(self) -> str:
        """What to call it: the user's text, or JAX's name."""
        if self.rule:
            return f"`{self.rule}` (custom derivative rule)"
        return f"`{self.text}`" if self.text else f"`{self.primitive}`"


@dataclass(frozen=True, eq=False)
class Origin:
    """Where a derivative, or a value, stops being finite.

    Attributes:
        operation: the operation.
        kind: `"leak"` (its result is not used there), `"infinite"` (it is used), `"rule"` (a
            custom rule gives NaN), `"product"` (it meets a factor that is 0 here and depends on
            the arguments as well), `"overflow"` (a product is too large for the dtype),
            `"value"` (the value itself is not finite) or `"precision"` (a number is finite, and
            has lost its digits).
        elements: the places, in the operand or in the result; `()` for a scalar.
        operands: the numbers that the operation sees at the first place; an operand of another
            shape as a whole, or left out where it is large.
        value: its result there.
        partial: its own derivative there, with respect to the operand; None for a value.
        operand: which operand.
    """

    operation: Operation
    kind: str
    elements: tuple[tuple[int, ...], ...]
    operands: tuple[Any, ...]
    value: Any
    partial: float | complex | None = None
    operand: int = 0


@dataclass(frozen=True, eq=False)
class Cure:
    """A change that makes the derivative finite.

    Attributes:
        text: what to write.
        verified: whether the changed program was run, had the same value and a finite
            derivative.
        derivative: the derivative then (see `NaNExplanation.derivative`).
    """

    text: str
    verified: bool
    derivative: Any = None


@dataclass(frozen=True, eq=False)
class NaNExplanation:
    """Why a derivative is not finite. It prints itself on the terminal and in notebooks.

    Attributes:
        name: the function.
        ok: whether value and derivatives are finite, and no precision loses their digits.
        mode: what is explained: `"reverse"`, `"forward"` or `"value"`; None where all is
            well.
        modes: all modes in which the derivative is not finite.
        derivative: in reverse mode the gradient of the sum of the results, a tree like the
            differentiated argument (a tuple of such for several); in forward mode the tangents
            of the results where those of the arguments are ones; of a value, the results.
        value: the results.
        origin: where it arises; None where all is well, or nothing was found.
        dropped_by: the operation that leaves the value finite; None where there is none.
        cures: what to do, the smallest change first.
        further: the other origins with what drops them; empty where there is one only.
        notes: what else a reader should know.
        lost: what the precision loses of numbers that are finite, in one line; else empty.
    """

    name: str
    ok: bool
    mode: str | None
    modes: tuple[str, ...]
    derivative: Any
    value: Any
    origin: Origin | None = None
    dropped_by: Operation | None = None
    cures: tuple[Cure, ...] = ()
    further: tuple[tuple[Origin, Operation | None], ...] = ()
    notes: tuple[str, ...] = field(default=())
    lost: str = ""

    def __str__(self) -> str:
        """Write the explanation as plain text."""
        return "\n".join(_lines(self))

    def _repr_markdown_(self) -> str:
        """Write the explanation for a notebook."""
        first, *rest = _lines(self)
        return f"**{first}**\n\n```text\n" + "\n".join(rest).strip("\n") + "\n```"


def _lines(this: NaNExplanation) -> list[str]:
    lines = [_headline(this)]
    if this.origin is not None:
        plain = this.mode == "value" or this.lost
        title = "Where it arises" if plain else "Where it arises, and why"
        lines += ["", title, *_origin_lines(this.origin)]
    if this.dropped_by is not None:
        lines += ["", "Why the value is finite", *_drop_lines(this.dropped_by, this.origin)]
    for origin, drop in this.further:
        lines += ["", "And also", *_origin_lines(origin)]
        lines += [] if drop is None else _drop_lines(drop, origin)
    if this.cures:
        lines += ["", "What to do (any one of these)" if len(this.cures) > 1 else "What to do"]
    for number, cure in enumerate(this.cures, 1):
        lines += [f"  {number}. {cure.text}"]
        if cure.verified:
            what = "gradient" if this.mode == "reverse" else "derivative"
            lines += [f"     Verified: same value, {what} {show(cure.derivative)}"]
    for note in this.notes:
        lines += ["", *textwrap.wrap(note, _WIDTH)]
    return lines


def _headline(this: NaNExplanation) -> str:
    if this.ok:
        return f"No NaN: value and derivatives of {this.name} are finite."
    if this.lost:
        return f"No NaN, but {this.name} loses its digits: {this.lost}."
    if this.mode == "value":
        return f"The value of {this.name} is not finite: {show(this.value)}."
    if this.mode is None:
        return f"No NaN in the derivative of {this.name}."
    mode = "gradient" if this.mode == "reverse" else "forward-mode derivative"
    both = " (in forward mode as well)" if len(this.modes) > 1 else ""
    return (
        f"The {mode} of {this.name} is not finite{both}: {show(this.derivative)}, "
        f"while the value is {show(this.value)}."
    )


def _place_lines(operation: Operation) -> list[str]:
    where = operation.location
    lines = [f"  in {part}" for part in operation.path]
    if where is not None:
        lines = [f"  {where}" + (f":  {where.source}" if where.source else ""), *lines]
    return lines or ["  (the program holds no line of yours for it)"]


def _origin_lines(origin: Origin) -> list[str]:
    operation = origin.operation
    places = show_elements(origin.elements)
    lines = _place_lines(operation)
    numbers = ", ".join("..." if x is None else show(x) for x in origin.operands)
    operands = f"operands {numbers}; " if numbers else ""
    what = f"  {operation.name}{places}: {operands}value {show(origin.value)}"
    if origin.partial is not None:
        what += f"; derivative {show(origin.partial)}"
    lines.append(what)
    reasons = {
        "leak": "Nothing uses this result. Its derivative is multiplied with 0 all the same, "
        "and 0 times that is nan.",
        "product": "What follows has derivative 0 here: 0 times that is nan.",
        "infinite": "This result is used: here the operation has no finite derivative.",
        "overflow": "The derivative is finite, but a product or a sum with it is too large "
        "for the dtype.",
        "rule": "The rule itself gives nan for a finite cotangent or tangent.",
    }
    reason = reasons.get(origin.kind, "")
    if origin.kind == "leak" and origin.partial is not None and np.isfinite(origin.partial):
        reason = "Nothing uses this result. What is made of it has derivatives, which are "
        reason += "multiplied with 0 all the same, and 0 times this is nan."
    return lines + textwrap.wrap(reason, _WIDTH, initial_indent="  ", subsequent_indent="  ")


def _drop_lines(operation: Operation, origin: Origin | None) -> list[str]:
    does = _DROPS.get(operation.primitive, "has derivative 0")
    name = f"{operation.name} ({operation.primitive})" if operation.text else operation.name
    same = origin is not None and origin.operation.location == operation.location
    lines = [] if same else _place_lines(operation)
    some = origin is not None and bool(show_elements(origin.elements))
    return [*lines, f"  {name} {does}{' in these elements' if some else ' here'}."]


def show_elements(elements: tuple[tuple[int, ...], ...]) -> str:
    """Write ` at [0]`, ` at [0, 1], [2, 3] and 7 more elements`; nothing for a scalar."""
    if not elements or elements[0] == ():
        return ""
    listed = [f"[{', '.join(map(str, element))}]" for element in elements[:_SHOWN]]
    more = len(elements) - len(listed)
    return f" at {', '.join(listed)}" + (f" and {more} more elements" if more else "")


def show(value: Any) -> str:
    """Write a tree of numbers in one line, with at most six digits."""
    if isinstance(value, tuple | list):
        return "(" + ", ".join(show(part) for part in value) + ")"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key!r}: {show(part)}" for key, part in value.items()) + "}"
    if value is None or not np.shape(value):
        return str(value) if value is None else _number(np.asarray(value)[()])
    array = np.asarray(value)
    text = np.array2string(
        array, separator=", ", threshold=20, edgeitems=3, formatter={"all": _number}
    )
    return " ".join(text.split())


def _number(x: Any) -> str:
    if np.iscomplexobj(x):
        return f"{x:.6g}"
    return f"{x:.6g}" if np.issubdtype(np.asarray(x).dtype, np.inexact) else str(x)
