"""The number of a lane, `lax.axis_index`, as a value that a branch is given.

A lane that does not take a branch gets operands of another one. Its number has to go with them,
or the branch would see a pair that no lane has: a division by zero, say, that only another
lane's operands avoid. So the number is an operand like the others, wherever in the branch it is
asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import eval_jaxpr
from jax.tree_util import Partial

from ..jaxprs import (
    FOLLOWED,
    RULED_CALLS,
    Rebuilding,
    bound_equation,
    called_program,
    inner_jaxprs,
)

if TYPE_CHECKING:
    from jax.extend.core import ClosedJaxpr

Numbers = dict[Hashable, Any]


def lane_numbers(closed: ClosedJaxpr) -> list[Hashable]:
    """Return the axes of which a program asks for its lane's number, each once.

    Args:
        closed: the program; calls, loops and branches in it are looked into.
    """
    return list(dict.fromkeys(_asked(closed)))


def _asked(closed: ClosedJaxpr) -> Iterator[Hashable]:
    for eqn in closed.jaxpr.eqns:
        if eqn.primitive.name == "axis_index":
            yield eqn.params["axis_name"]
        elif eqn.primitive.name in FOLLOWED:
            for inner in inner_jaxprs(eqn):
                yield from _asked(inner)


def with_lane_numbers(closed: ClosedJaxpr) -> Callable[..., list[Any]]:
    """Return a program as a function of the numbers of its lane, and of its operands.

    Returns:
        A function of a dict from the names in `lane_numbers` to numbers, and the operands.
    """

    def evaluate(numbers: Numbers, *operands: Any) -> list[Any]:
        if not lane_numbers(closed):
            return eval_jaxpr(closed.jaxpr, closed.consts, *operands)
        return _WithLaneNumbers(numbers).run(closed, operands, None)

    return evaluate


class _WithLaneNumbers(Rebuilding):
    """Evaluates a program in which the number of the lane is given.

    Loops and branches close over the number. What does not ask for it stays as it is.
    """

    enters = FOLLOWED

    def __init__(self, numbers: Numbers):
        self._numbers = numbers

    def equation(self, program: Any, eqn: Any, operands: list[Any], here: None) -> list[Any]:
        name = eqn.primitive.name
        if name == "axis_index" and eqn.params["axis_name"] in self._numbers:
            return [self._numbers[eqn.params["axis_name"]]]
        if name not in FOLLOWED or not any(map(lane_numbers, inner_jaxprs(eqn))):
            return self.apply(program, eqn, operands, here)
        if name in RULED_CALLS:
            return _with_its_rule(eqn, self._numbers, operands)
        return super().equation(program, eqn, operands, here)

    def branch(self, eqn: Any, operands: list[Any], here: None) -> list[Any] | None:
        """Choose as the equation does, unless it chooses by the platform."""
        if eqn.params.get("branches_platforms") is not None:
            return None
        return super().branch(eqn, operands, here)


def _with_its_rule(eqn: Any, numbers: Numbers, operands: list[Any]) -> list[Any]:
    """Evaluate a function with a derivative rule of its own, whose rule gets the numbers too."""
    make = _with_jvp if eqn.primitive.name == "custom_jvp_call" else _with_vjp
    return make(bound_equation(eqn), called_program(eqn))(numbers, *operands)


def _with_jvp(original: Callable[..., Any], value: Any) -> Callable[..., Any]:
    function = jax.custom_jvp(with_lane_numbers(value))

    @function.defjvp
    def rule(primals: Any, tangents: Any) -> Any:
        numbers, *xs = primals
        moving, whole = _tangents(tangents[1:])

        def derivative(xs: list[Any], moving: list[Any]) -> Any:
            return jax.jvp(original, xs, whole(moving))

        return _traced(derivative, xs, moving)(numbers, xs, moving)

    return function


def _with_vjp(original: Callable[..., Any], value: Any) -> Callable[..., Any]:
    function = jax.custom_vjp(with_lane_numbers(value))

    def forward(numbers: Numbers, *xs: Any) -> Any:
        value_and_pullback = _traced(lambda *xs: jax.vjp(original, *xs), *xs)
        outs, pullback = value_and_pullback(numbers, *xs)
        moving, whole = _tangents([_tangent_like(out) for out in outs])

        def pull(pullback: Any, moving: list[Any]) -> list[Any]:
            return _tangents(pullback(whole(moving)))[0]

        # Traced here, where the axes have their names: JAX calls `backward` outside of them.
        return outs, (numbers, Partial(_traced(pull, pullback, moving)), pullback, xs)

    def backward(residuals: Any, cotangents: Any) -> Any:
        numbers, pull, pullback, xs = residuals
        pulled = iter(pull(numbers, pullback, _tangents(cotangents)[0]))
        return None, *(next(pulled) if _is_tangent(_tangent_like(x)) else None for x in xs)

    function.defvjp(forward, backward)
    return function


def _traced(function: Callable[..., Any], *args: Any) -> Callable[..., Any]:
    """Trace a function, and return it as one of the numbers of its lane and the arguments."""
    program, shapes = jax.make_jaxpr(function, return_shape=True)(*args)
    evaluate, tree = with_lane_numbers(program), jax.tree.structure(shapes)

    def run(numbers: Numbers, *args: Any) -> Any:
        return jax.tree.unflatten(tree, evaluate(numbers, *jax.tree.leaves(args)))

    return run


def _tangents(xs: Sequence[Any]) -> tuple[list[Any], Callable[[list[Any]], list[Any]]]:
    """Part tangents or cotangents from the placeholders of values that have none.

    Returns:
        Those that are arrays, and a function that puts them back among the placeholders.
    """

    def whole(moving: list[Any]) -> list[Any]:
        remaining = iter(moving)
        return [next(remaining) if _is_tangent(x) else x for x in xs]

    return [x for x in xs if _is_tangent(x)], whole


def _is_tangent(x: Any) -> bool:
    return getattr(x, "dtype", None) != jax.dtypes.float0


def _tangent_like(x: Any) -> Any:
    """Return what stands for a tangent of a value: a placeholder where it can have none."""
    aval = jax.typeof(x)
    if jnp.issubdtype(aval.dtype, np.inexact):
        return x
    return np.zeros(aval.shape, jax.dtypes.float0)
