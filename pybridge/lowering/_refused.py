"""What is known and not lowered, and why."""

from __future__ import annotations

from ._registry import refuses

refuses(
    "it has an effect, and a lowered program is pure",
    "debug_callback",
    "debug_print",
    "pure_callback",
    "io_callback",
    "infeed",
    "outfeed",
)
refuses(
    "it speaks to other devices, and a lowered program runs in one process",
    "all_gather",
    "all_gather_invariant",
    "all_gather_reduced",
    "all_to_all",
    "axis_index",
    "pmax",
    "pmin",
    "ppermute",
    "psum",
    "psum2",
    "psum_invariant",
    "pbroadcast",
    "ragged_all_to_all",
    "reduce_scatter",
    "shard_map",
    "xla_pmap",
    "unreduced_psum",
    "unreduced_reduce_scatter",
)
refuses("it is a call of foreign code", "ffi_call", "custom_call", "tpu_custom_call", "pallas_call")
refuses("Julia has no such data type", "to_edtype", "from_edtype", "create_token", "after_all")
refuses("it changes a mutable array, and a lowered program is pure", "get", "swap", "addupdate")
refuses("it is part of a trace and not of a program", "dce_sink", "stage")
refuses(
    "strong zeros change JAX's rules, and Julia's systems have their own; pb.cond keeps a branch "
    "not taken out of every derivative",
    "pybridge_strong",
    "pybridge_strong_product",
)
refuses(
    "it calls a Julia function, which a system is chosen for by ad= of from_julia or flux: "
    'differentiate with backend="jax", or pass that function alone',
    "julia_call",
    "julia_value_and_grad",
    "julia_tangents",
    "julia_cotangents",
)
