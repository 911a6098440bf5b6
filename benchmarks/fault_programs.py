"""Random smooth programs, and the same with a wrong derivative rule planted in them.

`smooth(seed, number)` and `planted(seed, number)` return the same program in every process: the
numbers that `finite_faults.py` prints lead back to it. All is in float64; use these functions
inside `jax.enable_x64(True)`.

A program is a list of steps over jnp. A step is kept where its value is finite and of moderate
size and where the point has some distance from what is not smooth; so a program is smooth at its
point and around it. Array sizes are few and small: JAX compiles every operation once for each.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

FAULTS = ("wrong sign", "wrong scale", "dropped term", "transposed index", "wrong value")
SHAPES = ((), (3,), (4,), (2, 3), (3, 3), (3, 4))

# The wrong scale and the wrong value are off by this much, relative.
OFF = 1e-3

# A fault counts as one where it changes the derivative by this much of its largest element (the
# wrong value: the value). A rule that is wrong where nothing depends on it can be seen by nobody.
NOTICEABLE = 1e-6

_LARGEST = 50.0
_SMALLEST_DISTANCE = 0.02


@dataclass(frozen=True)
class Step:
    """One operation of a program.

    Attributes:
        name: what it does, for reading.
        function: of the values that it uses.
        inputs: their numbers; the arguments come first.
    """

    name: str
    function: Callable[..., Any]
    inputs: tuple[int, ...]


@dataclass(frozen=True)
class Program:
    """A random function and the point at which it is checked.

    Attributes:
        args: the point, float64 arrays.
        steps: what is computed, in order; the last value is the result.
        kind: one of `FAULTS`; empty for a smooth program.
        planted: the number of the step with a rule of its own, and how the rule is written.
    """

    args: tuple[np.ndarray, ...]
    steps: tuple[Step, ...]
    kind: str = ""
    planted: str = ""

    def __call__(self, *args: Any) -> Any:
        """Compute the result."""
        return _values(self, args)[-1]

    def __str__(self) -> str:
        """List the program: what a person needs to write it down by hand."""
        lines = [f"v{i} = {arg.tolist()}" for i, arg in enumerate(self.args)]
        for i, step in enumerate(self.steps, len(self.args)):
            lines.append(f"v{i} = {step.name}({', '.join(f'v{j}' for j in step.inputs)})")
        return "\n".join([*lines, f"{self.kind} {self.planted}".strip()]).rstrip()


def smooth(seed: int, number: int) -> Program:
    """Make a smooth program; one in five has a right rule of its own.

    Args:
        seed: the seed of the whole set.
        number: which program of the set.
    """
    rng = np.random.default_rng([seed, 0, number])
    program = _random_program(rng)
    return _plant(program, rng, "") or program if rng.random() < 0.2 else program


def planted(seed: int, number: int) -> Program:
    """Make a program with a fault, of the kinds in turn.

    Args:
        seed: the seed of the whole set.
        number: which program of the set.
    """
    kind = FAULTS[number % len(FAULTS)]
    for attempt in range(1000):
        rng = np.random.default_rng([seed, 1, number, attempt])
        program = _random_program(rng)
        faulty = _plant(program, rng, kind)
        if faulty is not None and _is_noticeable(program, faulty, rng):
            return faulty
    raise RuntimeError(f"no program with a {kind} in 1000 attempts")


def gradient(program: Program, weights: Any, args: tuple[Any, ...]) -> tuple[Any, Any]:
    """Differentiate the weighted sum of a program's result in reverse mode.

    Returns:
        The value under differentiation, and the gradient of all arguments, one after the other.
    """
    value, pull = jax.vjp(program, *map(jnp.asarray, args))
    return value, jnp.concatenate([jnp.ravel(g) for g in pull(jnp.asarray(weights))])


# --- operations -----------------------------------------------------------------------------

Make = Callable[..., "tuple[str, Callable[..., Any]] | None"]

_ANYWHERE: dict[str, Callable[..., Any]] = {
    "sin": jnp.sin,
    "cos": jnp.cos,
    "tanh": jnp.tanh,
    "arctan": jnp.arctan,
    "exp": jnp.exp,
    "expm1(x / 2)": lambda x: jnp.expm1(x / 2),
    "softplus": jax.nn.softplus,
    "logistic": jax.nn.sigmoid,
    "silu": jax.nn.silu,
    "erf": jax.scipy.special.erf,
    "x**2": lambda x: x**2,
    "x**3": lambda x: x**3,
    "sqrt(1 + x**2)": lambda x: jnp.sqrt(1 + x * x),
    "log(1 + x**2)": lambda x: jnp.log1p(x * x),
    "1 / (1 + x**2)": lambda x: 1 / (1 + x * x),
    "exp(-x**2)": lambda x: jnp.exp(-x * x),
    "sum": jnp.sum,
    "mean": jnp.mean,
    "x * sum(x)": lambda x: x * jnp.sum(x),
    "x - mean(x)": lambda x: x - jnp.mean(x),
    "logsumexp": jax.scipy.special.logsumexp,
}
_POSITIVE: dict[str, Callable[..., Any]] = {
    "log": jnp.log,
    "sqrt": jnp.sqrt,
    "1 / x": lambda x: 1 / x,
    "x**1.7": lambda x: x**1.7,
}
_ARRAYS: dict[str, Callable[..., Any]] = {
    "softmax": jax.nn.softmax,
    "log_softmax": jax.nn.log_softmax,
    "cumsum": lambda x: jnp.cumsum(x, axis=-1),
    "prod(x, -1)": lambda x: jnp.prod(x, axis=-1),
    "var": jnp.var,
    "sum(x, 0)": lambda x: jnp.sum(x, axis=0),
    "flip": jnp.flip,
    "roll": lambda x: jnp.roll(x, 1, axis=-1),
    "transpose": jnp.transpose,
    "x[..., 1:]": lambda x: x[..., 1:],
    "x[0]": lambda x: x[0],
    "x[..., -1]": lambda x: x[..., -1],
    "x[[2, 0, 2]]": lambda x: jnp.ravel(x)[np.array([2, 0, 2]) % x.size],
    "diff": lambda x: jnp.diff(x, axis=-1),
    "concatenate(x, x**2)": lambda x: jnp.concatenate([x, x * x], axis=-1),
}
_PAIRS: dict[str, Callable[..., Any]] = {
    "x + y": jnp.add,
    "x - y": jnp.subtract,
    "x * y": jnp.multiply,
    "x / (1 + y**2)": lambda x, y: x / (1 + y * y),
    "logaddexp": jnp.logaddexp,
    "arctan2(x, 1 + y**2)": lambda x, y: jnp.arctan2(x, 1 + y * y),
    "sin(x * y)": lambda x, y: jnp.sin(x * y),
    "x @ y": jnp.matmul,
    "outer": jnp.outer,
    "(1 + x**2) ** tanh(y)": lambda x, y: (1 + x * x) ** jnp.tanh(y),
}


def _affine(x: np.ndarray, rng: np.random.Generator) -> tuple[str, Callable[..., Any]]:
    """Scale and shift by constants that are not round."""
    a, b = (float(c) for c in np.round(rng.normal(size=2) * 1.5, 3))
    return f"{a} * x + {b}", lambda x: a * x + b


def _weights(x: np.ndarray, rng: np.random.Generator) -> tuple[str, Callable[..., Any]] | None:
    """Multiply by a constant matrix."""
    if x.ndim == 0 or x.shape[-1] > 4:
        return None
    w = np.round(rng.normal(size=(x.shape[-1], 3)), 3)
    return f"x @ {w.tolist()}", lambda x: x @ jnp.asarray(w, x.dtype)


def _norm(x: np.ndarray, rng: np.random.Generator) -> tuple[str, Callable[..., Any]] | None:
    """Take the norm of what is not near 0."""
    return ("norm", lambda x: jnp.sqrt(jnp.sum(x * x))) if np.linalg.norm(x) > 0.1 else None


def _where(x: np.ndarray, rng: np.random.Generator) -> tuple[str, Callable[..., Any]] | None:
    """Choose between two functions at a threshold that no element is close to."""
    threshold = float(np.round(rng.uniform(x.min() - 0.5, x.max() + 0.5), 3))
    if np.abs(x - threshold).min() < _SMALLEST_DISTANCE:
        return None

    def choose(x: Any) -> Any:
        return jnp.where(x > threshold, jnp.sin(x), x * x)

    return f"where(x > {threshold}, sin(x), x**2)", choose


_MADE: tuple[Make, ...] = (_affine, _weights, _norm, _where)


def _next_step(values: list[np.ndarray], rng: np.random.Generator) -> Step | None:
    """Draw an operation on what is there; None where the draw does not fit."""
    # Recent values come first, so that little of a program is computed for nothing.
    one = len(values) - 1 - int(min(rng.geometric(0.75) - 1, len(values) - 1))
    other = int(rng.integers(len(values)))
    x, y = values[one], values[other]
    family = rng.choice(
        ["anywhere", "positive", "arrays", "pairs", "made"], p=[0.3, 0.1, 0.2, 0.25, 0.15]
    )
    table = {"anywhere": _ANYWHERE, "positive": _POSITIVE, "arrays": _ARRAYS, "pairs": _PAIRS}
    if family == "made":
        made = _MADE[int(rng.integers(len(_MADE)))](x, rng)
        return None if made is None else Step(*made, (one,))
    if family == "positive" and x.min() < _SMALLEST_DISTANCE:
        return None
    if family == "arrays" and x.ndim == 0:
        return None
    name = str(rng.choice(list(table[family])))
    inputs = (one, other) if family == "pairs" else (one,)
    if name == "outer" and x.size * y.size > 16:
        return None
    return Step(name, table[family][name], inputs)


def _random_program(rng: np.random.Generator) -> Program:
    """Draw arguments and 3 to 9 steps, those that the result does not need included."""
    scale = 10.0 ** rng.uniform(-1, 1)
    shapes = [SHAPES[i] for i in rng.integers(len(SHAPES), size=rng.integers(1, 3))]
    args = tuple(np.asarray(np.round(scale * rng.normal(size=shape), 3)) for shape in shapes)
    values, steps = list(args), []
    for _ in range(int(rng.integers(3, 10))):
        value = None
        while value is None:
            step = _next_step(values, rng)
            value = None if step is None else _try(step, values)
        steps.append(step)
        values.append(value)
    return _without_dead_steps(Program(args, tuple(steps)))


def _try(step: Step, values: list[np.ndarray]) -> np.ndarray | None:
    """Run a step; None where shapes do not fit or the value is no good."""
    try:
        value = np.asarray(step.function(*(jnp.asarray(values[i]) for i in step.inputs)))
    except (TypeError, ValueError, IndexError):
        return None
    if not 1 <= value.size <= 16 or not np.abs(value).max() < _LARGEST:
        return None
    return value


def _without_dead_steps(program: Program) -> Program:
    """Leave out what the result does not depend on, and arguments that nothing uses."""
    first = len(program.args)
    needed, todo = set(), [first + len(program.steps) - 1]
    while todo:
        number = todo.pop()
        if number not in needed:
            needed.add(number)
            todo += program.steps[number - first].inputs if number >= first else ()
    new = {old: i for i, old in enumerate(sorted(needed))}
    args = tuple(arg for i, arg in enumerate(program.args) if i in needed)
    steps = tuple(
        replace(step, inputs=tuple(new[i] for i in step.inputs))
        for i, step in enumerate(program.steps, first)
        if i in needed
    )
    return Program(args, steps)


# --- faults ---------------------------------------------------------------------------------


def _plant(program: Program, rng: np.random.Generator, kind: str) -> Program | None:
    """Give one step a rule of its own, with a fault where a kind is given."""
    shapes = [np.shape(value) for value in _values(program, program.args)]
    first = len(program.args)
    fitting = [
        number
        for number, step in enumerate(program.steps)
        if (kind != "dropped term" or len(set(step.inputs)) == 2)
        and (kind != "transposed index" or shapes[first + number] not in ((), (1,), (1, 1)))
    ]
    if not fitting:
        return None
    number = int(rng.choice(fitting))
    as_jvp = bool(rng.integers(2))
    rule = "custom_jvp" if as_jvp else "custom_vjp"
    step = program.steps[number]
    planted_in = (_with_jvp if as_jvp else _with_vjp)(step.function, kind, int(rng.integers(2)))
    steps = list(program.steps)
    steps[number] = Step(f"{rule} {step.name}", planted_in, step.inputs)
    return Program(program.args, tuple(steps), kind, f"in v{first + number}, a {rule}")


def _values(program: Program, args: tuple[Any, ...]) -> list[Any]:
    """Compute all steps, after the arguments."""
    values = [jnp.asarray(arg) for arg in args]
    for step in program.steps:
        values.append(step.function(*(values[i] for i in step.inputs)))
    return values


def _with_jvp(function: Callable[..., Any], kind: str, which: int) -> Callable[..., Any]:
    """Give a function a forward rule with a fault; JAX derives reverse mode from it."""
    ruled = jax.custom_jvp(function)

    @ruled.defjvp
    def _rule(primals: Any, tangents: Any) -> Any:
        if kind == "dropped term":
            tangents = _drop(tangents, which)
        value, tangent = jax.jvp(function, primals, tangents)
        return _wrong_value(value, kind), _wrong(tangent, kind)

    return ruled


def _with_vjp(function: Callable[..., Any], kind: str, which: int) -> Callable[..., Any]:
    """Give a function a reverse rule with a fault; it has no forward mode then."""
    ruled = jax.custom_vjp(function)

    def forward(*xs: Any) -> Any:
        value, pull = jax.vjp(function, *xs)
        return _wrong_value(value, kind), pull

    def backward(pull: Any, cotangent: Any) -> Any:
        cotangents = pull(_wrong(cotangent, kind))
        return _drop(cotangents, which) if kind == "dropped term" else cotangents

    ruled.defvjp(forward, backward)
    return ruled


def _drop(parts: Any, which: int) -> Any:
    return tuple(jnp.zeros_like(part) if i == which else part for i, part in enumerate(parts))


def _wrong(tangent: Any, kind: str) -> Any:
    """Spoil a tangent, or the cotangent of the same shape."""
    if kind == "wrong sign":
        return -tangent
    if kind == "wrong scale":
        return tangent * (1 + OFF)
    if kind == "transposed index":
        square = tangent.ndim == 2 and tangent.shape[0] == tangent.shape[1]
        return tangent.T if square else jnp.flip(tangent, axis=-1)
    return tangent


def _wrong_value(value: Any, kind: str) -> Any:
    return value * (1 + OFF) if kind == "wrong value" else value


def _is_noticeable(right: Program, faulty: Program, rng: np.random.Generator) -> bool:
    """Tell whether a fault changes what comes out of the program, at its point."""
    weights = rng.normal(size=np.shape(right(*right.args)))
    both = jax.jit(lambda args: [gradient(program, weights, args) for program in (right, faulty)])
    pairs = zip(*jax.tree.map(np.asarray, both(right.args)), strict=True)
    value, derivative = (np.abs(a - b).max() / max(np.abs(a).max(), 1e-3) for a, b in pairs)
    return bool((value if faulty.kind == "wrong value" else derivative) > NOTICEABLE)
