"""The discrete Fourier transform."""

from __future__ import annotations

from typing import Any

from ._registry import emits
from ._text import size, val

# In the order of `jax.lax.FftType`.
_KINDS = (":fft", ":ifft", ":rfft", ":irfft")


@emits("fft")
def _fft(eqn: Any) -> str:
    kind = _KINDS[int(eqn.params["fft_type"])]
    return eqn.call("fft", eqn.args[0], val(kind), val(size(eqn.params["fft_lengths"])))
