"""Programs inside of operations: what `StrongTrace` does with jit, scan, while, cond, checkpoint.

The operation stays; the program in it is replaced by one with strong derivatives.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from functools import lru_cache, wraps
from typing import Any

import jax.extend.linear_util as lu
from jax.core import eval_jaxpr
from jax.extend.core import ClosedJaxpr
from jax.interpreters import partial_eval as pe

from ..jaxprs import BRANCHES, CALLS, program_parameter, scan_sizes
from ._strong_trace import KNOWN_PROGRAMS, PROGRAM_RULES, run_marked, run_strong, strong_p

_Rewritten = tuple[Sequence[Any], dict[str, Any], list[bool]]
# The same program again and again, so that JAX finds what it has compiled for it.
_SEEN: weakref.WeakKeyDictionary[Any, dict[Any, Any]] = weakref.WeakKeyDictionary()


def strengthen(program: ClosedJaxpr, carried: Sequence[bool]) -> tuple[ClosedJaxpr, list[bool]]:
    """Rewrite a program so that its derivative has strong zeros.

    Args:
        program: the program.
        carried: for each input whether it is a tangent or made of one.

    Returns:
        A program with the same inputs, outputs and values, and for each output whether it
        is carried.
    """
    # Some operations hold the bare program, and it is closed anew each time.
    seen = _SEEN.setdefault(program if program.consts else program.jaxpr, {})
    key = tuple(carried)
    if key not in seen:
        seen[key] = _strengthen(program, key)
    return seen[key]


def _strengthen(program: ClosedJaxpr, carried: Sequence[bool]) -> tuple[ClosedJaxpr, list[bool]]:
    marks: list[bool] = []

    def original(*xs: Any) -> list[Any]:
        return eval_jaxpr(program.jaxpr, program.consts, *xs)

    def strong(*xs: Any) -> list[Any]:
        outs, marks[:] = run_marked(original, xs, carried)
        return outs

    function = lu.wrap_init(strong, debug_info=program.jaxpr.debug_info)
    jaxpr, _, consts = pe.trace_to_jaxpr_dynamic(function, program.in_avals)
    return ClosedJaxpr(jaxpr, consts), marks


def _rule(*names: str) -> Callable[[Any], Any]:
    def register(rule: Any) -> Any:
        PROGRAM_RULES.update((name, rule) for name in names)
        return rule

    return register


# Those that JAX does not differentiate have no derivative to be made strong.
@_rule(*CALLS - KNOWN_PROGRAMS)
def _call(values: Sequence[Any], carried: list[bool], params: dict[str, Any]) -> _Rewritten:
    key = program_parameter(params)
    is_closed = isinstance(params[key], ClosedJaxpr)
    given = params[key] if is_closed else ClosedJaxpr(params[key], ())
    program, marks = strengthen(given, carried)
    if is_closed:
        return values, {**params, key: program}, marks
    jaxpr, consts = program.jaxpr, program.consts
    if consts:
        inputs = [*jaxpr.constvars, *jaxpr.invars]
        jaxpr = jaxpr.replace(constvars=[], invars=inputs)
    return [*consts, *values], {**params, key: jaxpr}, marks


@_rule("remat2", "remat", "checkpoint")
def _remat(values: Sequence[Any], carried: list[bool], params: dict[str, Any]) -> _Rewritten:
    values, params, marks = _call(values, carried, params)
    if params.get("policy") is not None:
        params["policy"] = _seeing_through(params["policy"])
    return values, params, marks


@lru_cache(256)
def _seeing_through(policy: Callable[..., Any]) -> Callable[..., Any]:
    """Let a policy of `jax.checkpoint` see the operations inside of `strong_p`."""

    def strong_policy(primitive: Any, *avals: Any, **params: Any) -> Any:
        if primitive is strong_p:
            return policy(params["of"], *avals, **dict(params["settings"]))
        return policy(primitive, *avals, **params)

    return strong_policy


@_rule("scan")
def _scan(values: Sequence[Any], carried: list[bool], params: dict[str, Any]) -> _Rewritten:
    program, marks = _loop(params["jaxpr"], carried, *scan_sizes(params))
    return values, {**params, "jaxpr": program}, marks


@_rule("while")
def _while(values: Sequence[Any], carried: list[bool], params: dict[str, Any]) -> _Rewritten:
    # No derivative passes through the condition.
    skipped, consts = params["cond_nconsts"], params["body_nconsts"]
    count = len(values) - skipped - consts
    program, marks = _loop(params["body_jaxpr"], carried[skipped:], consts, count)
    return values, {**params, "body_jaxpr": program}, marks


def _loop(
    body: ClosedJaxpr, carried: list[bool], first: int, count: int
) -> tuple[ClosedJaxpr, list[bool]]:
    """Rewrite the body of a loop; what becomes carried in one round is so in the next."""
    while True:
        program, marks = strengthen(body, carried)
        state = carried[first : first + count]
        grown = [a or b for a, b in zip(state, marks[:count], strict=True)]
        if grown == state:
            return program, [*grown, *marks[count:]]
        carried = [*carried[:first], *grown, *carried[first + count :]]


@_rule(*BRANCHES)
def _cond(values: Sequence[Any], carried: list[bool], params: dict[str, Any]) -> _Rewritten:
    branches = [strengthen(branch, carried[1:]) for branch in params["branches"]]
    marks = [any(of_output) for of_output in zip(*(m for _, m in branches), strict=True)]
    return values, {**params, "branches": tuple(program for program, _ in branches)}, marks


@_rule("custom_linear_solve")
def _linear_solve(values: Sequence[Any], carried: list[bool], params: dict[str, Any]) -> _Rewritten:
    """Rewrite the solvers of a system whose right-hand side is carried."""
    lengths = params["const_lengths"]

    def solver(program: Any, consts: int) -> Any:
        if program is None:
            return None
        count = len(program.in_avals) - consts
        return strengthen(program, [*[False] * consts, *[True] * count])[0]

    solvers = type(params["jaxprs"])(
        *(solver(p, c) for p, c in zip(params["jaxprs"], lengths, strict=True))
    )
    return values, {**params, "jaxprs": solvers}, [True] * len(params["jaxprs"].solve.out_avals)


@_rule("linear_call")
def _linear_call(values: Sequence[Any], carried: list[bool], params: dict[str, Any]) -> _Rewritten:
    callee, marks = strengthen(params["callee"], carried)

    def transpose_thunk() -> tuple[ClosedJaxpr, Any]:
        transpose, consts = params["transpose_thunk"]()
        residuals = len(consts) + params["num_res"]
        cotangents = len(transpose.in_avals) - residuals
        return strengthen(transpose, [*[False] * residuals, *[True] * cotangents])[0], consts

    return values, {**params, "callee": callee, "transpose_thunk": transpose_thunk}, marks


@_rule("custom_vmap_call")
def _custom_vmap(values: Sequence[Any], carried: list[bool], params: dict[str, Any]) -> _Rewritten:
    values, params, marks = _call("custom_vmap_call")(values, carried, params)
    return values, {**params, "rule": _strong_rule(params["rule"])}, marks


@lru_cache(256)
def _strong_rule(rule: Callable[..., Any]) -> Callable[..., Any]:
    def strong(*args: Any, **kwargs: Any) -> Any:
        return run_strong(rule, args, kwargs)

    return wraps(rule)(strong)
