"""NumPy arrays that a JAX program closes over, in the precision in which JAX is told to compute."""

from __future__ import annotations

from functools import cache

import jax
import numpy as np


@cache
def tell_precisions_apart() -> None:
    """Have JAX convert a NumPy array anew where the precision is another than before.

    JAX (seen in 0.10.2) converts an array once, and as long as a program lives that closes over
    it, takes the result in both settings of `jax_enable_x64`. What computes in float64 beside a
    caller's float32 then gets the caller's rounded numbers, and the caller's next program float64
    ("RuntimeProgramInputMismatch"), or a refusal that a checker takes for the function's own.

    The rule that takes the place of JAX's is the same in all but that cache, so nobody else sees a
    difference. It stays; versions of JAX that tell precisions apart are left as they are.
    """
    if not _mixes_precisions():
        return
    from jax._src import dtypes, literals  # pyright: ignore

    def convert(x: np.ndarray) -> literals.TypedNdArray:
        return literals.TypedNdArray(np.asarray(x, dtypes.canonicalize_dtype(x.dtype)))

    dtypes.register_canonicalize_value_handler(np.ndarray, convert)


def _mixes_precisions() -> bool:
    """Ask JAX for one array in both precisions, with a program that holds it in the wider."""
    if not hasattr(jax, "enable_x64"):
        return False
    array = np.ones(1)
    with jax.enable_x64(True):
        program = jax.make_jaxpr(lambda x: x + array)(array)
    with jax.enable_x64(False):
        (found,) = jax.make_jaxpr(lambda x: x + array)(array).consts
    return found.dtype == program.consts[0].dtype
