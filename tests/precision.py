"""`jax.enable_x64(True)`: double precision for a while, in every version of JAX."""

import jax

if hasattr(jax, "enable_x64"):
    enable_x64 = jax.enable_x64
else:  # older ones have it there alone
    from jax.experimental import enable_x64

__all__ = ["enable_x64"]
