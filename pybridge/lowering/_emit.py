"""What an emitter sees of an equation of a JAX program, and how emitters are found."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from jax.extend.core import ClosedJaxpr

from .._errors import LoweringError, explain
from ..jaxprs import Location, user_line
from ._moving import Flags, inner_flags
from ._registry import EMITTERS, ON_KEYS, REFUSED
from ._text import JULIA_TYPES


@dataclass(frozen=True)
class Form:
    """How the arguments of a function come, and how its results go.

    Attributes:
        arguments: how many of them each tuple holds; None: they come one by one.
        results: groups of results, each with its size and whether a single one goes bare; None:
            all are one group that does.
    """

    arguments: tuple[int, ...] | None = None
    results: tuple[tuple[int, bool], ...] | None = None


_PLAIN = Form()


class Writer(Protocol):
    """The Julia source that is being written; see `Source`."""

    custom_rules: str

    def constant(self, value: Any) -> str:
        """Write a constant."""
        ...

    def function(
        self,
        closed: ClosedJaxpr,
        hint: str,
        *,
        names: Sequence[str] = (),
        form: Form = _PLAIN,
        moving: Flags | None = None,
        main: bool = False,
    ) -> str:
        """Write a function for a program, unless there is one, and return its name."""
        ...

    def within_rule(self) -> AbstractContextManager[None]:
        """Write the programs of a derivative rule."""
        ...


@dataclass(frozen=True)
class Equation:
    """What an emitter sees of an equation.

    Attributes:
        source: the source that is being written.
        eqn: the equation.
        args: its operands as Julia expressions.
        moving: for each operand whether a derivative can arrive there.
        lazy: whether axes that are repeated may stay of length one.
    """

    source: Writer
    eqn: Any
    args: tuple[str, ...]
    moving: Flags = ()
    lazy: bool = False

    @property
    def name(self) -> str:
        """The primitive's name."""
        return self.eqn.primitive.name

    @property
    def params(self) -> dict[str, Any]:
        """The primitive's parameters."""
        return self.eqn.params

    def aval(self, i: int = 0) -> Any:
        """The type of an operand."""
        return self.eqn.invars[i].aval

    def out(self, i: int = 0) -> Any:
        """The type of a result."""
        return self.eqn.outvars[i].aval

    def ndim(self, i: int = 0) -> int:
        """The number of axes of an operand."""
        return len(self.aval(i).shape)

    def call(self, name: str, *args: str) -> str:
        """Write a call of a Julia primitive; without arguments, on the operands."""
        return call(name, *(args or self.args))

    def function(self, closed: ClosedJaxpr, hint: str) -> str:
        """Write a function for an inner program and return its name."""
        return self.source.function(closed, hint, moving=inner_flags(self.eqn, self.moving))

    def tuple_function(self, closed: ClosedJaxpr, hint: str) -> str:
        """The same; it returns a tuple, even of a single result."""
        form = Form(results=((len(closed.out_avals), False),))
        moving = inner_flags(self.eqn, self.moving)
        return self.source.function(closed, hint, form=form, moving=moving)

    def refuse(self, what: str, fix: str) -> LoweringError:
        """Make the error for an equation that cannot be lowered."""
        return LoweringError(
            explain(
                "pb.lower",
                expected="operations that Julia can do",
                got=f"{what}{at_line(user_line(self.eqn))}",
                fix=fix,
            )
        )


def call(name: str, *args: Any) -> str:
    """Write a call of a Julia primitive."""
    return f"lax.{name}({', '.join(map(str, args))})"


def emit(equation: Equation) -> str:
    """Write an equation as a Julia expression.

    Raises:
        LoweringError: there is no emitter for the primitive, or it has effects.
    """
    name = equation.name
    fix = (
        "To add a primitive: an emitter in pybridge/lowering and its function in "
        'julia_src/src/lowering; see "Add a primitive" in the documentation. Or use backend="jax".'
    )
    if name in REFUSED:
        raise equation.refuse(f"the primitive {name!r}, refused: {REFUSED[name]}", fix)
    if name not in EMITTERS:
        raise equation.refuse(f"the primitive {name!r}, which nobody has lowered", fix)
    if any(is_key(getattr(atom.aval, "dtype", None)) for atom in equation.eqn.invars):
        if name not in ON_KEYS:
            raise equation.refuse(
                f"the primitive {name!r} on PRNG keys",
                "Apply it to their words, jax.random.key_data(key).",
            )
        return ON_KEYS[name](equation)
    return EMITTERS[name](equation)


def is_key(dtype: Any) -> bool:
    """Tell whether values are PRNG keys, whose words cross as integers with one more axis."""
    # NumPy's dtypes are told apart first: text takes long to make.
    return not isinstance(dtype, np.dtype) and str(dtype).startswith("key<")


def check_dtype(dtype: Any, eqn: Any) -> None:
    if str(dtype) in JULIA_TYPES or str(dtype) == "key<fry>":
        return
    where = "" if eqn is None else f" in {eqn.primitive.name!r}{at_line(user_line(eqn))}"
    if is_key(dtype):
        raise LoweringError(
            explain(
                "pb.lower",
                expected="keys of JAX's default generator, threefry2x32",
                got=f"{dtype}{where}",
                fix='Make the key by jax.random.key(seed, impl="threefry2x32"): Julia draws the '
                "numbers of no other generator.",
            )
        )
    raise LoweringError(
        explain(
            "pb.lower",
            expected=f"one of the dtypes {', '.join(JULIA_TYPES)}",
            got=f"{dtype}{where}",
            fix="Convert to float32 first: Julia has no arithmetic in this type.",
        )
    )


def at_line(place: Location | None) -> str:
    if place is None:
        return ""
    return f" at {place}" + (f": {place.source}" if place.source else "")
