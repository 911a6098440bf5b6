"""How values cross: trees of arrays, described by the text that `wire.jl` explains."""

from __future__ import annotations

import ctypes
import re
from array import array
from collections import OrderedDict, namedtuple
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import jax
import numpy as np

from .._errors import ArgumentTypeError, explain

# The dtypes that cross, by NumPy's codes; `DTYPES` in wire.jl is the same list.
DTYPES = (
    "b1",
    "i1",
    "i2",
    "i4",
    "i8",
    "u1",
    "u2",
    "u4",
    "u8",
    "f2",
    "f4",
    "f8",
    "c8",
    "c16",
)
_CODES = {np.dtype(code): code for code in DTYPES}


def code(dtype: np.dtype) -> str:
    """Name a dtype that crosses."""
    return _CODES[dtype]


def are_arrays(values: Sequence[Any]) -> bool:
    """Tell whether all values are plain NumPy arrays, in which nothing has to be looked for.

    Most of what a caller asks of other values takes longer than a small gradient.
    """
    return {*map(type, values)} == {np.ndarray}


def as_leaf(x: Any, path: str | int) -> np.ndarray:
    """Turn a number or array into memory that Julia can read.

    Args:
        x: a Python, NumPy or JAX number or array, or anything with `__array__`.
        path: what the leaf is, for the error message, or its number among the arguments' leaves.

    Returns:
        A C-contiguous, aligned array in native byte order; a view where `x` is one already.

    Raises:
        ArgumentTypeError: the value is no array, or Julia has no equal for its dtype.
    """
    if not (hasattr(x, "__array__") or isinstance(x, bool | int | float | complex)):
        raise _no_array(x, path)
    try:
        leaf = np.asarray(x)
    except TypeError:  # a key of jax.random
        raise _no_array(x, path) from None
    if leaf.dtype not in _CODES:
        leaf = leaf.astype(leaf.dtype.newbyteorder("="), copy=False)
        if leaf.dtype not in _CODES:
            raise _no_array(x, path)
    flags = leaf.flags
    return leaf if flags.c_contiguous and flags.aligned else np.require(leaf, None, ("C", "A"))


def _no_array(x: Any, path: str | int) -> ArgumentTypeError:
    path = f"argument leaf {path}" if isinstance(path, int) else path
    dtype = getattr(x, "dtype", None)
    got = f"{type(x).__name__} of dtype {dtype}" if dtype is not None else type(x).__name__
    return ArgumentTypeError(
        explain(
            "from_julia",
            expected="numbers and arrays of bool, int8 to int64, uint8 to uint64, float16 to "
            "float64, complex64 or complex128",
            got=f"{got} for {path}",
            fix="Convert it first, for example with .astype(jnp.float32).",
        )
    )


# A compiled program makes a JAX scalar in a fifth of the time that `jnp.asarray` takes. For arrays
# it would be compiled once for each shape.
_scalar = jax.jit(jax.lax.optimization_barrier)


def jax_array(leaf: np.ndarray) -> jax.Array:
    """Make a JAX array of a result."""
    return _scalar(leaf) if leaf.ndim == 0 else jax.numpy.asarray(leaf)


def unholdable(dtype: np.dtype) -> ArgumentTypeError:
    """Say that Julia returned 64 bits, the caller uses JAX arrays, and x64 is off."""
    return ArgumentTypeError(
        explain(
            "from_julia",
            expected="results that JAX can hold with x64 off (32 bits at most)",
            got=f"{dtype} from Julia",
            fix="Write the Julia function so that it keeps Float32 (1f0 and not 1.0), enable "
            'x64 with jax.config.update("jax_enable_x64", True), declare the dtype to convert to '
            "with out=, or pass NumPy arrays.",
        )
    )


@lru_cache(maxsize=4096)
def spec(treedef: Any, kinds: tuple[tuple[np.dtype, int], ...]) -> str:
    """Describe a tree whose leaves have these dtypes and ranks.

    Args:
        treedef: JAX's tree structure: tuples, lists, named tuples, dicts, None, and nodes that are
            registered with JAX.
        kinds: dtype and rank of each leaf.

    Returns:
        The text that `wire.jl` parses.

    Raises:
        ArgumentTypeError: a key of a dict is no name.
    """
    leaves = [f"{_CODES[dtype]}:{rank}" for dtype, rank in kinds]
    return _spec(jax.tree_util.tree_unflatten(treedef, leaves))


def _spec(tree: Any) -> str:
    if isinstance(tree, str):
        return tree
    if tree is None:
        return "n"
    if isinstance(tree, dict):
        # JAX flattens dictionaries in the order of their sorted keys, ordered ones in their own.
        return _fields(
            {k: tree[k] for k in (tree if isinstance(tree, OrderedDict) else sorted(tree))}
        )
    names = getattr(tree, "_julia_names", None)
    if names is not None:  # Julia returned it
        return _text(dict(zip(names, tree, strict=True)))
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return _fields(tree._asdict())  # type: ignore[attr-defined]
    if isinstance(tree, tuple | list):
        return "(" + ",".join(_spec(child) for child in tree) + ")"
    return _registered(tree)


def _registered(tree: Any) -> str:
    # Dataclasses, Equinox modules and whatever else is registered with JAX: its children, by
    # their names if all of them have one.
    flat, _ = jax.tree_util.tree_flatten_with_path(tree, is_leaf=lambda node: node is not tree)
    keys = [path[0] for path, _ in flat]
    children = [child for _, child in flat]
    if keys and all(isinstance(key, jax.tree_util.GetAttrKey) for key in keys):
        return _fields({key.name: c for key, c in zip(keys, children, strict=True)})
    if keys and all(isinstance(key, jax.tree_util.DictKey) for key in keys):
        return _fields({key.key: c for key, c in zip(keys, children, strict=True)})
    return "(" + ",".join(map(_spec, children)) + ")"


def _fields(fields: dict[str, Any]) -> str:
    for key in fields:
        if not (isinstance(key, str) and key.isidentifier()):
            raise ArgumentTypeError(
                explain(
                    "from_julia",
                    expected="dict keys that are names, since a dict becomes a NamedTuple",
                    got=repr(key),
                    fix="Rename the key.",
                )
            )
    return _text(fields)


def _text(fields: dict[str, Any]) -> str:
    return "{" + ",".join(f"{key}={_spec(child)}" for key, child in fields.items()) + "}"


def addresses(leaves: Sequence[np.ndarray]) -> array:
    """List address and shape of each leaf, as `decode` in wire.jl reads them."""
    out = []
    for leaf in leaves:
        out += (address(leaf), *leaf.shape)
    return array("q", out)


_BYTES = ctypes.c_char * 0


def address(leaf: np.ndarray) -> int:
    """Tell where the memory of a C-contiguous array is."""
    if leaf.flags.writeable:  # a third of the time
        return ctypes.addressof(_BYTES.from_buffer(leaf.data))
    return leaf.__array_interface__["data"][0]


class Structure:
    """The structure of a Julia result, parsed from its spec.

    Attributes:
        text: the spec.
        kinds: dtype and rank of each leaf.
        treedef: the structure as JAX writes it.
    """

    def __init__(self, text: str):
        """Parse a spec."""
        self.text = text
        self.kinds: list[tuple[np.dtype, int]] = []
        tree, _ = self._parse(text, 0)
        self.treedef: Any = jax.tree_util.tree_structure(tree)

    def shapes(self, extents: Sequence[int]) -> list[tuple[tuple[int, ...], np.dtype]]:
        """List shape and dtype of the leaves, given all their extents one after the other."""
        shapes, start = [], 0
        for dtype, rank in self.kinds:
            shapes.append((tuple(extents[start : start + rank]), dtype))
            start += rank
        return shapes

    def build(self, leaves: Sequence[Any]) -> Any:
        """Put leaves in their places: tuples, named tuples and None."""
        return jax.tree_util.tree_unflatten(self.treedef, leaves)

    def _parse(self, text: str, i: int) -> tuple[Any, int]:
        if text[i] == "n":
            return None, i + 1
        if text[i] in "({":
            close = ")" if text[i] == "(" else "}"
            names, children, i = [], [], i + 1
            while text[i] != close:
                if close == "}":
                    stop = text.index("=", i)
                    names.append(text[i:stop])
                    i = stop + 1
                child, i = self._parse(text, i)
                children.append(child)
                i += text[i] == ","
            tree = _named(tuple(names))(*children) if close == "}" else tuple(children)
            return tree, i + 1
        match = re.compile(r"(\w+):(\d+)").match(text, i)
        assert match is not None, f"Julia sent a malformed spec: {text}"
        self.kinds.append((np.dtype(match[1]), int(match[2])))
        return len(self.kinds) - 1, match.end()


@lru_cache(maxsize=1024)
def _named(names: tuple[str, ...]) -> type:
    # Equal names have to give the same class: JAX compares tree structures by it. Names that
    # Python cannot spell, such as x-bar's combining letter, get a number (rename=True); where
    # the tuple goes to Julia, it has the names that it came with.
    named: Any = namedtuple("NamedTuple", names, rename=True)
    named._julia_names = names
    return named
