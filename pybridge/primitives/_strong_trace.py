"""The interpreter behind `strong_zero`.

`StrongTrace` stands between a function and the JAX transformations around it. Values pass
unchanged; what changes are the derivative rules. Every operation whose rule may multiply
is bound inside of the primitive `strong_p`, which has the same value, and the JVP rule of
JAX for it, run under a `StrongTrace` of its own (see `_strong_rules`): there the tangents
are `Carried`, and a product with a carried factor becomes `product_p`, in which zero times
anything is zero. JAX's own machinery (jit, scan, transposition, ...) does the rest.

No value is wrapped unless it is carried, so what is concrete for `jax.grad` stays concrete.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import jax
import jax.extend.linear_util as lu
import jax.numpy as jnp
import numpy as np
from jax.core import Trace, Tracer, eval_context
from jax.custom_derivatives import SymbolicZero
from jax.extend.core import Primitive
from jax.interpreters import ad

from .._errors import UnsupportedModeError, explain
from ..jaxprs import EXPANDED, RULED_CALLS, calling_line, contains, inner_jaxprs
from ._strong_products import FACTORS

try:
    from jax.extend.core import set_current_trace, take_current_trace
except ImportError:  # before JAX 0.8
    from jax.core import set_current_trace, take_current_trace  # type: ignore[no-redef]

# Their rules do not multiply, though no transpose rule says so: there is none, or JAX keeps it in
# a table that is not public.
_NO_PRODUCTS = frozenset(
    "eq ne lt le gt ge eq_to le_to lt_to is_finite sign floor ceil round argmax argmin "
    "stop_gradient name slice dynamic_slice gather reshard relayout mesh_cast get swap addupdate "
    "new_ref mutable_array freeze optimization_barrier pure_callback composite "
    "within_gradient pybridge_lane_any".split()
)
# Linear in an operand, and yet their rules multiply: by masks, or inside of a program.
_PRODUCTS_TOO = frozenset(["scatter", "custom_linear_solve", "linear_call"])
# Programs that are no more than a small reduction.
KNOWN_PROGRAMS = frozenset(
    "reduce reduce_window scatter scatter-add scatter-sub scatter-mul scatter-max scatter-min "
    "select_and_scatter composite custom_linear_solve linear_call".split()
)

# For primitives that hold programs: (values, carried, params) -> (values, params, carried).
PROGRAM_RULES: dict[str, Callable[..., tuple[Sequence[Any], dict[str, Any], list[bool]]]] = {}


class Carried(Tracer):
    """A tangent or cotangent, or what was computed from one: its zeros are strong."""

    __slots__ = ("value",)

    def __init__(self, trace: StrongTrace, value: Any):
        self._trace = trace
        self._line_info = None
        self.value = value

    @property
    def aval(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
        return jax.typeof(self.value)

    def to_concrete_value(self) -> Any:
        return self.value.to_concrete_value() if isinstance(self.value, Tracer) else self.value

    def full_lower(self) -> Any:
        return self


class StrongTrace(Trace):
    """Bind operations in `parent`, with strong derivatives."""

    def __init__(self, parent: Any):
        super().__init__()
        self.parent = parent
        self.requires_low = parent.requires_low

    def carry(self, x: Any) -> Any:
        """Mark an array as carried; leave integers and symbolic zeros alone."""
        if isinstance(x, ad.Zero | SymbolicZero | ad.UndefinedPrimal) or x is None:
            return x
        return Carried(self, x) if jnp.issubdtype(jnp.result_type(x), np.inexact) else x

    def is_carried(self, x: Any) -> bool:
        return type(x) is Carried and x._trace is self

    def drop(self, x: Any) -> Any:
        """Return the value of an array, carried or not."""
        return x.value if self.is_carried(x) else x

    def stage_value(self, val: Any) -> Any:
        return val if self.is_carried(val) else self.parent.stage_value(val)

    def process_primitive(self, primitive: Any, tracers: Any, params: Any, /) -> Any:
        if primitive is strong_p:
            primitive, params = params["of"], dict(params["settings"])
            outs = self._process(primitive, tracers, params)
            return outs if primitive.multiple_results else [outs]
        return self._process(primitive, tracers, params)

    def _process(self, primitive: Any, tracers: Any, params: dict[str, Any]) -> Any:
        carried = [self.is_carried(x) for x in tracers]
        values = [self.drop(x) for x in tracers]
        if any(carried) and _is_linear_program(primitive, params):
            with set_current_trace(self):
                return primitive.to_lojax(*tracers, **params)
        with set_current_trace(self.parent):
            if is_opaque(primitive, params):
                refuse_if(any(carried), primitive)
                outs, out_carried = bind_strong(primitive, values, params), None
            elif primitive.name in _PRODUCTS_TOO and not any(carried):
                outs, out_carried = bind_strong(primitive, values, params), None
            elif primitive.name in PROGRAM_RULES:
                rule = PROGRAM_RULES[primitive.name]
                values, params, out_carried = rule(values, carried, params)
                outs = primitive.bind(*values, **params)
            elif _is_product(primitive.name, values, carried):
                outs, out_carried = bind_product(primitive, values, params), None
            elif _needs_rule(primitive, carried):
                outs, out_carried = bind_strong(primitive, values, params), None
            else:
                outs, out_carried = primitive.bind(*values, **params), None
        if not any(carried):
            return outs
        if not primitive.multiple_results:
            return self.carry(outs)
        marks = out_carried if out_carried is not None else [True] * len(outs)
        return [self.carry(x) if c else x for x, c in zip(outs, marks, strict=True)]

    def process_call(self, primitive: Any, f: Any, tracers: Any, params: Any, /) -> Any:
        wrapped = _Wrapped(f, [self.is_carried(x) for x in tracers])
        values = [self.drop(x) for x in tracers]
        outs = self.parent.process_call(primitive, wrapped.fun, values, params)
        return wrapped.mark(self, outs)

    def process_map(self, primitive: Any, f: Any, tracers: Any, params: Any, /) -> Any:
        wrapped = _Wrapped(f, [self.is_carried(x) for x in tracers])
        values = [self.drop(x) for x in tracers]
        outs = self.parent.process_map(primitive, wrapped.fun, values, params)
        return wrapped.mark(self, outs)

    def process_shard_map(self, primitive: Any, f: Any, args: Any, /, **params: Any) -> Any:
        carried = [self.is_carried(x) for x in args]
        values = [self.drop(x) for x in args]
        if hasattr(f, "call_wrapped"):
            wrapped = _Wrapped(f, carried)
            outs = self.parent.process_shard_map(primitive, wrapped.fun, values, **params)
            return wrapped.mark(self, outs)

        def strong(*xs: Any) -> Any:
            trace = new_trace()
            with set_current_trace(trace):
                tree = f(*(trace.carry(x) if c else x for x, c in zip(xs, carried, strict=True)))
            return tree.map(trace.drop)

        outs = self.parent.process_shard_map(primitive, strong, values, **params)
        return outs.map(self.carry) if any(carried) else outs

    def process_custom_jvp_call(
        self, primitive: Any, fun: Any, jvp: Any, tracers: Any, /, *, symbolic_zeros: bool
    ) -> Any:
        wrapped = _Wrapped(fun, [self.is_carried(x) for x in tracers])

        def tangents(xs: Sequence[Any]) -> list[bool]:
            return [i >= len(xs) // 2 for i in range(len(xs))]

        outs = self.parent.process_custom_jvp_call(
            primitive,
            wrapped.fun,
            _Wrapped(jvp, tangents).fun,
            [self.drop(x) for x in tracers],
            symbolic_zeros=symbolic_zeros,
        )
        return wrapped.mark(self, outs)

    def process_custom_vjp_call(
        self,
        primitive: Any,
        fun: Any,
        fwd: Any,
        bwd: Any,
        tracers: Any,
        /,
        *,
        out_trees: Any,
        symbolic_zeros: bool,
    ) -> Any:
        wrapped = _Wrapped(fun, [self.is_carried(x) for x in tracers])

        def cotangents(xs: Sequence[Any]) -> list[bool]:
            residuals = out_trees()[1].num_leaves
            return [i >= residuals for i in range(len(xs))]

        outs = self.parent.process_custom_vjp_call(
            primitive,
            wrapped.fun,
            _Wrapped(fwd, lambda xs: [False] * len(xs)).fun,
            _Wrapped(bwd, cotangents).fun,
            [self.drop(x) for x in tracers],
            out_trees=out_trees,
            symbolic_zeros=symbolic_zeros,
        )
        return wrapped.mark(self, outs)


class _Wrapped:
    """A function of JAX's machinery, run under a `StrongTrace` wherever it is called.

    Attributes:
        fun: the function, of the type that JAX wants.
    """

    def __init__(self, fun: Any, carried: list[bool] | Callable[[Sequence[Any]], list[bool]]):
        self._out_carried: list[bool] | None = None
        self._any = carried if callable(carried) else any(carried)

        def strong(*xs: Any) -> list[Any]:
            # JAX, too, forgets what the last call has noted about its outputs.
            for store in fun.stores:
                if store:
                    store.reset()
            marks = carried(xs) if callable(carried) else carried
            outs, self._out_carried = run_marked(fun.call_wrapped, xs, marks)
            return outs

        self.fun = lu.wrap_init(strong, debug_info=fun.debug_info)

    def mark(self, trace: StrongTrace, outs: Any) -> Any:
        if not self._any:
            return outs
        # A rule that ran in its place has not said which outputs are carried.
        marks = self._out_carried or [True] * len(outs)
        return [trace.carry(x) if c else x for x, c in zip(outs, marks, strict=True)]


def run_strong(f: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Call a function so that its derivative has strong zeros."""
    with set_current_trace(new_trace()):
        return f(*args, **kwargs)


def run_marked(
    f: Callable[..., Any], xs: Sequence[Any], carried: Sequence[bool]
) -> tuple[Any, list[bool]]:
    """Call a function with some arguments carried; say which results are."""
    trace = new_trace()
    with set_current_trace(trace):
        outs = f(*(trace.carry(x) if c else x for x, c in zip(xs, carried, strict=True)))
    # A list, or from JAX 0.12 on, of the rule of a custom_vjp, a list and what the rule logs.
    leaves, tree = jax.tree.flatten(outs, is_leaf=lambda x: x is None)
    return tree.unflatten(map(trace.drop, leaves)), [trace.is_carried(x) for x in leaves]


def is_plain_evaluation() -> bool:
    """Tell whether operations are evaluated here, and neither traced nor differentiated."""
    with take_current_trace() as trace:
        return type(trace) is _EVALUATION


with eval_context(), take_current_trace() as _trace:
    _EVALUATION = type(_trace)


def new_trace() -> StrongTrace:
    """Return a trace in front of the current one."""
    with take_current_trace() as parent:
        return StrongTrace(parent)


def _is_product(name: str, values: Sequence[Any], carried: Sequence[bool]) -> bool:
    """Tell whether a primitive multiplies something carried, by more than a harmless number."""
    factors = FACTORS.get(name)
    if factors is None or not any(carried[i] for i in factors):
        return False
    if name in ("mul", "div") and carried.count(True) == 1:
        return not _is_harmless(values[1 - carried.index(True)])
    return True


def _is_harmless(x: Any) -> bool:
    """Tell whether a factor is a number in the program, finite and not zero."""
    if isinstance(x, jax.Array) or np.ndim(x) > 0:
        return False
    number = complex(np.asarray(x).item())
    return number != 0 and math.isfinite(abs(number))


def _is_linear_program(primitive: Any, params: dict[str, Any]) -> bool:
    """Tell whether a primitive, applied to a derivative, can be left to its program.

    It is then linear in that, and so is its program, whose products can be reached; but not where
    the program looks at the bits of numbers.
    """
    if primitive.name not in EXPANDED:
        return False
    inner = inner_jaxprs(SimpleNamespace(primitive=primitive, params=params))
    return not any(contains(program, {"bitcast_convert_type"}) for program in inner)


def _needs_rule(primitive: Any, carried: Sequence[bool]) -> bool:
    """Tell whether JAX's rule for a primitive may multiply."""
    if primitive is product_p or primitive.name in _NO_PRODUCTS:
        return False
    if primitive.name in EXPANDED:
        return not any(carried)
    if primitive.name in FACTORS:
        # With a harmless factor it is linear, with a carried divisor it is not.
        return not any(carried) or not any(carried[i] for i in FACTORS[primitive.name])
    if primitive.name in _PRODUCTS_TOO:
        return not any(carried)
    return primitive in ad.primitive_jvps and primitive not in ad.primitive_transposes


strong_p = Primitive("pybridge_strong")
strong_p.multiple_results = True
product_p = Primitive("pybridge_strong_product")


def bind_strong(primitive: Any, values: Sequence[Any], params: dict[str, Any]) -> Any:
    """Bind an operation so that its derivative has strong zeros."""
    outs = strong_p.bind(*values, of=primitive, settings=_settings(params))
    return outs if primitive.multiple_results else outs[0]


def bind_product(primitive: Any, values: Sequence[Any], params: dict[str, Any]) -> Any:
    """Bind a product in which zero times anything is zero."""
    return product_p.bind(*values, of=primitive, settings=_settings(params))


class _Settings(tuple[tuple[str, Any], ...]):
    """Parameters of a primitive, of which some in JAX 0.11 have no hash."""

    def __hash__(self) -> int:
        try:
            return super().__hash__()
        except TypeError:
            return hash(tuple(name for name, _ in self))


def _settings(params: dict[str, Any]) -> _Settings:
    return _Settings(sorted(params.items()))


def is_opaque(of: Any, params: dict[str, Any]) -> bool:
    """Tell whether a primitive holds a program whose products cannot be reached."""
    if of.name in PROGRAM_RULES or of.name in KNOWN_PROGRAMS or of not in ad.primitive_jvps:
        return False
    # What has a rule of its own is differentiated by that, and the rule's products are reached.
    if of.name in RULED_CALLS:
        return False
    return any(inner_jaxprs(SimpleNamespace(primitive=of, params=params)))


def refuse_if(refused: bool, of: Any) -> None:
    """Refuse a primitive.

    Raises:
        UnsupportedModeError: if `refused`.
    """
    if refused:
        raise unsupported(of, "operations whose derivatives can be seen into")


def unsupported(of: Any, expected: str) -> UnsupportedModeError:
    """Return the error that names a primitive and the user's line, from Python's stack."""
    line = calling_line()
    return UnsupportedModeError(
        explain(
            "pb.strong_zero",
            expected=expected,
            got=f"the primitive {of.name!r}" + (f" at {line}: {line.source}" if line else ""),
            fix="Leave it out of the function, or give it a custom_jvp or custom_vjp rule.",
        )
    )
