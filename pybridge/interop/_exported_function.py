"""What Julia asks of a JAX function, as jitted JAX programs over flat lists of arrays.

A request names an operation (`"call"` or `"pullback"`), what it is done to (the function's
`"value"`, or its `"transpose"`: arguments and cotangents to the arguments' cotangents), which
leaves are dual numbers, and the specs of the leaves.

Arrays come with Julia's axes reversed, which is Julia's memory read in Python's order. Where
`A[i, j]` has to mean the same on both sides they are transposed inside the jitted program, where
XLA folds it into what follows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._errors import ArgumentTypeError, ArgumentValueError, explain
from ..julia import DTYPES, Reply, Structure, read_leaves, spec

_SEPARATOR = "\x1f"
_CROSSING = frozenset(np.dtype(code) for code in DTYPES)

_Leaves = list[Any]
_Flat = Callable[[_Leaves], Any]


class Exported:
    """A Python function as Julia asks it."""

    def __init__(self, f: Callable[..., Any], layout: str):
        """Keep the function; each new request compiles a program."""
        self._f = f
        self._layout = layout
        self._programs: dict[str, Call | Pullback] = {}

    def answer(self, request: str, words: int) -> Reply:
        """Run the program of a request on the leaves at an address."""
        program = self._programs.get(request)
        if program is None:
            program = _program(self._f, self._layout, request)
            self._programs[request] = program
        # Not to be staged into a trace that is going on where Julia was called.
        with jax.ensure_compile_time_eval():
            return program.run(words)


def _program(f: Callable[..., Any], layout: str, request: str) -> Call | Pullback:
    operation, base, mask, counts, arguments, cotangents = request.split(_SEPARATOR)
    structure = Structure(arguments)
    kinds = [*structure.kinds, *Structure(cotangents).kinds]
    function = _value(f, structure, layout)
    if base == "transpose":
        function = _transpose(function, len(structure.kinds))
    if mask:
        duals = [i for i, bit in enumerate(mask) if bit == "1"]
        function = _pushed(function, duals, [int(n) for n in counts.split(",")])
    return Call(function, kinds) if operation == "call" else Pullback(function, kinds)


def _value(f: Callable[..., Any], structure: Structure, layout: str) -> _Flat:
    turn = jnp.transpose if layout == "logical" else lambda x: x

    def value(leaves: _Leaves) -> Any:
        result = f(*structure.build([turn(x) for x in leaves]))
        return jax.tree_util.tree_map(lambda y: turn(jnp.asarray(y)), result)

    return value


def _transpose(value: _Flat, count: int) -> _Flat:
    def transpose(leaves: _Leaves) -> tuple[Any, ...]:
        _, back, _ = _vjp(value, leaves[:count])
        return tuple(_pull(back, leaves[count:]))

    return transpose


def _vjp(function: _Flat, leaves: _Leaves) -> Any:
    """Pull back with respect to the leaves that are no integers; the third is the value."""
    places = [i for i, x in enumerate(leaves) if _is_inexact(x)]

    def inexact(moving: _Leaves) -> tuple[_Leaves, Any]:
        result = function(_replaced(leaves, places, moving))
        return [y for y in jax.tree_util.tree_leaves(result) if _is_inexact(y)], result

    return jax.vjp(inexact, [leaves[i] for i in places], has_aux=True)


def _pull(back: Any, cotangents: _Leaves) -> _Leaves:
    # Julia's rules hold the conjugates of JAX's cotangents.
    return [jnp.conj(ct) for ct in back([jnp.conj(ct) for ct in cotangents])[0]]


_jitted_pull = jax.jit(_pull)


def _pushed(function: _Flat, duals: Sequence[int], counts: Sequence[int]) -> _Flat:
    """Lift a function to dual numbers, whose numbers may again be dual.

    A dual leaf has a trailing axis for each level: the value and then the partials. Each level is
    a JVP of the level below it, of all partials at once.
    """
    if not counts:
        return function
    below, axis = _pushed(function, duals, counts[1:]), -len(counts)

    def pushed(leaves: _Leaves) -> Any:
        moving = [leaves[i] for i in duals]
        primals = [jnp.take(x, 0, axis) for x in moving]
        partials = [jax.lax.slice_in_dim(x, 1, None, axis=x.ndim + axis) for x in moving]

        def inexact(xs: _Leaves) -> tuple[_Leaves, Any]:
            result = below(_replaced(leaves, duals, xs))
            return [y for y in jax.tree_util.tree_leaves(result) if _is_inexact(y)], result

        def push(tangents: _Leaves) -> Any:
            return jax.jvp(inexact, (primals,), (tangents,), has_aux=True)

        ys, tangents, result = jax.vmap(push, in_axes=(axis,), out_axes=(None, axis, None))(
            partials
        )
        lifted = iter(
            jnp.concatenate([jnp.expand_dims(y, axis), t], axis)
            for y, t in zip(ys, tangents, strict=True)
        )
        return jax.tree_util.tree_map(lambda y: next(lifted) if _is_inexact(y) else y, result)

    return pushed


class Call:
    """A program that gives a value."""

    def __init__(self, function: _Flat, kinds: Sequence[tuple[np.dtype, int]]):
        """Jit the function."""
        self._run = jax.jit(function)
        self._kinds = kinds

    def run(self, words: int) -> Reply:
        """Run it on the leaves at an address."""
        return _reply(self._run(_admitted(read_leaves(words, self._kinds))))


class Pullback:
    """A program that gives a value and keeps what its pullback needs."""

    def __init__(self, function: _Flat, kinds: Sequence[tuple[np.dtype, int]]):
        """Jit the forward pass; the pullback goes out of it as a pytree of its residuals."""

        def forward(leaves: _Leaves) -> tuple[Any, Any]:
            _, back, result = _vjp(function, leaves)
            return result, back

        self._run = jax.jit(forward)
        self._kinds = kinds

    def run(self, words: int) -> Reply:
        """Run it on the leaves at an address."""
        # Copies: what JAX keeps must not change when Julia writes into its arrays.
        leaves = [leaf.copy() for leaf in read_leaves(words, self._kinds)]
        result, back = self._run(_admitted(leaves))
        reply = _reply(result)
        reply.kept = _Residuals(back)
        reply.nbytes = sum(x.nbytes for x in jax.tree_util.tree_leaves(back))
        return reply


class _Residuals:
    """A pullback, with what the forward pass left for it."""

    def __init__(self, back: Any):
        self._back = back

    def answer(self, request: str, words: int) -> Reply:
        cotangents = read_leaves(words, Structure(request).kinds)
        with jax.ensure_compile_time_eval():
            return _reply(tuple(_jitted_pull(self._back, cotangents)))


def _is_inexact(x: Any) -> bool:
    return jnp.issubdtype(x.dtype, jnp.inexact)


def _replaced(leaves: _Leaves, places: Sequence[int], values: _Leaves) -> _Leaves:
    out = list(leaves)
    for i, x in zip(places, values, strict=True):
        out[i] = x
    return out


def _admitted(leaves: Sequence[np.ndarray]) -> _Leaves:
    return [x if x.itemsize < 8 or x.dtype == np.complex64 else _narrowed(x) for x in leaves]


def _narrowed(x: np.ndarray) -> np.ndarray:
    """Give 64 bits the dtype that JAX has for them, if nothing is lost by it.

    Raises:
        ArgumentTypeError: a floating-point number of 64 bits while x64 is off.
        ArgumentValueError: an integer that 32 bits do not hold while x64 is off.
    """
    narrow = jax.dtypes.canonicalize_dtype(x.dtype)
    if narrow == x.dtype:
        return x
    if x.dtype.kind in "iu":
        if not x.size or (np.iinfo(narrow).min <= x.min() and x.max() <= np.iinfo(narrow).max):
            return x.astype(narrow)
        raise ArgumentValueError(
            explain(
                "to_julia",
                expected=f"integers that fit into {narrow}, since jax_enable_x64 is off",
                got=f"numbers from {x.min()} to {x.max()}",
                fix='Enable 64 bits with jax.config.update("jax_enable_x64", True).',
            )
        )
    names = {"f": ("Float64", "Float32"), "c": ("ComplexF64", "ComplexF32")}
    wide, single = names[x.dtype.kind]
    raise ArgumentTypeError(
        explain(
            "to_julia",
            expected=f"{single}, since jax_enable_x64 is off",
            got=f"a number or an array of {wide}",
            fix=f"Pass {single} (1f0 and not 1.0), or enable 64 bits with "
            'jax.config.update("jax_enable_x64", True).',
        )
    )


def _reply(result: Any) -> Reply:
    leaves, treedef = jax.tree_util.tree_flatten(result)
    arrays = [np.asarray(leaf, order="C") for leaf in leaves]
    for leaf in arrays:
        if leaf.dtype not in _CROSSING:
            raise ArgumentTypeError(
                explain(
                    "to_julia",
                    expected="results of bool, int8 to int64, uint8 to uint64, float16 to "
                    "float64, complex64 or complex128",
                    got=f"{leaf.dtype}, which has no equal in Julia",
                    fix="Convert it in the function, for example with .astype(jnp.float32).",
                )
            )
    return Reply(spec(treedef, tuple((leaf.dtype, leaf.ndim) for leaf in arrays)), arrays)
