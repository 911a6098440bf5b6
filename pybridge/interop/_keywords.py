"""Keyword arguments of Julia functions: static values, written as Julia source."""

from __future__ import annotations

import json
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

from .._errors import ArgumentTypeError, ArgumentValueError, explain


def keyword_source(keywords: dict[str, Any]) -> str:
    """Write keyword arguments as the source of a NamedTuple; equal texts are equal arguments.

    Args:
        keywords: numbers, strings, None, `slice(None)` (Julia's `:`), and tuples of them. NumPy's
            numbers keep their dtypes; Python's are Int64, Float64, Bool and ComplexF64.

    Raises:
        ArgumentTypeError: a value is traced, an array, or nothing of the above.
        ArgumentValueError: an integer has more than 64 bits.
    """
    fields = (f'var"{name}"={_literal(value, name)}' for name, value in keywords.items())
    return "(; " + ", ".join(fields) + ")"


def _literal(value: Any, name: str) -> str:
    if isinstance(value, np.generic) and value.dtype.kind in "biufc" and value.dtype.itemsize <= 16:
        return _numpy_literal(value, name)
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        if not -(2**63) <= value < 2**63:
            raise ArgumentValueError(
                explain(
                    "from_julia",
                    expected=f"an integer of 64 bits at most for the keyword {name}",
                    got=str(value),
                    fix="Pass it as a float, or write it in the Julia source.",
                )
            )
        # Julia's parser reads this one as the negative of an Int128.
        return "typemin(Int64)" if value == -(2**63) else str(int(value))
    if isinstance(value, float):
        return _float_literal(value)
    if isinstance(value, complex):
        return f"complex({_float_literal(value.real)}, {_float_literal(value.imag)})"
    if isinstance(value, str):
        return json.dumps(str(value), ensure_ascii=False).replace("$", "\\$")
    if isinstance(value, tuple):
        return "(" + "".join(_literal(child, name) + "," for child in value) + ")"
    if isinstance(value, slice) and value == slice(None):
        return ":"
    raise _not_static(value, name)


def _float_literal(x: float) -> str:
    if np.isnan(x):
        return "NaN"
    return repr(float(x)) if np.isfinite(x) else "Inf" if x > 0 else "-Inf"


def _numpy_literal(value: np.generic, name: str) -> str:
    kinds = {"i": "Int", "u": "UInt", "f": "Float", "c": "ComplexF"}
    kind = value.dtype.kind
    if kind == "b":
        return _literal(bool(value), name)
    bits = 4 * value.dtype.itemsize if kind == "c" else 8 * value.dtype.itemsize
    if bits > 64:
        raise _not_static(value, name)
    # A UInt64 has no room in Python's text for an Int64, but its digits are a UInt64 all the same.
    text = str(value.item()) if kind in "iu" else _literal(value.item(), name)
    return f"{kinds[kind]}{bits}({text})"


def _not_static(value: Any, name: str) -> ArgumentTypeError:
    if isinstance(value, Tracer):
        got, fix = (
            f"a traced value, {value.aval}, for {name}",  # type: ignore[attr-defined]
            f'Under jax.jit name it static, jax.jit(f, static_argnames="{name}"), or bind it '
            f"first, functools.partial(f, {name}=...), under jax.vmap likewise. What is traced or "
            "differentiated is a positional argument: from_julia"
            f'("(x, {name}) -> f(x; {name})").',
        )
    elif isinstance(value, jax.Array | np.ndarray):
        got, fix = (
            f"an array of shape {value.shape} for {name}",
            "Pass arrays by position: "
            f'from_julia("(x, {name}) -> f(x; {name})"). A number out of one is x.item().',
        )
    elif isinstance(value, list):
        got, fix = f"a list for {name}, which is not hashable", "Pass a tuple."
    else:
        got, fix = (
            f"a {type(value).__name__} for {name}",
            "Write the value in the Julia source, or pass what it depends on by position.",
        )
    return ArgumentTypeError(
        explain(
            "from_julia",
            expected="static values for keyword arguments: numbers, strings, None, slice(None) "
            "for Julia's :, and tuples of them",
            got=got,
            fix=fix,
        )
    )
