"""Numbers in the precision that a program declares, in double and in extended precision."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

# Where long doubles are doubles, float64 has nothing to be compared with.
IS_EXTENDED = np.finfo(np.longdouble).nmant > np.finfo(np.float64).nmant


def is_inexact(dtype: Any) -> bool:
    """Tell whether a dtype is of real or complex floating-point numbers."""
    return bool(jnp.issubdtype(dtype, np.inexact))


def is_key(dtype: Any) -> bool:
    """Tell whether a dtype is that of keys, which NumPy does not know."""
    return bool(jnp.issubdtype(dtype, jax.dtypes.extended))


def double_dtype(dtype: Any) -> np.dtype:
    """Return double precision, complex where a dtype is."""
    return np.dtype(np.complex128 if jnp.issubdtype(dtype, np.complexfloating) else np.float64)


def widened(x: Any) -> np.ndarray:
    """Return numbers in extended precision, complex where they are."""
    x = np.asarray(x)
    return x.astype(np.clongdouble if x.dtype.kind == "c" else np.longdouble)


def rounded(x: Any, dtype: Any, is_wide: bool) -> Any:
    """Give a value its precision; what is no real or complex number has the declared one."""
    if is_key(dtype):
        return x
    x, is_complex = np.asarray(x), jnp.issubdtype(dtype, np.complexfloating)
    if x.dtype.kind == "c" and not is_complex:
        x = x.real  # as XLA converts
    if not is_inexact(dtype):
        return x.astype(dtype)
    if is_wide:
        return x.astype(np.clongdouble if is_complex else np.longdouble)
    narrow = x.astype(dtype)
    if narrow.dtype.kind == "c":
        return narrow
    # XLA flushes what is too small for a full number of digits.
    return np.where(np.abs(narrow) < jnp.finfo(dtype).tiny, np.zeros((), dtype), narrow)
