"""Products of arrays and convolutions."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from ._folds import traced
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


@emits("ragged_dot_general")
def _ragged_dot_general(eqn: Any) -> str:
    """Write a product by groups of rows as one of a stack: for each group, its rows and zeros."""
    p = eqn.params
    numbers = p["ragged_dot_dimension_numbers"]
    contract, (batch_a, batch_b) = numbers.dot_dimension_numbers
    (ragged,) = numbers.lhs_ragged_dimensions
    sizes = eqn.aval(2).shape
    if (
        p["group_offset"] is not None
        or ragged in batch_a
        or len(sizes) not in (1, 1 + len(batch_a))
    ):
        raise eqn.refuse(
            "'ragged_dot_general' with group_offset, or groups along a batch or within rows",
            "Take the groups along rows or along the axis that is summed.",
        )

    def program(a: Any, b: Any, sizes: Any) -> list[Any]:
        count, dtype = sizes.shape[-1], p["preferred_element_type"]
        stop = jnp.cumsum(sizes, axis=-1)[..., None]
        row = jnp.arange(a.shape[ragged])
        member = (row >= stop - sizes[..., None]) & (row < stop)
        places = [*(d + 1 for d in batch_a[: member.ndim - 2]), 0, ragged + 1]
        member = member.transpose(np.argsort(places))
        member = lax.broadcast_in_dim(member, (count, *a.shape), sorted(places))
        stack = jnp.where(member, a, 0)
        later = [d + 1 for d in contract[0]], [d + 1 for d in batch_a]
        if ragged in contract[0]:  # the groups are an axis of the result
            products = [
                lax.dot_general(x, b, (contract, (batch_a, batch_b)), None, dtype) for x in stack
            ]
            return [jnp.stack(products)]
        (group,) = numbers.rhs_group_dimensions
        axes = ([0, *later[0]], [group, *contract[1]]), (later[1], batch_b)
        return [lax.dot_general(stack, b, axes, None, dtype)]

    return traced(eqn, program)


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
