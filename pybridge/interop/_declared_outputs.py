"""What `out=` of `from_julia` may say: the shapes and dtypes of a value."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._errors import ArgumentTypeError, ArgumentValueError, explain
from ..julia import DTYPES

BFLOAT16 = np.dtype(jnp.bfloat16)
# Julia has no bfloat16: results are converted from its Float32.
_DTYPES = (BFLOAT16, *map(np.dtype, DTYPES))


def check_declared(out: Any) -> None:
    """Refuse what is no tree of shapes and dtypes that Julia can fill.

    Args:
        out: the tree.

    Raises:
        ArgumentTypeError: a leaf has no shape or dtype, or a dtype that does not cross.
        ArgumentValueError: a shape has something else than sizes.
    """
    for leaf in jax.tree_util.tree_leaves(out):
        if not (hasattr(leaf, "shape") and hasattr(leaf, "dtype")):
            raise ArgumentTypeError(
                explain(
                    "from_julia",
                    expected="out= to be a tree of jax.ShapeDtypeStruct, or a function from the "
                    "arguments' shapes to one",
                    got=f"a {type(leaf).__name__} in it",
                    fix="For a function that keeps the shape of x: "
                    "out=lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype).",
                )
            )
        if leaf.dtype not in _DTYPES:
            raise ArgumentTypeError(
                explain(
                    "from_julia",
                    expected="out= with dtypes bool, int8 to int64, uint8 to uint64, bfloat16, "
                    "float16 to float64, complex64 or complex128",
                    got=str(leaf.dtype),
                    fix="Declare one of those, and convert the result with .astype.",
                )
            )
        if not all(isinstance(n, int | np.integer) and n >= 0 for n in leaf.shape):
            raise ArgumentValueError(
                explain(
                    "from_julia",
                    expected="out= with shapes of integers from 0",
                    got=f"shape {leaf.shape}",
                    fix="Where a size depends on the arguments, pass a function of their shapes: "
                    "out=lambda x: jax.ShapeDtypeStruct((x.shape[0] - 1,), x.dtype).",
                )
            )
