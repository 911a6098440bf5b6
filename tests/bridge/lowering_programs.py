"""Random typed programs for the tests of the lowering, as Python source.

A program is drawn line by line; each line applies one operation of `lowering_operations.py` to
variables that are there. JAX itself says which type the result has, so nothing here repeats its
rules. What hypothesis shrinks and prints is the source.
"""

from __future__ import annotations

import ast
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import pybridge as pb

NAMES = {"jax": jax, "jnp": jnp, "lax": lax, "np": np, "pb": pb}
DTYPES = {"float": np.float32, "int": np.int32, "bool": np.bool_}
KINDS = {"float32": "float", "int32": "int", "bool": "bool"}

# Few shapes: Julia compiles each operation for each of them.
FEW = ((), (2,), (3,), (2, 3), (3, 2), (2, 2, 3))

# What a program does on purpose that no finite difference can see.
UNSEEN = "unseen"
# By JAX it can be differentiated in forward mode only, or rightly only there.
FORWARD = "forward"
# NaN and infinity may come out: its gradient means nothing.
WILD = "wild"
# JAX's derivative is not that of the value.
UNLIKE = "unlike"


@dataclass(frozen=True)
class Variable:
    """A variable with its type, and a bound on the size of its numbers.

    An infinite bound says that there may be a NaN among them.
    """

    name: str
    kind: str
    shape: tuple[int, ...]
    bound: float

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def struct(self) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(self.shape, DTYPES[self.kind])


@dataclass(frozen=True, repr=False)
class Program:
    """A program and arguments for it.

    Attributes:
        names: its arguments.
        arguments: their values; floats are float32.
        lines: one assignment each.
        results: the variables that it returns.
        flags: what is to be known about it: `UNSEEN`, `FORWARD`, `WILD`, `UNLIKE`.
    """

    names: tuple[str, ...]
    arguments: tuple[np.ndarray, ...]
    lines: tuple[str, ...]
    results: tuple[str, ...]
    flags: frozenset[str]

    @property
    def source(self) -> str:
        body = [f"    {line}\n" for line in self.lines]
        result = "".join(f"{name}, " for name in self.results)
        return f"def program({', '.join(self.names)}):\n{''.join(body)}    return ({result})\n"

    def __repr__(self) -> str:
        given = [
            f"{name} = np.array({value.tolist()}, np.{value.dtype})\n"
            for name, value in zip(self.names, self.arguments, strict=True)
        ]
        return "\n\n" + "".join(given) + self.source

    def function(self, dtype: str = "float32") -> Callable[..., tuple[Any, ...]]:
        """Evaluate the source, with floats of another type."""
        return _evaluated(self.source.replace("float32", dtype))

    def arguments_as(self, dtype: str = "float32") -> tuple[jax.Array, ...]:
        """Give the arguments as JAX's, floats in another type."""
        return tuple(
            jnp.asarray(x.astype(dtype) if x.dtype == np.float32 else x) for x in self.arguments
        )

    @property
    def floats(self) -> tuple[int, ...]:
        """The numbers of the arguments that can be differentiated."""
        return tuple(i for i, x in enumerate(self.arguments) if x.dtype == np.float32)


@functools.lru_cache(maxsize=64)
def _evaluated(source: str) -> Callable[..., tuple[Any, ...]]:
    names = dict(NAMES)
    exec(compile(source, "<random program>", "exec"), names)
    return names["program"]


@dataclass
class Draft:
    """A program that is being drawn; operations ask it for variables.

    Attributes:
        draw: hypothesis's.
        shapes: the shapes that results may have; None: all small ones.
        avoid: the flags that the program may not have.
        variables: what there is so far, the newest first.
        flags: those of the program.
    """

    draw: Callable[[Any], Any]
    shapes: Sequence[tuple[int, ...]] | None
    avoid: frozenset[str] = frozenset()
    variables: list[Variable] = field(default_factory=list)
    flags: set[str] = field(default_factory=set)

    def flag(self, name: str) -> None:
        """Say something about the program; if it may not be so, give the operation up.

        Raises:
            Unfit: the flag is to be avoided.
        """
        if name in self.avoid:
            raise Unfit
        self.flags.add(name)

    def pick(self, kind: str, where: Callable[[Variable], bool] = lambda v: True) -> Variable:
        """Choose a variable; without one that fits, give the operation up.

        Raises:
            Unfit: there is none.
        """
        found = [v for v in self.variables if v.kind == kind and where(v)]
        if not found:
            raise Unfit
        return self.one_of(found)

    def one_of(self, choices: Sequence[Any]) -> Any:
        """Choose; the first one is the simplest."""
        if not choices:
            raise Unfit
        return choices[0] if len(choices) == 1 else self.draw(st.sampled_from(choices))

    def number(self, low: int, high: int) -> int:
        """Choose an integer, both ends included."""
        return self.draw(st.integers(low, high))

    def axis(self, x: Variable) -> int:
        """Choose an axis of an array."""
        return self.one_of(range(x.ndim))

    def small(self, x: Variable, limit: float = 3.0) -> str:
        """Write an expression of numbers whose size is at most `limit`."""
        return x.name if x.bound <= limit else f"{limit} * jnp.tanh({x.name})"

    def allows(self, shape: tuple[int, ...]) -> bool:
        if self.shapes is not None:
            return shape in self.shapes
        return len(shape) <= 4 and 0 < math.prod(shape) <= 24


class Unfit(Exception):
    """An operation that cannot be applied here."""


def typed(draft: Draft, text: str) -> tuple[str, tuple[int, ...]]:
    """Ask JAX for the type of an expression.

    Raises:
        Unfit: it has none, or one that the program may not have.
    """
    names = [v.name for v in draft.variables]

    def value(*values: Any) -> Any:
        return eval(text, {**NAMES, **dict(zip(names, values, strict=True))})

    out = jax.eval_shape(value, *(v.struct for v in draft.variables))
    if str(out.dtype) not in KINDS:
        raise AssertionError(f"{text} is of type {out.dtype}")
    if not draft.allows(out.shape):
        raise Unfit
    return KINDS[str(out.dtype)], out.shape


def letters() -> Iterator[str]:
    """Name the variables; `t` and `n` are the operations' own."""
    free = "abcdefghijklmopqrsuvwxyz"
    for n in range(100):
        yield free[n % len(free)] + (str(n // len(free)) if n >= len(free) else "")


def example(seed: int, kind: str, shape: tuple[int, ...]) -> np.ndarray:
    """Draw an array. Its floats are short, so they print and shrink well, and can be equal."""
    random = np.random.default_rng(seed)
    if kind == "float":
        return (random.integers(-16, 17, shape) / 8 + 1 / 64).astype(np.float32)
    if kind == "bool":
        return random.integers(0, 2, shape).astype(np.bool_)
    return random.integers(-4, 5, shape).astype(np.int32)


def line(draft: Draft) -> tuple[str, str, tuple[int, ...], float]:
    """Draw an expression; give its text, kind, shape and bound."""
    from lowering_operations import FALLBACK
    from lowering_operations_arrays import OPERATIONS

    for _ in range(4):
        before = set(draft.flags)
        try:
            text, bound = draft.one_of(OPERATIONS)(draft)
            return text, *typed(draft, text), bound
        except Unfit:
            draft.flags = before
    text, bound = FALLBACK(draft)
    return text, *typed(draft, text), bound


@st.composite
def programs(
    draw: Callable[[Any], Any],
    shapes: Sequence[tuple[int, ...]] | None = FEW,
    longest: int = 14,
    avoid: Sequence[str] = (),
) -> Program:
    """Draw a program of 3 to `longest` lines.

    Args:
        draw: hypothesis's.
        shapes: the shapes that variables may have; None: all small ones.
        longest: the number of lines at most.
        avoid: the flags that the program may not have.
    """
    names, draft = letters(), Draft(draw, shapes, frozenset(avoid))
    given = []
    for kind in ("float", "float", "int", "float"):
        allowed = [s for s in (FEW if shapes is None else shapes) if len(s) < 3]
        shape = draft.one_of(allowed[::-1] if kind == "float" else allowed[1:])
        name = next(names)
        given.append((name, example(draft.number(0, 99), kind, shape)))
        draft.variables.insert(0, Variable(name, kind, shape, 4.0))
    lines: list[str] = []
    used: set[str] = set()
    for _ in range(draft.number(3, longest)):
        text, kind, shape, bound = line(draft)
        name = next(names)
        words = {node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}
        if any(v.bound == math.inf for v in draft.variables if v.name in words):
            bound = math.inf
        used |= words
        lines.append(f"{name} = {text}")
        draft.variables.insert(0, Variable(name, kind, shape, bound))
    last = [v.name for v in reversed(draft.variables) if v.name not in used]
    results = [n for n in last if n not in dict(given)] or [draft.variables[0].name]
    return Program(
        tuple(name for name, _ in given),
        tuple(value for _, value in given),
        tuple(lines),
        tuple(results),
        frozenset(draft.flags),
    )
