"""Run a JAX program and look at the numbers that chosen operations meet."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Literal, jaxpr_as_fun

from ..._jaxprs import Location, inner_jaxprs, user_line


class Seen(NamedTuple):
    """An operation that ran.

    Attributes:
        eqn: its equation.
        ins: the operands.
        outs: the results.
        line: the user's line; that of the call around it where it has none of its own.
        run: the operation as a function of the operands.
    """

    eqn: Any
    ins: list[Any]
    outs: list[Any]
    line: Location | None
    run: Callable[..., list[Any]]


Visit = Callable[[Seen], None]

# Operations that run inner programs, and where those are.
_CALLS = ("jit", "pjit", "closed_call", "core_call", "remat", "remat2", "checkpoint")
_CUSTOM = ("custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr")
_BRANCHES = ("cond", "pybridge_switch")

# How many steps of each loop are looked at.
_STEPS = 200


def equations(closed: ClosedJaxpr) -> Iterator[Any]:
    """Yield all equations of a program, those of inner programs included."""
    for eqn in closed.jaxpr.eqns:
        yield eqn
        for inner in inner_jaxprs(eqn):
            yield from equations(inner)


def contains(closed: ClosedJaxpr, names: frozenset[str]) -> bool:
    """Say whether an operation of that name is anywhere in a program."""
    return any(eqn.primitive.name in names for eqn in equations(closed))


def walk(
    closed: ClosedJaxpr,
    args: Sequence[Any],
    names: frozenset[str],
    visit: Visit,
    outer: Location | None = None,
) -> list[Any]:
    """Run a program, calling `visit` with what operations of some names meet.

    Args:
        closed: the program.
        args: its arguments.
        names: of the operations to visit. What lies between them is compiled.
        visit: is called for each, in order; an inner operation before the one around it.
        outer: the line that calls the program, for operations that have none of their own.

    Returns:
        The program's results.
    """
    jaxpr = closed.jaxpr
    env: dict[Any, Any] = dict(zip(jaxpr.constvars, closed.consts, strict=True))
    env.update(zip(jaxpr.invars, args, strict=True))

    def read(v: Any) -> Any:
        return v.val if isinstance(v, Literal) else env[v]

    waiting: list[Any] = []
    last_use = _last_uses(jaxpr)

    def flush(position: int) -> None:
        if waiting:
            _run_all(closed, waiting, env, last_use, position)
            waiting.clear()

    for position, eqn in enumerate(jaxpr.eqns):
        inside = any(contains(inner, names) for inner in inner_jaxprs(eqn))
        if eqn.primitive.name not in names and not inside:
            waiting.append(eqn)
            continue
        flush(position)
        ins = [read(v) for v in eqn.invars]
        line = user_line(eqn) or outer
        run = equation_function(closed, eqn)
        outs = _step_into(eqn, ins, names, visit, line) if inside else None
        outs = outs if outs is not None else run(*ins)
        if eqn.primitive.name in names:
            visit(Seen(eqn, ins, outs, line, run))
        env.update(zip(eqn.outvars, outs, strict=True))
    flush(len(jaxpr.eqns))
    return [read(v) for v in jaxpr.outvars]


def equation_function(closed: ClosedJaxpr, eqn: Any) -> Callable[..., list[Any]]:
    """Make a function of all operands of an equation, constants included."""
    fresh, seen, kept = [], set(), []
    for place, v in enumerate(eqn.invars):
        if not isinstance(v, Literal) and v not in seen:
            seen.add(v)
            fresh.append(v)
            kept.append(place)
    inner = jaxpr_as_fun(_cut(closed, [eqn], fresh, list(eqn.outvars)))
    return lambda *ins: list(inner(*[ins[place] for place in kept]))


def _run_all(
    closed: ClosedJaxpr, eqns: list[Any], env: dict[Any, Any], last_use: dict, position: int
) -> None:
    """Compile and run equations, keeping what is needed at `position` or later."""
    made = {v for eqn in eqns for v in eqn.outvars}
    needed: dict[Any, None] = {}
    for eqn in eqns:
        for v in eqn.invars:
            if not isinstance(v, Literal) and v not in made:
                needed[v] = None
    results = [v for v in made if last_use.get(v, -1) >= position]
    if results:
        program = _compiled(closed, eqns, list(needed), results)
        env.update(zip(results, program(*[env[v] for v in needed]), strict=True))


# Compiled parts of programs. What their keys are made of is kept, so that no id is used twice.
_PROGRAMS: dict[Any, Any] = {}
_MOST_PROGRAMS = 64


def _compiled(closed: ClosedJaxpr, eqns: list[Any], needed: list[Any], results: list[Any]) -> Any:
    """Compile some equations, once for all walks through the same program."""
    key = (id(closed.jaxpr), id(eqns[0]), len(eqns), *map(id, needed), -1, *map(id, results))
    if key not in _PROGRAMS:
        while len(_PROGRAMS) >= _MOST_PROGRAMS:
            _PROGRAMS.pop(next(iter(_PROGRAMS)))
        part = _cut(closed, list(eqns), needed, results)
        _PROGRAMS[key] = (closed.jaxpr, list(eqns), jax.jit(jaxpr_as_fun(part)))
    return _PROGRAMS[key][-1]


def _cut(closed: ClosedJaxpr, eqns: list[Any], invars: list[Any], outvars: list[Any]) -> Any:
    """Make a program of some equations of another."""
    info = closed.jaxpr.debug_info._replace(
        arg_names=("",) * len(invars), result_paths=("",) * len(outvars)
    )
    jaxpr = closed.jaxpr.replace(
        constvars=[], invars=invars, outvars=outvars, eqns=eqns, debug_info=info
    )
    return ClosedJaxpr(jaxpr, ())


def _last_uses(jaxpr: Any) -> dict[Any, int]:
    """Find the last equation that reads each variable; the results are read at the end."""
    uses = {
        v: position
        for position, eqn in enumerate(jaxpr.eqns)
        for v in eqn.invars
        if not isinstance(v, Literal)
    }
    uses.update({v: len(jaxpr.eqns) for v in jaxpr.outvars if not isinstance(v, Literal)})
    return uses


def _step_into(
    eqn: Any, ins: list[Any], names: frozenset[str], visit: Visit, line: Location | None
) -> list[Any] | None:
    """Run the inner programs of an equation step by step; None where that is not known."""
    name, params = eqn.primitive.name, eqn.params
    if name in _CALLS:
        return walk(_closed(params["jaxpr"]), ins, names, visit, line)
    if name in _CUSTOM:
        inner = params.get("call_jaxpr", params.get("fun_jaxpr"))
        return walk(_closed(inner), ins, names, visit, line)
    if name in _BRANCHES:
        branches = params["branches"]
        index = int(np.clip(int(np.asarray(ins[0])), 0, len(branches) - 1))
        return walk(_closed(branches[index]), ins[1:], names, visit, line)
    if name == "scan":
        return _scan(params, ins, names, visit, line)
    if name == "while":
        return _while(params, ins, names, visit, line)
    return None


def _scan(
    params: Any, ins: list[Any], names: frozenset[str], visit: Visit, line: Location | None
) -> list[Any] | None:
    body, length = params["jaxpr"], params["length"]
    consts, carries = params["num_consts"], params["num_carry"]
    if length > _STEPS or length == 0:
        return None
    fixed, carry, xs = ins[:consts], ins[consts : consts + carries], ins[consts + carries :]
    rows: list[Any] = [None] * length
    order = range(length - 1, -1, -1) if params["reverse"] else range(length)
    for i in order:
        outs = walk(body, [*fixed, *carry, *[x[i] for x in xs]], names, visit, line)
        carry, rows[i] = outs[:carries], outs[carries:]
    stacked = [jnp.stack(column) for column in zip(*rows, strict=True)]
    return [*carry, *stacked]


def _while(
    params: Any, ins: list[Any], names: frozenset[str], visit: Visit, line: Location | None
) -> list[Any] | None:
    ask, body = params["cond_nconsts"], params["body_nconsts"]
    questions, fixed, carry = ins[:ask], ins[ask : ask + body], ins[ask + body :]
    for _ in range(_STEPS):
        if not bool(jaxpr_as_fun(params["cond_jaxpr"])(*questions, *carry)[0]):
            return carry
        carry = walk(params["body_jaxpr"], [*fixed, *carry], names, visit, line)
    return None


def _closed(jaxpr: Any) -> ClosedJaxpr:
    return jaxpr if isinstance(jaxpr, ClosedJaxpr) else ClosedJaxpr(jaxpr, ())


def substitute(closed: ClosedJaxpr, name: str, primitive: Any) -> ClosedJaxpr:
    """Put another primitive, of the same types, in the place of one, everywhere."""

    def part(value: Any) -> Any:
        if isinstance(value, ClosedJaxpr):
            return substitute(value, name, primitive)
        if hasattr(value, "eqns") and hasattr(value, "invars"):
            return substitute(ClosedJaxpr(value, ()), name, primitive).jaxpr
        if isinstance(value, tuple | list):
            return type(value)(map(part, value)) if type(value) in (tuple, list) else value
        return value

    def changed(eqn: Any) -> Any:
        if eqn.primitive.name == name:
            return eqn.replace(primitive=primitive)
        if not any(True for _ in inner_jaxprs(eqn)):
            return eqn
        return eqn.replace(params={key: part(value) for key, value in eqn.params.items()})

    jaxpr = closed.jaxpr.replace(eqns=[changed(eqn) for eqn in closed.jaxpr.eqns])
    return ClosedJaxpr(jaxpr, closed.consts)
