"""In which dtype and precision layers compute."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from .._errors import ArgumentTypeError, explain

# Strings, bytes, objects, dates and durations, by NumPy's letters.
_NO_NUMBERS = frozenset("USOMm")


def match_dtype(where: str, x: Any, weight: Any) -> jax.Array:
    """Return `x` in the dtype of the weight, as Flux's layers do.

    Raises:
        ArgumentTypeError: `x` is complex and the weight is real, or `x` is no numbers.
    """
    dtype = jnp.result_type(input_array(where, x))
    numeric = jnp.issubdtype(dtype, jnp.number) or dtype == jnp.bool_
    if not numeric or (
        jnp.issubdtype(dtype, jnp.complexfloating)
        and not jnp.issubdtype(weight.dtype, jnp.complexfloating)
    ):
        raise ArgumentTypeError(
            explain(
                where,
                expected=f"numbers that convert to the weight's dtype {weight.dtype}",
                got=f"an input of dtype {dtype}",
                fix="Pass real numbers, or parameters of a complex dtype.",
            )
        )
    # A weight may be NumPy's, of 64 bits that JAX does not use.
    return jnp.asarray(x, jax.dtypes.canonicalize_dtype(weight.dtype))


def input_array(where: str, x: Any) -> Any:
    """Return an input that is a number or an array of what JAX knows.

    Raises:
        ArgumentTypeError: it is something else, for example a list or an array of strings.
    """
    dtype = getattr(x, "dtype", None)
    if getattr(dtype, "kind", "") in _NO_NUMBERS:
        expected, got = "an array of numbers as input", f"one of dtype {dtype}"
    elif dtype is not None or hasattr(x, "__jax_array__") or isinstance(x, int | float | complex):
        return x
    else:
        expected, got = "an array of JAX or NumPy as input", f"a {type(x).__name__}"
    raise ArgumentTypeError(
        explain(
            where,
            expected=expected,
            got=got,
            fix="Convert it first, for example with `jnp.asarray(x)`.",
        )
    )


def real_input(where: str, x: Any) -> jax.Array:
    """Return `x` as an array.

    Raises:
        ArgumentTypeError: it is not of a real floating-point dtype.
    """
    x = jnp.asarray(input_array(f"{where}.apply", x))
    if not jnp.issubdtype(x.dtype, np.floating):
        raise ArgumentTypeError(
            explain(
                f"{where}.apply",
                expected="real floating-point input",
                got=f"{x.dtype} of shape {x.shape}",
                fix="Convert it, for example `x.astype(jnp.float32)`.",
            )
        )
    return x


def precision_for(dtype: Any) -> lax.Precision | None:
    """Return the precision of products: single precision is not rounded to less.

    On a GPU XLA multiplies float32 in TensorFloat-32, with errors of 1e-3, unless it is
    told otherwise; Flux does not. `jax.default_matmul_precision` has the last word.
    """
    chosen = jax.config.jax_default_matmul_precision  # pyright: ignore[reportAttributeAccessIssue]
    if chosen is None and dtype in (jnp.float32, jnp.complex64):
        return lax.Precision.HIGHEST
    return None


def at_least_single(dtype: Any) -> Any:
    """Return the dtype to draw or sum in: float32 for half precision."""
    return dtype if np.dtype(dtype).itemsize >= 4 else np.dtype(np.float32)


def floating(x: Any) -> jax.Array:
    """Return integers as floating numbers, and the rest as it is."""
    x = jnp.asarray(x)
    return x if jnp.issubdtype(x.dtype, jnp.inexact) else x.astype(jnp.result_type(float))


def parameter_dtype(where: str, dtype: Any) -> np.dtype:
    """Return a dtype that parameters can have.

    Raises:
        ArgumentTypeError: it is not floating, or has 64 bits while JAX holds 32.
    """
    try:
        wanted = np.dtype(dtype)
    except TypeError:
        wanted = dtype
    if not isinstance(wanted, np.dtype):
        expected, fix = "a floating dtype", "For example `jnp.float32`, or its name."
    elif not jnp.issubdtype(wanted, jnp.floating):
        expected, fix = "a floating dtype", "Parameters are trained, so they are real numbers."
    elif jax.dtypes.canonicalize_dtype(wanted) != wanted:
        expected = "a dtype of at most 32 bits"
        fix = 'Switch on double precision: jax.config.update("jax_enable_x64", True).'
    else:
        return wanted
    raise ArgumentTypeError(explain(where, expected=expected, got=str(wanted), fix=fix))
