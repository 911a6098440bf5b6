"""Derivatives that are others than the function's on purpose."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from jax.extend.core import ClosedJaxpr

from ...jaxprs import is_stopped_by_jax
from ..findings import Finding
from ..subject import NOWHERE, first_place


def _is_own_stop(eqn: Any) -> bool:
    # JAX's own functions stop gradients where that leaves the derivative right.
    return eqn.primitive.name == "stop_gradient" and not is_stopped_by_jax(eqn)


def _draws_gamma(eqn: Any) -> bool:
    return eqn.primitive.name == "random_gamma"


_PURPOSES = {
    _is_own_stop: "The function stops a gradient. Where that is on purpose, the derivative is "
    "another one on purpose too.",
    # Figurnov, Mohamed and Mnih, Implicit Reparameterization Gradients, NeurIPS 2018.
    _draws_gamma: "The derivative of a gamma sample is that of its distribution, by implicit "
    "reparametrisation, and not that of the sampler at a fixed key, which differences see.",
}


def on_purpose(finding: Finding, closed: ClosedJaxpr | None) -> Finding | None:
    """Make a warning of a finding where somebody may want another derivative than the value's.

    Returns:
        The finding with the operation that says so; None where there is none.
    """
    for is_meant, advice in _PURPOSES.items():
        place = first_place(closed, is_meant)
        if place != NOWHERE:
            location, primitive = place
            return replace(
                finding,
                severity="warning",
                location=location,
                primitive=primitive,
                advice=advice,
            )
    return None
