"""Products of arrays and convolutions."""

from __future__ import annotations

from typing import Any

from ._registry import emits
from ._text import axis, julia_type, val


@emits("dot_general")
def _dot_general(eqn: Any) -> str:
    (contract_a, contract_b), (batch_a, batch_b) = eqn.params["dimension_numbers"]
    m, n = eqn.ndim(0), eqn.ndim(1)

    def pair(a: Any, b: Any) -> str:
        # Reversed, so that a batch stays in memory's order.
        a, b = tuple(reversed(a)), tuple(reversed(b))
        return val((tuple(axis(d, m) for d in a), tuple(axis(d, n) for d in b)))

    dtype = val(julia_type(eqn.out().dtype))
    contract, batch = pair(contract_a, contract_b), pair(batch_a, batch_b)
    return eqn.call("dot_general", *eqn.args, contract, batch, dtype)


@emits("conv_general_dilated")
def _conv(eqn: Any) -> str:
    p = eqn.params
    numbers, n = p["dimension_numbers"], eqn.ndim()

    def bring(spec: Any) -> tuple[int, ...]:
        # JAX's spec is (batch, channel, space...), for kernels (out, in, space...).
        return tuple(axis(d, n) for d in reversed(spec))

    back = bring(numbers.out_spec)
    inverse = tuple(back.index(d) + 1 for d in range(1, n + 1))
    low, high = ([pair[i] for pair in p["padding"]] for i in (0, 1))
    geometry = {
        "stride": tuple(reversed(p["window_strides"])),
        "low": tuple(reversed(low)),
        "high": tuple(reversed(high)),
        "base": tuple(reversed(p["lhs_dilation"])),
        "dilation": tuple(reversed(p["rhs_dilation"])),
        "groups": p["feature_group_count"],
        "batches": p["batch_group_count"],
        "x_order": bring(numbers.lhs_spec),
        "w_order": bring(numbers.rhs_spec),
        "y_order": inverse,
    }
    dtype = val(julia_type(eqn.out().dtype))
    return eqn.call("conv_general_dilated", *eqn.args, val(geometry), dtype)
