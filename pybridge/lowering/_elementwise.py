"""Elementwise primitives."""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np

from ._folds import traced
from ._registry import emits, emits_alike
from ._text import julia_type, literal, val

# JAX's name is Julia's, and the operands are all there is.
SAME = """abs acos acosh add and asin asinh atan atan2 atanh cbrt ceil clamp clz complex conj cos
cosh digamma div eq eq_to erf erf_inv erfc exp exp2 expm1 floor ge gt imag is_finite le le_to
lgamma log log1p log2 logistic lt lt_to max min mulhi ne neg nextafter not one_minus_square or
population_count pow real rem rsqrt shift_left shift_right_arithmetic shift_right_logical sign
sin sinh sqrt square sub tan tanh xor""".split()


emits_alike(*SAME)


@emits("mul")
def _mul(eqn: Any) -> str:
    # Another type than the operands' is what these are converted to first.
    if eqn.params.get("out_dtype") in (None, eqn.aval().dtype):
        return eqn.call("mul")
    wanted = val(julia_type(eqn.out().dtype))
    return eqn.call("mul", *(eqn.call("convert_element_type", x, wanted) for x in eqn.args))


@emits("add_any")
def _add_any(eqn: Any) -> str:
    return eqn.call("add")


@emits(
    "copy",
    "copy_p",
    "device_put",
    "layout_constraint",
    "name",
    "optimization_barrier",
    "pvary",
    "reshard",
    "sharding_constraint",
)
def _copy(eqn: Any) -> str:
    return eqn.args[0] if len(eqn.args) == 1 else f"({', '.join(eqn.args)})"


@emits("integer_pow")
def _integer_pow(eqn: Any) -> str:
    return eqn.call("integer_pow", eqn.args[0], val(eqn.params["y"]))


@emits("polynomial")
def _polynomial(eqn: Any) -> str:
    """Write Horner's rule, as JAX does."""

    def horner(x: Any, *coefficients: Any) -> list[Any]:
        return [reduce(lambda y, a: y * x + a, coefficients[::-1])]

    return traced(eqn, horner)


@emits("round")
def _round(eqn: Any) -> str:
    even = int(eqn.params["rounding_method"]) == 1  # TO_NEAREST_EVEN
    return eqn.call("round_even" if even else "round_away")


@emits("select_n")
def _select_n(eqn: Any) -> str:
    which, *cases = eqn.args
    if str(eqn.aval(0).dtype) == "bool":
        return eqn.call("select", which, *reversed(cases)) if len(cases) == 2 else cases[0]
    return eqn.call("select_n")


@emits("convert_element_type")
def _convert_element_type(eqn: Any) -> str:
    if eqn.aval().dtype == eqn.out().dtype:
        return eqn.args[0]
    return eqn.call("convert_element_type", eqn.args[0], val(julia_type(eqn.out().dtype)))


@emits("bitcast_convert_type")
def _bitcast_convert_type(eqn: Any) -> str:
    return eqn.call("bitcast_convert_type", eqn.args[0], val(julia_type(eqn.out().dtype)))


@emits("reduce_precision")
def _reduce_precision(eqn: Any) -> str:
    exponent, mantissa = eqn.params["exponent_bits"], eqn.params["mantissa_bits"]
    return eqn.call("reduce_precision", eqn.args[0], val(exponent), val(mantissa))


@emits("within_gradient")
def _within_gradient(eqn: Any) -> str:
    if eqn.source.asks and not any(eqn.moving):
        return "false"
    return eqn.call("within_gradient", *(a for a, m in zip(eqn.args, eqn.moving, strict=True) if m))


@emits("differentiation_order")
def _differentiation_order(eqn: Any) -> str:
    int32 = np.dtype(np.int32)
    if eqn.source.asks and not any(eqn.moving):
        return literal(0, int32)
    order = eqn.call("differentiation_order")
    return eqn.call("convert_element_type", order, val(julia_type(int32)))


@emits("stop_gradient")
def _stop_gradient(eqn: Any) -> str:
    return eqn.call("stop_gradient")


@emits("pybridge_lane_any")
def _lane_any(eqn: Any) -> str:
    return eqn.args[0]


@emits("pybridge_guard")
def _guard(eqn: Any) -> str:
    return eqn.args[1]
