"""How the checker compiles: most of its programs run a few times, so that compilation counts."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from threading import Thread
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


class CompiledAhead:
    """A compiled function that a thread can compile while the caller goes on.

    XLA compiles without Python's lock. What Python does, tracing, stays on the caller's thread.
    """

    def __init__(self, f: Callable[..., Any], closed: ClosedJaxpr | None):
        """Compile nothing yet; see `compiled`."""
        self._jitted: Any = compiled(f, closed)
        self._executable: Any = None
        self._thread: Thread | None = None

    def start(self, *args: Any) -> None:
        """Begin to compile for arguments of these types."""
        if self._thread is None:
            # An error in tracing comes again, for the caller, with the call.
            with contextlib.suppress(Exception):
                lowered = self._jitted.lower(*args)
                self._thread = Thread(target=self._compile, args=(lowered,))
                self._thread.start()

    def _compile(self, lowered: Any) -> None:
        with contextlib.suppress(Exception):  # as above
            self._executable = lowered.compile()

    def __call__(self, *args: Any) -> Any:
        """Run it, on arguments of the types that it was compiled for."""
        if self._thread is not None:
            self._thread.join()
        if self._executable is None:
            return self._jitted(*args)
        with jax.disable_jit(False):  # what is compiled refuses to run under `disable_jit`
            return self._executable(*args)
