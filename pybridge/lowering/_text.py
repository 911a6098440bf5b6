"""How numbers, types, axes and names are written in Julia."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import numpy as np

JULIA_TYPES = {
    "bool": "Bool",
    "int8": "Int8",
    "int16": "Int16",
    "int32": "Int32",
    "int64": "Int64",
    "uint8": "UInt8",
    "uint16": "UInt16",
    "uint32": "UInt32",
    "uint64": "UInt64",
    "float16": "Float16",
    "float32": "Float32",
    "float64": "Float64",
    "complex64": "ComplexF32",
    "complex128": "ComplexF64",
}

_SHORT = {"float": "f", "int": "i", "uint": "u", "complex": "c"}

# What a Julia variable cannot be called, or what a lowered program calls otherwise.
_RESERVED = frozenset(
    """baremodule begin break catch const continue do else elseif end export false finally for
    function global if import in isa let local macro module mutable new outer primitive quote
    return struct true try type using where while abstract as lax constants Val Int8 Int16 Int32
    Int64 UInt8 UInt16 UInt32 UInt64 Float16 Float32 Float64 ComplexF32 ComplexF64 Bool Inf NaN
    Inf32 NaN32 Inf16 NaN16 im pi nothing PyBridge NNlib ChainRulesCore identity""".split()
)


def julia_type(dtype: Any) -> str:
    """Name the Julia type of a dtype."""
    return JULIA_TYPES[str(dtype)]


def literal(value: Any, dtype: Any) -> str:
    """Write a number with its exact type.

    Args:
        value: a scalar.
        dtype: its dtype.

    Returns:
        Julia source, for example `2.0f0` for a float32 and `Int32(2)` for an int32.
    """
    name = str(dtype)
    if name == "bool":
        return "true" if value else "false"
    if name == "int64":
        return str(int(value)) if int(value) != -(2**63) else "typemin(Int64)"
    if name.startswith("int"):
        return f"{julia_type(dtype)}({int(value)})"
    if name.startswith("uint"):
        return f"0x{int(value):0{2 * np.dtype(dtype).itemsize}x}"
    if name.startswith("complex"):
        part = np.float32 if name == "complex64" else np.float64
        parts = complex(value)
        return (
            f"{julia_type(dtype)}({literal(parts.real, np.dtype(part))}, "
            f"{literal(parts.imag, np.dtype(part))})"
        )
    return _real(np.asarray(value, dtype)[()], name)


def _real(value: Any, name: str) -> str:
    suffix = {"float16": "16", "float32": "32", "float64": ""}[name]
    if np.isnan(value):
        return f"NaN{suffix}"
    if np.isinf(value):
        return f"{'-' if value < 0 else ''}Inf{suffix}"
    if name == "float64":
        return repr(float(value))
    if name == "float16":
        return f"Float16({float(value)!r})"
    mantissa, _, exponent = str(value).partition("e")
    mantissa = mantissa if "." in mantissa else f"{mantissa}.0"
    return f"{mantissa}f{int(exponent) if exponent else 0}"


def tuple_text(items: Iterable[Any]) -> str:
    """Write a tuple of integers or of expressions."""
    texts = [str(item) for item in items]
    return f"({texts[0]},)" if len(texts) == 1 else f"({', '.join(texts)})"


def string(text: str) -> str:
    """Write a string."""
    return json.dumps(text, ensure_ascii=False).replace("$", "\\$")


def val(item: Any) -> str:
    """Write a value as a type: what a lowered program knows when it is compiled."""
    return f"Val({_static(item)})"


def _static(item: Any) -> str:
    if isinstance(item, dict):
        fields = ", ".join(f"{key}={_static(value)}" for key, value in item.items())
        return f"(; {fields})"
    if isinstance(item, list | tuple):
        return tuple_text(_static(part) for part in item)
    if isinstance(item, bool | np.bool_):
        return "true" if item else "false"
    return str(item)


def axis(dim: int, ndim: int) -> int:
    """Turn an axis of JAX's, from 0, into Julia's of the reversed array, from 1."""
    return ndim - int(dim)


def axes(dims: Iterable[int], ndim: int) -> tuple[int, ...]:
    """Turn axes of JAX's into Julia's, in order."""
    return tuple(sorted(axis(d, ndim) for d in dims))


def order(dims: Sequence[int]) -> tuple[int, ...]:
    """Turn a permutation of JAX's axes into Julia's."""
    n = len(dims)
    return tuple(axis(d, n) for d in reversed(dims))


def size(shape: Iterable[int]) -> tuple[int, ...]:
    """Turn a shape into Julia's size."""
    return tuple(int(n) for n in reversed(tuple(shape)))


def short(aval: Any) -> str:
    """Write a type as JAX prints it: `f32[3,4]`."""
    dtype = str(aval.dtype)
    match = re.fullmatch(r"([a-z]+)(\d+)", dtype)
    kind = f"{_SHORT.get(match[1], match[1])}{match[2]}" if match else dtype
    return f"{kind}[{','.join(map(str, aval.shape))}]"


class Names:
    """Names that are free: each is given once.

    Args:
        taken: names that are not free.
    """

    def __init__(self, taken: Iterable[str] = ()):
        """Start with the names that are taken."""
        self._taken = set(taken)

    def fresh(self, wanted: str, default: str = "x", avoid: Collection[str] = ()) -> str:
        """Give the wanted name, or one like it that is not in `avoid` either."""
        name = re.sub(r"\W", "_", wanted, flags=re.ASCII).strip("_") or default
        if name[0].isdigit():
            name = f"{default}{name}"
        base, n = name, 1
        while name in self._taken or name in _RESERVED or name in avoid:
            n += 1
            name = f"{base}{n}" if not base[-1].isdigit() else f"{base}_{n}"
        self._taken.add(name)
        return name


def letters(number: int) -> str:
    """Name a variable as JAX prints it: a, b, ..., z, ba, bb, ..."""
    digits = ""
    while True:
        number, digit = divmod(number, 26)
        digits = chr(ord("a") + digit) + digits
        if number == 0:
            return digits
