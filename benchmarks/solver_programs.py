"""Iterative solvers with a rule for the derivative of the limit: right ones, and faulty ones.

A right one stops at a tolerance or after so many steps, so that its value is near the limit only.
In a faulty one the rule has the wrong sign, is off by 2 %, or leaves a term out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

FAULTS = ("wrong sign", "wrong scale", "dropped term")
SOLVERS = ("tolerance", "steps", "custom_root")


@dataclass(frozen=True)
class Solver:
    """A fixed point of `y = amplitude * wave(a y + shift)`, as a function of `a`.

    Attributes:
        args: the point.
        how: one of `SOLVERS`.
        accuracy: the tolerance, or the number of steps.
        amplitude: below 1, so that the iteration is a contraction.
        shift: of the wave.
        kind: one of `FAULTS`; empty for a right solver.
    """

    args: tuple[np.ndarray, ...]
    how: str
    accuracy: float
    amplitude: float
    shift: float
    kind: str = ""

    def __call__(self, a: Any) -> Any:
        """Solve."""
        return self._by_root(a) if self.how == "custom_root" and not self.kind else self._by_rule(a)

    def __str__(self) -> str:
        """Write what a person needs to write it down by hand."""
        return (
            f"y = {self.amplitude:.6g} cos(a y + {self.shift:.6g}) at a = {self.args[0]}, "
            f"{self.how} {self.accuracy:.6g} {self.kind}".rstrip()
        )

    def _step(self, a: Any, y: Any) -> Any:
        return self.amplitude * jnp.cos(a * y + self.shift)

    def _iterate(self, step: Callable[[Any], Any], start: Any) -> Any:
        if self.how == "tolerance":
            far = lambda pair: jnp.abs(pair[1] - pair[0]) > self.accuracy  # noqa: E731
            pair = start + 1.0, start
            return lax.while_loop(far, lambda pair: (pair[1], step(pair[1])), pair)[1]
        return lax.fori_loop(0, int(self.accuracy), lambda i, y: step(y), start)

    def _by_root(self, a: Any) -> Any:
        return lax.custom_root(
            lambda y: y - self._step(a, y),
            jnp.full_like(a, 0.4),
            lambda f, y: self._iterate(lambda y: y - f(y), y),
            lambda g, y: y / g(jnp.ones_like(y)),
        )

    def _by_rule(self, a: Any) -> Any:
        @jax.custom_jvp
        def solve(a: Any) -> Any:
            return self._iterate(lambda y: self._step(a, y), jnp.full_like(a, 0.4))

        @solve.defjvp
        def _(primals: Any, tangents: Any) -> Any:
            (a,), (t,) = primals, tangents
            y = solve(a)
            slope = -self.amplitude * jnp.sin(a * y + self.shift)
            inside = 0.0 if self.kind == "dropped term" else slope * a
            factor = {"wrong sign": -1.0, "wrong scale": 1.02}.get(self.kind, 1.0)
            return y, factor * t * slope * y / (1 - inside)

        return solve(a)


def solvers(seed: int, number: int) -> Solver:
    """Make a right solver.

    Args:
        seed: the seed of the whole set.
        number: which program of the set.
    """
    return _draw(seed, number, "")


def broken_solvers(seed: int, number: int) -> Solver:
    """Make a solver with a faulty rule, of the kinds in turn.

    Args:
        seed: the seed of the whole set.
        number: which program of the set.
    """
    return _draw(seed, number, FAULTS[number % len(FAULTS)])


def _draw(seed: int, number: int, kind: str) -> Solver:
    rng = np.random.default_rng([seed, 3, number])
    how = SOLVERS[number // len(FAULTS) % len(SOLVERS)]
    accuracy = 10.0 ** rng.uniform(-9, -5) if how == "tolerance" else float(rng.integers(25, 80))
    a = np.asarray(rng.uniform(0.4, 0.9))
    return Solver((a,), how, accuracy, rng.uniform(0.5, 0.9), rng.uniform(0.1, 0.6), kind)
