"""Families of JAX's primitives: the one place that knows them by name.

What walks through programs, forwards or by running them, asks here. A new primitive of JAX that
calls a program is one entry in `CALLS`; `tests/python/test_jaxprs.py` finds the entry that is
missing, for the installed version of JAX.
"""

from __future__ import annotations

# They call a program. Operands and results are those of the program, in its order, and so is the
# derivative.
CALLS = frozenset(
    """call checkpoint closed_call composite compute_on core_call custom_vmap_call eval_jaxpr
    fused_call jit pjit program_order remat remat2 xla_metadata_call""".split()
)

# From JAX 0.11 on, operations such as `lax.custom_root` and `jnp.einsum` stay functions, with rules
# for each transformation, and become programs when they are compiled.
EXPANDED = frozenset({"call_hi_primitive"})

# Calls of functions with a derivative rule of their own: only the value is the program's.
RULED_CALLS = EXPANDED | {"custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr"}

# They run the one of their `branches` that the first operand names, on the other operands.
BRANCHES = frozenset({"cond", "pybridge_switch"})

# They run a program again and again: a carry goes from one iteration to the next.
LOOPS = frozenset({"scan", "while"})

# They solve a linear system; programs say how.
SOLVERS = frozenset({"custom_linear_solve"})

# All whose inner programs can be followed, operand by operand.
FOLLOWED = frozenset({*CALLS, *RULED_CALLS, *BRANCHES, *LOOPS})

# They draw random numbers, which depend on the dtype.
DRAWING = frozenset("random_bits random_gamma rng_bit_generator rng_uniform threefry2x32".split())

# They hold programs that are no part of the computation's flow: how two numbers are combined, what
# one device does with its piece of an array, a kernel on references, a transpose.
OTHER_PROGRAMS = frozenset(
    """_dot_product_attention_bwd _dot_product_attention_fwd core_map cudnn_fusion
    custom_dce_call custom_fusion custom_partitioning emit_pipeline for fusible jaxpr_call
    linear_call mpmd_map pallas_call parallel_loop pipeline_body reduce reduce_window remat_opt
    run_scoped run_state scatter scatter-add scatter-max scatter-min scatter-mul scatter-sub
    select_and_scatter shard_map thunky.async_start thunky.call_thunky_nested
    thunky.collective_group xla_pmap""".split()
)

# An element of the result depends on the same element of each operand alone.
ELEMENTWISE = frozenset(
    """abs acos acosh add add_any and asin asinh atan atan2 atanh bessel_i0e bessel_i1e cbrt
    ceil clamp clz complex conj convert_element_type copy copy_p cos cosh digamma div eq erf
    erf_inv erfc exp exp2 expm1 floor ge gt igamma igamma_grad_a igammac imag integer_pow
    is_finite le lgamma log log1p log2 logistic lt max min mul ne neg nextafter not
    one_minus_square or polygamma polynomial population_count pow pvary real reduce_precision
    regularized_incomplete_beta rem round rsqrt select_n shift_left shift_right_arithmetic
    shift_right_logical sign sin sinh sqrt square sub tan tanh xor zeta""".split()
)

# An element of the result depends on several elements of an operand.
MIXING = frozenset(
    """argmax argmin conv_general_dilated cumlogsumexp cummax cummin cumprod cumsum
    dot_general fft reduce_and reduce_max reduce_min reduce_or reduce_prod reduce_sum
    reduce_window_sum rev sort top_k""".split()
)

# The derivative is 0 in the elements that they do not select.
SELECTING = frozenset(
    """argsort clamp cummax cummin dynamic_slice dynamic_update_slice floor ceil gather max min
    reduce_max reduce_min round scatter select_and_gather_add select_n sign slice sort stop_gradient
    top_k""".split()
)

# They move numbers, or leave some out, and compute nothing: linear, and exact in floating point.
MOVING = frozenset(
    """broadcast_in_dim concatenate convert_element_type copy dynamic_slice dynamic_update_slice
    expand_dims gather pad reshape rev scatter select_n slice sort split squeeze stop_gradient
    transpose""".split()
)
