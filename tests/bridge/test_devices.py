"""Bridged functions on a device that is not the host, as far as this can be seen without one.

XLA runs on the CPU, and the handler that it calls takes its memory for that of a GPU: arrays in
Julia are JLArrays, which, like a GPU's, refuse to be read or written element by element.
"""

from __future__ import annotations

import os
from pathlib import Path

import jax
import jax.numpy as jnp
import julia_state
import pytest

import pybridge as pb
from pybridge.interop import _julia_function, _xla_lowering
from pybridge.julia import _ffi, doctor
from pybridge.julia._session import session

JULIA = Path(__file__).parent.parent / "julia"

# Before the first program: XLA's handler for CPUs becomes that of the fake device.
PREPARE = """
import jax
import jax.numpy as jnp
import numpy as np
import pybridge as pb
from pybridge.interop import _xla_lowering
from pybridge.julia._session import session
from quick import combined

tools, fake = sys.argv[1:]
started = session()
started.call(lambda library: library.request("environment", tools))

def handlers(library):
    import juliacall
    module = juliacall.Main.include(fake)
    return int(module.handler()), int(module.asking_handler())

started.ffi_handlers["cpu"], asking = started.call(handlers)
# As for a GPU, it is XLA that transposes.
_xla_lowering._JULIA_TRANSPOSES.clear()

def close(a, b):
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        assert x.dtype == y.dtype and x.shape == y.shape, (x, y)
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-5)
"""

DERIVATIVES = """
f = pb.from_julia("(w, x) -> sum(abs2, tanh.(w * x))")
def g(w, x): return jnp.sum(jnp.tanh(w @ x) ** 2)
w, x = jnp.arange(6, dtype=jnp.float32).reshape(2, 3) / 10, jnp.ones(3)
batch = jnp.stack([x, 2 * x, -x])
for change in (
    lambda f: f,
    lambda f: jax.value_and_grad(f, argnums=(0, 1)),
    lambda f: lambda w, x: jax.jvp(f, (w, x), (jnp.ones_like(w), x)),
    lambda f: jax.hessian(f, argnums=1),
    lambda f: jax.grad(lambda w, x: jax.jvp(lambda x: f(w, x), (x,), (x,))[1]),
):
    close(jax.jit(change(f))(w, x), change(g)(w, x))
    lanes, expected = (jax.vmap(change(h), (None, 0)) for h in (f, g))
    close(jax.jit(lanes)(w, batch), expected(w, batch))
# The gradient of what lanes share is a sum over them, made in XLA's memory.
close(jax.grad(lambda w: jax.vmap(f, (None, 0))(w, batch).sum())(w),
      jax.grad(lambda w: jax.vmap(g, (None, 0))(w, batch).sum())(w))
print("same numbers")
"""

NETWORK = """
model = pb.flux("Chain(Dense(3 => 4, tanh), BatchNorm(4, relu), LayerNorm(4), Dense(4 => 2))")
params, state = model.init(jax.random.key(0))
twin, params_, state_ = pb.nn.from_flux(model, params, state)
x = jax.random.normal(jax.random.key(1), (8, 3))

def step(model, params, state):
    def loss(params):
        y, after = model.apply(params, state, x)
        return (y ** 2 * jnp.array([1, -2.0])).sum(), (y, after)
    return jax.jit(jax.value_and_grad(loss, has_aux=True))(params)

found, expected = step(model, params, state), step(twin, params_, state_)
for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
    np.testing.assert_allclose(np.sort(np.ravel(a)), np.sort(np.ravel(b)), rtol=1e-4, atol=1e-5)
print("same numbers")
"""

TYPES = """
seen = pb.from_julia("x -> (x isa Array ? 1 : 2, x .+ x)", out=lambda x: (
    jax.ShapeDtypeStruct((), jnp.int32), jax.ShapeDtypeStruct(x.shape, x.dtype)))
DTYPES = ("float16", "float32", "int8", "int32", "uint16", "complex64")
for dtype, shape in combined(DTYPES, ((3,), (2, 3), (0,), (2, 0))):
    x = jnp.ones(shape, dtype)
    # With this the handler itself is checked: the array was on the fake device.
    close(jax.jit(seen)(x), (jnp.int32(2), x + x))
close(jax.jit(pb.from_julia("x -> .!x"))(jnp.array([True, False])), jnp.array([False, True]))
tree = pb.from_julia("(s, p) -> (; y=s .* p.a, total=sum(p.a) * s)")
y = jax.jit(tree)(jnp.float32(2), {"a": jnp.ones(3)})
close(y.y, jnp.full(3, 2.0)); close(y.total, jnp.float32(6))
address = pb.from_julia("x -> (a = UInt(pointer(x)); UInt32[a >> 32, a % UInt32])",
                        out=jax.ShapeDtypeStruct((2,), jnp.uint32))
x = jnp.ones(1000)
high, low = np.asarray(jax.jit(address)(x)).tolist()
assert high << 32 | low == x.unsafe_buffer_pointer()
layer = pb.from_julia("(w, x) -> w * x", layout="reversed", batched=True)
w, x = jnp.ones((2, 3)), jnp.ones((4, 2))
close(jax.vmap(layer, (None, 0))(w, x), jax.vmap(lambda w, x: x @ w, (None, 0))(w, x))
print("same numbers")
"""

ERRORS = """
root = pb.from_julia("x -> (sum(x) < 0 && throw(DomainError(1, \\"below\\")); 2 .* x)")
bad = pb.from_julia("x -> sum(x) < 0 ? x[1:1] : x",
                    out=lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype))
for f, text in ((root, "DomainError: DomainError with 1:\\nbelow"),
                (bad, "expected a result of size (3,)")):
    for _ in range(3):
        try:
            jax.block_until_ready(jax.jit(f)(-jnp.ones(3)))
        except (jax.errors.JaxRuntimeError, ValueError) as error:
            assert text in str(error), error
        else:
            raise AssertionError("no error")
        jax.jit(f)(jnp.ones(3)).block_until_ready()
element = pb.from_julia("x -> [x[1]]", out=jax.ShapeDtypeStruct((1,), jnp.float32))
try:
    jax.jit(element)(jnp.ones(3)).block_until_ready()
except (jax.errors.JaxRuntimeError, ValueError) as error:
    assert "Scalar indexing" in str(error), error
else:
    raise AssertionError("an element was read: this is no fake device")
print("same errors")
"""

CONTEXT = """
import ctypes
handler = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(asking)
jax.ffi.register_ffi_target("asking", jax.ffi.pycapsule(handler), platform="cpu")
ask = jax.ffi.ffi_call("asking", jax.ShapeDtypeStruct((2,), jnp.int32))
for device in jax.devices():
    # An operand puts the call on its device.
    ordinal, refused = jax.jit(lambda x: ask(x))(jax.device_put(jnp.ones(1), device)).tolist()
    assert refused == 1 and ordinal == device.local_hardware_id, (ordinal, refused, device)
print(len(jax.devices()), "devices")
"""


@pytest.mark.parametrize(
    ("script", "answer"),
    [
        pytest.param(DERIVATIVES, "same numbers", marks=pytest.mark.nightly),
        pytest.param(NETWORK, "same numbers", marks=pytest.mark.nightly),
        pytest.param(
            TYPES + ERRORS + CONTEXT,
            "same numbers\nsame errors\n8 devices",
            marks=pytest.mark.both,
        ),
    ],
    ids=["derivatives", "network", "types, errors and context"],
)
def test_a_fake_device(script: str, answer: str, run_python) -> None:
    """Programs on JLArrays, called by XLA, give JAX's numbers and Julia's errors."""
    tools = julia_state.tools()
    if "JLArrays" not in (tools / "Project.toml").read_text():
        pytest.skip("JLArrays could not be installed")
    files = str(tools), str(JULIA / "fake_device.jl")
    settings = {**os.environ, "PYTHONWARNINGS": "error::UserWarning"}
    printed = run_python(PREPARE + script, *files, timeout=600, env=settings)
    assert printed.startswith(answer)  # what it writes to stderr comes last


def lowered_for_cuda(f) -> str:
    """Lower a program for NVIDIA's GPUs, which needs none."""
    traced = jax.jit(f).trace(jnp.ones(3))
    return traced.lower(lowering_platforms=("cuda",)).as_text()


@pytest.fixture
def fresh(monkeypatch):
    """Forget what is known about ways to call Julia, here and afterwards."""
    monkeypatch.setattr(_ffi, "_refusals", {})
    _xla_lowering._say_that_arrays_are_copied.cache_clear()
    yield monkeypatch
    _xla_lowering._say_that_arrays_are_copied.cache_clear()


def test_without_cuda_jl_arrays_are_copied_and_it_is_said_once(fresh) -> None:
    """The message names what to type."""
    fresh.setattr(_ffi, "_cuda_refusal", lambda: "CUDA did not load: type this")
    # JAX does not lower a callback for a platform that is not there.
    fresh.setattr(_xla_lowering, "_callback", lambda ctx, *operands, program: operands)
    f = pb.from_julia("x -> x .+ 1")
    with pytest.warns(UserWarning, match="copied to the host.*CUDA did not load") as said:
        text = lowered_for_cuda(lambda x: f(f(x)))
    assert len(said) == 1
    assert _ffi.TARGET not in text
    lowered_for_cuda(lambda x: 2 * f(x))


def test_the_reason_when_cuda_jl_is_not_there(fresh) -> None:
    """It says how to add CUDA.jl to the environment that Julia uses."""
    started = session()

    def no_cuda(name):
        raise pb.BackendNotLoadedError(f"{name} did not load")

    fresh.setattr(started, "require", no_cuda)
    assert _ffi.xla_calls_julia("cuda") == "CUDA did not load"
    fresh.setattr(_ffi, "_refusals", {})
    # Without the extension, as where CUDA.jl finds no GPU.
    fresh.setattr(started, "require", lambda name: "5.9.7")
    refusal = _ffi.xla_calls_julia("cuda")
    assert refusal is not None and "CUDA.functional(true)" in refusal


def test_with_cuda_jl_xla_calls_julia(fresh) -> None:
    """The lowered program for a GPU holds the same call as that for a CPU, and no callback."""
    fresh.setattr(_ffi, "_cuda_refusal", lambda: None)
    f = pb.from_julia("x -> x .+ 1")
    text = lowered_for_cuda(lambda x: f(f(x)))
    assert text.count(f"@{_ffi.TARGET}") == 2
    assert "callback" not in text


def test_a_call_outside_of_jit_stays_on_its_device(monkeypatch) -> None:
    """An array that is not on the host is not brought there for a plain call."""
    f = pb.from_julia("x -> x .+ 1")
    monkeypatch.setattr(f.handle, "run", lambda *args, **kw: pytest.fail("a plain call"))
    monkeypatch.setattr(_julia_function, "_wants_program", lambda leaf: True)
    assert f(jnp.ones(3)).tolist() == [2, 2, 2]
    assert pb.from_julia("x -> x .+ 1")(jnp.ones(2)).tolist() == [2, 2]


def test_the_doctor_tells_the_way_on_gpus_where_there_are_some(fresh) -> None:
    """One row each; without a GPU, CUDA.jl is not even looked for."""

    def rows():
        return {row.label: row for row in doctor._ways_of_calls()}

    fresh.setattr(_ffi, "_cuda_refusal", lambda: pytest.fail("CUDA.jl was loaded"))
    assert set(rows()) == {"compiled programs on CPUs"}
    fresh.setattr(doctor, "_has_cuda", lambda: True)
    fresh.setattr(_ffi, "_cuda_refusal", lambda: "CUDA did not load")
    row = rows()["compiled programs on NVIDIA GPUs"]
    assert (row.value, row.note) == ("call Julia through Python", "CUDA did not load")
