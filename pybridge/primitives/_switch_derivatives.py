"""The derivative of a switch, and its transpose: again switches.

The JVP rule makes two of one. The first evaluates the branch and, next to what it returns, what
its derivative needs (the residuals); the second is linear in the tangents. JAX's partial
evaluation then finds what it knows and what it does not in different equations, and reverse mode
costs what it costs with `lax.switch`: one conditional forward, one back.

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
import numpy as np
from jax import lax
from jax.core import Tracer
from jax.interpreters import ad

from ..jaxprs import jaxpr_as_fun
from ._detection import within_gradient_p
from ._masking import concrete_index, is_the_same_on_all_devices
from ._switch_primitive import bind_switch, nth_branch, spell_out, switch_p

if TYPE_CHECKING:
    from jax.extend.core import ClosedJaxpr


def _jvp(primals: Any, tangents: Any, *, branches: Any) -> tuple[list[Any], list[Any]]:
    index, *xs = primals
    moving = [_is_nonzero(tangent) for tangent in tangents[1:]]
    if not any(moving):
        outs = bind_switch(index, branches, xs)
        return outs, [_zero_tangent(aval) for aval in branches[0].out_avals]
    xs_dot = [tangent for tangent, m in zip(tangents[1:], moving, strict=True) if m]
    known = concrete_index(index)
    if known is not None:
        return _jvp_at_once(index, (nth_branch(branches, known),), moving, xs, xs_dot)
    if not is_the_same_on_all_devices(index):
        return _jvp_at_once(index, branches, moving, xs, xs_dot)
    return _jvp_in_two(index, branches, moving, xs, xs_dot)


# --------------------------------------------------------------------------- in two parts


@dataclass(frozen=True)
class _Linearized:
    """A branch and its derivative.

    Attributes:
        primal: takes the operands, returns the outputs and the residuals.
        carried: for each output whether it has a tangent.
        tree: of the pushforward, a pytree that is called with tangents.
        leaves: for each leaf of it ("residual", the kind of its PRNG keys or None),
            ("operand", its position) or ("constant", its value).
    """

    primal: ClosedJaxpr
    carried: list[bool]
    tree: Any
    leaves: list[tuple[str, Any]]

    @property
    def residuals(self) -> list[Any]:
        """Return the abstract values of the residuals."""
        return self.primal.out_avals[len(self.carried) :]

    @property
    def needed(self) -> set[int]:
        """Return the positions of the operands that the pushforward needs."""
        return {i for kind, i in self.leaves if kind == "operand"}

    def pushforward(
        self, residuals: list[Any], operands: dict[int, Any], tangents: list[Any]
    ) -> list[Any]:
        """Return the tangents of the outputs."""
        remaining = iter(residuals)

        def value(kind: str, what: Any) -> Any:
            if kind == "constant":
                return what
            if kind == "operand":
                return operands[what]
            residual = next(remaining)
            return residual if what is None else jax.random.wrap_key_data(residual, impl=what)

        leaves = [value(*leaf) for leaf in self.leaves]
        return jax.tree.unflatten(self.tree, leaves)(*tangents)


def _jvp_in_two(
    index: Any, branches: Any, moving: list[bool], xs: list[Any], xs_dot: list[Any]
) -> tuple[list[Any], list[Any]]:
    parts = [_linearize(branch, moving, xs) for branch in branches]
    shared, places = _share_places([part.residuals for part in parts])
    primal = tuple(_with_places(*pair, shared, xs) for pair in zip(parts, places, strict=True))
    results = bind_switch(index, primal, xs)
    count = len(branches[0].out_avals)
    needed = sorted(set().union(*(part.needed for part in parts)))
    # An output has a tangent if it has one in any branch that may be taken.
    carried = [any(flags) for flags in zip(*(part.carried for part in parts), strict=True)]

    def linear(part: _Linearized, own: list[int]) -> ClosedJaxpr:
        def function(residuals: Any, operands: Any, tangents: Any) -> list[Any]:
            of_branch = [residuals[i] for i in own]
            outs_dot = part.pushforward(
                of_branch, dict(zip(needed, operands, strict=True)), tangents
            )
            return _where(carried, outs_dot)

        return jax.make_jaxpr(function)(*operands)

    operands = (results[count:], [xs[i] for i in needed], xs_dot)
    linear_branches = tuple(linear(*pair) for pair in zip(parts, places, strict=True))
    flat = [x for group in operands for x in group]
    remaining = iter(bind_switch(index, linear_branches, flat))
    avals = branches[0].out_avals
    return results[:count], [
        next(remaining) if is_carried else _zero_tangent(aval)
        for is_carried, aval in zip(carried, avals, strict=True)
    ]


def _linearize(branch: ClosedJaxpr, moving: list[bool], xs: list[Any]) -> _Linearized:
    """Linearize a branch in the operands that carry a tangent; of `xs` only types are used."""
    carried: list[bool] = []
    trees: list[Any] = []
    leaves: list[tuple[str, Any]] = []

    def with_residuals(*xs: Any) -> list[Any]:
        of_moving = _of_moving(branch, moving, xs, carried)
        outs, pushforward = jax.linearize(of_moving, *_where(moving, xs))
        found, tree = jax.tree.flatten(pushforward)
        trees.append(tree)
        positions = {id(x): i for i, x in enumerate(xs)}
        residuals: list[Any] = []
        for leaf in found:
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
        return [*outs, *residuals]

    primal = jax.make_jaxpr(with_residuals)(*xs)
    return _Linearized(primal, carried, trees[-1], leaves)


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


def _with_places(
    part: _Linearized, own: list[int], shared: list[Any], xs: list[Any]
) -> ClosedJaxpr:
    """Let a branch return a residual, or zeros, in each of the places."""
    count = len(part.carried)

    def function(*xs: Any) -> list[Any]:
        results = jaxpr_as_fun(part.primal)(*xs)
        residuals = dict(zip(own, results[count:], strict=True))
        return [
            *results[:count],
            *(
                residuals[i] if i in residuals else ad.zeros_like_aval(aval)
                for i, aval in enumerate(shared)
            ),
        ]

    return jax.make_jaxpr(function)(*xs)


# ------------------------------------------------------------------------------ at once


def _jvp_at_once(
    index: Any, branches: Any, moving: list[bool], xs: list[Any], xs_dot: list[Any]
) -> tuple[list[Any], list[Any]]:
    """Evaluate the branches' outputs and tangents together.

    A known index leaves no conditional that could be two. One that differs between the devices
    of a `shard_map` is spelled out: what the types of the branches have in common is found there.
    """
    avals = branches[0].out_avals
    differentiated = [_jvp_branch(branch, moving, xs, xs_dot) for branch in branches]
    jvp_branches = tuple(branch for branch, _ in differentiated)
    if len(branches) == 1:
        outs = list(jaxpr_as_fun(jvp_branches[0])(*xs, *xs_dot))
    else:
        linear = [False] * len(xs) + [True] * len(xs_dot)
        outs = spell_out(index, jvp_branches, [*xs, *xs_dot], linear)
    outs, outs_dot = outs[: len(avals)], iter(outs[len(avals) :])
    carried = [any(flags) for flags in zip(*(f for _, f in differentiated), strict=True)]
    all_dots = [next(outs_dot) if _is_inexact(aval) else None for aval in avals]
    return outs, [
        dot if is_carried else _zero_tangent(aval)
        for dot, is_carried, aval in zip(all_dots, carried, avals, strict=True)
    ]


def _jvp_branch(
    branch: ClosedJaxpr, moving: list[bool], xs: list[Any], xs_dot: list[Any]
) -> tuple[ClosedJaxpr, list[bool]]:
    """Differentiate a branch with respect to the operands that carry a tangent.

    Args:
        branch: the branch.
        moving: for each operand whether it carries a tangent.
        xs: the operands; only their types are used.
        xs_dot: the tangents of the moving ones; only their types are used.

    Returns:
        A branch that takes operands and tangents and returns outputs and the tangents of
        the inexact ones, and for each output whether it has more than a symbolic zero.
    """
    carried: list[bool] = []

    def with_tangents(xs: list[Any], xs_dot: list[Any]) -> list[Any]:
        of_moving = _of_moving(branch, moving, xs, carried)
        outs, outs_dot = jax.jvp(of_moving, tuple(_where(moving, xs)), tuple(xs_dot))
        return [*outs, *_where(map(_is_inexact, branch.out_avals), outs_dot)]

    traced = jax.make_jaxpr(with_tangents)(xs, xs_dot)
    return traced, carried


# ---------------------------------------------------------------------------- transpose


def _transpose(cts: Any, index: Any, *operands: Any, branches: Any) -> list[Any]:
    is_linear = [ad.is_undefined_primal(x) for x in operands]
    avals = [x.aval for x in _where(is_linear, operands)]
    is_known = [not flag for flag in is_linear]
    known = _where(is_known, operands)
    arrives = [type(ct) is not ad.Zero for ct in cts]

    def transposed(branch: ClosedJaxpr) -> ClosedJaxpr:
        def function(known: list[Any], cts: list[Any]) -> Any:
            def of_linear(*xs: Any) -> list[Any]:
                linear, rest = iter(xs), iter(known)
                mixed = [next(linear if flag else rest) for flag in is_linear]
                return _where(arrives, jaxpr_as_fun(branch)(*mixed))

            return jax.linear_transpose(of_linear, *avals)(cts)

        return jax.make_jaxpr(function)(known, _where(arrives, cts))

    flat = [*known, *_where(arrives, cts)]
    outs = iter(bind_switch(index, tuple(map(transposed, branches)), flat))
    return [None, *(next(outs) if flag else None for flag in is_linear)]


# ------------------------------------------------------------------------------- shared


def _of_moving(
    branch: ClosedJaxpr, moving: list[bool], xs: Sequence[Any], carried: list[bool]
) -> Callable[..., list[Any]]:
    """Return a branch as a function of the operands that carry a tangent.

    Each time that it is differentiated it notes in `carried` which of its outputs have more
    than a symbolic zero for a tangent.
    """

    def function(*moved: Any) -> list[Any]:
        remaining = iter(moved)
        mixed = [next(remaining) if m else x for m, x in zip(moving, xs, strict=True)]
        outs = list(jaxpr_as_fun(branch)(*mixed))
        # Traced on its own, the branch has no outer derivative that could answer.
        carried[:] = [
            _is_inexact(aval) and concrete_index(within_gradient_p.bind(out)) == 1
            for out, aval in zip(outs, branch.out_avals, strict=True)
        ]
        return outs

    return function


def _where(flags: Iterable[bool], values: Iterable[Any]) -> list[Any]:
    return [value for flag, value in zip(flags, values, strict=True) if flag]


def _is_inexact(aval: Any) -> bool:
    return jnp.issubdtype(aval.dtype, np.inexact)


def _is_nonzero(tangent: Any) -> bool:
    return type(tangent) is not ad.Zero and jax.typeof(tangent).dtype != jax.dtypes.float0


def _zero_tangent(aval: Any) -> ad.Zero:
    return ad.Zero(aval.to_tangent_aval())


ad.primitive_jvps[switch_p] = _jvp
ad.primitive_transposes[switch_p] = _transpose
