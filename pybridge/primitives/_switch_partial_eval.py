"""Divide a switch, and remove what nobody uses of it: its rules of partial evaluation.

The derivative of a switch is one switch of values and tangents. Forward mode leaves it so. Where
JAX linearizes, the values are known and the tangents are not: the switch is divided into one of
what is known, which also returns what the rest needs (the residuals), and one that waits for the
tangents. So reverse mode costs what it costs with `lax.switch`: one conditional forward, one back.

Branches that need different residuals share the places of those of equal shape and dtype; a
branch leaves zeros where it needs none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.core import Tracer, eval_jaxpr
from jax.interpreters import ad
from jax.interpreters import partial_eval as pe

from ..jaxprs import jaxpr_as_fun, register_dead_code_rule
from ._switch_primitive import bind_switch, switch_p

if TYPE_CHECKING:
    from jax.extend.core import ClosedJaxpr


@dataclass(frozen=True)
class _Divided:
    """A switch in two parts.

    Attributes:
        known: branches that take the known operands; return the known outputs and the residuals.
        waiting: branches that take the residuals, the known operands at `needed` and the unknown
            operands; return the unknown outputs.
        is_unknown: for each output.
        needed: positions among all operands.
    """

    known: tuple[ClosedJaxpr, ...]
    waiting: tuple[ClosedJaxpr, ...]
    is_unknown: list[bool]
    needed: list[int]

    @property
    def residuals(self) -> list[Any]:
        """Return the abstract values of the residuals."""
        return self.known[0].out_avals[self.is_unknown.count(False) :]


@dataclass(frozen=True)
class _Part:
    """A branch in two parts.

    Attributes:
        known: as in `_Divided`, with the residuals of this branch.
        is_unknown: for each output whether it is made of unknown operands in this branch.
        leaves: for each value that the waiting part reads ("residual", the kind of its PRNG keys
            or None), ("operand", its position) or ("constant", its value).
        waiting: takes these values and the unknown operands.
    """

    known: ClosedJaxpr
    is_unknown: list[bool]
    leaves: list[tuple[str, Any]]
    waiting: Callable[[list[Any], Sequence[Any]], list[Any]]

    @property
    def needed(self) -> set[int]:
        """Return the positions of the known operands that the waiting part reads."""
        return {i for kind, i in self.leaves if kind == "operand"}


def _divide(branches: tuple[ClosedJaxpr, ...], unknown: list[bool]) -> _Divided:
    """Divide branches of which some operands are unknown."""
    parts = [_divide_branch(branch, unknown, None) for branch in branches]
    # An output is unknown if it is in any branch that may be taken.
    waits = [any(flags) for flags in zip(*(part.is_unknown for part in parts), strict=True)]
    parts = [
        part if part.is_unknown == waits else _divide_branch(branch, unknown, waits)
        for part, branch in zip(parts, branches, strict=True)
    ]
    count = waits.count(False)
    shared, places = _share_places([part.known.out_avals[count:] for part in parts])
    needed = sorted(set().union(*(part.needed for part in parts)))
    avals = branches[0].in_avals
    of_waiting = (
        shared,
        [avals[i] for i in needed],
        [aval for aval, is_unknown in zip(avals, unknown, strict=True) if is_unknown],
    )

    def waiting(part: _Part, own: list[int]) -> ClosedJaxpr:
        def function(residuals: Any, operands: Any, unknowns: Any) -> list[Any]:
            of_branch = iter([residuals[i] for i in own])
            by_position = dict(zip(needed, operands, strict=True))

            def value(kind: str, what: Any) -> Any:
                if kind == "residual":
                    words = next(of_branch)
                    return words if what is None else jax.random.wrap_key_data(words, impl=what)
                return by_position[what] if kind == "operand" else what

            return part.waiting([value(*leaf) for leaf in part.leaves], unknowns)

        return jax.make_jaxpr(function)(*of_waiting)

    known = tuple(
        _with_places(part.known, count, *pair)
        for part, pair in zip(parts, ((own, shared) for own in places), strict=True)
    )
    return _Divided(known, tuple(map(waiting, parts, places)), waits, needed)


def _divide_branch(branch: ClosedJaxpr, unknown: list[bool], waits: list[bool] | None) -> _Part:
    """Divide one branch.

    Args:
        branch: the branch.
        unknown: for each operand.
        waits: for each output whether it waits in another branch, and so has to here. None at
            first, while that is being found out.
    """
    from jax.extend import linear_util as lu

    found: list[Any] = []
    leaves: list[tuple[str, Any]] = []

    def known_part(*known: Any) -> list[Any]:
        remaining = iter(known)
        operands = [None if flag else next(remaining) for flag in unknown]
        pvals = [
            pe.PartialVal.unknown(aval) if flag else pe.PartialVal.known(x)
            for flag, aval, x in zip(unknown, branch.in_avals, operands, strict=True)
        ]
        function = lu.wrap_init(jaxpr_as_fun(branch), debug_info=branch.jaxpr.debug_info)
        jaxpr, outs, consts = pe.trace_to_jaxpr_nounits(function, pvals, False)
        is_unknown = [not out.is_known() for out in outs]
        waiting = is_unknown if waits is None else waits
        # What this branch knows and another does not waits with it.
        kept = [i for i, flag in enumerate(waiting) if flag and not is_unknown[i]]
        constant = {i: value for i in kept if (value := _constant_output(branch, i))}
        found.append((jaxpr, is_unknown, waiting, kept, constant, len(consts)))
        positions = {id(x): i for i, x in enumerate(operands) if x is not None}
        residuals: list[Any] = []
        for leaf in (*consts, *(outs[i].get_known() for i in kept if i not in constant)):
            if not isinstance(leaf, Tracer):
                leaves.append(("constant", leaf))
            elif id(leaf) in positions:
                leaves.append(("operand", positions[id(leaf)]))
            elif jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):  # which has no zero
                leaves.append(("residual", jax.random.key_impl(leaf)))
                residuals.append(jax.random.key_data(leaf))
            else:
                leaves.append(("residual", None))
                residuals.append(lax.convert_element_type(leaf, leaf.dtype))  # not weakly typed
        known_outs = [out.get_known() for out, flag in zip(outs, waiting, strict=True) if not flag]
        return [*known_outs, *residuals]

    avals = [aval for aval, flag in zip(branch.in_avals, unknown, strict=True) if not flag]
    known = jax.make_jaxpr(known_part)(*avals)
    jaxpr, is_unknown, waiting, kept, constant, count = found[-1]

    def waiting_part(values: list[Any], unknowns: Sequence[Any]) -> list[Any]:
        outs = iter(eval_jaxpr(jaxpr, values[:count], *unknowns))
        stored = iter(values[count:])
        of_kept = {i: constant[i]() if i in constant else next(stored) for i in kept}
        return [
            of_kept[i] if i in of_kept else next(outs) for i, flag in enumerate(waiting) if flag
        ]

    return _Part(known, is_unknown, leaves, waiting_part)


def _constant_output(branch: ClosedJaxpr, i: int) -> Callable[[], Any] | None:
    """Return how to make an output that is made of no operand, or None if it is."""
    wanted = [position == i for position in range(len(branch.out_avals))]
    jaxpr, used = pe.dce_jaxpr(branch.jaxpr, wanted)
    return None if any(used) else lambda: eval_jaxpr(jaxpr, branch.consts)[0]


def _share_places(avals: list[list[Any]]) -> tuple[list[Any], list[list[int]]]:
    """Give the residuals of all branches as few places as there are for the largest.

    Args:
        avals: for each branch the abstract values of its residuals.

    Returns:
        The abstract values of the places, and for each branch the places of its residuals.
    """
    numbers: dict[tuple[Any, int], int] = {}
    places: list[list[int]] = []
    for of_branch in avals:
        seen: Counter[Any] = Counter()
        places.append([])
        for aval in of_branch:
            places[-1].append(numbers.setdefault((aval, seen[aval]), len(numbers)))
            seen[aval] += 1
    return [aval for aval, _ in numbers], places


def _with_places(known: ClosedJaxpr, count: int, own: list[int], shared: list[Any]) -> ClosedJaxpr:
    """Let a branch return, after `count` outputs, a residual or zeros in each of the places."""

    def function(*xs: Any) -> list[Any]:
        results = jaxpr_as_fun(known)(*xs)
        residuals = dict(zip(own, results[count:], strict=True))
        return [
            *results[:count],
            *(
                residuals[i] if i in residuals else ad.zeros_like_aval(aval)
                for i, aval in enumerate(shared)
            ),
        ]

    return jax.make_jaxpr(function)(*known.in_avals)


# -------------------------------------------------------------------------------- rules


def _partial_eval(trace: Any, *tracers: Any, branches: Any) -> list[Any]:
    """Evaluate what is known now and leave the rest to a trace, as `jax.linearize` does."""
    index_unknown, *unknown = [not tracer.pval.is_known() for tracer in tracers]
    if index_unknown:
        return trace.default_process_primitive(switch_p, tracers, {"branches": branches})
    index, *xs = tracers
    values = [index.pval.get_known(), *(x.pval.get_known() for x in _where(unknown, xs, False))]
    if not any(unknown):
        return bind_switch(values[0], branches, values[1:])
    divided = _divide(branches, unknown)
    # Also where the residuals are none, a branch may have effects.
    results = bind_switch(values[0], divided.known, values[1:])
    count = divided.is_unknown.count(False)
    if count == len(divided.is_unknown):
        return results
    operands = [index, *results[count:], *(xs[i] for i in divided.needed), *_where(unknown, xs)]
    remaining = trace.default_process_primitive(switch_p, operands, {"branches": divided.waiting})
    return _merge(divided.is_unknown, results[:count], remaining)


def _partial_eval_equation(
    saveable: Any, unknown_in: Sequence[bool], made_in: Sequence[bool], eqn: Any
) -> tuple[Any, Any, list[bool], list[bool], list[Any]]:
    """Divide an equation between the forward and the backward pass of `jax.checkpoint`.

    Args:
        saveable: the policy.
        unknown_in: for each operand whether the forward pass does not know it.
        made_in: for each operand whether the backward pass has it.
        eqn: the equation.

    Returns:
        The equation of the forward pass; that of the backward pass or None; for each result
        whether the forward pass does not know it, and whether the backward pass has it; and the
        variables that the backward pass gets from the forward pass.
    """
    from jax.extend.core import Var

    def wanted(atoms: Iterable[Any]) -> list[Any]:
        made = {id(v) for v, flag in zip(eqn.invars, made_in, strict=True) if flag}
        return [v for v in atoms if isinstance(v, Var) and id(v) not in made]

    index_unknown, *unknown = unknown_in
    branches = eqn.params["branches"]
    everywhere = [True] * len(eqn.outvars)
    if index_unknown:
        return None, eqn, everywhere, everywhere, wanted(eqn.invars)
    avals = [v.aval for v in eqn.invars]
    # A policy may also answer with what to do instead. What has effects runs once.
    saved = saveable(switch_p, *avals, **eqn.params) is True or bool(eqn.effects)
    if not any(unknown):
        nowhere = [False] * len(eqn.outvars)
        if saved:
            return eqn, None, nowhere, nowhere, []
        return eqn, eqn, nowhere, everywhere, wanted(eqn.invars)
    divided = _divide(branches, unknown)
    index, *xs = eqn.invars
    known_outs = _where(divided.is_unknown, eqn.outvars, False)
    residuals = [Var(aval) for aval in divided.residuals]
    known = _replaced(
        eqn, [index, *_where(unknown, xs, False)], [*known_outs, *residuals], divided.known
    )
    if not saved:
        return known, eqn, divided.is_unknown, everywhere, wanted(eqn.invars)
    operands = [index, *residuals, *(xs[i] for i in divided.needed), *_where(unknown, xs)]
    waiting = _replaced(eqn, operands, _where(divided.is_unknown, eqn.outvars), divided.waiting)
    return known, waiting, divided.is_unknown, divided.is_unknown, wanted(operands)


def _dce(used_outs: list[bool], eqn: Any) -> tuple[list[bool], Any]:
    """Remove results that nobody uses, from every branch, and the operands that only they use."""
    if not any(used_outs) and not eqn.effects:
        return [False] * len(eqn.invars), None
    branches = eqn.params["branches"]
    used_by = [pe.dce_jaxpr(branch.jaxpr, used_outs)[1] for branch in branches]
    used = [any(flags) for flags in zip(*used_by, strict=True)]
    pruned = tuple(
        branch.replace(jaxpr=pe.dce_jaxpr(branch.jaxpr, used_outs, instantiate=used)[0])
        for branch in branches
    )
    used_ins = [True, *used]
    outvars = _where(used_outs, eqn.outvars)
    return used_ins, _replaced(eqn, _where(used_ins, eqn.invars), outvars, pruned)


def _replaced(eqn: Any, invars: Any, outvars: Any, branches: tuple[ClosedJaxpr, ...]) -> Any:
    effects = frozenset().union(*(branch.effects for branch in branches))
    params = {"branches": branches}
    return eqn.replace(invars=invars, outvars=outvars, params=params, effects=effects)


def _merge(flags: list[bool], known: Iterable[Any], unknown: Iterable[Any]) -> list[Any]:
    known, unknown = iter(known), iter(unknown)
    return [next(unknown if flag else known) for flag in flags]


def _where(flags: Iterable[bool], values: Iterable[Any], wanted: bool = True) -> list[Any]:
    return [value for flag, value in zip(flags, values, strict=True) if flag == wanted]


pe.custom_partial_eval_rules[switch_p] = _partial_eval
pe.partial_eval_jaxpr_custom_rules[switch_p] = _partial_eval_equation
register_dead_code_rule(switch_p, _dce)
