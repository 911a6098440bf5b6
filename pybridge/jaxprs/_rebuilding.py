"""Run a program on tracers, with its branches and loops built anew."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax.numpy as jnp
from jax import lax

from ._evaluate import Evaluator
from ._families import FOLLOWED, SOLVERS
from ._programs import scan_sizes

if TYPE_CHECKING:
    from jax.extend.core import ClosedJaxpr


class WhileLoop(NamedTuple):
    """A while loop as functions of what it carries.

    Attributes:
        goes_on: whether another iteration is made: a bool, or one for each lane of a batch, which
            is what `vmap` makes where the condition depends on the lane.
        body: makes one, of all lanes.
        start: what it begins with.
    """

    goes_on: Callable[[Any], Any]
    body: Callable[[Any], list[Any]]
    start: list[Any]

    def any_goes_on(self, carry: Any) -> Any:
        """Tell whether another iteration is made in some lane."""
        return jnp.any(self.goes_on(carry))

    def step(self, carry: Any) -> list[Any]:
        """Make an iteration; lanes that are done keep what they have."""
        going, after = self.goes_on(carry), self.body(carry)
        return select_lanes(going, after, carry) if going.ndim else after


def select_lanes(which: Any, yes: Sequence[Any], no: Sequence[Any]) -> list[Any]:
    """Select between arrays by their leading axes, which are those of `which`."""

    def select(yes: Any, no: Any) -> Any:
        return lax.select(lax.broadcast_in_dim(which, yes.shape, range(which.ndim)), yes, no)

    return list(map(select, yes, no))


class Rebuilding(Evaluator[Any, None]):
    """Evaluates on tracers; rules of the program's own are not kept.

    Loops and branches stay what they are. A subclass may build them in another way.
    """

    enters = (FOLLOWED | SOLVERS) - {"pybridge_switch"}

    def branch(self, eqn: Any, operands: list[Any], here: None) -> list[Any] | None:
        def of(program: ClosedJaxpr) -> Callable[..., list[Any]]:
            return lambda *xs: self.run(program, xs, None)

        return lax.switch(operands[0], list(map(of, eqn.params["branches"])), *operands[1:])

    def scan(self, eqn: Any, operands: list[Any], here: None) -> list[Any]:
        params = eqn.params
        consts, carries = scan_sizes(params)
        fixed, start = operands[:consts], operands[consts : consts + carries]

        def step(carry: Any, x: Any) -> Any:
            outs = self.run(params["jaxpr"], [*fixed, *carry, *x], None)
            return outs[:carries], outs[carries:]

        options = {name: params[name] for name in ("length", "reverse", "unroll")}
        end, ys = lax.scan(step, list(start), list(operands[consts + carries :]), **options)
        return [*end, *ys]

    def while_loop(self, eqn: Any, operands: list[Any], here: None) -> list[Any]:
        loop = self.opened_loop(eqn, operands)
        return lax.while_loop(loop.any_goes_on, loop.step, loop.start)

    def opened_loop(self, eqn: Any, operands: list[Any]) -> WhileLoop:
        """Make functions of the programs of a while loop."""
        params = eqn.params
        ask, body = params["cond_nconsts"], params["body_nconsts"]
        asked, fixed, start = operands[:ask], operands[ask : ask + body], operands[ask + body :]
        return WhileLoop(
            lambda carry: self.run(params["cond_jaxpr"], [*asked, *carry], None)[0],
            lambda carry: self.run(params["body_jaxpr"], [*fixed, *carry], None),
            list(start),
        )
