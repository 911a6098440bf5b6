"""Let the loops of a program end at every point.

A loop that ends at the given point need not end beside it: `while x != 1` does not. Where it makes
many times the iterations that it makes there, the function has no value: that is NaN, as it is
outside of a domain.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import ClosedJaxpr

from ...jaxprs import Rebuilding, contains, select_lanes

# An iteration that converges from elsewhere, or a solver with shorter steps, takes some times the
# iterations of the given point; a loop of one or two has them from the second number on.
_TIMES = 100
_LEAST = 10_000


def most_iterations(closed: ClosedJaxpr | None, xs: Sequence[Any]) -> int | None:
    """Find the number of iterations from which on a loop counts as one that does not end.

    Args:
        closed: the program; None where it is not known.
        xs: the given point, at which it ends.

    Returns:
        The number; None where there is no loop that could go on.
    """
    if closed is None or closed.effects or not contains(closed, frozenset({"while"})):
        return None
    counts: list[int] = []
    run = _Bounded(np.iinfo(np.int32).max, lambda count: counts.append(int(count)))
    jax.block_until_ready(jax.jit(lambda *xs: run.run(closed, xs, None))(*xs))
    jax.effects_barrier()
    return max(_LEAST, _TIMES * max(counts, default=0))


def bounded(function: Callable[..., Any], most: int | None) -> Callable[..., Any]:
    """Let loops of a function end after so many iterations; what they give is NaN then.

    Args:
        function: of trees of arrays, a tree of arrays.
        most: how many; None for a function without such loops, which is returned as it is.
    """
    if most is None:
        return function

    def run(*args: Any) -> Any:
        flat, tree = jax.tree.flatten(args)
        closed, shape = jax.make_jaxpr(
            lambda *flat: function(*jax.tree.unflatten(tree, flat)), return_shape=True
        )(*flat)
        return jax.tree.unflatten(jax.tree.structure(shape), _Bounded(most).run(closed, flat, None))

    return run


class _Bounded(Rebuilding):
    """Evaluates on tracers; loops make no more iterations than a number."""

    def __init__(self, most: int, note: Callable[[Any], None] | None = None):
        self._most, self._note = most, note

    def while_loop(self, eqn: Any, operands: list[Any], here: None) -> list[Any]:
        loop = self.opened_loop(eqn, operands)
        end, count = lax.while_loop(
            lambda state: loop.any_goes_on(state[0]) & (state[1] < self._most),
            lambda state: (loop.step(state[0]), state[1] + 1),
            (loop.start, jnp.zeros((), int)),
        )
        if self._note is not None:
            jax.debug.callback(self._note, count)
        is_endless = loop.goes_on(end)
        return [
            select_lanes(is_endless, [jnp.full_like(y, jnp.nan)], [y])[0]
            if jnp.issubdtype(y.dtype, np.inexact)
            else y
            for y in end
        ]
