"""Double precision in JAX, whatever the caller's setting."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import jax

from .._array_constants import tell_precisions_apart


@contextlib.contextmanager
def double_precision() -> Iterator[None]:
    """Let JAX compute in float64 inside the block, whatever the caller's setting.

    Strict promotion is off as well: a float32 constant of the caller's meets float64 here.
    """
    tell_precisions_apart()
    if hasattr(jax, "enable_x64"):
        wide = jax.enable_x64(True)
    else:
        # Older versions of JAX have the same switch in another place only.
        from jax.experimental import enable_x64  # pyright: ignore

        wide = enable_x64(True)
    with wide, jax.numpy_dtype_promotion("standard"):
        yield
