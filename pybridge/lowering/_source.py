"""A JAX program (jaxpr) as Julia source: functions of straight-line calls, one line an equation."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from ..jaxprs import CALLS, Location, called_program, user_line
from ._emit import Equation, Form, check_dtype, emit, is_key
from ._moving import Flags, moving_variables
from ._registry import Many
from ._sharing import lazy_broadcasts
from ._text import Names, letters, literal, short, tuple_text

_INDENT = "    "
_PLAIN = Form()


class Source:
    """Julia source that grows function by function, and the arrays that it refers to.

    Args:
        custom_rules: `"jax"`: functions with a custom rule keep it; `"inline"`: the AD system
            differentiates through them.
        asks: whether `within_gradient` is asked, so that it matters what is differentiated.

    Attributes:
        constants: the arrays, which the source calls `constants[1]` and so on.
        variables: the names of all variables.
    """

    def __init__(self, custom_rules: str = "jax", asks: bool = False):
        """Start empty."""
        self.custom_rules = custom_rules
        self.asks = asks
        self.constants: list[np.ndarray] = []
        self._texts: list[str] = []
        self._names = Names()
        self.variables: set[str] = set()
        self._known: dict[Any, str] = {}
        self._same: dict[str, str] = {}
        self._scalars: dict[str, str] = {}
        self._kept: list[Any] = []  # so that no other object gets the id of one in `_known`
        self._numbers: dict[int, int] = {}

    def text(self) -> str:
        """Join all functions; the last one is the program's own."""
        numbers = "\n".join(f"const {name} = {text}" for text, name in self._scalars.items())
        return "\n\n".join([numbers, *self._texts] if numbers else self._texts) + "\n"

    def constant(self, value: Any) -> str:
        """Write a constant: a number in place, an array as a name."""
        value = value if hasattr(value, "dtype") else np.asarray(value)
        if is_key(value.dtype):
            import jax

            value = jax.random.key_data(value)
        if np.ndim(value) == 0:
            check_dtype(value.dtype, None)
            return self._number(literal(np.asarray(value)[()], value.dtype))
        if id(value) not in self._numbers:
            self._kept.append(value)
            array = np.asarray(value)
            check_dtype(array.dtype, None)
            self.constants.append(array)
            self._numbers[id(value)] = len(self.constants)
        return f"constants[{self._numbers[id(value)]}]"

    def _number(self, text: str) -> str:
        """Name a number that is written as a call, for which Yota would want a rule."""
        if "(" not in text:
            return text
        if text not in self._scalars:
            hint = text.lower().replace("-", "minus_").replace(")", "")
            self._scalars[text] = self._names.fresh(hint, "number", self.variables)
        return self._scalars[text]

    def function(
        self,
        closed: ClosedJaxpr,
        hint: str,
        *,
        names: Sequence[str] = (),
        form: Form = _PLAIN,
        moving: Flags | None = None,
        main: bool = False,
    ) -> str:
        """Write a function for a program, unless there is one, and return its name.

        Args:
            closed: the program.
            hint: the name that the function should have.
            names: names for the arguments.
            form: how arguments come and results go, if not one by one.
            moving: which arguments carry a derivative where there is one; None: no one does.
            main: whether this is the program itself, which comes last.

        Returns:
            The name. The function returns a tuple, for a single result the value itself.
        """
        consts = tuple(id(const) for const in closed.consts)
        moving = moving if self.asks and moving else (False,) * len(closed.in_avals)
        key = (id(closed.jaxpr), consts, tuple(names), form, self.custom_rules, moving)
        if key not in self._known:
            self._kept.append(closed)
            self._known[key] = self._write(_unwrapped(closed), hint, names, form, moving, main)
        return self._known[key]

    def taken(self) -> frozenset[str]:
        """Give the names of the functions and numbers that there are."""
        return frozenset((*self._same.values(), *self._scalars.values()))

    def _write(
        self,
        closed: ClosedJaxpr,
        hint: str,
        names: Sequence[str],
        form: Form,
        moving: Flags,
        main: bool,
    ) -> str:
        text = _Body(self, closed, names, form, moving).text()
        # Of two programs that differ in their comments alone one is enough.
        code = "\n".join(line for line in text.split("\n") if "# " not in line[:6])
        if code not in self._same:
            # No variable may hide a function that is called beside it; nobody calls the last one.
            hidden = () if main else self.variables
            self._same[code] = name = self._names.fresh(hint, "f", hidden)
            self._texts.append(f"function {name}{text}")
        return self._same[code]

    @contextmanager
    def within_rule(self) -> Iterator[None]:
        """Write the programs of a derivative rule: those that it calls need no rules again."""
        before, self.custom_rules = self.custom_rules, "inline"
        try:
            yield
        finally:
            self.custom_rules = before


def _unwrapped(closed: ClosedJaxpr) -> ClosedJaxpr:
    """Look through a program that only calls another one."""
    jaxpr = closed.jaxpr
    if len(jaxpr.eqns) == 1 and jaxpr.eqns[0].primitive.name in CALLS:
        eqn = jaxpr.eqns[0]
        same = list(eqn.invars) == list(jaxpr.invars) and list(eqn.outvars) == list(jaxpr.outvars)
        if same and not jaxpr.constvars:
            called = called_program(eqn)
            return closed if called is None else _unwrapped(called)
    return closed


class _Body:
    """One function, from the parentheses on."""

    def __init__(
        self, source: Source, closed: ClosedJaxpr, names: Sequence[str], form: Form, moving: Flags
    ):
        self.source = source
        self._form = form
        self._moving = moving_variables(closed, moving) if source.asks else set()
        self._lazy = lazy_broadcasts(closed.jaxpr)
        self._closed = closed
        self._free = Names(source.taken())
        self._variables: dict[Any, str] = {}
        self._count = len(closed.consts)
        jaxpr = closed.jaxpr
        self._parameters = []
        for i, var in enumerate(jaxpr.invars):
            letter = self._letter()
            wanted = names[i] if i < len(names) else letter
            self._variables[var] = self._name(wanted)
            self._parameters.append(self._variables[var])

    def _name(self, wanted: str) -> str:
        name = self._free.fresh(wanted, avoid=self.source.taken())
        self.source.variables.add(name)
        return name

    def _letter(self) -> str:
        self._count += 1
        return letters(self._count - 1)

    def text(self) -> str:
        jaxpr = self._closed.jaxpr
        for var, const in zip(jaxpr.constvars, self._closed.consts, strict=True):
            self._variables[var] = self.source.constant(const)
        for var in (*jaxpr.invars, *jaxpr.constvars):
            check_dtype(var.aval.dtype, None)
        types = ", ".join(short(var.aval) for var in jaxpr.invars)
        lines = [f"({', '.join(self._signature())})"]
        if types:
            lines.append(f"{_INDENT}# {types}")
        place: Location | None = None
        rows: list[tuple[str, str]] = []
        used = _used_equations(jaxpr)
        for eqn in jaxpr.eqns:
            outs = [self._bind(var) for var in eqn.outvars]
            if id(eqn) not in used:
                continue
            lazy = eqn.outvars[0] in self._lazy if eqn.outvars else False
            if lazy and not eqn.invars[0].aval.shape:
                self._variables[eqn.outvars[0]] = self._atom(eqn.invars[0])
                continue
            here = user_line(eqn)
            if here is not None and here != place:
                rows.append(("", _comment(here)))
            place = here or place
            row = self._line(eqn, outs)
            if row is not None:
                rows.append(row)
        width = min(max((len(code) for code, _ in rows), default=0), 60)
        for code, comment in rows:
            lines.append(_INDENT + (f"{code:<{width}}  # {comment}" if code else comment))
        lines.append(f"{_INDENT}return {self._returned()}")
        return "\n".join([*lines, "end"])

    def _bind(self, var: Any) -> str:
        if type(var).__name__ == "DropVar":
            return "_"
        name = self._name(self._letter())
        self._variables[var] = name
        return name

    def _line(self, eqn: Any, outs: list[str]) -> tuple[str, str] | None:
        for var in eqn.outvars:
            check_dtype(var.aval.dtype, eqn)
        moving = tuple(not isinstance(a, Literal) and a in self._moving for a in eqn.invars)
        args = tuple(self._atom(atom) for atom in eqn.invars)
        lazy = bool(eqn.outvars) and eqn.outvars[0] in self._lazy
        equation = Equation(self.source, eqn, args, moving, lazy)
        expression = emit(equation)
        if len(outs) == 1 and re.fullmatch(r"\w+(\[\d+\])?", expression):
            self._variables[eqn.outvars[0]] = str(expression)  # another name for a value
            return None
        comment = ", ".join(short(var.aval) for var in eqn.outvars)
        if isinstance(expression, Many) and len(outs) == 1:
            return f"{outs[0]} = {expression}[1]", comment
        return f"{', '.join(outs)} = {expression}", comment

    def _atom(self, atom: Any) -> str:
        if isinstance(atom, Literal):
            aval: Any = atom.aval
            return self.source.constant(np.asarray(atom.val, aval.dtype))
        return self._variables[atom]

    def _signature(self) -> list[str]:
        if self._form.arguments is None:
            return self._parameters
        groups = _cut(self._parameters, self._form.arguments)
        return [tuple_text(group) if group else self._free.fresh("none") for group in groups]

    def _returned(self) -> str:
        values = [self._atom(atom) for atom in self._closed.jaxpr.outvars]
        results = self._form.results
        if results is None:
            return _group(values, bare=True)
        groups = _cut(values, [n for n, _ in results])
        texts = [_group(group, bare) for group, (_, bare) in zip(groups, results, strict=True)]
        return texts[0] if len(texts) == 1 else tuple_text(texts)


def _group(values: list[str], bare: bool) -> str:
    return values[0] if bare and len(values) == 1 else tuple_text(values)


def _cut(items: Sequence[str], sizes: Sequence[int]) -> list[list[str]]:
    rest, groups = list(items), []
    for n in sizes:
        groups.append(rest[:n])
        rest = rest[n:]
    return groups


def _used_equations(jaxpr: Jaxpr) -> set[int]:
    """Find the equations that a result depends on, by their ids."""
    live = {atom for atom in jaxpr.outvars if not isinstance(atom, Literal)}
    used = set()
    for eqn in reversed(jaxpr.eqns):
        # Whether an index out of bounds raises must not depend on what becomes of the element.
        checks = eqn.primitive.name == "pybridge_in_bounds"
        if checks or eqn.effects or any(var in live for var in eqn.outvars):
            used.add(id(eqn))
            live.update(atom for atom in eqn.invars if not isinstance(atom, Literal))
    return used


def _comment(place: Location) -> str:
    where = f"# {os.path.basename(place.file)}:{place.line} ({place.function.split('.')[-1]})"
    return f"{where}: {place.source}" if place.source else where
