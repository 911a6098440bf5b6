"""Pullbacks that forward passes in compiled programs leave for the backward passes."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from bridge_helpers import REVERSE, counted, julia, same
from jax import lax
from precision import enable_x64
from quick import examples

import pybridge as pb


@pytest.fixture(autouse=True)
def _x64():
    with enable_x64(True):
        yield


X = np.array([0.3, -0.5, 1.1])


def twin(x):
    return jnp.sin(x) * x


def total(f):
    return lambda x: jnp.sum(jnp.exp(f(x)))


# Name: what is made of a function, an argument, and the forward runs of one gradient.
PASSES = {
    "plain": (total, X, 1),
    "scan": (
        lambda f: lambda x: lax.scan(lambda c, x: (c + total(f)(c * x), None), 1.0, x)[0],
        np.stack([X, -X]),
        2,
    ),
    "vmap": (lambda f: total(jax.vmap(f)), np.stack([X, -X, 2 * X]), 3),
    "checkpoint": (lambda f: jax.checkpoint(total(f)), X, 1),
}


@pytest.mark.parametrize("system", REVERSE)
@pytest.mark.parametrize("name", PASSES)
def test_a_gradient_runs_the_function_once(name, system):
    make, x, count = PASSES[name]
    source, read = counted("x -> sin.(x) .* x", system)
    f = julia(source, system)
    gradient = jax.jit(jax.grad(make(f)))
    same(gradient(x), jax.grad(make(twin))(x))
    read()
    same(gradient(2 * x), jax.grad(make(twin))(2 * x))
    # Yota runs a function when it traces it, and once more with the rules in place.
    assert read() == count * (2 if system == "yota" else 1)


def test_one_forward_pass_and_many_backward_passes():
    f = julia("x -> sin.(x) .* x")
    _, pull = jax.vjp(f, X)
    _, expected = jax.vjp(twin, X)
    for ct in np.eye(3):
        same(pull(ct), expected(ct))
    same(jax.vmap(pull)(np.eye(3)), jax.vmap(expected)(np.eye(3)))
    same(jax.jit(jax.jacrev(f))(X), jax.jacrev(twin)(X))
    same(jax.jit(jax.hessian(total(f)))(X), jax.hessian(total(twin))(X))


def test_a_backward_pass_of_some_arguments():
    f = julia("(a, b, c) -> (a .* b, b .* c)")
    args = (X, X + 1, X + 2)
    _, pull = jax.vjp(lambda *xs: f(*xs), *args)
    only_b = jax.jit(lambda ct: pull((ct, ct))[1])(X)
    same(only_b, X * (args[0] + args[2]))


# Large enough to be read in XLA's memory.
LARGE = np.random.default_rng(0).uniform(-0.5, 0.5, (300, 200))


@pytest.mark.parametrize("layout", ["logical", "reversed"])
def test_what_is_left_does_not_need_xlas_memory(layout):
    f = julia("x -> x .* x", layout=layout)
    _, pull = jax.vjp(jax.jit(f), jnp.asarray(LARGE))
    for _ in range(5):  # new buffers in the place of those that are free
        jax.block_until_ready(jnp.ones_like(LARGE) * 3)
    # The arguments come again, and from elsewhere.
    pull = jax.tree.map(jnp.copy, pull)
    same(pull(np.ones_like(LARGE))[0], 2 * LARGE)


# As above. Large arguments come to the backward pass from where they were, or from elsewhere.
LARGE_PASSES = {
    name: (make, np.stack([LARGE] * count) if x.ndim > 1 else LARGE, count)
    for name, (make, x, count) in PASSES.items()
}


@pytest.mark.parametrize("name", LARGE_PASSES)
def test_a_gradient_of_a_large_array_runs_the_function_once(name):
    make, x, count = LARGE_PASSES[name]
    x = 1e-5 * x  # exponentials of sums of so many
    source, read = counted("x -> sin.(x) .* x", "zygote")
    f = julia(source)
    gradient = jax.jit(jax.grad(make(f)))
    jax.block_until_ready(gradient(x))  # and called once to see the shape of its value
    assert read() == 1 + count
    for scale in (1, 2, 3):
        same(gradient(scale * x), jax.grad(make(twin))(scale * x))
    assert read() == 3 * count


# Functions with rules whose pullbacks keep, change, return or cannot take what they are given.
HOLDERS = {
    "nothing": "x -> (x .* x, ȳ -> (2 .* x .* ȳ,))",
    "a view": "x -> (v = view(x, :, :); (x .* x, ȳ -> (2 .* v .* ȳ,)))",
    "a copy": "x -> (y = copy(x); (x .* x, ȳ -> (2 .* y .* ȳ,)))",
    "the memory itself": "x -> (m = Base.broadcastable(x); (x .* x, ȳ -> (2 .* m .* ȳ,)))",
    "what it wrote over": "x -> (y = x .* x; x .= 2 .* x; (y, ȳ -> (x .* ȳ,)))",
    "a cotangent written over": "x -> (x .* x, ȳ -> (ȳ .*= 2 .* x; (ȳ,)))",
    "what only arrays can do": "x -> (x .* x, ȳ -> (2 .* (x::Array) .* (ȳ::Array),))",
}


@pytest.mark.parametrize("kept", HOLDERS)
def test_what_a_pullback_keeps_of_a_large_array(kept):
    f = pb.from_julia("x -> x .* x", vjp=HOLDERS[kept], layout="reversed")
    x, ct = jnp.asarray(LARGE), jnp.asarray(LARGE.T.reshape(LARGE.shape) + 1)
    given = [np.array(x), np.array(ct)]
    gradient = jax.jit(lambda x, ct: jax.vjp(f, x)[1](ct)[0])
    for _ in range(3):
        same(gradient(x, ct), 2 * given[0] * given[1])
        _, pull = jax.vjp(f, x)
        same(jax.tree.map(jnp.copy, pull)(ct)[0], 2 * given[0] * given[1])
    same(x, given[0])
    same(ct, given[1])


@pytest.mark.parametrize("source", ["x -> x", "x -> (x, x)", "x -> reshape(x, 300, 200)"])
def test_a_large_cotangent_that_is_passed_on(source):
    f = pb.from_julia(source, layout="reversed")
    value, pull = jax.vjp(f, jnp.asarray(LARGE))
    ct = jax.tree.map(lambda y: jnp.cos(y), value)
    count = len(jax.tree.leaves(value))
    same(pull(ct)[0], count * np.cos(LARGE))


def test_all_lanes_in_one_call():
    f = julia("x -> sin.(x) .* x", batched=True)
    xs = np.stack([X, -X])
    same(jax.jit(jax.grad(total(jax.vmap(f))))(xs), jax.grad(total(jax.vmap(twin)))(xs))
    g = julia("(w, x) -> w .* sin.(x)", batched=True)
    same(
        jax.jit(jax.grad(lambda w: jnp.sum(jax.vmap(g, (None, 0))(w, xs))))(X),
        jax.grad(lambda w: jnp.sum(jax.vmap(lambda w, x: w * jnp.sin(x), (None, 0))(w, xs)))(X),
    )


def test_an_error_of_the_backward_pass_is_the_callers():
    f = pb.from_julia(
        "x -> x .* x", vjp='x -> (x .* x, ȳ -> ȳ[1] > 0 ? error("no") : (2 .* x .* ȳ,))'
    )
    _, pull = jax.vjp(f, X)
    with pytest.raises(pb.JuliaError, match="no"):
        pull(np.ones(3))
    same(pull(-np.ones(3))[0], -2 * X)


def test_many_threads_at_once():
    f = julia("x -> sin.(x) .* x")
    gradient, expected = jax.jit(jax.grad(total(f))), jax.jit(jax.grad(total(twin)))
    points = [X * k for k in range(1, 9)]

    def run(x):
        with enable_x64(True):
            return [gradient(x) for _ in range(20)]

    with ThreadPoolExecutor(4) as pool:
        for x, found in zip(points, pool.map(run, points), strict=True):
            for one in found:
                same(one, expected(x))


MANY = """
import os, resource, jax, jax.numpy as jnp, pybridge as pb

f = pb.from_julia("x -> sin.(x) .* x")
x = jnp.ones(25_000)                      # 100 KB, and as much in each pullback and more
forward = jax.jit(lambda x: jax.vjp(f, x))
_, first = forward(x)
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
for n in range(ROUNDS):
    jax.block_until_ready(forward(x))
    if n == 500:
        before = peak()
grown = peak() - before
assert grown < 60, f"{grown} MB for {n - 500} forward passes, 16 MB of pullbacks are allowed"
assert jnp.allclose(first(jnp.ones(25_000))[0], jnp.cos(1.0) + jnp.sin(1.0))
"""


@pytest.mark.both
def test_forward_passes_alone_do_not_fill_the_memory(run_python):
    program = MANY.replace("ROUNDS", str(examples(6000)))
    run_python(program, env={**os.environ, "PYBRIDGE_PULLBACK_BYTES": str(2**24)})


COUNTING = """
import jax, jax.numpy as jnp, pybridge as pb

f = pb.from_julia(
    "begin n = Ref(0); x -> (ChainRulesCore.ignore_derivatives(() -> n[] += 1); n[] .* x) end",
    out=jax.ShapeDtypeStruct((1,), jnp.float32),
)
y, pull = jax.vjp(jax.jit(f), jnp.ones(1, jnp.float32))
print(float(y[0]), float(pull(jnp.ones(1, jnp.float32))[0][0]))
"""


def test_without_memory_for_pullbacks_the_forward_pass_runs_again(run_python, capsys):
    exec(COUNTING, {})
    assert capsys.readouterr().out.split() == ["1.0", "1.0"]
    found = run_python(COUNTING, packages=(), env={**os.environ, "PYBRIDGE_PULLBACK_BYTES": "0"})
    assert found.split() == ["1.0", "2.0"]
