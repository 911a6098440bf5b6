"""Every JAX transformation, and every nesting of two, around Julia functions.

The truth is the same function in `jax.numpy`, in double precision, under the same
transformation. Pairs act on functions of one number, so that any two fit together; what is
inside are numbers, vectors, matrices and trees all the same.
"""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from bridge_helpers import SYSTEMS, julia, same
from jax import lax
from precision import enable_x64
from quick import by_day, combined


@pytest.fixture(autouse=True)
def _x64():
    with enable_x64(True):
        yield


# Name: Julia, JAX, argument.
FUNCTIONS = {
    "number": ("x -> sin(x) * exp(x)", lambda x: jnp.sin(x) * jnp.exp(x), 0.7),
    "vector": (
        "x -> sum(sin.(x) .* x .* x)",
        lambda x: jnp.sum(jnp.sin(x) * x * x),
        [0.3, -0.5, 1.1],
    ),
    "matrix": (
        "x -> x * permutedims(x .* x)",
        lambda x: x @ (x * x).T,
        [[0.5, -1.0, 0.2], [1.5, 0.1, -0.7]],
    ),
    "tree": (
        "p -> (p.w * p.b, sum(sin.(p.w)) * p.b[1])",
        lambda p: (p["w"] @ p["b"], jnp.sum(jnp.sin(p["w"])) * p["b"][0]),
        {"b": [0.4, -0.6], "w": [[0.1, 0.2], [0.3, -0.4]]},
    ),
}
SCALAR = ("number", "vector")


def argument(name):
    return jax.tree.map(
        lambda x: jnp.asarray(x, jnp.float64),
        FUNCTIONS[name][2],
        is_leaf=lambda x: not isinstance(x, dict),
    )


def both(name, system):
    """Return the Julia function and its twin."""
    source, twin, _ = FUNCTIONS[name]
    return julia(source, system), twin


# --- one transformation, on functions of any shape ----------------------------------------


def along(tree):
    """Make a direction, or cotangents, of a tree's shape."""
    return jax.tree.map(lambda x: jnp.cos(1.0 + jnp.arange(x.size)).reshape(x.shape), tree)


def jvp(f):
    return lambda x: jax.jvp(f, (x,), (along(x),))


def vjp(f):
    def result(x):
        y, pull = jax.vjp(f, x)
        return y, pull(along(y))

    return result


def linearize(f):
    def result(x):
        y, push = jax.linearize(f, x)
        return y, push(along(x)), jax.linear_transpose(push, x)(along(y))

    return result


def lanes(x):
    return jax.tree.map(lambda x: jnp.stack([x, 0.5 * x, -x]), x)


def scan(f):
    def result(x):
        return lax.scan(lambda c, x: (c + total(f(x)), f(jax.tree.map(jnp.sin, x))), 0.0, lanes(x))

    return result


def total(tree):
    return sum(jnp.sum(along(leaf) * leaf) for leaf in jax.tree.leaves(tree))


def while_loop(f):
    return lambda x: lax.while_loop(
        lambda s: s[0] < 3.0, lambda s: (s[0] + 1, s[1] + total(f(x)) * s[0]), (0.0, 0.0)
    )


def fori_loop(f):
    return lambda x: lax.fori_loop(0, 3, lambda i, y: jax.tree.map(jnp.add, y, f(x)), f(x))


def cond(f):
    def result(x):
        def zeros(x):
            return jax.tree.map(jnp.zeros_like, f(x))

        return [lax.cond(total(x) > bound, f, zeros, x) for bound in (-1e3, 1e3)]

    return result


def gradient_of(transform):
    """The gradient of a number that is made from all results of a transformation."""
    return lambda f: jax.grad(lambda x: total(transform(f)(x)))


SINGLE = {
    "plain": lambda f: f,
    "jacrev": jax.jacrev,
    "jacfwd": jax.jacfwd,
    "hessian": jax.hessian,
    "jvp": jvp,
    "vjp": vjp,
    "linearize": linearize,
    "vmap": lambda f: lambda x: jax.vmap(f)(lanes(x)),
    "vmap of jacrev": lambda f: lambda x: jax.vmap(jax.jacrev(f))(lanes(x)),
    "scan": scan,
    "while_loop": while_loop,
    "fori_loop": fori_loop,
    "cond": cond,
    "checkpoint": jax.checkpoint,
    "grad of vmap": gradient_of(lambda f: lambda x: jax.vmap(f)(lanes(x))),
    "grad of scan": gradient_of(scan),
    "grad of fori_loop": gradient_of(fori_loop),
    "grad of cond": gradient_of(cond),
    "grad of checkpoint": gradient_of(jax.checkpoint),
    "grad of jvp": gradient_of(jvp),
    "grad of vjp": gradient_of(vjp),
}


# The other systems differ in reverse mode alone.
OF_ALL = ("plain", "jacrev", "vjp", "hessian", "linearize", "vmap of jacrev", "grad of jvp")
ONE = [
    (system, function, transform)
    for system in SYSTEMS
    for function in FUNCTIONS
    for transform in (SINGLE if system == "zygote" and function != "number" else OF_ALL)
]


# By day each transformation once under each system, of one of the functions.
BY_DAY = [
    (system, list(FUNCTIONS)[1 + i % 3], transform)
    for system in SYSTEMS
    for i, transform in enumerate(SINGLE if system == "zygote" else OF_ALL)
]


@pytest.mark.parametrize(("system", "function", "transform"), by_day(ONE, BY_DAY))
def test_one(system, function, transform):
    f, twin = both(function, system)
    x = argument(function)
    want = jax.jit(SINGLE[transform](twin))(x)
    same(jax.jit(SINGLE[transform](f))(x), want)
    if function == "vector":
        same(SINGLE[transform](f)(x), want)


@pytest.mark.parametrize("wrapped", [lambda f: f, jax.jit], ids=["eager", "jit"])
@pytest.mark.parametrize("function", SCALAR)
def test_grad_and_value_and_grad(function, wrapped, system):
    f, twin = both(function, system)
    x = argument(function)
    same(wrapped(jax.grad(f))(x), jax.grad(twin)(x))
    same(wrapped(jax.value_and_grad(f))(x), jax.value_and_grad(twin)(x))


# --- pairs, on functions of one number ----------------------------------------------------

STEPS = np.array([1.0, 2.0])
NUMBER = {
    "grad": jax.grad,
    "value_and_grad": lambda f: lambda t: sum(jax.value_and_grad(f)(t)),
    "jacrev": jax.jacrev,
    "jacfwd": jax.jacfwd,
    "jvp": lambda f: lambda t: jax.jvp(f, (t,), (1.0 + 0.0 * t,))[1],
    "vjp": lambda f: lambda t: jax.vjp(f, t)[1](1.0 + 0.0 * t)[0],
    "linearize": lambda f: lambda t: jax.linearize(f, t)[1](1.0 + 0.0 * t),
    "hessian": jax.hessian,
    "jit": jax.jit,
    "vmap": lambda f: lambda t: jnp.sum(jax.vmap(f)(t * STEPS) * STEPS),
    "scan": lambda f: lambda t: lax.scan(lambda c, s: (c + f(s * t), None), t, STEPS)[0],
    "fori_loop": lambda f: lambda t: lax.fori_loop(0, 2, lambda i, c: c + f(t), t),
    "while_loop": lambda f: (
        lambda t: lax.while_loop(lambda s: s[0] < 2, lambda s: (s[0] + 1, s[1] + f(t)), (0, t))[1]
    ),
    "cond": lambda f: lambda t: lax.cond(t > 0, f, lambda t: 0.0 * t, t),
    "checkpoint": jax.checkpoint,
}
REVERSE = ("grad", "value_and_grad", "jacrev", "vjp", "hessian")
CHOSEN = [  # for the systems that do not get all pairs
    ("grad", "grad"),
    ("grad", "jvp"),
    ("jvp", "grad"),
    ("vmap", "hessian"),
    ("hessian", "vmap"),
    ("hessian", "grad"),
    ("checkpoint", "grad"),
    ("grad", "scan"),
    ("jit", "linearize"),
]
PAIRS = [
    *(("zygote", outer, inner) for outer in NUMBER for inner in NUMBER),
    *((system, *pair) for system in SYSTEMS if system != "zygote" for pair in CHOSEN),
]


def of_number(f, x):
    """Make a function of one number, through the point `x` for 1."""
    return lambda t: total(f(jax.tree.map(lambda x: t * x, x)))


# By day each transformation three times within another one, and around.
SOME_PAIRS = [
    *CHOSEN,
    *((o, i) for k in (1, 4, 9) for o, i in zip(NUMBER, [*NUMBER, *NUMBER][k:], strict=False)),
]
PAIRS_BY_DAY = [pair for pair in PAIRS if pair[1:] in SOME_PAIRS]


@pytest.mark.parametrize(("system", "outer", "inner"), by_day(PAIRS, PAIRS_BY_DAY))
def test_two(system, outer, inner):
    if inner == "while_loop" and outer in REVERSE:
        pytest.skip("JAX has no reverse mode for while_loop")
    # One of the four functions for each pair; each transformation meets all of them.
    place = list(NUMBER).index(outer) + 3 * list(NUMBER).index(inner)
    function = list(FUNCTIONS)[place % len(FUNCTIONS)]
    f, twin = both(function, system)
    x = argument(function)

    def run(f):
        transformed = NUMBER[outer](NUMBER[inner](of_number(f, x)))
        return jax.jit(transformed)(jnp.float64(0.8))

    same(run(f), run(twin), rtol=1e-8)


# --- vmap over some arguments -------------------------------------------------------------

AXES = [(0, 0), (1, 0), (0, 1), (0, None), (None, 0), (None, 1), (1, None)]
NESTED = [((0, None), (None, 0)), ((None, 0), (0, None)), ((0, 0), (0, 0)), ((1, 0), (0, 1))]
POST = {
    "value": lambda f: f,
    "grad": lambda f: jax.grad(lambda w, x: total(f(w, x)), argnums=(0, 1)),
    "jvp": lambda f: lambda w, x: jax.jvp(f, (w, x), (along(w), along(x)))[1],
    "hvp": lambda f: (
        lambda w, x: jax.jvp(jax.grad(lambda w: total(f(w, x)) ** 2), (w,), (along(w),))[1]
    ),
}


def product(system, layout="logical"):
    """Return `tanh(w * x)` in Julia and in JAX."""
    source = (
        "(w, x) -> tanh.(w * x)" if layout == "logical" else "(w, x) -> tanh.(permutedims(w) * x)"
    )
    return julia(source, system, layout=layout), lambda w, x: jnp.tanh(w @ x)


def operands(*levels):
    """Make operands with an axis for each level of `vmap`, innermost first."""
    w, x = jnp.sin(jnp.arange(6.0)).reshape(2, 3), jnp.cos(jnp.arange(3.0))

    def stack(x, axis):
        return x if axis is None else jnp.stack([x, 0.5 * x, -x], axis)

    for axes in levels:
        w, x = stack(w, axes[0]), stack(x, axes[1])
    return w, x


@pytest.mark.parametrize("axes", AXES, ids=str)
@pytest.mark.parametrize("post", POST)
@pytest.mark.parametrize("inside", [False, True], ids=["around", "inside"])
def test_vmap_axes(axes, post, inside):
    point = operands(axes)

    def run(f):
        mapped = jax.vmap(POST[post](f), axes) if inside else POST[post](jax.vmap(f, axes))
        return jax.jit(mapped)(*point)

    f, twin = product("zygote")
    same(run(f), run(twin))


@pytest.mark.parametrize("system", [s for s in SYSTEMS if s != "zygote"])
@pytest.mark.parametrize("axes", [(1, None), (None, 0)], ids=str)
def test_vmap_of_grad_and_grad_of_vmap(axes, system):
    f, twin = product(system)
    point = operands(axes)
    grad = POST["grad"]
    for transform in (lambda f: jax.vmap(grad(f), axes), lambda f: grad(jax.vmap(f, axes))):
        same(jax.jit(transform(f))(*point), jax.jit(transform(twin))(*point))


@pytest.mark.parametrize("levels", NESTED, ids=str)
@pytest.mark.parametrize("post", POST)
@pytest.mark.parametrize("layout", ["logical", "reversed"])
def test_vmap_nested(levels, post, layout):
    point = operands(*levels)

    def run(f):
        return jax.jit(POST[post](jax.vmap(jax.vmap(f, levels[0]), levels[1])))(*point)

    f, twin = product("zygote", layout)
    same(run(f), run(twin))


WEIGHTS = np.array([[1.0, 2.0, 3.0], [-1.0, 0.5, 0.0]])


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("post", POST)
@pytest.mark.parametrize("layout", ["logical", "reversed"])
def test_vmap_of_a_function_that_takes_a_batch(axis, post, layout):
    x = operands((axis, axis))[1]

    def run(f):  # `POST` wants two arguments; the first is a number for all.
        return jax.jit(POST[post](lambda w, x: jax.vmap(f, axis)(x + w)))(jnp.array(0.3), x)

    f = julia("x -> tanh.([1.0 2.0 3.0; -1.0 0.5 0.0] * x)", batched=True, layout=layout)
    same(run(f), run(lambda x: jnp.tanh(WEIGHTS @ x)))


@pytest.mark.parametrize("order", [3, 4])
def test_higher_orders(order):
    f, twin = both("number", "zygote")
    for name in ("grad", "jacfwd"):
        one, other = f, twin
        for _ in range(order):
            one, other = NUMBER[name](one), NUMBER[name](other)
        same(jax.jit(one)(0.7), other(0.7))


MIXED = {
    "numbers": (
        "(w, x) -> sin(w * x) * x",
        lambda w, x: jnp.sin(w * x) * x,
        (0.3, 0.8),
    ),
    "vectors": (
        "(w, x) -> sum(tanh.(w .* x) .* x)",
        lambda w, x: jnp.sum(jnp.tanh(w * x) * x),
        ([0.3, 0.5], [1.1, -0.7]),
    ),
    "a number and a vector": (
        "(w, x) -> sum(sin.(w .* x) .* x .^ 3)",
        lambda w, x: jnp.sum(jnp.sin(w * x) * x**3),
        (0.3, [1.1, -0.7]),
    ),
}


@pytest.mark.both
@pytest.mark.parametrize("order", [2, pytest.param(3, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("name", MIXED)
def test_mixed_derivatives(name, order, system):
    source, twin, args = MIXED[name]
    f, args = julia(source, system), [jnp.asarray(x) for x in args]
    all_modes = itertools.product((jax.jacrev, jax.jacfwd), repeat=order)
    for modes, numbers in combined(all_modes, itertools.product((0, 1), repeat=order)):
        one, other = f, twin
        for mode, number in zip(modes, numbers, strict=True):
            one, other = mode(one, number), mode(other, number)
        same(one(*args), other(*args))


@pytest.mark.nightly  # tests/julia/bridge.jl has third derivatives by every system
def test_third_derivatives_of_a_power_under_yota():
    def twin(a, b):
        return jnp.sum(jnp.sin(a) * b**3)

    def third(f):
        return jax.jacfwd(jax.jacrev(jax.jacrev(f, 1), 0), 1)(jnp.array([0.3, 0.5]), args)

    args = jnp.array([0.7, 1.1])
    same(third(julia("(a, b) -> sum(sin.(a) .* b .^ 3)", "yota")), third(twin))
