"""How exactly an iterative solver gives its own value and derivative: run its loops on.

A loop that stops at a tolerance, or after so many steps, gives a number near the one that it
converges to. Its derivative rule gives that of the limit, finite differences that of the iterate.
Both are right to the accuracy of the solver, which is seen by letting every loop run some
iterations more: what this changes is not known better.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import ClosedJaxpr, Literal

from ..._jaxprs import Location, user_line
from ._interpret import contains, equations

LOOPS = frozenset({"while", "scan"})

# Iterations more than the program's own: a slow iteration needs many.
_MORE = (1, 2, 8, 32)

# A loop has converged if one iteration more changes its value by no more than this part.
_CONVERGED = 1e-3

# The second iteration of a contraction changes the value by no more than the first. Where it
# changes more, as the steps do that a solver of differential equations makes past the end, only
# the first tells, and it may have fallen short of the error by an order of magnitude.
_CONTRACTS = 2.1
_DOUBT = 10.0

_CALLS = frozenset(
    """checkpoint closed_call core_call custom_jvp_call custom_vjp_call custom_vjp_call_jaxpr
    jit pjit remat remat2""".split()
)


def run_on(closed: ClosedJaxpr, args: Sequence[Any], more: int) -> list[Any]:
    """Run a program with iterations more in each of its loops; rules of its own are not kept.

    Args:
        closed: the program.
        args: its arguments; they may be traced.
        more: how many.

    Returns:
        The results.
    """
    jaxpr = closed.jaxpr
    env = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*closed.consts, *args], strict=True))

    def read(atom: Any) -> Any:
        return atom.val if isinstance(atom, Literal) else env[atom]

    for eqn in jaxpr.eqns:
        outs = _equation(eqn, [read(atom) for atom in eqn.invars], more)
        env.update(zip(eqn.outvars, outs, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _equation(eqn: Any, ins: list[Any], more: int) -> list[Any]:
    name, params = eqn.primitive.name, eqn.params
    if name in _CALLS:
        inner = params.get("call_jaxpr", params.get("fun_jaxpr", params.get("jaxpr")))
        return run_on(_closed(inner), ins, more)
    if name == "while":
        return _while(params, ins, more)
    if name == "scan":
        return _scan(params, ins, more)
    if name == "cond":
        branches = [_branch(closed, more) for closed in params["branches"]]
        return lax.switch(ins[0], branches, *ins[1:])
    if name == "custom_linear_solve":
        lengths = params["const_lengths"]
        first = lengths.matvec + lengths.vecmat
        total = first + lengths.solve + lengths.transpose_solve
        consts = ins[first : first + lengths.solve]
        return run_on(params["jaxprs"].solve, [*consts, *ins[total:]], more)
    bound = eqn.primitive.get_bind_params(params)
    functions, params = bound if isinstance(bound, tuple | list) else ((), bound)
    outs = eqn.primitive.bind(*functions, *ins, **params)
    return list(outs) if eqn.primitive.multiple_results else [outs]


def _branch(closed: ClosedJaxpr, more: int) -> Callable[..., list[Any]]:
    return lambda *xs: run_on(closed, xs, more)


def _while(params: Any, ins: list[Any], more: int) -> list[Any]:
    ask, body = params["cond_nconsts"], params["body_nconsts"]
    asked, fixed, start = ins[:ask], ins[ask : ask + body], ins[ask + body :]

    def goes_on(carry: Any) -> Any:
        return run_on(params["cond_jaxpr"], [*asked, *carry], more)[0]

    def condition(state: Any) -> Any:
        carry, extra = state
        return goes_on(carry) | (extra < more)

    def step(state: Any) -> Any:
        carry, extra = state
        extra = extra + jnp.where(goes_on(carry), 0, 1)
        return run_on(params["body_jaxpr"], [*fixed, *carry], more), extra

    return list(lax.while_loop(condition, step, (list(start), jnp.zeros((), int)))[0])


def _scan(params: Any, ins: list[Any], more: int) -> list[Any]:
    body, consts, carries = params["jaxpr"], params["num_consts"], params["num_carry"]
    fixed, start, xs = ins[:consts], ins[consts : consts + carries], ins[consts + carries :]

    def step(carry: Any, x: Any) -> Any:
        outs = run_on(body, [*fixed, *carry, *x], more)
        return outs[:carries], outs[carries:]

    if not xs and len(body.jaxpr.outvars) == carries:
        # Without anything to scan over it is a loop of so many steps.
        last = params["length"] + more
        return list(lax.fori_loop(0, last, lambda i, carry: step(carry, [])[0], list(start)))
    end, ys = lax.scan(step, list(start), list(xs), params["length"], params["reverse"])
    return [*end, *ys]


class SolverAccuracy:
    """By how much derivatives of a program change where its loops run on.

    Attributes:
        has_loops: whether there are any.
        line: the user's line of the first loop, and its operation.
    """

    def __init__(
        self,
        closed: ClosedJaxpr | None,
        total: Callable[[Sequence[Any]], Any],
        gradient: Callable[..., Sequence[Any]],
    ):
        """Keep the programs; nothing is traced yet.

        Args:
            closed: the program; None where there is none.
            total: sums its results with their weights.
            gradient: the gradient of that sum, of the arguments.
        """
        self.has_loops = closed is not None and contains(closed, LOOPS)
        self.line = loop_line(closed) if closed is not None and self.has_loops else (None, None)
        self._closed, self._total, self._gradient = closed, total, gradient

    @cached_property
    def _along(self) -> Callable[..., Any]:
        closed = self._closed
        assert closed is not None

        def along(more: Any, xs: Any, vs: Any) -> Any:
            run = lambda *xs: self._total(run_on(closed, xs, more))  # noqa: E731
            return jax.jvp(run, tuple(xs), tuple(vs))

        return jax.jit(along)

    def _slopes(self, xs: Any) -> Callable[..., Any]:
        """Make the derivative that JAX gives in reverse mode, with iterations more."""
        with contextlib.suppress(Exception):
            closed = jax.make_jaxpr(self._gradient)(*xs)

            def slope(more: Any, xs: Any, vs: Any) -> Any:
                pairs = zip(run_on(closed, xs, more), vs, strict=True)
                return sum(jnp.sum((g * v).real) for g, v in pairs)

            return jax.jit(slope)
        return lambda more, xs, vs: 0.0

    def find(self, xs: Sequence[Any], vs: Sequence[Any]) -> float:
        """Say by how much a directional derivative changes where loops run on.

        Args:
            xs: the point.
            vs: the direction.

        Returns:
            The largest change; 0 where there is no loop, or none that converges.
        """
        if not self.has_loops:
            return 0.0
        changes: list[tuple[float, float]] = []
        with contextlib.suppress(Exception):  # a loop that cannot be rebuilt tells nothing
            if self._slope is None:
                self._slope = self._slopes(xs)
            value, iterate = map(float, self._along(0, xs, vs))
            given = float(self._slope(0, xs, vs))
            for more in _MORE:
                there, changed = map(float, self._along(more, xs, vs))
                gap = abs(there - value)
                change = max(abs(changed - iterate), abs(float(self._slope(more, xs, vs)) - given))
                if not np.isfinite(gap + change) or not gap <= _CONVERGED * abs(value):
                    break
                if changes and gap > _CONTRACTS * changes[0][0] * (more / 2):
                    break
                changes.append((gap, change))
        if not changes:
            return 0.0
        return max(change for _, change in changes) if len(changes) > 1 else _DOUBT * changes[0][1]

    _slope: Callable[..., Any] | None = None


def loop_line(closed: ClosedJaxpr) -> tuple[Location | None, str | None]:
    """Find the first loop of a program, with its line."""
    loop = next((eqn for eqn in equations(closed) if eqn.primitive.name in LOOPS), None)
    return (None, None) if loop is None else (user_line(loop), loop.primitive.name)


def _closed(jaxpr: Any) -> ClosedJaxpr:
    return jaxpr if isinstance(jaxpr, ClosedJaxpr) else ClosedJaxpr(jaxpr, ())
