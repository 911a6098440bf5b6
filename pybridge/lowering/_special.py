"""Special functions, and random numbers of the gamma distribution."""

from __future__ import annotations

from typing import Any

import jax

from ._emit import call
from ._registry import emits_alike

emits_alike(
    "bessel_i0e",
    "bessel_i1e",
    "igamma",
    "igamma_grad_a",
    "igammac",
    "polygamma",
    "random_gamma_grad",
    "regularized_incomplete_beta",
    "zeta",
)


def random_gamma(eqn: Any) -> str:
    """Write JAX's own program for the sample, with the derivative by the shape beside it.

    The sample is found by rejection, so its program has no useful derivative.
    """
    # JAX keeps the program as the primitive's implementation.
    program = eqn.eqn.primitive.impl
    types = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in (eqn.aval(0), eqn.aval(1))]
    closed = jax.make_jaxpr(lambda key, a: program(key, a, **eqn.params))(*types)
    key, a = eqn.args
    sample = f"{eqn.function(closed, 'random_gamma')}({key}, {call('stop_gradient', a)})"
    name = "gamma_log_sample" if eqn.params["log_space"] else "gamma_sample"
    return call(name, call("stop_gradient", sample), a)
