"""How exactly an iterative solver gives its own value and derivative: run its loops on.

A loop that stops at a tolerance, or after so many steps, gives a number near the one that it
converges to. Its derivative rule gives that of the limit, finite differences that of the iterate.
Both are right to the accuracy of the solver, which is seen by letting every loop run some
iterations more: what this changes is not known better.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import ClosedJaxpr

from ...jaxprs import LOOPS, Rebuilding, scan_sizes, select_lanes
from ._bounded_loops import bounded
from ._compilation import compiled
from ._places import first_place
from ._probes import Line

# Iterations more than the program's own: a slow iteration needs many.
_MORE = (1, 2, 8, 32)

# A loop has converged if one iteration more changes its value by no more than this part.
_CONVERGED = 1e-3

# The second iteration of a contraction changes the value by no more than the first. Where it
# changes more, as the steps do that a solver of differential equations makes past the end, only
# the first tells, and it may have fallen short of the error by an order of magnitude.
_CONTRACTS = 2.1
_DOUBT = 10.0


def run_on(closed: ClosedJaxpr, args: Sequence[Any], more: int) -> list[Any]:
    """Run a program with iterations more in each of its loops; rules of its own are not kept.

    Args:
        closed: the program.
        args: its arguments; they may be traced.
        more: how many.

    Returns:
        The results.
    """
    return _RunOn(more).run(closed, args, None)


class _RunOn(Rebuilding):
    """Evaluates on tracers; each loop makes so many iterations more."""

    def __init__(self, more: int):
        self._more = more

    def while_loop(self, eqn: Any, operands: list[Any], here: None) -> list[Any]:
        loop = self.opened_loop(eqn, operands)

        def runs_on(state: Any) -> Any:
            carry, extra = state
            return loop.goes_on(carry) | (extra < self._more)

        def step(state: Any) -> Any:
            carry, extra = state
            more = jnp.where(loop.goes_on(carry), 0, 1)
            after = [*loop.body(carry), extra + more]
            if extra.ndim:
                after = select_lanes(runs_on(state), after, [*carry, extra])
            return after[:-1], after[-1]

        lanes = eqn.params["cond_jaxpr"].out_avals[0].shape
        start = loop.start, jnp.zeros(lanes, int)
        return lax.while_loop(lambda state: jnp.any(runs_on(state)), step, start)[0]

    def scan(self, eqn: Any, operands: list[Any], here: None) -> list[Any]:
        params = eqn.params
        body, (consts, carries) = params["jaxpr"], scan_sizes(params)
        if len(operands) > consts + carries or len(body.jaxpr.outvars) > carries:
            return super().scan(eqn, operands, here)
        # Without anything to scan over it is a loop of so many steps.
        fixed, start = operands[:consts], list(operands[consts:])
        step = lambda i, carry: self.run(body, [*fixed, *carry], None)  # noqa: E731
        return list(lax.fori_loop(0, params["length"] + self._more, step, start))


class SolverAccuracy:
    """By how much derivatives of a program change where its loops run on.

    Attributes:
        has_loops: whether there are any.
        place: the first loop.
    """

    def __init__(
        self,
        closed: ClosedJaxpr | None,
        total: Callable[[Sequence[Any]], Any],
        gradient: Callable[..., Sequence[Any]],
        most: int | None = None,
    ):
        """Keep the programs; nothing is traced yet.

        Args:
            closed: the program; None where there is none.
            total: sums its results with their weights.
            gradient: the gradient of that sum, of the arguments.
            most: the iterations of a loop that count as endless, see `bounded`.
        """
        self.place = first_place(closed, lambda eqn: eqn.primitive.name in LOOPS)
        self.has_loops = self.place.primitive is not None
        self._closed, self._total, self._gradient, self._most = closed, total, gradient, most
        self._compiled: Callable[..., Any] | None = None
        self._found: dict[Line, float] = {}

    def _compile(self, xs: Sequence[Any]) -> Callable[..., Any]:
        """Compile value and derivative along a line, and JAX's in reverse mode."""
        closed, reverse = self._closed, None
        assert closed is not None
        with contextlib.suppress(Exception):  # a loop that only forward mode can differentiate
            reverse = jax.make_jaxpr(self._gradient)(*xs)

        def derivatives(more: Any, xs: Any, vs: Any) -> Any:
            run = lambda *xs: self._total(run_on(closed, xs, more))  # noqa: E731
            both = jax.jvp(run, tuple(xs), tuple(vs))
            if reverse is None:
                return both
            pairs = zip(run_on(reverse, xs, more), vs, strict=True)
            return *both, sum(jnp.sum((g * v).real) for g, v in pairs)

        return compiled(bounded(derivatives, self._most), closed)

    def find(self, xs: Sequence[Any], line: Line) -> float:
        """Say by how much a directional derivative changes where loops run on.

        Args:
            xs: the point.
            line: the direction, of this point alone: it is run once.

        Returns:
            The largest change; 0 where there is no loop, or none that converges.
        """
        if line not in self._found:
            self._found[line] = self._run(xs, line.vs) if self.has_loops else 0.0
        return self._found[line]

    def _run(self, xs: Sequence[Any], vs: Sequence[Any]) -> float:
        changes: list[tuple[float, float]] = []
        with contextlib.suppress(Exception):  # a loop that cannot be rebuilt tells nothing
            if self._compiled is None:
                self._compiled = self._compile(xs)
            value, *given = map(float, self._compiled(0, xs, vs))
            for more in _MORE:
                there, *changed = map(float, self._compiled(more, xs, vs))
                gap = abs(there - value)
                change = max(abs(a - b) for a, b in zip(changed, given, strict=True))
                if not np.isfinite(gap + change) or not gap <= _CONVERGED * abs(value):
                    break
                if changes and gap > _CONTRACTS * changes[0][0] * (more / 2):
                    break
                changes.append((gap, change))
        if not changes:
            return 0.0
        return max(change for _, change in changes) if len(changes) > 1 else _DOUBT * changes[0][1]
