"""Bridged functions on several devices; the truth is JAX on one. In a fresh process."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.processes

PROLOGUE = """
import jax, jax.numpy as jnp, numpy as np
import pybridge as pb
from quick import combined
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
jax.config.update("jax_enable_x64", True)
assert len(jax.devices()) == 8
mesh = jax.make_mesh((8,), ("i",), axis_types=(AxisType.Auto,))
square = jax.make_mesh((4, 2), ("i", "j"), axis_types=(AxisType.Auto,) * 2)
f, twin = pb.from_julia("x -> sum(sin.(x) .* x)", ad=AD), lambda x: jnp.sum(jnp.sin(x) * x)
v, w = pb.from_julia("(w, x) -> tanh.(w * x)", ad=AD), lambda w, x: jnp.tanh(w @ x)
X, W = jnp.sin(jnp.arange(24.0)).reshape(8, 3), jnp.cos(jnp.arange(6.0)).reshape(2, 3)

def same(got, want):
    for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)

def lanes(v):
    return lambda W, X: jax.vmap(v, (None, 0))(W, X)

def loss(lanes):
    return lambda W, X: jnp.sum(lanes(W, X) ** 2)

DERIVATIVES = {
    "value": lambda f: f,
    "grad": lambda f: jax.grad(loss(f), (0, 1)),
    "value_and_grad": lambda f: jax.value_and_grad(loss(f)),
    "jvp": lambda f: lambda W, X: jax.jvp(f, (W, X), (W, X)),
}
wants = {derivative: jax.jit(derivative(lanes(w)))(W, X) for derivative in DERIVATIVES.values()}
hessian = jax.jit(jax.hessian(twin))(X)
"""

SHARD_MAP = """
def parts(v, mesh, specs, out):
    return jax.shard_map(lanes(v), mesh=mesh, in_specs=specs, out_specs=out)

MESHES = ((mesh, P("i")), (square, P(("i", "j"))))
for derivative, (the_mesh, spec) in combined(DERIVATIVES.values(), MESHES):
    same(jax.jit(derivative(parts(v, the_mesh, (P(), spec), spec)))(W, X), wants[derivative])

def mean(f):
    return jax.shard_map(
        lambda x: jax.lax.psum(f(x), "i"), mesh=mesh, in_specs=P("i"), out_specs=P())

same(jax.jit(mean(f))(X), twin(X))
same(jax.jit(jax.value_and_grad(mean(f)))(X), jax.value_and_grad(twin)(X))
same(jax.jit(jax.hessian(mean(f)))(X), hessian)
inner = jax.shard_map(lambda X: jax.vmap(jax.grad(f))(X), mesh=mesh, in_specs=P("i"),
    out_specs=P("i"))
same(jax.jit(inner)(X), jax.vmap(jax.grad(twin))(X))
"""

NAMED = """
SPECS = ((P(), P("i", None)), (P("j"), P("i")))
def put(x, spec):
    return jax.device_put(x, NamedSharding(square, spec))

for derivative, (spec_w, spec_x) in combined(DERIVATIVES.values(), SPECS):
    same(jax.jit(derivative(lanes(v)))(put(W, spec_w), put(X, spec_x)), wants[derivative])
TRANSFORMS = (
    lambda Xs: same(jax.jit(f)(Xs), twin(X)),
    lambda Xs: same(jax.jit(jax.grad(f))(Xs), jax.grad(twin)(X)),
    lambda Xs: same(jax.jit(jax.hessian(f))(Xs), hessian),
    lambda Xs: same(jax.grad(f)(Xs), jax.grad(twin)(X)),
)
for transformed, (_, spec) in combined(TRANSFORMS, SPECS):
    transformed(put(X, spec))
out = NamedSharding(mesh, P("i"))
mapped = jax.jit(jax.vmap(jax.grad(f)), in_shardings=out, out_shardings=out)
same(mapped(X), jax.vmap(jax.grad(twin))(X))
"""

EXPLICIT = """
import pytest
explicit = jax.make_mesh((8,), ("i",), axis_types=(AxisType.Explicit,))
use_mesh = getattr(jax, "set_mesh", None) or jax.sharding.use_mesh  # before jax 0.7.1
with use_mesh(explicit):
    Xs = jax.device_put(X, NamedSharding(explicit, P("i")))
    for transform in (f, jax.grad(f), jax.vmap(f)):
        with pytest.raises(pb.UnsupportedModeError, match="explicit mesh axis.*shard_map"):
            jax.jit(transform)(Xs)
    whole = jax.device_put(X, NamedSharding(explicit, P()))
    same(jax.jit(f)(whole), twin(X))
    same(jax.jit(jax.value_and_grad(f))(whole), jax.value_and_grad(twin)(X))
    same(jax.jit(lambda x: f(jax.sharding.reshard(x, P())))(Xs), twin(X))
    inside = jax.shard_map(lambda x: jax.vmap(f)(x), in_specs=P("i"), out_specs=P("i"))
    same(jax.jit(inside)(Xs), jax.vmap(twin)(X))
"""


@pytest.mark.both
@pytest.mark.parametrize("ad", ["zygote", pytest.param("forwarddiff", marks=pytest.mark.nightly)])
def test_several_devices_give_what_one_gives(run_python, ad):
    program = PROLOGUE + SHARD_MAP + NAMED + EXPLICIT
    run_python(program.replace("AD", repr(ad)), packages=(), timeout=600)
