"""Call a Julia function with values that JAX is tracing."""

from __future__ import annotations

from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from .._errors import ArgumentTypeError, explain
from ..julia import JuliaHandle, as_leaf, public, unholdable
from . import _batching as _batching  # rules are registered where they are defined
from . import _primitives as _primitives
from . import _xla_lowering as _xla_lowering
from ._declared_outputs import BFLOAT16, check_declared
from ._executable import extents, tree_spec
from ._julia_callee import BridgedFunction
from ._julia_program import ArrayType, Program, bind


class Function(Protocol):
    """What is called here; see `JuliaFunction`."""

    handle: JuliaHandle
    bridged: BridgedFunction
    out: Any
    declared: dict[Any, Any]
    layout: str


def call_traced(function: Function, args: tuple[Any, ...]) -> Any:
    """Apply the call primitive to arguments of which some are tracers, or on a GPU."""
    leaves, in_tree = jax.tree_util.tree_flatten(args)
    arrays = [_as_array(leaf, i) for i, leaf in enumerate(leaves)]
    # Julia has no arithmetic in bfloat16: it gets float32, and if that was all the precision
    # that there was, the results go back.
    floats = {x.dtype for x in arrays if jnp.issubdtype(x.dtype, np.floating)}
    narrow = floats == {BFLOAT16}
    arrays = [x.astype(np.float32) if x.dtype == BFLOAT16 else x for x in arrays]
    types = tuple(ArrayType(x.shape, np.dtype(x.dtype)) for x in arrays)
    out_tree, values, declared = find_outputs(function, in_tree, types)
    for value in values:
        if jax.dtypes.canonicalize_dtype(value.dtype) != value.dtype:
            raise unholdable(value.dtype)
    program = _program(function, in_tree, types, out_tree, values, declared)
    outs = bind(program, arrays)
    if declared is not None:
        outs = [
            x.astype(BFLOAT16) if dtype == BFLOAT16 else x
            for x, dtype in zip(outs, declared, strict=True)
        ]
    elif narrow:
        outs = [x.astype(BFLOAT16) if x.dtype == np.float32 else x for x in outs]
    return jax.tree_util.tree_unflatten(out_tree, outs)


def call_declared(function: Function, args: tuple[Any, ...]) -> Any:
    """Call a function with a declared value on arrays of the host; check and convert as `jit` does.

    Raises:
        ArgumentTypeError: the value is not what was declared; or there are JAX arrays among the
            arguments, and JAX cannot hold it.
    """
    leaves, in_tree = jax.tree_util.tree_flatten(args)
    arrays = [as_leaf(leaf, i) for i, leaf in enumerate(leaves)]
    wants_jax = any(isinstance(leaf, jax.Array) for leaf in leaves)
    if wants_jax:  # a Python number beside JAX arrays has the dtype that JAX gives it
        arrays = [x.astype(jax.dtypes.canonicalize_dtype(x.dtype), copy=False) for x in arrays]
    types = tuple(ArrayType(x.shape, x.dtype) for x in arrays)
    found = function.declared.get((in_tree, types))
    if found is None:
        out_tree, values, declared = _declared(function, in_tree, types)
        program = _program(function, in_tree, types, out_tree, values, declared)
        found = (function.bridged.executable(program), out_tree, declared)
        function.declared[in_tree, types] = found
    executable, out_tree, dtypes = found
    outs = [
        public(x.astype(dtype, copy=False), wants_jax)
        for x, dtype in zip(executable.call(arrays), dtypes, strict=True)
    ]
    return jax.tree_util.tree_unflatten(out_tree, outs)


def _program(
    function: Function,
    in_tree: Any,
    types: tuple[ArrayType, ...],
    out_tree: Any,
    values: tuple[ArrayType, ...],
    declared: Any,
) -> Program:
    converts = declared is not None
    return Program(function.bridged, "call", in_tree, types, out_tree, values, converts=converts)


def _as_array(leaf: Any, i: int) -> Any:
    # A JAX array may be traced, or in part in another process: its dtype is all that is asked.
    is_jax = isinstance(leaf, jax.Array | Tracer)
    if getattr(leaf, "dtype", None) != BFLOAT16:
        like = np.empty((), _numpy_dtype(leaf, i)) if is_jax else leaf
        as_leaf(like, i)  # complains in the words of a plain call
    return leaf if is_jax else jnp.asarray(leaf)


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
    function: Function, in_tree: Any, types: tuple[ArrayType, ...]
) -> tuple[Any, tuple[ArrayType, ...], tuple[np.dtype, ...] | None]:
    """Find the tree and the types of the value; remembered for each signature.

    Returns:
        The tree, the types of its leaves as Julia gives them, and the dtypes that were declared,
        if any were.

    Raises:
        ArgumentTypeError: `out` is no tree of shapes.
        ArgumentValueError: a declared shape is none.
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
        known[key] = (structure.treedef, tuple(values))
    return *known[key], None


def _declared(
    function: Function, in_tree: Any, types: tuple[ArrayType, ...]
) -> tuple[Any, tuple[ArrayType, ...], tuple[np.dtype, ...]]:
    out = function.out
    if callable(out):
        structs = [jax.ShapeDtypeStruct(t.shape, t.dtype) for t in types]
        out = out(*jax.tree_util.tree_unflatten(in_tree, structs))
        check_declared(out)
    leaves, tree = jax.tree_util.tree_flatten(out)
    dtypes = tuple(np.dtype(s.dtype) for s in leaves)
    given = [np.dtype(np.float32) if dtype == BFLOAT16 else dtype for dtype in dtypes]
    values = tuple(ArrayType(tuple(s.shape), dtype) for s, dtype in zip(leaves, given, strict=True))
    return tree, values, dtypes
