"""How the checker compiles: most of its programs run a few times, so that compilation counts."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr

from ...jaxprs import contains, equations

# XLA's optimisation makes these many times faster, and a loop at most twice as fast: its time goes
# to starting the operations of its body.
_WORTHWHILE = frozenset({"conv_general_dilated", "fft"})
_SMALL = 1000  # numbers that a program computes, one iteration of each loop
_QUICKLY = {"xla_backend_optimization_level": 0}


def compiler_options(closed: ClosedJaxpr | None) -> dict[str, Any] | None:
    """Choose how a program, and others that are derived from it, are compiled.

    Args:
        closed: the program; None where it is not known.

    Returns:
        Options for `jax.jit`: without optimisation where that takes longer than it saves.
    """
    if closed is None or contains(closed, _WORTHWHILE) or jax.default_backend() != "cpu":
        return None
    computed = [v for eqn in equations(closed) for v in eqn.outvars]
    sizes = [math.prod(getattr(v.aval, "shape", ())) for v in (*closed.jaxpr.invars, *computed)]
    return None if sum(sizes) > _SMALL else _QUICKLY


def compiled(f: Callable[..., Any], closed: ClosedJaxpr | None) -> Callable[..., Any]:
    """Compile a function, see `compiler_options`."""
    return jax.jit(f, compiler_options=compiler_options(closed))
