"""Comparing what a random program gives in Julia with what it gives in JAX.

Floats are compared to a few units in the last place of the largest number of an array. Where two
results differ by more, JAX is asked for those of float64, and how sharply float32 defines them: by
its own errors and by those of random rounding. Julia's error may be what these make probable.
Where they are of the size of the result, a comparison or a sort is decided by rounding, and
nobody can be right, and of a gradient nobody is at a kink: such cases are counted, and the tests
allow few.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.stats
from jax import lax
from lowering_programs import FORWARD, UNSEEN, Program
from precision import enable_x64
from quick import hasty_options
from random_rounding import run_rounded

import pybridge as pb

Evaluate = Callable[[Program, str, Sequence[Any]], Any]

ULPS = 16
# Of the random roundings; with JAX's own they are the errors of which there is a sample.
SEEDS = np.arange(16, dtype=np.uint64)
# In units of the sample's root mean square: a normal error is larger once in 100,000 times.
LIMIT = scipy.stats.t.isf(1e-5 / 2, df=len(SEEDS) + 1)

# Of a gradient against finite differences, to the sum of its parts.
SLOPE_RTOL = 1e-3


def leaves(tree: Any) -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]


def distance(one: np.ndarray, other: np.ndarray) -> float:
    """The largest difference; infinite if they differ as integers, or in which are finite."""
    if not np.issubdtype(one.dtype, np.floating):
        return 0.0 if np.array_equal(one, other) else np.inf
    one, other = one.astype(np.float64), other.astype(np.float64)
    finite = np.isfinite(one)
    if not np.array_equal(one[~finite], other[~finite], equal_nan=True):
        return np.inf
    return float(np.max(np.abs(one[finite] - other[finite]), initial=0.0))


def size(x: np.ndarray) -> float:
    finite = np.abs(x[np.isfinite(x)].astype(np.float64))
    return float(np.max(finite, initial=1e-30))


def truth_and_samples(program: Program, f: Evaluate) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Give the results in float64, and those of random rounding with an axis for the seeds."""

    def results(*args: jax.Array) -> list[jax.Array]:
        return jax.tree.leaves(f(program, "float64", args))

    def both(*args: jax.Array) -> Any:
        traced = jax.make_jaxpr(results)(*args)
        return results(*args), jax.vmap(lambda seed: run_rounded(traced, args, seed))(SEEDS)

    with enable_x64(True):
        truth, samples = quickly(both, program.arguments_as("float64"))
    return leaves(truth), leaves(samples)


class Disagreement(AssertionError):
    """Julia and JAX differ."""


class Judge:
    """Compares results, and counts what cannot be decided.

    Attributes:
        counts: `exact` within a few units in the last place, `rounded` within what JAX's own
            rounding does, `undecided`.
    """

    def __init__(self) -> None:
        """Start with no counts."""
        self.counts: Counter[str] = Counter()

    def compare(self, program: Program, got: Any, want: Any, f: Evaluate, what: str) -> None:
        """Compare Julia's results with JAX's.

        Args:
            program: the program.
            got: Julia's results.
            want: JAX's.
            f: makes JAX's results again, in another type.
            what: what the results are, for the message.

        Raises:
            Disagreement: they differ by more than rounding.
        """
        found, want = leaves(got), leaves(want)
        eps = np.finfo(np.float32).eps
        if f is gradients and any(name in program.source for name in ("float16", "reduce_prec")):
            # Reverse mode rounds cotangents to the narrow type, forward mode tangents.
            eps = np.finfo(np.float16).eps
        far = []
        for i, (one, other) in enumerate(zip(found, want, strict=True)):
            if (one.shape, one.dtype) != (other.shape, other.dtype):
                raise Disagreement(
                    f"{what}: {one.dtype}{one.shape} is not {other.dtype}{other.shape}{program!r}"
                )
            if distance(one, other) > ULPS * eps * size(other):
                far.append(i)
        if not far:
            self.counts["exact"] += 1
            return
        truth, samples = truth_and_samples(program, f)
        undecided = False
        for i in far:
            errors = [distance(sample, truth[i]) for sample in (*samples[i], want[i])]
            noise = np.sqrt(np.mean(np.square(errors)))
            is_far = distance(found[i], truth[i]) > LIMIT * noise
            # The first result is the value. At a kink several derivatives are right.
            is_slope = f is gradients and i > 0
            if max(errors) > 1e-2 * size(want[i]):
                undecided = True
            elif is_far and is_slope and not is_smooth(program):
                undecided = True
            elif is_far:
                raise Disagreement(
                    f"{what}: Julia's result {i} is\n{found[i]}\nand JAX's is\n{want[i]}\n"
                    f"and in float64\n{truth[i]}\n(rounding makes {noise:.2g}){program!r}"
                )
        self.counts["undecided" if undecided else "rounded"] += 1


def values(program: Program, dtype: str, arguments: Sequence[Any]) -> Any:
    """The results, by JAX."""
    given = [as_type(x, dtype) for x in arguments]
    return program.function(dtype)(*given)


def as_type(x: np.ndarray, dtype: str) -> jax.Array:
    return jnp.asarray(x.astype(dtype) if np.issubdtype(x.dtype, np.floating) else x)


def weighted(program: Program, dtype: str = "float32") -> Callable[..., Any]:
    """Make a number of all float results, each element with a weight of its own."""
    f = program.function(dtype)

    def number(*args: Any) -> Any:
        total = jnp.zeros((), dtype)
        for out in f(*args):
            if jnp.issubdtype(out.dtype, np.inexact):
                weight = jnp.cos(jnp.arange(1, out.size + 1, dtype=dtype)).reshape(out.shape)
                total += jnp.sum(weight * out)
        return total

    return number


def gradients(program: Program, dtype: str, arguments: Sequence[Any]) -> Any:
    """The value and the gradients of `weighted`, by JAX."""
    given = [as_type(x, dtype) for x in arguments]
    f = weighted(program, dtype)
    if FORWARD in program.flags:
        # The value is that within a gradient, which `within_gradient` may change.
        value = jax.jvp(f, tuple(given), tuple(map(_still, given)))[0]
        return value, jax.jacfwd(f, program.floats)(*given)
    return jax.value_and_grad(f, program.floats)(*given)


def _still(x: jax.Array) -> Any:
    if jnp.issubdtype(x.dtype, np.inexact):
        return jnp.zeros_like(x)
    return np.zeros(x.shape, jax.dtypes.float0)


def quickly(f: Callable[..., Any], args: Sequence[Any]) -> Any:
    """Evaluate a large function once: compiled as a whole, and without optimisation."""
    options = {
        "xla_backend_optimization_level": 0,
        "xla_llvm_disable_expensive_passes": True,
        **hasty_options(),
    }
    return jax.jit(f).lower(*args).compile(options)(*args)


def jax_results(programs: Sequence[Program], f: Evaluate) -> list[Any]:
    """`f(program, "float32", arguments)` for each program, compiled together."""

    def batch(*args: Any) -> list[Any]:
        queue = iter(args)
        return [f(p, "float32", [next(queue) for _ in p.arguments]) for p in programs]

    return quickly(batch, [x for program in programs for x in program.arguments_as()])


def together(programs: Sequence[Program], make: Callable[[Program], Callable[..., Any]]) -> Any:
    """One function of several programs' arguments, and these: calls and compilation are shared."""
    functions = [make(program) for program in programs]
    counts = [len(program.arguments) for program in programs]

    def batch(*args: Any) -> list[Any]:
        queue = iter(args)
        return [f(*(next(queue) for _ in range(n))) for f, n in zip(functions, counts, strict=True)]

    return batch, [x for program in programs for x in program.arguments_as()]


def julia_gradients(programs: Sequence[Program], system: str) -> list[Any]:
    """Value and gradients of `weighted` for each program, by one of Julia's systems."""
    batch, args = together(programs, weighted)
    numbers, groups = [], []
    start = 0
    for program in programs:
        groups.append(len(program.floats))
        numbers += [start + i for i in program.floats]
        start += len(program.arguments)

    def total(*args: Any) -> Any:
        each = batch(*args)
        return sum(each), tuple(each)

    (_, each), found = pb.value_and_grad(total, tuple(numbers), backend=system, has_aux=True)(*args)
    queue = iter(found)
    return [
        (value, tuple(next(queue) for _ in range(n))) for value, n in zip(each, groups, strict=True)
    ]


def random_direction(program: Program) -> list[np.ndarray]:
    generator = np.random.default_rng(len(program.lines))
    return [generator.normal(size=program.arguments[i].shape) for i in program.floats]


def check_slope(program: Program, found: Sequence[Any], system: str, judge: Judge) -> None:
    """Compare a gradient with finite differences, where these see what the program does."""
    if UNSEEN in program.flags:
        judge.counts["no slope by intent"] += 1
        return
    direction = random_direction(program)
    want, smooth = slope(program, direction)
    if not smooth:
        judge.counts["not smooth"] += 1
        return
    judge.counts["smooth"] += 1
    parts = [np.asarray(g, np.float64) * d for g, d in zip(found, direction, strict=True)]
    got, scale = sum(p.sum() for p in parts), sum(np.abs(p).sum() for p in parts)
    if abs(got - want) > SLOPE_RTOL * (scale + abs(want)):
        raise Disagreement(f"{system}: the slope is {got}, by differences {want}{program!r}")


def is_smooth(program: Program) -> bool:
    return slope(program, random_direction(program))[1]


def slope(program: Program, direction: Sequence[np.ndarray]) -> tuple[float, bool]:
    """The slope in a direction by finite differences in float64, and whether it is smooth there.

    It is smooth where two steps agree and JAX's gradient is about the same at the point and on both
    sides of it. Close by it may differ by what `check_slope` allows, for at a kink differences give
    the mean of the sides: so no kink that is missed here makes a gradient look wrong. Where kinks
    cancel, as in max(x, min(x, y)) of equal numbers, JAX's gradient is another one at the point.
    """
    steps = np.array([1e-4, 5e-5, 1e-7, 0, -1e-7, -5e-5, -1e-4])

    def moved(step: float) -> list[np.ndarray]:
        queue = iter(direction)
        return [
            x.astype(np.float64) + step * next(queue) if x.dtype == np.float32 else x
            for x in program.arguments
        ]

    def values_and_gradients(stepped: list[jax.Array]) -> Any:
        f = weighted(program, "float64")
        return lax.map(lambda x: (f(*x), gradients(program, "float64", x)[1]), stepped)

    with enable_x64(True):
        stepped = [np.stack(column) for column in zip(*map(moved, steps), strict=True)]
        at, found = quickly(values_and_gradients, [stepped])
    wide, narrow = (np.asarray(at - at[::-1])[:2] / (2 * steps[:2])).tolist()
    along = [np.asarray(g) * d for g, d in zip(found, direction, strict=True)]
    parts = np.hstack([x.reshape(len(steps), -1) for x in along])
    by_jax, size = parts.sum(axis=1), np.abs(parts).sum(axis=1)
    scale = max(abs(wide), abs(narrow), *np.abs(by_jax), 1e-3)
    same = (
        abs(wide - narrow) < 1e-4 * scale
        and abs(by_jax[0] - by_jax[-1]) < 1e-2 * scale
        and np.ptp(by_jax[2:5]) <= SLOPE_RTOL * (size[3] + abs(narrow))
    )
    return narrow, bool(same and np.isfinite(scale))
