"""The rules of the two primitives behind `strong_zero`.

They are JAX's own rules for the operation inside, run under a `StrongTrace`. So derivatives,
batched versions and transposes are strong again, in any order.
"""

from __future__ import annotations

from typing import Any

import jax
from jax.experimental.jet import jet_rules
from jax.interpreters import ad, batching, mlir

from ._jet import refused_under_jet
from ._strong_products import product_value
from ._strong_trace import (
    StrongTrace,
    is_opaque,
    new_trace,
    product_p,
    refuse_if,
    set_current_trace,
    strong_p,
    unsupported,
)


def _bind_plain(*args: Any, of: Any, settings: Any) -> Any:
    outs = of.bind(*args, **dict(settings))
    return outs if of.multiple_results else [outs]


def _avals(*avals: Any, of: Any, settings: Any) -> tuple[Any, Any]:
    outs, effects = of.abstract_eval(*avals, **dict(settings))
    return (outs if of.multiple_results else [outs]), effects


def _product_aval(*avals: Any, of: Any, settings: Any) -> tuple[Any, Any]:
    return of.abstract_eval(*avals, **dict(settings))


def _jvp(primals: Any, tangents: Any, *, of: Any, settings: Any) -> tuple[Any, Any]:
    """Run JAX's rule with the tangents carried."""
    params = dict(settings)
    refuse_if(is_opaque(of, params), of)
    trace = new_trace()
    with set_current_trace(trace):
        outs, outs_dot = ad.primitive_jvps[of](primals, _carry_all(trace, tangents), **params)
    if not of.multiple_results:
        outs, outs_dot = [outs], [outs_dot]
    return [trace.drop(x) for x in outs], [trace.drop(x) for x in outs_dot]


def _product_jvp(primals: Any, tangents: Any, *, of: Any, settings: Any) -> tuple[Any, Any]:
    """Run JAX's rule with everything carried: a factor may be a tangent of another order."""
    trace = new_trace()
    with set_current_trace(trace):
        primals, tangents = _carry_all(trace, primals), _carry_all(trace, tangents)
        out, out_dot = ad.primitive_jvps[of](primals, tangents, **dict(settings))
    return trace.drop(out), trace.drop(out_dot)


def _carry_all(trace: StrongTrace, xs: Any) -> tuple[Any, ...]:
    return tuple(trace.carry(x) for x in xs)


def _batch(axis: Any, operands: Any, dims: Any, *, of: Any, settings: Any) -> tuple[Any, Any]:
    trace = new_trace()
    outs, out_dims = _batch_under(trace, axis, operands, dims, of, settings)
    return (outs, out_dims) if of.multiple_results else ([outs], [out_dims])


def _product_batch(
    axis: Any, operands: Any, dims: Any, *, of: Any, settings: Any
) -> tuple[Any, Any]:
    trace = new_trace()
    operands = _carry_all(trace, operands)
    out, dim = _batch_under(trace, axis, operands, dims, of, settings)
    return trace.drop(out), dim


def _batch_under(
    trace: StrongTrace, axis: Any, operands: Any, dims: Any, of: Any, settings: Any
) -> tuple[Any, Any]:
    params = dict(settings)
    with set_current_trace(trace):
        if all(dim is None for dim in dims):
            outs = of.bind(*operands, **params)
            return outs, [None] * len(outs) if of.multiple_results else None
        fancy = batching.fancy_primitive_batchers.get(of)
        if fancy is not None:
            return fancy(axis, operands, dims, **params)
        rules: Any = batching.primitive_batchers
        return rules[of](operands, dims, **params)


def _transpose(cts: Any, *operands: Any, of: Any, settings: Any) -> Any:
    """Transpose a linear operation, for `jax.linear_transpose`; derivatives never do."""
    if of not in ad.primitive_transposes:
        raise unsupported(of, "a function that is linear, to be transposed")
    return _transposed(cts if of.multiple_results else cts[0], operands, of, settings)


def _product_transpose(ct: Any, *operands: Any, of: Any, settings: Any) -> Any:
    return _transposed(ct, operands, of, settings)


def _transposed(ct: Any, operands: Any, of: Any, settings: Any) -> Any:
    """Run JAX's rule with the cotangent and the factors carried."""
    trace = new_trace()
    with set_current_trace(trace):
        ct = _carry_all(trace, ct) if of.multiple_results else trace.carry(ct)
        operands = _carry_all(trace, operands)
        outs = ad.primitive_transposes[of](ct, *operands, **dict(settings))
    return [trace.drop(x) for x in outs]


strong_p.def_impl(_bind_plain)
strong_p.def_effectful_abstract_eval(_avals)
mlir.register_lowering(strong_p, mlir.lower_fun(_bind_plain, multiple_results=True))
ad.primitive_jvps[strong_p] = _jvp
ad.primitive_transposes[strong_p] = _transpose
batching.fancy_primitive_batchers[strong_p] = _batch

product_p.def_impl(jax.jit(product_value, static_argnames=("of", "settings")))
product_p.def_effectful_abstract_eval(_product_aval)
mlir.register_lowering(product_p, mlir.lower_fun(product_value, multiple_results=False))
ad.primitive_jvps[product_p] = _product_jvp
ad.primitive_transposes[product_p] = _product_transpose
batching.fancy_primitive_batchers[product_p] = _product_batch

jet_rules[strong_p] = jet_rules[product_p] = refused_under_jet(
    "pb.strong_zero",
    expected="derivatives that are nested, as in jax.grad(jax.grad(f))",
    got="jax.experimental.jet, whose products of Taylor series have no strong zeros",
    fix="Nest jax.jvp.",
)
