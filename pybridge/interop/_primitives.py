"""The JAX primitives of bridged functions, and their rules.

`julia_call` has a JVP rule, the tangent of which is `julia_tangents`; that is linear in each
direction, and its transpose is `julia_cotangents`; that is linear in the cotangents and in each
direction, and its transposes are `julia_tangents` and `julia_cotangents`. So every derivative
of a bridged function, of any order, is one of these again, reverse over forward included.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import ShapedArray
from jax.interpreters import ad
from jax.sharding import NamedSharding, PartitionSpec

from .._errors import UnsupportedModeError, explain
from ..jaxprs import register_dead_code_rule
from ._julia_program import (
    PRIMITIVES,
    Numbers,
    Program,
    bind,
    call_p,
    cotangents_p,
    tangents_p,
    value_and_grad_p,
)


def _abstract_eval(*avals: Any, program: Program) -> list[ShapedArray]:
    aval: Any
    for i, aval in enumerate(avals):
        if any(axis is not None for axis in aval.sharding.spec):
            raise UnsupportedModeError(
                explain(
                    "from_julia",
                    expected="arguments that are not sharded over an explicit mesh axis, since "
                    "XLA cannot partition a Julia function",
                    got=f"{aval.str_short(mesh_axis_types=True)} as operand {i}",
                    fix="Call it inside jax.shard_map, which gives each device its part, or "
                    "reshard to PartitionSpec() first.",
                )
            )
    results = program.results
    if not avals:
        return [ShapedArray(result.shape, result.dtype) for result in results]
    # Inside shard_map the type also says over which mesh axes a value varies; `bind` has made
    # the operands agree in that.
    like = avals[0].update(weak_type=False)

    def result_aval(result: jax.ShapeDtypeStruct) -> ShapedArray:
        sharding = NamedSharding(like.sharding.mesh, PartitionSpec(*[None] * len(result.shape)))
        return like.update(shape=result.shape, dtype=result.dtype, sharding=sharding)

    return [result_aval(result) for result in results]


# --- differentiation -----------------------------------------------------------------------


def _is_moving(tangent: Any) -> bool:
    return type(tangent) is not ad.Zero and jax.typeof(tangent).dtype != jax.dtypes.float0


def _zero(x: Any) -> ad.Zero:
    return ad.Zero(jax.typeof(x).to_tangent_aval())


def _is_inexact(dtype: Any) -> bool:
    return bool(jnp.issubdtype(dtype, np.inexact))


def _call_jvp(primals: Any, tangents: Any, *, program: Program) -> tuple[list[Any], list[Any]]:
    moving = tuple(i for i, t in enumerate(tangents) if _is_moving(t))
    within = replace(program, wrt=tuple(sorted({*program.wrt, *moving})))
    kept = tuple(i for i, value in enumerate(program.values) if _is_inexact(value.dtype))
    if not moving or not kept:
        values = bind(within if moving else program, primals)
        return values, [_zero(value) for value in values]
    has_reverse = program.function.has_reverse
    if has_reverse and not program.ticket and _is_scalar(program) and _own_lanes(within):
        gradient = _gradient_program(program, within.wrt)
        return _value_and_grad_jvp(primals, tangents, program=gradient, with_gradient=False)
    if has_reverse:
        within = within.with_ticket()
    outs = bind(within, primals)
    count = len(program.values)
    directed = within.derive(
        "tangents",
        [*(("in", i) for i in moving), *(("out", i) for i in range(count, len(outs)))],
        [("out", i) for i in kept],
        directions=(moving,),
        kept=kept,
        ticket=within.ticket,
    )
    found = iter(bind(directed, [*primals, *(tangents[i] for i in moving), *outs[count:]]))
    results = outs if program.ticket else outs[:count]
    return results, [next(found) if i in kept else _zero(out) for i, out in enumerate(results)]


def _is_scalar(program: Program) -> bool:
    values = program.values
    return (
        len(values) == 1
        and values[0].shape == ()
        and bool(jnp.issubdtype(values[0].dtype, np.floating))
    )


def _own_lanes(program: Program) -> bool:
    """Tell whether no two lanes share one of the leaves that the gradient is asked for.

    A gradient for each lane of a leaf that they share would take much memory; summed over the
    lanes, in the transpose, it does not.
    """
    return all(level.ins[i] for level in program.levels for i in program.wrt)


def _gradient_program(program: Program, wrt: Numbers) -> Program:
    outs = [("out", 0), *(("in", i) for i in wrt)]
    return program.derive("value_and_grad", [], outs, wrt=wrt)


def _value_and_grad_jvp(
    primals: Any, tangents: Any, *, program: Program, with_gradient: bool = True
) -> tuple[list[Any], list[Any]]:
    moving = tuple(i for i, t in enumerate(tangents) if _is_moving(t))
    wider = _gradient_program(program, tuple(sorted({*program.wrt, *moving})))
    value, *gradients = bind(wider, primals)
    gradient_of = dict(zip(wider.wrt, gradients, strict=True))
    terms = [_contract(program, i, gradient_of[i], tangents[i]) for i in moving]
    tangent = sum(terms[1:], terms[0]) if terms else _zero(value)
    if not with_gradient:
        return [value], [tangent]
    kept = [gradient_of[i] for i in program.wrt]
    if not moving:
        return [value, *kept], [tangent, *(_zero(g) for g in kept)]
    curved = program.derive(
        "cotangents",
        [("out", 0), *(("in", i) for i in moving)],
        [("out", 1 + i) for i in range(len(program.wrt))],
        wrt=program.wrt,
        seeds=(0,),
        directions=(moving,),
    )
    seed = jnp.ones_like(value)
    turned = bind(curved, [*primals, seed, *(tangents[i] for i in moving)])
    return [value, *kept], [tangent, *turned]


def _contract(program: Program, i: int, gradient: Any, tangent: Any) -> Any:
    """Pair the gradient of a real scalar function with a tangent, lane by lane."""
    # JAX's gradient with respect to x + iy is df/dx - i df/dy.
    product = jnp.real(gradient * tangent).astype(program.values[0].dtype)
    return jnp.sum(product, axis=program.leaf_axes(i))


def _split(program: Program, operands: Sequence[Any]) -> tuple[list[Any], list[Any], list[Any]]:
    """Cut operands into arguments, cotangents, and one list for each direction."""
    n, m = len(program.args), len(program.seeds)
    directions, start = [], n + m
    for direction in program.directions:
        directions.append(list(operands[start : start + len(direction)]))
        start += len(direction)
    return list(operands[:n]), list(operands[n : n + m]), directions


def _places(program: Program) -> tuple[list[Any], list[list[Any]], list[Any]]:
    """Name the places of seeds, directions and results, for `Program.derive`."""
    n, m = len(program.args), len(program.seeds)
    seeds = [("in", n + i) for i in range(m)]
    _, _, numbers = _split(program, range(len(program.operand_types)))
    directions = [[("in", i) for i in direction] for direction in numbers]
    return seeds, directions, [("out", i) for i in range(len(program.result_types))]


def _ticket(program: Program, operands: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Name the place of the ticket that tangents or cotangents take, and find it; or nothing."""
    if not program.ticket:
        return [], []
    return [("in", len(operands) - 1)], [operands[-1]]


def _multilinear_jvp(
    primals: Any, tangents: Any, *, program: Program
) -> tuple[list[Any], list[Any]]:
    """Differentiate a program that is linear in its cotangents and in each direction."""
    args, seeds, directions = _split(program, primals)
    args_dot, seeds_dot, directions_dot = _split(program, tangents)
    seed_places, direction_places, outs = _places(program)
    ticket_place, ticket = _ticket(program, primals)
    fields = {"wrt": program.wrt, "kept": program.kept}
    terms: list[list[Any]] = []

    def add(
        new_seeds: Numbers,
        seed_in: list[Any],
        seed_values: list[Any],
        new_directions: list[Numbers],
        direction_in: list[list[Any]],
        direction_values: list[list[Any]],
    ) -> None:
        # The pullback at a point tells nothing of its change along one more direction.
        same_point = len(new_directions) == len(numbers)
        last, last_place = (ticket, ticket_place) if same_point else ([], [])
        term = program.derive(
            program.kind,
            [*seed_in, *(place for places in direction_in for place in places), *last_place],
            outs,
            seeds=new_seeds,
            directions=tuple(new_directions),
            ticket=bool(last),
            **fields,
        )
        flat = [value for values in direction_values for value in values]
        terms.append(bind(term, [*args, *seed_values, *flat, *last]))

    numbers = list(program.directions)
    moving = tuple(i for i, t in enumerate(args_dot) if _is_moving(t))
    if moving:
        add(
            program.seeds,
            seed_places,
            seeds,
            [*numbers, moving],
            [*direction_places, [("in", i) for i in moving]],
            [*directions, [args_dot[i] for i in moving]],
        )
    live = [j for j, t in enumerate(seeds_dot) if _is_moving(t)]
    if live:
        add(
            tuple(program.seeds[j] for j in live),
            [seed_places[j] for j in live],
            [seeds_dot[j] for j in live],
            numbers,
            direction_places,
            directions,
        )
    for d, direction_dot in enumerate(directions_dot):
        live = [j for j, t in enumerate(direction_dot) if _is_moving(t)]
        if live:
            add(
                program.seeds,
                seed_places,
                seeds,
                _with(numbers, d, tuple(numbers[d][j] for j in live)),
                _with(direction_places, d, [direction_places[d][j] for j in live]),
                _with(directions, d, [direction_dot[j] for j in live]),
            )
    values = bind(program, primals)
    if not terms:
        return values, [_zero(value) for value in values]
    return values, [sum(parts[1:], parts[0]) for parts in zip(*terms, strict=True)]


def _with(items: Sequence[Any], i: int, item: Any) -> list[Any]:
    return [*items[:i], item, *items[i + 1 :]]


def _without(items: Sequence[Any], i: int) -> list[Any]:
    return [*items[:i], *items[i + 1 :]]


def _transpose(cts: Any, *operands: Any, program: Program) -> list[Any]:
    """Transpose with respect to the cotangents or one direction.

    Both families are derivatives of one real number, the pairing of cotangent and value, and
    its derivatives do not depend on the order of the directions: the cotangents of a
    direction's tangents are found with the direction left out and, for the cotangents family,
    the given `cts` as a direction in its place.
    """
    args, seeds, directions = _split(program, operands)
    seed_places, direction_places, _ = _places(program)
    ticket_place, ticket = _ticket(program, operands)
    live = [j for j, ct in enumerate(cts) if type(ct) is not ad.Zero]
    given, given_places = [cts[j] for j in live], [("out", j) for j in live]
    linear = [ad.is_undefined_primal(x) for x in operands]
    results: dict[int, Any] = {}

    if not live:
        return [
            ad.Zero(x.aval) if is_linear else None
            for x, is_linear in zip(operands, linear, strict=True)
        ]

    # The leaves that the given cotangents belong to: of the value, or of the arguments.
    turned = tuple((program.kept or program.wrt)[j] for j in live)
    offset = len(args)
    picked = [j for j, x in enumerate(seeds) if ad.is_undefined_primal(x)]
    if picked:
        transposed = program.derive(
            "tangents",
            [*(p for places in direction_places for p in places), *given_places],
            [seed_places[j] for j in picked],
            directions=(*program.directions, turned),
            kept=tuple(program.seeds[j] for j in picked),
        )
        flat = [x for direction in directions for x in direction]
        found = bind(transposed, [*args, *flat, *given])
        results = {offset + j: ct for j, ct in zip(picked, found, strict=True)}
    offset += len(seeds)
    for d, direction in enumerate(directions):
        picked = [j for j, x in enumerate(direction) if ad.is_undefined_primal(x)]
        if picked:
            other_places = [p for places in _without(direction_places, d) for p in places]
            others = [x for other in _without(directions, d) for x in other]
            wrt = tuple(program.directions[d][j] for j in picked)
            outs = [direction_places[d][j] for j in picked]
            rest = tuple(_without(program.directions, d))
            if program.kind == "tangents":
                transposed = program.derive(
                    "cotangents",
                    [*given_places, *other_places, *ticket_place],
                    outs,
                    wrt=wrt,
                    seeds=turned,
                    directions=rest,
                    ticket=program.ticket,
                )
                found = bind(transposed, [*args, *given, *others, *ticket])
            else:
                transposed = program.derive(
                    "cotangents",
                    [*seed_places, *other_places, *given_places],
                    outs,
                    wrt=wrt,
                    seeds=program.seeds,
                    directions=(*rest, turned),
                )
                found = bind(transposed, [*args, *seeds, *others, *given])
            results = {offset + j: ct for j, ct in zip(picked, found, strict=True)}
        offset += len(direction)
    return [results.get(i) for i in range(len(operands))]


def _refuse_transpose(cts: Any, *operands: Any, program: Program) -> list[Any]:
    """Refuse `jax.linear_transpose` of a value: nothing tells that a Julia function is linear.

    Derivatives never ask for this: what they transpose is of the two linear kinds.
    """
    raise UnsupportedModeError(
        explain(
            "jax.linear_transpose",
            expected="operations that are known to be linear",
            got=f"{program.function!r}, of which that is not known",
            fix="If f is linear, transpose its derivative, which is the same function: "
            "lambda x: jax.jvp(f, (jnp.zeros_like(x),), (x,))[1]. Or take the cotangents from "
            "jax.vjp(f, x)[1].",
        )
    )


def _dce_call(used: list[bool], eqn: Any) -> tuple[list[bool], Any]:
    """Leave no pullback behind where nobody takes the ticket: a call's rule for dead code."""
    program = eqn.params["program"]
    if not any(used):
        return [False] * len(eqn.invars), None
    if program.ticket and not used[-1]:
        params = {"program": program.without_ticket()}
        eqn = eqn.replace(outvars=eqn.outvars[:-1], params=params)
    return [True] * len(eqn.invars), eqn


for _primitive in PRIMITIVES.values():
    _primitive.multiple_results = True
    _primitive.def_abstract_eval(_abstract_eval)
register_dead_code_rule(call_p, _dce_call)
ad.primitive_jvps[call_p] = _call_jvp
ad.primitive_jvps[value_and_grad_p] = _value_and_grad_jvp
for _primitive in (call_p, value_and_grad_p):
    ad.primitive_transposes[_primitive] = _refuse_transpose
for _primitive in (tangents_p, cotangents_p):
    ad.primitive_jvps[_primitive] = _multilinear_jvp
    ad.primitive_transposes[_primitive] = _transpose
