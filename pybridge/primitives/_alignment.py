"""Find out which inputs of a branch it uses element by element.

An array predicate wants elementwise branches that are evaluated on whole arrays. For the
operands that is a promise of the caller, which is checked here as far as it can be: a sum
or a sort of an operand would silently include elements that belong to the other branch.
For arrays that a branch closes over it is an open question: `scale` in `v * scale` goes
with the elements, `c` in `polyval(c, v)` is used whole by each of them, and both can have
the shape of `v`. The branch's jaxpr has the answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jax.extend.core import ClosedJaxpr

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

# What they return is in no result: whether a branch is needed, and what fills it up.
_ANSWERS = frozenset(
    "within_gradient pybridge_first_place pybridge_lane_any pybridge_filler".split()
)

_CALLS = frozenset(
    """checkpoint closed_call core_call custom_jvp_call custom_vjp_call
    custom_vjp_call_jaxpr jit pjit remat remat2""".split()
)


@dataclass
class Alignment:
    """What a walk through a branch has found.

    Attributes:
        used: positions of inputs that the branch uses at all.
        used_whole: positions of inputs that reach an operation which is not known to be
            elementwise, or meet others along other axes.
        mixed: for inputs of which elements are mixed, position and the operation's name.
    """

    used: set[int] = field(default_factory=set)
    used_whole: set[int] = field(default_factory=set)
    mixed: list[tuple[int, str]] = field(default_factory=list)


@dataclass(frozen=True)
class _Flow:
    """What is known about a value in a branch.

    Attributes:
        inputs: positions of the inputs that flow into it element by element.
        axes: for each of its dimensions the axis of the operands that it runs along,
            counted from the last as -1, -2, ...; None where the value is constant.
    """

    inputs: frozenset[int]
    axes: tuple[int | None, ...]


def find_alignment(branch: ClosedJaxpr) -> Alignment:
    """Walk through a branch and record how it uses each of its inputs.

    Args:
        branch: the branch.

    Returns:
        What was found.
    """
    found = Alignment()
    inputs = [
        _Flow(frozenset((i,)), _natural_axes(len(aval.shape)))
        for i, aval in enumerate(branch.in_avals)
    ]
    for flow in _walk(branch.jaxpr, inputs, found):
        found.used |= flow.inputs
    return found


def _walk(jaxpr: Any, inputs: list[_Flow], found: Alignment) -> list[_Flow]:
    """Return the flow into each output."""
    from jax.extend.core import Literal

    flows: dict[Any, _Flow] = dict(zip(jaxpr.invars, inputs, strict=True))

    def flow(atom: Any) -> _Flow:
        nothing = _Flow(frozenset(), (None,) * len(atom.aval.shape))
        return nothing if isinstance(atom, Literal) else flows.get(atom, nothing)

    for eqn in jaxpr.eqns:
        name = eqn.primitive.name
        ins = [flow(atom) for atom in eqn.invars]
        reaching = frozenset().union(*(each.inputs for each in ins))
        found.used |= reaching
        inner = _inner_jaxprs(eqn)
        if not reaching or name in _ANSWERS:
            continue
        if name == "pybridge_guard":
            flows[eqn.outvars[0]] = ins[1]
            continue
        if inner:
            ins = ins[len(ins) - len(inner[0].invars) :]
            walked = [_walk(body, ins, found) for body in inner]
            for var, each in zip(eqn.outvars, zip(*walked, strict=True), strict=True):
                flows[var] = _union(each, found)
            continue
        axes = _axes_of_result(eqn, ins)
        if axes is not None:
            flows[eqn.outvars[0]] = _Flow(reaching, axes)
            continue
        found.used_whole |= reaching
        if name in _MIXING:
            found.mixed += [(i, name) for i in sorted(reaching)]
    return [flow(atom) for atom in jaxpr.outvars]


def _union(flows: Sequence[_Flow], found: Alignment) -> _Flow:
    """Combine what the branches of an inner conditional return."""
    inputs = frozenset().union(*(each.inputs for each in flows))
    axes: list[int | None] = []
    for along in zip(*(each.axes for each in flows), strict=True):
        different = {axis for axis in along if axis is not None}
        if len(different) > 1:
            found.used_whole |= inputs
        axes.append(min(different) if different else None)
    return _Flow(inputs, tuple(axes))


def _inner_jaxprs(eqn: Any) -> list[Any]:
    """Return the jaxprs that an equation evaluates on its operands, `[]` if it does not."""
    from jax.extend.core import ClosedJaxpr, Jaxpr

    name = eqn.primitive.name
    if name in ("cond", "pybridge_switch"):
        return [branch.jaxpr for branch in eqn.params["branches"]]
    if name not in _CALLS:
        return []
    bodies = [p for p in eqn.params.values() if isinstance(p, Jaxpr | ClosedJaxpr)]
    return [body.jaxpr if isinstance(body, ClosedJaxpr) else body for body in bodies[:1]]


def _axes_of_result(eqn: Any, ins: list[_Flow]) -> tuple[int | None, ...] | None:
    """Return the axes of an equation's result, None if it is not elementwise."""
    name = eqn.primitive.name
    shapes = [tuple(atom.aval.shape) for atom in eqn.invars]
    out = tuple(eqn.outvars[0].aval.shape) if eqn.outvars else ()
    axes = ins[0].axes
    if name == "broadcast_in_dim":
        placed: list[int | None] = [None] * len(out)
        for dim, axis in zip(eqn.params["broadcast_dimensions"], axes, strict=True):
            placed[dim] = axis
        return _without_ones(placed, out)
    if name == "transpose":
        return tuple(axes[dim] for dim in eqn.params["permutation"])
    if name in ("reshape", "squeeze"):
        lengths = [n for n in shapes[0] if n != 1]
        if lengths != [n for n in out if n != 1]:
            return None
        kept = iter([axis for axis, n in zip(axes, shapes[0], strict=True) if n != 1])
        return tuple(None if n == 1 else next(kept) for n in out)
    natural = _natural_axes(len(out))
    in_place = all(
        # `clamp` and `select_n` take scalars next to arrays.
        shape == () or (len(shape) == len(out) and _agree(each.axes, natural, shape))
        for shape, each in zip(shapes, ins, strict=True)
    )
    return natural if name in _ELEMENTWISE and in_place else None


def _natural_axes(ndim: int) -> tuple[int | None, ...]:
    """Return the axes that NumPy's broadcasting gives the dimensions of an array."""
    return tuple(range(-ndim, 0))


def _agree(
    axes: tuple[int | None, ...], natural: tuple[int | None, ...], shape: tuple[int, ...]
) -> bool:
    triples = zip(axes, natural, shape, strict=True)
    return all(axis in (None, expected) or n == 1 for axis, expected, n in triples)


def _without_ones(axes: list[int | None], shape: tuple[int, ...]) -> tuple[int | None, ...]:
    return tuple(None if n == 1 else a for a, n in zip(axes, shape, strict=True))
