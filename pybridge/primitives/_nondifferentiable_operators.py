"""What makes a `NonDifferentiable` behave as its value: operators, conversions, NumPy's protocols.

Results are plain values: `n + 1` is a number or an array, with no mark on it.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._errors import ArgumentTypeError, explain

_BINARY = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "truediv": operator.truediv,
    "floordiv": operator.floordiv,
    "mod": operator.mod,
    "divmod": divmod,
    "pow": operator.pow,
    "matmul": operator.matmul,
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
    "lshift": operator.lshift,
    "rshift": operator.rshift,
}
_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
_UNARY = {
    "neg": operator.neg,
    "pos": operator.pos,
    "abs": abs,
    "invert": operator.invert,
    "len": len,
    "iter": iter,
    "reversed": reversed,
    "bool": bool,
    "int": int,
    "float": float,
    "complex": complex,
    "index": operator.index,
    "trunc": math.trunc,
    "floor": math.floor,
    "ceil": math.ceil,
    "str": str,
    "hash": hash,
}


class ValueLike:
    """Whatever is done to it is done to `self.value`."""

    __slots__ = ()

    @property
    def value(self) -> Any:
        """The payload."""
        raise NotImplementedError

    def __getattr__(self, name: str) -> Any:
        """Look an attribute up in the value: `.shape`, `.T`, `.sum()`, `.at[i]`."""
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self.value, name)

    def __getitem__(self, key: Any) -> Any:
        """Index the value."""
        return self.value[value_of(key)]

    def __contains__(self, item: Any) -> bool:
        """Search the value."""
        return value_of(item) in self.value

    def __round__(self, ndigits: Any = None) -> Any:
        """Round the value."""
        return round(self.value) if ndigits is None else round(self.value, ndigits)

    def __format__(self, format_spec: str) -> str:
        """Format the value."""
        return format(self.value, format_spec)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Give NumPy the value."""
        array = np.asarray(self.value, dtype)
        return array.copy() if copy else array

    def __jax_array__(self) -> jax.Array:
        """Give jnp the value."""
        value = self.value
        try:
            return value if isinstance(value, jax.Array) else jnp.asarray(value)
        except TypeError as error:
            raise ArgumentTypeError(
                explain(
                    "pb.NonDifferentiable",
                    expected="a number or an array as the value, where an array is needed",
                    got=f"a {type(value).__module__}.{type(value).__qualname__}",
                    fix="Use its `.value`.",
                )
            ) from error

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        """Apply a function of NumPy to the value; to a JAX array, the one of jnp."""
        inputs = tuple(map(value_of, inputs))
        if any(isinstance(x, jax.Array) for x in inputs) and method == "__call__" and not kwargs:
            ufunc = getattr(jnp, ufunc.__name__, ufunc)
        kwargs = {name: _unwrapped(x) for name, x in kwargs.items()}
        return (
            getattr(ufunc, method)(*inputs, **kwargs)
            if method != "__call__"
            else ufunc(*inputs, **kwargs)
        )

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Apply a function of NumPy to the value."""
        return func(*_unwrapped(args), **_unwrapped(kwargs))


def value_of(x: Any) -> Any:
    """Take the value out of a `NonDifferentiable`; leave anything else."""
    return x.value if isinstance(x, ValueLike) else x


def _unwrapped(x: Any) -> Any:
    """Take the values out of what NumPy's functions are given."""
    if isinstance(x, list | tuple) and not hasattr(x, "_fields"):
        return type(x)(map(_unwrapped, x))
    if isinstance(x, dict):
        return {key: _unwrapped(item) for key, item in x.items()}
    return value_of(x)


def _add(name: str, method: Callable[..., Any], doc: str) -> None:
    method.__name__ = f"__{name}__"
    method.__qualname__ = f"ValueLike.__{name}__"
    method.__doc__ = doc
    setattr(ValueLike, method.__name__, method)


def _forward(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, other: function(self.value, value_of(other))


def _backward(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, other: function(value_of(other), self.value)


def _only(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self: function(self.value)


for _name, _function in _BINARY.items():
    _add(_name, _forward(_function), f"Apply `{_name}` to the value and another.")
    _add(f"r{_name}", _backward(_function), f"Apply `{_name}` to another and the value.")
for _name in _COMPARISONS:
    _add(_name, _forward(getattr(operator, _name)), "Compare the value with another.")
for _name, _function in _UNARY.items():
    _add(_name, _only(_function), f"Apply `{_function.__name__}` to the value.")
