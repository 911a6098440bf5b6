"""Compare the layers of JAX with their twins in Julia, under every AD system."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..._backends import Backend
from ...finite import double_precision
from ...interop import from_julia

DTYPES = ("float64", "float32")
MODES = ("train", "test")

# Largest difference over largest number, of values and of gradients.
TOLERANCES = {"float64": (1e-12, 1e-11), "float32": (1e-5, 1e-4)}
# Central differences in float64 have about nine digits, less where they cancel.
_FINITE = {"float64": 1e-6, "float32": 1e-4}


@dataclass(frozen=True)
class LayerCase:
    """A layer in both languages, and an input for it.

    Attributes:
        name: of the layer.
        shape: of the input, in JAX's order.
        python: source of the layer; nn and jnp are in scope.
        julia: source of its twin.
        input: `"normal"` numbers, or `"ids"`: integers below 5.
        known: by AD system, why its answer differs.
    """

    name: str
    shape: tuple[int, ...]
    python: str
    julia: str
    input: str = "normal"
    known: dict[str, str] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """Name and shape."""
        return f"{self.name} {self.shape}"


@dataclass(frozen=True)
class LayerAnswer:
    """How far a system is from JAX with one layer and dtype, in both modes.

    Attributes:
        status: `"right"`, `"known"`, `"wrong"`, `"error"` or `"absent"`.
        value: the largest relative difference of output and state.
        gradient: the same for the gradients of parameters and input.
        reason: what went wrong, or is known.
    """

    status: str
    value: float = 0.0
    gradient: float = 0.0
    reason: str = ""


# A layer, a dtype, and the answers by system.
LayerRow = tuple[LayerCase, str, dict[str, LayerAnswer]]


@functools.cache
def load_layers() -> tuple[LayerCase, ...]:
    """Read the table of layers that comes with pybridge."""
    text = resources.files("pybridge.consistency.suites").joinpath("layers.toml").read_text("utf-8")
    return tuple(
        LayerCase(
            **{
                **entry,
                "shape": tuple(entry["shape"]),
                "known": {k["system"]: k["reason"] for k in entry.get("known", ())},
            }
        )
        for entry in tomllib.loads(text)["layer"]
    )


def compare_layers(
    cases: Sequence[LayerCase],
    systems: Sequence[Backend],
    dtypes: Sequence[str] = DTYPES,
    progress: Callable[[str], None] = lambda text: None,
) -> Iterator[LayerRow]:
    """Compare layers with their twins.

    Args:
        cases: the layers.
        systems: AD systems as `prepare` returns them, those of Julia and `"finite"`. JAX is
            the reference: finite differences are taken of its layers.
        dtypes: `"float64"`, `"float32"` or both.
        progress: gets a line of text before each comparison.

    Yields:
        Case, dtype, and the answers by system.
    """
    for number, case in enumerate(cases, 1):
        for dtype in dtypes:
            answers = {}
            for system in systems:
                progress(f"{number}/{len(cases)} {case.title} {dtype}: {system.name}")
                answers[system.name] = compare(case, system, dtype)
            yield case, dtype, answers


def compare(case: LayerCase, system: Backend, dtype: str) -> LayerAnswer:
    """Compare one layer under one AD system."""
    if not system.available:
        return LayerAnswer("absent")
    worst, known = LayerAnswer("right"), case.known.get(system.name, "")
    with double_precision(), np.errstate(all="ignore"):
        try:
            for mode in MODES:
                value, gradient = _differences(case, system, dtype, mode)
                worst = LayerAnswer("right", max(worst.value, value), max(worst.gradient, gradient))
        except Exception as error:
            return LayerAnswer("known" if known else "error", reason=known or str(error))
    limits = TOLERANCES[dtype]
    if system.name == "finite":
        limits = (0.0, _FINITE[dtype])
    right = worst.value <= limits[0] and worst.gradient <= limits[1]
    status = "right" if right else "known" if known else "wrong"
    return LayerAnswer(status, worst.value, worst.gradient, "" if right else known)


def _differences(case: LayerCase, system: Backend, dtype: str, mode: str) -> tuple[float, float]:
    """Return the relative differences of values and of gradients."""
    layer, params, state, x = materials(case, dtype)
    key = jax.random.key(5)
    training = mode == "train"

    def ours(params: Any, x: Any) -> Any:
        # A container's mode, which draws no warning.
        return layer.apply(params, state, x, key=key, training=jnp.asarray(training))

    inexact = jnp.issubdtype(x.dtype, np.inexact)
    want = _derivatives(ours, params, x, inexact)
    if system.name == "finite":
        return 0.0, _gradient_error(ours, params, x, inexact, want)
    twin = _twin(case, system.name)
    words = jax.random.key_data(key)
    got = _derivatives(
        lambda params, x: twin(params, state, x, words, training), params, x, inexact
    )
    return _relative(plain_dicts(got[0]), want[0]), _relative(got[1], want[1])


def materials(case: LayerCase, dtype: str) -> tuple[Any, Any, Any, jax.Array]:
    """Return layer, parameters, state and input; none of the numbers is a default."""
    from ... import nn

    layer = eval(case.python, {"nn": nn, "jnp": jnp})
    params, state = layer.init(jax.random.key(1), np.dtype(dtype))
    keys = iter(jax.random.split(jax.random.key(2), 100))

    def moved(leaf: jax.Array) -> jax.Array:
        noise = jax.random.uniform(next(keys), leaf.shape, leaf.dtype, 0.1, 0.4)
        return leaf + noise

    params, state = jax.tree.map(moved, (params, state))
    if case.input == "ids":
        return layer, params, state, jax.random.randint(next(keys), case.shape, 0, 5)
    return layer, params, state, jax.random.normal(next(keys), case.shape, np.dtype(dtype))


def _twin(case: LayerCase, ad: str) -> Any:
    x = "x .+ 1" if case.input == "ids" else "x"
    return from_julia(
        f"let layer = {case.julia.strip()}\n"
        f"    (params, state, x, key, training) -> PyBridge.apply(layer, params, state, {x};\n"
        "        key, training=PyBridge.Settled(training))\n"
        "end",
        ad=ad,
        layout="reversed",
    )


def _derivatives(f: Callable[..., Any], params: Any, x: Any, inexact: bool) -> tuple[Any, Any]:
    """Return what the layer returns, and the gradients of a weighted sum of its output."""

    def loss(params: Any, x: Any) -> tuple[jax.Array, Any]:
        y, state = f(params, x)
        return (_weights(y) * y).sum(), (y, state)

    argnums = (0, 1) if inexact else (0,)
    (_, values), derivatives = jax.value_and_grad(loss, argnums, has_aux=True)(params, x)
    return values, derivatives


def _weights(y: jax.Array) -> jax.Array:
    """Numbers that differ, so that no part of a gradient cancels."""
    return jnp.cos(jnp.arange(y.size, dtype=y.dtype)).reshape(y.shape)


def _gradient_error(f: Callable[..., Any], params: Any, x: Any, inexact: bool, want: Any) -> float:
    """Compare the gradient along one direction with a central difference in float64."""
    point = (params, x) if inexact else (params,)
    wide = jax.tree.map(lambda leaf: leaf.astype(np.float64), point)
    along = jax.tree.map(_weights, wide)

    @jax.jit
    def loss(step: float) -> jax.Array:
        moved = jax.tree.map(lambda leaf, d: leaf + step * d, wide, along)
        y = f(*moved, *(() if inexact else (x,)))[0]
        return (_weights(y) * y).sum()

    step = 1e-6
    difference = (loss(step) - loss(-step)) / (2 * step)
    derivative = sum(
        jnp.sum(g.astype(np.float64) * d)
        for g, d in zip(jax.tree.leaves(want[1]), jax.tree.leaves(along), strict=True)
    )
    scale = max(1.0, abs(float(difference)))
    return abs(float(difference) - float(derivative)) / scale


def plain_dicts(tree: Any) -> Any:
    """Write Julia's named tuples as dicts."""
    if hasattr(tree, "_asdict"):
        return {name: plain_dicts(value) for name, value in tree._asdict().items()}
    return tuple(map(plain_dicts, tree)) if isinstance(tree, tuple) else tree


def _relative(got: Any, want: Any) -> float:
    """Return the largest difference, relative to the largest number."""
    if jax.tree.structure(got) != jax.tree.structure(want):
        raise ValueError(f"another tree: {jax.tree.structure(got)}")
    pairs = list(zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True))
    for a, b in pairs:
        if a.shape != b.shape or a.dtype != b.dtype:
            raise ValueError(f"{a.dtype}{a.shape} in place of {b.dtype}{b.shape}")
    # Of the whole tree: what ought to be zero, as the gradient of a bias before a
    # normalisation, has the rounding of the numbers that cancel.
    pairs = [(np.asarray(a, np.float64), np.asarray(b, np.float64)) for a, b in pairs]
    scale = max([1e-3, *(float(np.abs(b).max(initial=0)) for _, b in pairs)])
    return max([0.0, *(float(np.abs(a - b).max(initial=0)) for a, b in pairs)]) / scale
