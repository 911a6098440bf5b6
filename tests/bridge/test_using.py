"""Julia packages that a source names with `using=`."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from precision import enable_x64

import pybridge as pb


def test_a_flux_layer_in_a_jitted_gradient():
    layer = pb.from_julia(
        "(W, b, x) -> Flux.Dense(W, b, Flux.relu)(x)", using="Flux", layout="reversed"
    )

    def native(W, b, x):
        return jax.nn.relu(x @ W + b)

    rng = np.random.default_rng(0)
    args = [jnp.asarray(rng.standard_normal(s), jnp.float32) for s in ((4, 3), (3,), (5, 4))]

    def gradient(f):
        return jax.jit(jax.grad(lambda *args: jnp.sum(f(*args) ** 2), argnums=(0, 1, 2)))(*args)

    for ours, theirs in zip(gradient(layer), gradient(native), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)


def test_only_the_names_of_packages_are_bound():
    source = "() -> isdefined(@__MODULE__, :LinearAlgebra) && !isdefined(@__MODULE__, :diagind)"
    assert pb.from_julia(source, using=("LinearAlgebra",))()


def test_what_is_there_anyway_may_be_named():
    assert float(pb.from_julia("x -> NNlib.relu(x)", using=("NNlib", "PyBridge"))(-1.0)) == 0.0


def test_rules_see_the_packages_too():
    f = pb.from_julia(
        "x -> sum(x)",
        vjp="x -> (LinearAlgebra.norm(x), ȳ -> (ȳ .* x ./ LinearAlgebra.norm(x),))",
        using="LinearAlgebra",
    )
    np.testing.assert_allclose(jax.grad(f)(jnp.array([3.0, 4.0])), [0.6, 0.8], rtol=1e-6)


def test_other_packages_make_another_function():
    plain, more = pb.from_julia("x -> x"), pb.from_julia("x -> x", using="LinearAlgebra")
    assert plain.handle.identity != more.handle.identity


@pytest.mark.parametrize("using", ["Flux.relu", ["Flux", 3], [""]])
def test_no_name_of_a_package(using):
    with pytest.raises(pb.ArgumentValueError, match="names of Julia packages"):
        pb.from_julia("x -> x", using=using)


def test_a_package_that_is_not_there():
    with pytest.raises(pb.BackendNotLoadedError, match=r"Pkg.add\(\"NoSuchPackage\"\)"):
        pb.from_julia("x -> x", using="NoSuchPackage")


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_large_factors_are_read_in_place(dtype):
    # Above the size from which arrays copy themselves before they are written to.
    a = np.random.default_rng(0).standard_normal((240, 280)).astype(dtype)
    with enable_x64(dtype == np.float64):
        for source, expected in (
            ("(a, b) -> a * b", a @ a.T),
            ("(a, b) -> b' * a'", a @ a.T),
            ("(a, b) -> b * a", a.T @ a),
            ("(a, b) -> a' * a .+ b * b'", 2 * a.T @ a),
            ("(a, b) -> a * b[:, 1] .+ b' * a[1, :]", 2 * a @ a[0]),
            ("(a, b) -> (LinearAlgebra.norm(a)^2, LinearAlgebra.dot(a, a))", [np.vdot(a, a)] * 2),
        ):
            f = jax.jit(pb.from_julia(source, using="LinearAlgebra"))
            np.testing.assert_allclose(f(a, a.T), expected, rtol=2e-3, atol=2e-3)
