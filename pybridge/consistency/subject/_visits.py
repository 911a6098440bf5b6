"""Run a JAX program and look at the numbers that chosen operations meet."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Literal, jaxpr_as_fun

from ...jaxprs import (
    Evaluator,
    Location,
    called_program,
    contains,
    cut_program,
    evaluate_equation,
    inner_jaxprs,
    last_uses,
    user_line,
)
from ._compilation import compiled


class Seen(NamedTuple):
    """An operation that ran.

    Attributes:
        eqn: its equation.
        ins: the operands.
        line: the user's line; that of the call around it where it has none of its own.
        run: the operation as a function of the operands.
    """

    eqn: Any
    ins: list[Any]
    line: Location | None
    run: Callable[[Sequence[Any]], list[Any]]

    def outs(self) -> list[Any]:
        """Compute the results."""
        return self.run(self.ins)

    def run_with(self, places: Sequence[int], xs: Sequence[Any]) -> list[Any]:
        """Run it with other operands at some places."""
        ins = list(self.ins)
        for place, x in zip(places, xs, strict=True):
            ins[place] = x
        return self.run(ins)


Visit = Callable[[Seen], None]

# How many steps of each loop are looked at.
_STEPS = 200


def walk(
    closed: ClosedJaxpr,
    args: Sequence[Any],
    names: frozenset[str],
    visit: Visit,
    outer: Location | None = None,
) -> None:
    """Run a program, calling `visit` with what operations of some names meet.

    What comes after the last of them is not run.

    Args:
        closed: the program.
        args: its arguments.
        names: of the operations to visit. What lies between them is compiled.
        visit: is called for each, in order; an inner operation before the one around it.
        outer: the line that calls the program, for operations that have none of their own.
    """
    jaxpr = closed.jaxpr
    met = [position for position, eqn in enumerate(jaxpr.eqns) if _meets(eqn, names)]
    if met:
        invars, eqns = [*jaxpr.constvars, *jaxpr.invars], jaxpr.eqns[: met[-1] + 1]
        start = cut_program(closed, eqns, invars, [])
        _Walk(names, visit).run(start, [*closed.consts, *args], outer)


def _meets(eqn: Any, names: frozenset[str]) -> bool:
    return eqn.primitive.name in names or _holds(eqn, names)


def _holds(eqn: Any, names: frozenset[str]) -> bool:
    return any(contains(inner, names) for inner in inner_jaxprs(eqn))


class _Walk(Evaluator[Any, Location | None]):
    """Compiles what lies between the operations to visit."""

    def __init__(self, names: frozenset[str], visit: Visit):
        self._names, self._visit = names, visit

    def run(self, program: ClosedJaxpr, args: Sequence[Any], around: Location | None) -> list[Any]:
        jaxpr = program.jaxpr
        env: dict[Any, Any] = dict(zip(jaxpr.constvars, program.consts, strict=True))
        env.update(zip(jaxpr.invars, args, strict=True))

        def read(atom: Any) -> Any:
            return atom.val if isinstance(atom, Literal) else env[atom]

        waiting: list[Any] = []
        last_use = last_uses(jaxpr)

        def flush(position: int) -> None:
            if waiting:
                _run_all(program, waiting, env, last_use, position)
                waiting.clear()

        for position, eqn in enumerate(jaxpr.eqns):
            if not _meets(eqn, self._names):
                waiting.append(eqn)
                continue
            flush(position)
            ins = [read(atom) for atom in eqn.invars]
            line = user_line(eqn) or around
            outs = self.enter(eqn, ins, line) if _holds(eqn, self._names) else None
            seen = Seen(eqn, ins, line, partial(evaluate_equation, program, eqn))
            if eqn.primitive.name in self._names:
                self._visit(seen)
            if outs is not None:
                env.update(zip(eqn.outvars, outs, strict=True))
            elif called_program(eqn) is not None:
                waiting.append(eqn)  # compiled with what follows, not operation by operation
            elif any(v in last_use for v in eqn.outvars):
                env.update(zip(eqn.outvars, seen.outs(), strict=True))
        flush(len(jaxpr.eqns))
        return [read(atom) for atom in jaxpr.outvars]

    def decide(self, value: Any) -> int | None:
        value = np.asarray(value)
        return None if value.ndim else int(value)

    def rows(self, stack: Any, length: int, here: Location | None) -> list[Any]:
        return [stack[i] for i in range(length)]

    def stack(self, rows: Sequence[Any], here: Location | None) -> Any:
        return jnp.stack(rows)

    def goes_on(self, eqn: Any, iterations: int) -> bool:
        return iterations <= _STEPS if eqn.primitive.name == "scan" else iterations < _STEPS

    def test(self, program: ClosedJaxpr, args: Sequence[Any], here: Location | None) -> Any:
        return jaxpr_as_fun(program)(*args)[0]

    def solve(self, eqn: Any, operands: list[Any], here: Location | None) -> Any:
        return None


def _run_all(
    closed: ClosedJaxpr, eqns: list[Any], env: dict[Any, Any], last_use: dict, position: int
) -> None:
    """Compile and run equations, keeping what is needed at `position` or later."""
    made = {v for eqn in eqns for v in eqn.outvars}
    read = dict.fromkeys(v for eqn in eqns for v in eqn.invars if not isinstance(v, Literal))
    needed = [v for v in read if v not in made]
    results = [v for v in made if last_use.get(v, -1) >= position]
    if results:
        program = _compiled(closed, eqns, needed, results)
        env.update(zip(results, program(*[env[v] for v in needed]), strict=True))


# Compiled parts of programs. What their keys are made of is kept, so that no id is used twice.
_PROGRAMS: dict[Any, Any] = {}
_MOST_PROGRAMS = 64


def _compiled(closed: ClosedJaxpr, eqns: list[Any], needed: list[Any], results: list[Any]) -> Any:
    """Compile some equations, once for all walks through the same program."""
    key = (id(eqns[0]), len(eqns), *map(id, needed), -1, *map(id, results))
    if key not in _PROGRAMS:
        while len(_PROGRAMS) >= _MOST_PROGRAMS:
            _PROGRAMS.pop(next(iter(_PROGRAMS)))
        part = cut_program(closed, list(eqns), needed, results)
        _PROGRAMS[key] = (list(eqns), compiled(jaxpr_as_fun(part), part))
    return _PROGRAMS[key][-1]
