"""The transforms on Julia functions: what `transforms.py` does with a Julia back end."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

from .. import _backends
from .._errors import (
    ArgumentTypeError,
    ArgumentValueError,
    JuliaError,
    UnsupportedModeError,
    explain,
)
from ..finite import double_precision
from ..julia import PullbackHandle, Result, are_arrays, as_leaf, public
from ..primitives import holds_nondifferentiable, plain
from ._julia_function import JuliaFunction

_Numbers = tuple[int, ...]


def value_and_grad(
    f: JuliaFunction, args: tuple[Any, ...], numbers: _Numbers, backend: str, has_aux: bool
) -> tuple[Any, tuple[Any, ...]]:
    """Value (with `has_aux`, value and aux) and one gradient for each argument in `numbers`."""
    check_inexact(args, numbers, "grad")
    arrays = are_arrays(args)
    if not arrays and _is_for_jax(args):
        return _by_jax(jax.value_and_grad(f.with_ad(backend), numbers, has_aux), args)
    operation = "value_aux_and_grad" if has_aux else "value_and_grad"
    value, gradients = _run(f, operation, args, backend, numbers).tree()
    if arrays:
        return value, tuple(gradients)
    return value, tuple(map(_like, [args[n] for n in numbers], gradients))


def jvp(
    f: JuliaFunction, primals: tuple[Any, ...], tangents: tuple[Any, ...], backend: str
) -> tuple[Any, Any]:
    """Value and tangent of the value."""
    if _is_for_jax((primals, tangents)):
        _check_native(backend, "forward")
        return _by_jax(functools.partial(jax.jvp, f.with_ad(backend)), (primals, tangents))
    directions = tangents_like(primals, tangents)
    return _run(f, "pushforward", (primals, directions), backend, ()).tree()


def vjp(
    f: JuliaFunction, primals: tuple[Any, ...], backend: str
) -> tuple[Any, Callable[[Any], tuple[Any, ...]]]:
    """Value, and the function that pulls a cotangent of it back to all arguments."""
    if _is_for_jax(primals):
        _check_native(backend, "reverse")
        return _vjp_by_jax(f.with_ad(backend), primals)
    numbers = tuple(range(len(primals)))
    result = _run(f, "pullback", primals, backend, numbers)
    number, value = result.raw()
    pullback = PullbackHandle(f.handle, int(number), f.layout)
    value_tree = jax.tree_util.tree_structure(value)

    def pull(cotangent: Any) -> tuple[Any, ...]:
        given = jax.tree_util.tree_structure(cotangent)
        if given != value_tree:
            raise ArgumentTypeError(
                explain(
                    "the function that pb.vjp returns",
                    expected=f"a cotangent of the value's structure {value_tree}",
                    got=f"{given}",
                    fix="Pass a tree like the value.",
                )
            )
        leaves = [
            _cast(ct, y, "the cotangent")
            for ct, y in zip(
                jax.tree_util.tree_leaves(cotangent),
                jax.tree_util.tree_leaves(value),
                strict=True,
            )
        ]
        cotangents = pullback.pull(jax.tree_util.tree_unflatten(value_tree, leaves)).raw()
        return tuple(
            _like(x, ct, wants_jax=result.wants_jax)
            for x, ct in zip(primals, cotangents, strict=True)
        )

    # The number of the pullback is no result: it has 64 bits whatever JAX can hold.
    return jax.tree_util.tree_map(lambda y: public(y, result.wants_jax), value), pull


def jacobian(
    f: JuliaFunction, args: tuple[Any, ...], numbers: _Numbers, backend: str, single: bool
) -> Any:
    """The value's tree of the arguments' trees; a tuple of those unless `single`."""
    check_inexact(args, numbers, "jacobian")
    argnums = numbers[0] if single else numbers
    if _is_for_jax(args):
        forward = _backends.row(backend).mode == "forward"
        transform = jax.jacfwd if forward else jax.jacrev
        return _by_jax(transform(f.with_ad(backend), argnums), args)
    result = _run(f, "jacobian", args, backend, numbers)
    value, matrix = result.raw()
    if f.layout == "reversed":
        matrix = matrix.T  # it crossed like every other array
    outputs, out_tree = jax.tree_util.tree_flatten(value)
    blocks, start = [], 0
    for y in outputs:
        rows = matrix[start : start + y.size]
        start += y.size

        def finish(block: np.ndarray, x: Any, y: Any = y) -> Any:
            return _block(block, y, x, f.layout, result.wants_jax)

        blocks.append(_split(rows, args, numbers, single, finish))
    return jax.tree_util.tree_unflatten(out_tree, blocks)


def hessian(
    f: JuliaFunction, args: tuple[Any, ...], numbers: _Numbers, backend: str, single: bool
) -> Any:
    """The arguments' trees of the arguments' trees; tuples of those unless `single`."""
    check_inexact(args, numbers, "hessian")
    if _is_for_jax(args):
        _check_native(backend, "second")
        argnums = numbers[0] if single else numbers
        return _by_jax(jax.hessian(f.with_ad(backend), argnums), args)
    result = _run(f, "hessian", args, backend, numbers)

    def columns(rows: np.ndarray, x: Any) -> Any:
        return _split(
            rows,
            args,
            numbers,
            single,
            lambda block, z: _block(block, x, z, f.layout, result.wants_jax),
        )

    # The columns of the transpose are the rows, one leaf's after the other's.
    return _split(result.raw().T, args, numbers, single, lambda block, x: columns(block.T, x))


# What a system may write for a gradient that is zero; by the numbers in boundary.jl.
REPRESENTATIONS = ("", "nothing", "NoTangent", "ZeroTangent", "Fill")


def representations(
    f: JuliaFunction, args: tuple[Any, ...], numbers: _Numbers, backend: str
) -> list[str]:
    """Tell how a reverse-mode system writes each gradient of a number.

    Returns:
        For each argument in `numbers` an element of `REPRESENTATIONS`, empty for an ordinary
        array or number; an empty list where the value is no real number.
    """
    found = _run(f, "representations", args, backend, numbers).tree()
    return [REPRESENTATIONS[int(kind)] for kind in np.ravel(found)]


def _run(
    f: JuliaFunction, operation: str, args: tuple[Any, ...], backend: str, numbers: _Numbers
) -> Result:
    try:
        return f.handle.run(operation, args, backend=backend, argnums=numbers, layout=f.layout)
    except JuliaError as error:
        error.add_note(f"(thrown while {backend} differentiated {f!r})")
        raise


# What the Julia systems refuse at run time is refused here for calls that JAX traces.
_MODES = {"forward": "forward mode", "reverse": "reverse mode", "second": "second derivatives"}


def _check_native(backend: str, mode: str) -> None:
    able = [name for name in _backends.JULIA_NAMES if mode in _backends.row(name).modes]
    if backend not in able:
        raise UnsupportedModeError(
            explain(
                f"backend={backend!r}",
                expected=f"a system that has {_MODES[mode]} of its own",
                got=_backends.row(backend).package,
                fix=f"Use {' or '.join(map(repr, able))}, or differentiate the function from "
                "pb.from_julia with JAX's own transforms, which combine two systems.",
            )
        )


def is_traced(tree: Any) -> bool:
    """Tell whether JAX is tracing any leaf."""
    return any(isinstance(leaf, Tracer) for leaf in jax.tree_util.tree_leaves(tree))


def _is_for_jax(tree: Any) -> bool:
    """Tell whether JAX has to take the derivative, leaf by leaf, and ask Julia for each.

    Julia's systems differentiate whole arguments. In one with a `NonDifferentiable` some leaves
    must not be asked for.
    """
    return holds_nondifferentiable(tree) or is_traced(tree)


def _by_jax(transformed: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """Let JAX transform, and return what Julia would: NumPy gives NumPy, in its precision."""
    if any(isinstance(leaf, jax.Array) for leaf in jax.tree_util.tree_leaves(plain(args))):
        return transformed(*args)
    with double_precision():
        return jax.tree_util.tree_map(_as_numpy, transformed(*args))


def _vjp_by_jax(
    f: JuliaFunction, primals: tuple[Any, ...]
) -> tuple[Any, Callable[[Any], tuple[Any, ...]]]:
    if any(isinstance(leaf, jax.Array) for leaf in jax.tree_util.tree_leaves(plain(primals))):
        value, pull_back = jax.vjp(f, *primals)
        return value, pull_back
    with double_precision():
        value, pull_back = jax.vjp(f, *primals)

    def pull(cotangent: Any) -> tuple[Any, ...]:
        given = jax.tree_util.tree_map(
            lambda ct, y: _cast(ct, y, "the cotangent"), cotangent, value
        )
        with double_precision():
            return jax.tree_util.tree_map(_as_numpy, pull_back(given))

    return jax.tree_util.tree_map(_as_numpy, value), pull


def _as_numpy(x: Any) -> Any:
    return public(np.asarray(x), False) if isinstance(x, jax.Array) else x


def check_inexact(args: tuple[Any, ...], numbers: Sequence[int], where: str) -> None:
    """Refuse to differentiate by integers.

    Raises:
        ArgumentTypeError: an argument in `numbers` has such a leaf; the message has its path.
    """
    for n in numbers:
        if isinstance(args[n], np.ndarray) and _is_inexact_dtype(args[n].dtype):
            continue
        if all(map(_is_inexact, jax.tree_util.tree_leaves(args[n]))):
            continue  # the paths below take long to make
        for path, leaf in jax.tree_util.tree_leaves_with_path(args[n]):
            if not _is_inexact(leaf):
                raise ArgumentTypeError(
                    explain(
                        f"pb.{where}",
                        expected="float16, float32, float64, complex64 or complex128 to "
                        "differentiate",
                        got=f"{_dtype(leaf)} in argument {n}{jax.tree_util.keystr(path)}",
                        fix="Convert it, for example with jnp.float32(x), or leave the argument "
                        "out of argnums.",
                    )
                )


def _dtype(x: Any) -> Any:
    return x.dtype if hasattr(x, "dtype") else np.asarray(x).dtype


def _is_inexact(x: Any) -> bool:
    return _is_inexact_dtype(_dtype(x))


@functools.lru_cache(maxsize=64)
def _is_inexact_dtype(dtype: Any) -> bool:
    return bool(np.issubdtype(dtype, np.inexact))


def _like(argument: Any, gradient: Any, wants_jax: bool | None = None) -> Any:
    """Put the leaves of a gradient in the argument's own containers.

    An integer leaf gets JAX's zero of dtype float0.
    """
    leaves, treedef = jax.tree_util.tree_flatten(argument)
    found = jax.tree_util.tree_leaves(gradient)
    if wants_jax is not None:
        found = [
            public(np.asarray(g), wants_jax and _is_inexact(x))
            for x, g in zip(leaves, found, strict=True)
        ]
    return jax.tree_util.tree_unflatten(
        treedef,
        [
            g if _is_inexact(x) else np.zeros(np.shape(x), jax.dtypes.float0)
            for x, g in zip(leaves, found, strict=True)
        ],
    )


def tangents_like(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[Any, ...]:
    """Give tangents the dtypes of the primals.

    Raises:
        ArgumentTypeError: their trees differ.
    """
    primal_tree = jax.tree_util.tree_structure(primals)
    tangent_tree = jax.tree_util.tree_structure(tangents)
    if primal_tree != tangent_tree:
        raise ArgumentTypeError(
            explain(
                "pb.jvp",
                expected=f"tangents of the primals' structure {primal_tree}",
                got=f"{tangent_tree}",
                fix="Pass one tangent for each primal, as tuples.",
            )
        )
    return jax.tree_util.tree_map(lambda x, t: _cast(t, x, "a tangent"), primals, tangents)


def _cast(t: Any, x: Any, what: str) -> np.ndarray:
    """Give a (co)tangent the dtype of the value it belongs to; shapes have to agree."""
    if np.shape(t) != np.shape(x):
        raise ArgumentValueError(
            explain(
                what,
                expected=f"shape {np.shape(x)}, that of the value it belongs to",
                got=f"shape {np.shape(t)}",
                fix="Broadcast it first.",
            )
        )
    if getattr(t, "dtype", None) == jax.dtypes.float0:
        return np.zeros(np.shape(x), _dtype(x))
    t = as_leaf(t, what)
    if np.iscomplexobj(t) and not np.issubdtype(_dtype(x), np.complexfloating):
        raise ArgumentTypeError(
            explain(
                what,
                expected=f"real numbers for a value of dtype {_dtype(x)}",
                got=f"complex ones of dtype {t.dtype}",
                fix="Take the real part, or make the value complex.",
            )
        )
    return t.astype(_dtype(x))


def _split(
    matrix: np.ndarray,
    args: tuple[Any, ...],
    numbers: Sequence[int],
    single: bool,
    finish: Callable[[np.ndarray, Any], Any],
) -> Any:
    """Cut the columns of a matrix into a block for each leaf of each argument."""
    trees, start = [], 0
    for n in numbers:
        leaves, treedef = jax.tree_util.tree_flatten(args[n])
        blocks = []
        for x in leaves:
            blocks.append(finish(matrix[:, start : start + np.size(x)], x))
            start += np.size(x)
        trees.append(jax.tree_util.tree_unflatten(treedef, blocks))
    return trees[0] if single else tuple(trees)


def _block(block: np.ndarray, y: Any, x: Any, layout: str, wants_jax: bool) -> Any:
    """Shape the derivatives of one leaf by another: the axes of `y`, then those of `x`."""
    rows, columns = np.shape(y), np.shape(x)
    if layout == "reversed":
        # Julia's ravel goes through its own axes, which are these in reverse.
        block = block.reshape(rows[::-1] + columns[::-1])
        r, c = len(rows), len(columns)
        block = block.transpose(*range(r)[::-1], *range(r, r + c)[::-1])
    block = np.ascontiguousarray(block).reshape(rows + columns)
    return public(block.astype(_dtype(x)), wants_jax)
