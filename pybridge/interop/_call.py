"""Call a Julia function with values that JAX is tracing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from .._errors import ArgumentTypeError, explain
from ..julia._ffi import extents, tree_spec
from ..julia._wire import as_leaf, unholdable
from . import _batching as _batching  # rules are registered where they are defined
from . import _lowering as _lowering
from ._primitives import bind
from ._program import ArrayType, Program

if TYPE_CHECKING:
    from ._from_julia import JuliaFunction

_BFLOAT16 = np.dtype(jnp.bfloat16)


def call_traced(function: JuliaFunction, args: tuple[Any, ...]) -> Any:
    """Apply the call primitive to arguments of which some are tracers."""
    leaves, in_tree = jax.tree_util.tree_flatten(args)
    arrays = [_as_array(leaf, i) for i, leaf in enumerate(leaves)]
    # Julia has no arithmetic in bfloat16: it gets float32, and if that was all the precision
    # that there was, the results go back.
    floats = {x.dtype for x in arrays if jnp.issubdtype(x.dtype, np.floating)}
    narrow = floats == {_BFLOAT16}
    arrays = [x.astype(np.float32) if x.dtype == _BFLOAT16 else x for x in arrays]
    types = tuple(ArrayType(x.shape, np.dtype(x.dtype)) for x in arrays)
    out_tree, values, converts = find_outputs(function, in_tree, types)
    program = Program(function.bridged, "call", in_tree, types, out_tree, values, converts=converts)
    outs = bind(program, arrays)
    if narrow:
        outs = [x.astype(_BFLOAT16) if x.dtype == np.float32 else x for x in outs]
    return jax.tree_util.tree_unflatten(out_tree, outs)


def _as_array(leaf: Any, i: int) -> Any:
    if not isinstance(leaf, Tracer):
        if getattr(leaf, "dtype", None) != _BFLOAT16:
            as_leaf(leaf, f"argument leaf {i}")  # complains in the words of a plain call
        return jnp.asarray(leaf)
    if leaf.dtype != _BFLOAT16:
        as_leaf(np.empty((), _numpy_dtype(leaf, i)), f"argument leaf {i}")
    return leaf


def _numpy_dtype(leaf: Any, i: int) -> np.dtype:
    if jnp.issubdtype(leaf.dtype, jax.dtypes.extended):
        raise ArgumentTypeError(
            explain(
                "from_julia",
                expected="arrays of numbers",
                got=f"{leaf.dtype} for argument leaf {i}",
                fix="Pass the words of a key, jax.random.key_data(key).",
            )
        )
    return np.dtype(leaf.dtype)


def find_outputs(
    function: JuliaFunction, in_tree: Any, types: tuple[ArrayType, ...]
) -> tuple[Any, tuple[ArrayType, ...], bool]:
    """Find the tree and the types of the value; remembered for each signature.

    Returns:
        The tree, the types of its leaves, and whether they were declared.

    Raises:
        ArgumentTypeError: JAX cannot hold the value, or `out` is no tree of shapes.
    """
    if function.out is not None:
        return _declared(function, in_tree, types)
    known = function.handle.signatures
    key = (in_tree, types, function.layout)
    if key not in known:
        sizes = ";".join(extents(t.shape, function.layout) for t in types)
        structure, found = function.handle.outputs(
            tree_spec(in_tree, types), sizes, function.layout
        )
        values, start = [], 0
        for dtype, rank in structure.kinds:
            shape = tuple(found[start : start + rank])
            start += rank
            shape = shape if function.layout == "logical" else shape[::-1]
            values.append(ArrayType(shape, dtype))
        known[key] = (structure.treedef, tuple(values), False)
    tree, values, declared = known[key]
    for value in values:
        if jax.dtypes.canonicalize_dtype(value.dtype) != value.dtype:
            raise unholdable(value.dtype)
    return tree, values, declared


def _declared(
    function: JuliaFunction, in_tree: Any, types: tuple[ArrayType, ...]
) -> tuple[Any, tuple[ArrayType, ...], bool]:
    out = function.out
    if callable(out):
        structs = [jax.ShapeDtypeStruct(t.shape, t.dtype) for t in types]
        out = out(*jax.tree_util.tree_unflatten(in_tree, structs))
    leaves, tree = jax.tree_util.tree_flatten(out)
    for leaf in leaves:
        if not (hasattr(leaf, "shape") and hasattr(leaf, "dtype")):
            raise ArgumentTypeError(
                explain(
                    "from_julia",
                    expected="out= to be a tree of jax.ShapeDtypeStruct, or a function from the "
                    "arguments' shapes to one",
                    got=f"a {type(leaf).__name__} in it",
                    fix="For a function that keeps the shape of x: "
                    "out=lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype).",
                )
            )
    return tree, tuple(ArrayType(tuple(s.shape), np.dtype(s.dtype)) for s in leaves), True
