"""What JAX gives in the caller's own precision, where that is not double precision."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ._compilation import CompiledAhead, compiled
from ._subject import Arrays, Subject
from ._systems import Weighted

MODES = ("reverse", "forward")


@dataclass(frozen=True)
class OwnPrecision:
    """What JAX gives in the caller's own precision.

    Attributes:
        eps: the relative rounding error of that precision.
        xs: the leaves.
        plain: the plain value.
        values: the value under differentiation, by mode.
        gradients: the gradients; empty where there are none.
    """

    eps: float
    xs: tuple[Any, ...]
    plain: tuple[np.ndarray, ...]
    values: dict[str, tuple[np.ndarray, ...]]
    gradients: tuple[np.ndarray, ...]


class JaxInOwnPrecision:
    """JAX at the given point in the caller's own precision, all that is asked in one program."""

    def __init__(self, subject: Subject, weighted: Weighted):
        """Compile nothing yet.

        Args:
            subject: what is checked.
            weighted: the weights of its outputs.
        """
        self._subject, self._weighted = subject, weighted
        dtypes = [jnp.finfo(jnp.result_type(x)).dtype for x in subject.given]
        self._is_other = not subject.is_julia and any(d != subject.dtype for d in dtypes)
        self._expected: CompiledAhead | None = None

    def expect(self) -> None:
        """Begin to compile for both modes."""
        if self._is_other and self._subject.traced:
            self._expected = CompiledAhead(self._program(MODES), self._subject.jaxpr)
            self._expected.start(self._point())

    def ask(self, modes: Sequence[str]) -> OwnPrecision | None:
        """Give the answers; None where double precision is the caller's own, or something raises.

        Args:
            modes: those that worked in double precision.
        """
        if not self._is_other:
            return None
        program: Callable[..., Any] = self._program(modes)
        if self._expected is not None and set(modes) >= set(MODES):
            program = self._expected
        elif self._subject.traced:
            program = compiled(program, self._subject.jaxpr)
        with contextlib.suppress(Exception):
            xs = self._point()
            found = jax.tree.map(np.asarray, program(xs))
            largest = max(float(jnp.finfo(x.dtype).eps) for x in xs)
            values = {mode: found[mode] for mode in MODES if mode in found}
            return OwnPrecision(largest, xs, found["plain"], values, found.get("gradients", ()))
        return None

    def _point(self) -> tuple[Any, ...]:
        return tuple(map(jax.device_put, self._subject.given))

    def _program(self, modes: Sequence[str]) -> Callable[..., Any]:
        subject, weighted = self._subject, self._weighted

        def all_of_it(xs: Arrays) -> Any:
            found: dict[str, Any] = {"plain": subject.call(xs)}
            if "reverse" in modes:
                found["reverse"], found["gradients"] = weighted.value_and_gradient(xs)
            if "forward" in modes:
                zeros = tuple(jnp.zeros_like(x) for x in xs)
                found["forward"], _ = subject.value_and_tangent(xs, zeros)
            return found

        return all_of_it
