"""How numbers are written in reports."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .._wording import as_array, count, numbers

_LONGEST_ARRAY = 8


def size(deviation: float) -> str:
    """Write a deviation with two digits: `2.2e-16`, `0.5`, `nan`."""
    return f"{deviation:.2g}"


def brief(value: Any) -> str:
    """Write a value in little room: numbers with four digits, of long arrays the shape."""
    if value is None or isinstance(value, bool | np.bool_ | str):
        return str(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {brief(part)}" for key, part in value.items()) + "}"
    if isinstance(value, tuple | list):
        if len(value) > _LONGEST_ARRAY:
            return f"{count(len(value), 'element')}: ({brief(value[0])}, ...)"
        inside = ", ".join(map(brief, value))
        return f"[{inside}]" if isinstance(value, list) else f"({inside})"
    array = as_array(value)
    if array is None:
        return repr(value)
    if array.size > _LONGEST_ARRAY:
        return f"shape {array.shape}, {brief(array.ravel()[0])} ... {brief(array.ravel()[-1])}"
    if array.ndim:
        return "[" + ", ".join(map(brief, array)) + "]"
    if array.dtype.kind in "biu":
        return str(array[()])
    if array.dtype.kind == "c":
        return f"{array[()]:.4g}"
    return numbers(array)


def as_json(value: Any) -> Any:
    """Write a value as JSON has it; what JSON has nothing for becomes a string.

    Arrays and tuples become lists, complex numbers objects with `real` and `imag`; NaN is
    `"NaN"`, any other object what `repr` says.
    """
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, dict):
        return {str(key): as_json(part) for key, part in value.items()}
    if isinstance(value, tuple | list):
        return [as_json(part) for part in value]
    if isinstance(value, complex):
        return {"real": as_json(value.real), "imag": as_json(value.imag)}
    if not isinstance(value, float):
        array = as_array(value)
        return repr(value) if array is None else as_json(array.tolist())
    if math.isfinite(value):
        return float(value)
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
