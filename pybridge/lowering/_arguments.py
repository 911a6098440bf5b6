"""The arguments of a function that is lowered: their dtypes as JAX traces them, their names."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.tree_util import DictKey, FlattenedIndexKey, GetAttrKey, SequenceKey

from .._errors import ArgumentTypeError, ArgumentValueError, explain
from ._emit import is_key


def canonical_leaves(leaves: Sequence[Any]) -> list[Any]:
    """Give leaves the dtypes that JAX's tracing gives them.

    Raises:
        ArgumentTypeError: a leaf is no array or number, or a float64 array while x64 is off.
        ArgumentValueError: an integer is too large.
    """
    return [_canonical(leaf, i) for i, leaf in enumerate(leaves)]


def _canonical(leaf: Any, i: int) -> Any:
    if isinstance(leaf, jax.Array):
        return jax.random.key_data(leaf) if is_key(leaf.dtype) else leaf
    if type(leaf) in (bool, int, float, complex):
        return _canonical_number(leaf, i)
    if not isinstance(leaf, np.ndarray | np.generic):
        if hasattr(leaf, "__array__"):
            leaf = np.asarray(leaf)
        else:
            raise ArgumentTypeError(
                explain(
                    "pb.lower",
                    expected="arrays and numbers, in tuples, lists and dicts",
                    got=f"a {type(leaf).__module__}.{type(leaf).__qualname__} as argument leaf {i}",
                    fix="Close over what is no array: lambda x: f(x, option).",
                )
            )
    narrow = jax.dtypes.canonicalize_dtype(leaf.dtype)
    if narrow == leaf.dtype:
        return leaf
    if np.issubdtype(leaf.dtype, np.inexact):
        raise ArgumentTypeError(
            explain(
                "pb.lower",
                expected=f"{narrow} for argument leaf {i}, since x64 is off",
                got=f"{leaf.dtype}",
                fix='Turn on jax.config.update("jax_enable_x64", True), or say that precision '
                f"may be lost: x.astype(np.{narrow}).",
            )
        )
    return leaf.astype(narrow)


def _canonical_number(number: Any, i: int) -> Any:
    dtype = jax.dtypes.canonicalize_dtype(np.result_type(type(number)))
    try:
        return np.asarray(number, dtype)[()]
    except OverflowError:
        # Turning on x64 does not help where int64 is too small as well.
        wider = -(2**63) <= number < 2**63
        off = 'Turn on jax.config.update("jax_enable_x64", True), or pass'
        raise ArgumentValueError(
            explain(
                "pb.lower",
                expected=f"an integer that fits {dtype} for argument leaf {i}"
                + (", since x64 is off" if wider else ""),
                got=f"{number}",
                fix=f"{off if wider else 'Pass'} a float.",
            )
        ) from None


def key_impl(leaf: Any) -> Any:
    """The generator that a typed key belongs to; None for all else."""
    return jax.random.key_impl(leaf) if is_key(getattr(leaf, "dtype", None)) else None


def aval_of(leaf: Any) -> tuple[Any, Any]:
    return leaf.shape, leaf.dtype


def argument_names(f: Callable[..., Any], args: tuple[Any, ...]) -> tuple[str, ...]:
    """Name the leaves after the parameters and the paths in them: `params_w`."""
    try:
        parameters = list(inspect.signature(f).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    names: list[str] = []
    for i in range(len(args)):
        if i < len(parameters) and parameters[i].kind in (
            inspect.Parameter.POSITIONAL_ONLY,
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
        ):
            names.append(parameters[i].name)
        else:
            names.append(f"x{i + 1}")
    leaves = jax.tree_util.tree_leaves_with_path(args)
    return tuple(
        "_".join([names[path[0].idx], *map(_key_text, path[1:])])  # type: ignore[union-attr]
        for path, _ in leaves
    )


def _key_text(key: Any) -> str:
    if isinstance(key, DictKey):
        return str(key.key)
    if isinstance(key, GetAttrKey):
        return key.name
    if isinstance(key, SequenceKey):
        return str(key.idx + 1)
    return str(key.key) if isinstance(key, FlattenedIndexKey) else str(key)
