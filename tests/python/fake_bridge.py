"""A bridged function without Julia: a cubic form, whose derivatives NumPy knows by heart.

The value is `T(v, v, v)` for a fixed symmetric `T`, where `v` holds all elements of the
arguments. Its derivatives along directions are `3 T(v, v, a)`, `6 T(v, a, b)`, `6 T(a, b, c)`.
"""

from __future__ import annotations

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pybridge.interop import _batching as _batching
from pybridge.interop import _primitives as _primitives
from pybridge.interop import _xla_lowering as _xla_lowering
from pybridge.interop._julia_program import ArrayType, Program, bind


def cubic(
    shapes: tuple[tuple[int, ...], ...],
    out_shapes: tuple[tuple[int, ...], ...],
    integers: tuple[int, ...] = (),
):
    """Make a cubic function of arrays, as a bridged one and as one that JAX differentiates.

    Args:
        shapes: those of the arguments.
        out_shapes: those of the value's leaves; one leaf is no tuple.
        integers: the numbers of the value's leaves that are cut to integers.
    """
    n = sum(int(np.prod(shape)) for shape in shapes)
    m = sum(int(np.prod(shape)) for shape in out_shapes)
    raw = np.random.default_rng(n + 10 * m).normal(size=(m, n, n, n))
    orders = [(0, *(1 + np.array(p))) for p in itertools.permutations(range(3))]
    form = sum(raw.transpose(order) for order in orders) / 6
    function = FakeFunction(form)

    def reference(*args: Any) -> Any:
        v = jnp.concatenate([jnp.ravel(x) for x in args])
        y = jnp.einsum("mijk,i,j,k->m", form.astype(v.dtype), v, v, v)
        leaves = [
            y.astype(np.int64) if i in integers else y for i, y in enumerate(_cut(y, out_shapes))
        ]
        return leaves[0] if len(leaves) == 1 else tuple(leaves)

    def bridged(*args: Any) -> Any:
        args = tuple(jnp.asarray(x) for x in args)
        types = tuple(ArrayType(x.shape, np.dtype(x.dtype)) for x in args)
        out = jax.eval_shape(reference, *args)
        leaves, out_tree = jax.tree_util.tree_flatten(out)
        values = tuple(ArrayType(y.shape, np.dtype(y.dtype)) for y in leaves)
        in_tree = jax.tree_util.tree_structure(args)
        program = Program(function, "call", in_tree, types, out_tree, values)
        return jax.tree_util.tree_unflatten(out_tree, bind(program, args))

    return bridged, reference, function


class FakeFunction:
    """See `Function` in `pybridge/interop/_julia_program.py`."""

    layout = "logical"
    batched = False
    has_reverse = True

    def __init__(self, form: np.ndarray):
        """Keep the form; shape (m, n, n, n)."""
        self.form = form
        self.jitted: dict[Any, Any] = {}
        self.calls: list[Program] = []
        self.left: dict[int, np.ndarray] = {}  # by ticket: where the pullback was made
        self.hits = 0

    def executable(self, program: Program) -> FakeExecutable:
        """Make a program ready to run."""
        return FakeExecutable(self, program)


class FakeExecutable:
    """Run a program lane by lane."""

    key = 0

    def refusal(self, platform: str) -> str:
        """Refuse always."""
        return "a fake is called by Python"

    def __init__(self, function: FakeFunction, program: Program):
        """Keep both."""
        self.function = function
        self.program = program

    def call(self, operands: Any) -> list[np.ndarray]:
        """Run it on all lanes; a result that lanes share is their sum."""
        program = self.program
        self.function.calls.append(program)
        results = [np.zeros(result.shape, result.dtype) for result in program.results]
        for lane in itertools.product(*(range(level.size) for level in program.levels)):
            inputs = [x[_own(program, lane, i)] for i, x in enumerate(operands)]
            for i, y in enumerate(self._lane(inputs)):
                result = results[i]
                result[_own(program, lane, i, result=True)] += np.asarray(y).astype(result.dtype)
        return results

    def _lane(self, inputs: list[np.ndarray]) -> list[np.ndarray]:
        program, form = self.program, self.function.form
        n, m = len(program.args), len(program.seeds)
        v, start = _join(inputs[:n]), n + m
        directions = []
        for leaves in program.directions:
            full = [np.zeros(t.shape) for t in program.args]
            for leaf in leaves:
                full[leaf] = inputs[start]
                start += 1
            directions.append(_join(full))
        value_shapes = [t.shape for t in program.values]
        arg_shapes = [t.shape for t in program.args]
        if program.takes_ticket:
            # What was left by a ticket is for the very arguments that come with it.
            at = self.function.left.pop(int(inputs[-1][0]), None)
            if at is not None:
                np.testing.assert_array_equal(at, v)
                self.function.hits += 1
        if program.kind == "call":
            leaves = _cut(_form(form, v, directions), value_shapes)
            return [*leaves, self._ticket(v)] if program.gives_ticket else leaves
        if program.kind == "tangents":
            leaves = _cut(_form(form, v, directions), value_shapes)
            return [leaves[i] for i in program.kept]
        seeds = dict(zip(program.seeds, inputs[n : n + m], strict=True))
        if program.kind == "value_and_grad":
            seeds = {0: np.ones(())}
        cotangent = _join([seeds.get(i, np.zeros(s)) for i, s in enumerate(value_shapes)])
        basis = np.eye(len(v))
        pulled = [cotangent @ _form(form, v, [*directions, e]) for e in basis]
        leaves = _cut(np.array(pulled), arg_shapes)
        wanted = [leaves[i] for i in program.wrt]
        if program.kind == "cotangents":
            return wanted
        return [_cut(_form(form, v, []), value_shapes)[0], *wanted]

    def _ticket(self, v: np.ndarray) -> np.ndarray:
        number = next(_tickets)
        self.function.left[number] = v
        return np.array([number, 0], np.uint32)


_tickets = itertools.count(1)


def _form(form: np.ndarray, v: np.ndarray, directions: list[np.ndarray]) -> np.ndarray:
    if len(directions) > 3:
        return np.zeros(form.shape[0])
    factor = (1, 3, 6, 6)[len(directions)]
    vectors = [*directions, v, v, v][:3]
    return factor * np.einsum("mijk,i,j,k->m", form, *vectors)


def _join(leaves: list[np.ndarray]) -> np.ndarray:
    return np.concatenate([np.ravel(x) for x in leaves])


def _cut(vector: Any, shapes: Any) -> list[Any]:
    stops = list(itertools.accumulate(int(np.prod(shape)) for shape in shapes))
    starts = [0, *stops[:-1]]
    return [
        vector[start:stop].reshape(shape)
        for start, stop, shape in zip(starts, stops, shapes, strict=True)
    ]


def _own(program: Program, lane: Any, i: int, *, result: bool = False) -> tuple[int, ...]:
    flags = [(level.outs if result else level.ins)[i] for level in program.levels]
    return tuple(at for at, has in zip(lane, flags, strict=True) if has)
