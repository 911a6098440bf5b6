"""Threads, memory and lifetimes of compiled programs. In fresh processes, with a time limit.

`PYBRIDGE_STRESS=1` makes the threads run for 60 seconds.
"""

from __future__ import annotations

import os
import sys

import pytest
from quick import seconds

pytestmark = pytest.mark.processes

SECONDS = 60 if os.environ.get("PYBRIDGE_STRESS") else seconds(5)

PROLOGUE = """
import gc, threading, time
import jax, jax.export, jax.numpy as jnp, numpy as np
import pybridge as pb
from quick import combined, examples, seconds

def jit(f):
    compiled = jax.jit(f)  # has to be held until it is done
    return lambda *args: jax.block_until_ready(compiled(*args))

read = pb.from_julia("x -> (length(PyBridge.FUNCTIONS.entries), length(PyBridge.PROGRAMS.entries))")
"""


@pytest.fixture
def run(run_python):
    def run(body, *, packages=(), timeout=300, **settings):
        env = {**os.environ, **settings}
        return run_python(PROLOGUE + body, packages=packages, timeout=timeout, env=env)

    return run


@pytest.mark.both
def test_threads_neither_hang_nor_crash_while_collections_run(run):
    """Four threads in compiled programs, collections on both sides, errors in between."""
    run(
        f"SECONDS = {SECONDS}"
        + """
f = pb.from_julia("x -> (y = [copy(x) for _ in 1:50]; sum(abs2, last(y)))",
    out=jax.ShapeDtypeStruct((), np.float32))
collect = pb.from_julia("x -> (GC.gc(x > 1); x)")
fails = pb.from_julia('x -> x > 0 ? error("planted") : x', out=jax.ShapeDtypeStruct((), np.float32))
value, grad, collect, fails = map(jit, (f, jax.grad(f), collect, fails))
# Transposed to memory that calls take from each other.
large, matrix = jit(jax.grad(pb.from_julia("x -> sum(x .* x)"))), np.ones((300, 301), np.float32)
matrix[:, 7], matrix[8] = 3, 5
lanes = jit(jax.vmap(jax.grad(f)))
x = np.arange(100, dtype=np.float32)
value(x), grad(x), lanes(np.stack([x, x])), collect(0.0), fails(-1.0)
stop = time.monotonic() + SECONDS
counts, wrong = [0] * 4, []

def work(k):
    mine = x + k
    try:
        while time.monotonic() < stop or counts[k] <= 10:
            if not np.allclose(grad(mine), 2 * mine):
                wrong.append("gradient")
            if not np.allclose(value(mine), np.sum(mine**2), rtol=1e-4):
                wrong.append("value")
            if counts[k] % 7 == 0 and not np.allclose(lanes(np.stack([mine, x]))[1], 2 * x):
                wrong.append("lanes")
            if counts[k] % 5 == 0 and not np.array_equal(large(matrix + k), 2 * (matrix + k)):
                wrong.append("large")
            if counts[k] % 20 == k:
                jax.block_until_ready(collect(counts[k] % 3))
            if counts[k] % 30 == k:
                gc.collect()
                try:
                    jax.block_until_ready(fails(1.0))
                    wrong.append("no error")
                except (jax.errors.JaxRuntimeError, ValueError) as error:
                    assert "planted" in str(error)
            if counts[k] % 200 == 0:
                jit(pb.from_julia("x -> x"))(1.0)
            counts[k] += 1
    except BaseException as error:
        wrong.append(repr(error))

threads = [threading.Thread(target=work, args=(k,)) for k in range(3)]
[t.start() for t in threads]
work(3)
[t.join() for t in threads]
assert not wrong, wrong[:5]
""",
        timeout=SECONDS + 240,
    )


@pytest.mark.both
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_memory_does_not_grow(run):
    """100,000 calls and 5,000 gradients leave less than 5 MB; by day a quarter of them.

    What leaks, leaks every time. The heaps of Julia and of the C library also grow in
    steps, when they like, so that one round may stand alone.
    """
    run(
        """
import resource
f = pb.from_julia("x -> sum(abs2, x)")
value, grad = jax.jit(f), jax.jit(jax.grad(f))
x = jnp.arange(100, dtype=jnp.float32)

def resident():
    gc.collect()
    pb.from_julia("x -> (GC.gc(); x)")(1.0)
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize() / 1e6

def calls(values, gradients):
    for _ in range(values):
        value(x)
    for _ in range(gradients):
        grad(x)
    jax.block_until_ready(grad(x))

calls(examples(200_000), examples(10_000))  # most of the steps come in the first rounds
grown = []
while len(grown) < 4 and min(grown, default=5) >= 5:
    before = resident()
    calls(examples(100_000), examples(5_000))
    grown.append(resident() - before)
assert min(grown) < 5, f"{grown} MB"
""",
        packages=None,  # of so many calls, what is compiled pays
    )


@pytest.mark.both
def test_functions_and_programs_are_released(run):
    run("""
def counts():
    gc.collect()
    read(1.0)  # what is posted is done before
    return tuple(int(n) for n in read(1.0))

pb.grad(pb.from_julia("x -> x^2"), backend="zygote")(1.0)
before = counts()
for k in range(examples(20)):
    f = pb.from_julia(f"x -> sum(x) * {k}")
    jit(f)(np.ones(2)), jax.grad(f)(np.ones(2)), jax.vmap(f)(np.ones((2, 2)))
during = counts()
assert during[1] - before[1] >= 3, (before, during)
del f
gc.collect()
without = counts()
jax.clear_caches()
after = counts()
print("before", before, "during", during, "without clear_caches", without, "after", after)
assert after == before, (before, after)
""")


def test_one_program_more_while_another_is_called_by_the_same_key(run):
    # Two functions of one source have programs of one key: the first to go leaves the other's.
    run("""
f, g = (pb.from_julia("x -> sum(x) + 1") for _ in range(2))
one, two = jit(f), jit(g)
assert one(np.ones(2)) == two(np.ones(2)) == 3
del f, one
jax.clear_caches()
gc.collect()
read(1.0)
assert two(np.ones(2)) == 3
assert jit(g)(np.ones(2)) == 3
""")


@pytest.mark.both
def test_lanes_on_julias_threads(run):
    run(
        """
assert pb.from_julia("x -> Threads.nthreads()")(1.0) == 3
f = pb.from_julia("x -> (y = sum(sin, x); y > 100 ? error(\\"planted\\") : y)")
g = pb.from_julia("x -> x > 5 ? error(\\"planted\\", x) : sin(x) * Threads.threadid()^0",
    out=jax.ShapeDtypeStruct((), np.float32))
xs = np.linspace(0, 4, 64, dtype=np.float32)
zygote_keeps_lines = bool(pb.from_julia("() -> VERSION < v\\"1.12\\"")())
lanes, slopes = jit(jax.vmap(g)), jit(jax.vmap(jax.grad(g)))
tables, table = jit(jax.vmap(jax.vmap(g))), xs.reshape(8, 8)
for _ in range(50):
    np.testing.assert_allclose(lanes(xs), np.sin(xs), rtol=1e-5)
    np.testing.assert_allclose(slopes(xs), np.cos(xs), atol=1e-5)
    np.testing.assert_allclose(tables(table), np.sin(table), rtol=1e-5)
for bad in (0, 31, 32, 63):
    broken = xs.copy()
    broken[bad] = 6 + bad
    for run, keeps in ((lanes, True), (slopes, zygote_keeps_lines)):
        try:
            run(broken)
            raise AssertionError("no error")
        except (jax.errors.JaxRuntimeError, ValueError) as error:
            assert f"planted{6.0 + bad}" in str(error), str(error)
            assert not keeps or "julia source:1" in str(error), str(error)
np.testing.assert_allclose(lanes(xs), np.sin(xs), rtol=1e-5)
used = pb.from_julia("x -> (sum(abs2, randn(2000)); Float32(Threads.threadid()))")
assert len(set(np.asarray(jit(jax.vmap(used))(xs)).tolist())) == 2

# And with collections from Python's threads.
g = pb.from_julia("x -> (y = [x + k for k in 1:500]; sum(y) - 500 * x)",
    out=jax.ShapeDtypeStruct((), np.float32))
f = jit(jax.vmap(g))
collect = jit(pb.from_julia("x -> (GC.gc(false); x)"))
xs = np.zeros(64, np.float32)
f(xs), collect(1.0)
wrong = []
stop = time.monotonic() + seconds(4)

def work(k):
    while time.monotonic() < stop:
        if not np.allclose(f(xs), 125250):
            wrong.append(k)
        jax.block_until_ready(collect(1.0))

threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
[t.start() for t in threads]
[t.join() for t in threads]
assert not wrong
""",
        PYTHON_JULIACALL_THREADS="3",
    )


CALLBACK = """
import pytest
def raises(text, run):
    with pytest.raises(Exception, match=text):
        jax.block_until_ready(run())

jax.config.update("jax_enable_x64", True)
from pybridge.julia._ffi import xla_calls_julia
assert "PYBRIDGE_FFI" in xla_calls_julia("cpu")
f, twin = pb.from_julia("x -> sum(sin.(x) .* x)", ad=AD), lambda x: jnp.sum(jnp.sin(x) * x)
v, w = pb.from_julia("(w, x) -> tanh.(w * x)", ad=AD), lambda w, x: jnp.tanh(w @ x)
x = jnp.arange(3.0) + 0.5
W = jnp.cos(jnp.arange(6.0)).reshape(2, 3)
t = lambda v: lambda w, x: jnp.sum(v(w, x) ** 2)
PAIRS = [
    (lambda f, v: f(x), "value"),
    (lambda f, v: jax.value_and_grad(f)(x), "value_and_grad"),
    (lambda f, v: jax.hessian(f)(x), "hessian"),
    (lambda f, v: jax.jvp(f, (x,), (x,)), "jvp"),
    (lambda f, v: jax.jacrev(v, (0, 1))(W, x), "jacrev"),
    (lambda f, v: jax.jacfwd(v, (0, 1))(W, x), "jacfwd"),
    (lambda f, v: jax.hessian(t(v), (0, 1))(W, x), "hessian of matrices"),
    (lambda f, v: jax.vmap(v, (None, 0))(W, jnp.stack([x, 2 * x])), "vmap"),
    (lambda f, v: jax.grad(lambda W: jnp.sum(jax.vmap(v, (None, 1), 1)(W, W.T @ W)))(W), "vmap W"),
    (lambda f, v: jax.lax.scan(lambda c, k: (c + f(k * x), None), 0.0, x)[0], "scan"),
]
for run, name in PAIRS:
    got, want = jit(lambda: run(f, v))(), run(twin, w)
    for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12, err_msg=name)

SHAPES = ((), (3,), (0,), (2, 0), (2, 3), (2, 3, 2), (1, 2, 3, 2))
DTYPES = ("bool", "int8", "uint64", "float16", "float32", "complex64")
for layout, order in (("logical", "F"), ("reversed", "C")):
    for shape, dtype in combined(SHAPES, DTYPES):
        z = (np.arange(np.prod(shape)) % 5).reshape(shape).astype(dtype)
        same = jit(pb.from_julia("identity", layout=layout))(z)
        assert same.dtype == z.dtype
        np.testing.assert_array_equal(same, z)
    z = np.ones((2, 3))
    numbered = pb.from_julia("x -> x .* reshape(1:length(x), size(x))", layout=layout)
    np.testing.assert_array_equal(jit(numbered)(z), np.arange(1, 7).reshape(2, 3, order=order))
    z = jax.device_put(np.ones((300, 300)))
    np.testing.assert_array_equal(
        jit(pb.from_julia("x -> (x .= 2; x)", layout=layout))(z), 2 * np.ones((300, 300)))
    np.testing.assert_array_equal(z, np.ones((300, 300)))

tree = jit(pb.from_julia("p -> (p.a, (b=p.b, c=nothing))"))({"a": x, "b": 2.0})
assert tree[1].c is None and tree[1].b == 2.0
c = pb.from_julia("x -> PyBridge.cond(PyBridge.within_gradient(x), x -> x^2, x -> x, x)", ad=AD)
assert jit(jax.value_and_grad(c))(2.0) == (4.0, 4.0) and jit(c)(2.0) == 2.0
raises("planted.*\\n.*julia source:1", lambda: jit(pb.from_julia(
    'x -> x > 0 ? error("planted") : x', out=lambda x: x))(1.0))
raises("as declared by out=", lambda: jit(pb.from_julia("x -> x", out=W))(x))
raises("another process", lambda: jax.export.export(jax.jit(f))(x))
assert jit(f)(x) == jit(f)(x)
"""


@pytest.mark.both
@pytest.mark.parametrize("ad", ["zygote", "tracker"])
def test_the_same_through_python_callbacks(run, ad):
    """`PYBRIDGE_FFI=off`: XLA calls Python, and Python calls Julia."""
    run(CALLBACK.replace("AD", repr(ad)), PYBRIDGE_FFI="off")


def test_a_program_lives_until_it_has_run(run):
    run("""
out = jax.ShapeDtypeStruct((1000,), np.float32)
f = pb.from_julia("x -> (t = time(); while time() < t + 0.3; end; x .+ 1)", out=out)
g = pb.from_julia("x -> 2 .* x", out=out)
y = jax.jit(lambda x: g(jnp.sort(f(x))))(np.ones(1000, np.float32))
gc.collect()
assert float(y[0]) == 4
""")


def test_tasks_inside_a_compiled_program(run):
    run(
        """
for source in (
    "x -> fetch(Threads.@spawn x .+ 1)",
    "x -> (Threads.@threads for i in 1:2; end; x .+ 1)",
    "x -> (sleep(0.01); x .+ 1)",
):
    assert jit(pb.from_julia(source))(np.ones(9))[0] == 2, source
""",
        timeout=60,
    )
