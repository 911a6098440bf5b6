"""The table of JAX primitives that can be written in Julia, and of those that are refused.

A family of primitives is one file here and one of the same name in `julia_src/src/lowering`. An
emitter turns an equation of a JAX program into a Julia expression:

    @emits("rev")
    def _rev(eqn):
        return eqn.call("rev", val(axes(eqn.params["dimensions"], eqn.ndim(0))))
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Emitter = Callable[[Any], str]

EMITTERS: dict[str, Emitter] = {}

# Primitives that may be applied to PRNG keys, which have an axis more in Julia than in JAX.
ON_KEYS: dict[str, Emitter] = {}

# Primitives that are known and not lowered, with the reason. What is in neither table is unknown.
REFUSED: dict[str, str] = {}


class Many(str):
    """A Julia expression whose value is a tuple, even if the equation has a single result."""

    __slots__ = ()


def emits(*names: str) -> Callable[[Emitter], Emitter]:
    """Register an emitter for primitives of these names."""

    def register(emitter: Emitter) -> Emitter:
        for name in names:
            assert name not in EMITTERS, f"two emitters for {name}"
            REFUSED.pop(name, None)
            EMITTERS[name] = emitter
        return emitter

    return register


def emits_alike(*names: str) -> None:
    """Register primitives whose Julia function has JAX's name and takes the operands alone."""
    emits(*names)(lambda eqn: eqn.call(eqn.name))


def emits_on_keys(*names: str) -> Callable[[Emitter], Emitter]:
    """Register an emitter for primitives of these names where an operand is a PRNG key."""

    def register(emitter: Emitter) -> Emitter:
        ON_KEYS.update(dict.fromkeys(names, emitter))
        return emitter

    return register


def refuses(reason: str, *names: str) -> None:
    """Say why primitives are not lowered."""
    for name in names:
        if name not in EMITTERS:
            REFUSED[name] = reason
