"""Find out which inputs of a branch it uses element by element.

An array predicate wants elementwise branches that are evaluated on whole arrays. For the
operands that is a promise of the caller, which is checked here as far as it can be: a sum
or a sort of an operand would silently include elements that belong to the other branch.
For arrays that a branch closes over it is an open question: `scale` in `v * scale` goes
with the elements, `c` in `polyval(c, v)` is used whole by each of them, and both can have
the shape of `v`. The branch's jaxpr has the answer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

# Primitives whose output element depends on the same element of each operand alone.
_ELEMENTWISE = frozenset(
    """abs acos acosh add add_any and asin asinh atan atan2 atanh bessel_i0e bessel_i1e
    cbrt ceil clamp clz complex conj convert_element_type copy copy_p cos cosh digamma div
    eq erf erf_inv erfc exp exp2 expm1 floor ge gt igamma igamma_grad_a igammac imag
    integer_pow is_finite le lgamma log log1p logistic lt max min mul ne neg nextafter not
    or polygamma population_count pow pvary real reduce_precision
    regularized_incomplete_beta rem round rsqrt select_n shift_left
    shift_right_arithmetic shift_right_logical sign sin sinh sqrt square sub tan tanh xor
    zeta""".split()
)

# Primitives whose output element depends on other elements, too.
_MIXING = frozenset(
    """argmax argmin conv_general_dilated cumlogsumexp cummax cummin cumprod cumsum
    dot_general fft reduce_and reduce_max reduce_min reduce_or reduce_prod reduce_sum
    reduce_window_sum rev sort top_k""".split()
)

_CALLS = frozenset(
    """checkpoint closed_call core_call custom_jvp_call custom_vjp_call
    custom_vjp_call_jaxpr jit pjit remat remat2""".split()
)


@dataclass
class Alignment:
    """What a walk through a branch has found.

    Attributes:
        used_whole: positions of inputs that reach an operation which is not known to be
            elementwise.
        mixed: for inputs of which elements are mixed, position and the operation's name.
    """

    used_whole: set[int] = field(default_factory=set)
    mixed: list[tuple[int, str]] = field(default_factory=list)


def find_alignment(branch: ClosedJaxpr) -> Alignment:
    """Walk through a branch and record how it uses each of its inputs.

    Args:
        branch: the branch.

    Returns:
        What was found. An input that appears nowhere in it is used element by element.
    """
    found = Alignment()
    _walk(branch.jaxpr, [frozenset((i,)) for i in range(len(branch.in_avals))], found)
    return found


def _walk(
    jaxpr: Any, inputs: list[frozenset[int]], found: Alignment
) -> list[frozenset[int]]:
    """Return for each output which inputs flow into it element by element."""
    origins: dict[Any, frozenset[int]] = dict(zip(jaxpr.invars, inputs, strict=True))

    def origin(atom: Any) -> frozenset[int]:
        return frozenset() if isinstance(atom, Literal) else origins.get(atom, frozenset())

    for eqn in jaxpr.eqns:
        ins = [origin(atom) for atom in eqn.invars]
        reaching = frozenset().union(*ins)
        inner = _inner_jaxprs(eqn)
        if not reaching or eqn.primitive.name == "within_gradient":
            outs = [frozenset[int]()] * len(eqn.outvars)
        elif inner:
            ins = ins[len(ins) - len(inner[0].invars) :]
            each = [_walk(body, ins, found) for body in inner]
            outs = [frozenset().union(*sources) for sources in zip(*each, strict=True)]
        elif _keeps_elements(eqn):
            outs = [reaching] * len(eqn.outvars)
        else:
            found.used_whole |= reaching
            if eqn.primitive.name in _MIXING:
                found.mixed += [(i, eqn.primitive.name) for i in sorted(reaching)]
            outs = [frozenset[int]()] * len(eqn.outvars)
        origins.update(zip(eqn.outvars, outs, strict=True))
    return [origin(atom) for atom in jaxpr.outvars]


def _inner_jaxprs(eqn: Any) -> list[Any]:
    """Return the jaxprs that an equation evaluates on its operands, `[]` if it does not."""
    name = eqn.primitive.name
    if name in ("cond", "pybridge_switch"):
        return [branch.jaxpr for branch in eqn.params["branches"]]
    if name not in _CALLS:
        return []
    bodies = [p for p in eqn.params.values() if isinstance(p, Jaxpr | ClosedJaxpr)]
    return [body.jaxpr if isinstance(body, ClosedJaxpr) else body for body in bodies[:1]]


def _keeps_elements(eqn: Any) -> bool:
    name = eqn.primitive.name
    shapes = [tuple(atom.aval.shape) for atom in eqn.invars]
    out = tuple(eqn.outvars[0].aval.shape)
    rule = _SHAPE_RULES.get(name)
    if rule is not None:
        return rule(eqn, shapes[0], out)
    # `clamp` and `select_n` take scalars next to arrays.
    return name in _ELEMENTWISE and all(shape in ((), out) for shape in shapes)


def _broadcast_keeps(eqn: Any, shape: tuple[int, ...], out: tuple[int, ...]) -> bool:
    """Tell whether a broadcast only adds axes in front, as NumPy's broadcasting does."""
    trailing = range(len(out) - len(shape), len(out))
    return tuple(eqn.params["broadcast_dimensions"]) == tuple(trailing)


def _reshape_keeps(eqn: Any, shape: tuple[int, ...], out: tuple[int, ...]) -> bool:
    """Tell whether a reshape only adds or removes leading axes of length one."""
    return _without_leading_ones(shape) == _without_leading_ones(out)


def _without_leading_ones(shape: tuple[int, ...]) -> tuple[int, ...]:
    while shape and shape[0] == 1:
        shape = shape[1:]
    return shape


_SHAPE_RULES: dict[str, Callable[[Any, tuple[int, ...], tuple[int, ...]], bool]] = {
    "broadcast_in_dim": _broadcast_keeps,
    "reshape": _reshape_keeps,
    "squeeze": _reshape_keeps,
}
