"""Derivatives of Julia functions, against analytic values and finite differences."""

from __future__ import annotations

from collections import namedtuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from bridge_helpers import BY_VALUE, REVERSE, SYSTEMS
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from precision import enable_x64
from quick import examples

import pybridge as pb
from pybridge._backends import row

pytestmark = pytest.mark.ad_systems(*SYSTEMS)

Params = namedtuple("Params", "w b")


def test_scalar(ad_system):
    f = pb.from_julia("x -> sin(x) * exp(x)")
    value, slope = pb.value_and_grad(f, backend=ad_system)(1.0)
    np.testing.assert_allclose([value, slope], [2.287355, 3.756049], rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (2, 3, 4), (0,), (2, 0)])
def test_gradient_is_dense_with_the_inputs_shape_and_dtype(ad_system, shape, dtype):
    x = np.arange(np.prod(shape), dtype=dtype).reshape(shape) + 1
    # Yota has no rule for the sum of a number.
    f = pb.from_julia("x -> x isa Number ? x^2 : sum(abs2, x)")
    gradient = pb.grad(f, backend=ad_system)(x)
    assert gradient.shape == shape
    assert gradient.dtype == dtype
    np.testing.assert_allclose(gradient, 2 * x)


@pytest.mark.parametrize(
    "source",
    ["x -> 3.0", "x -> x[1]", "x -> sum(x)", "x -> sum(x[1:1])", "x -> sum(2 .* x)"],
)
def test_whatever_julia_returns_for_a_zero_is_dense(ad_system, source):
    # nothing, OneElement, Fill, a view's cotangent and a thunk, in this order, on Zygote.
    x = np.array([[1.0, 2.0], [3.0, 4.0]])
    f = pb.from_julia(source)
    gradient = pb.grad(f, backend=ad_system)(x)
    assert type(gradient) is np.ndarray
    np.testing.assert_allclose(gradient, pb.grad(f, backend="finite")(x), atol=1e-7)


def test_axes_mean_the_same_on_both_sides():
    a = np.arange(6.0).reshape(2, 3)
    assert pb.from_julia("A -> A[1, 2]")(a) == 1
    assert pb.from_julia("A -> size(A)")(a) == (2, 3)
    w = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    f = pb.from_julia("(W, x) -> W * x")
    x, ct = np.array([1.0, -1.0, 2.0]), np.array([1.0, 10.0])
    value, pull = pb.vjp(f, w, x, backend="zygote")
    np.testing.assert_allclose(value, w @ x)
    w_bar, x_bar = pull(ct)
    np.testing.assert_allclose(w_bar, np.outer(ct, x))
    np.testing.assert_allclose(x_bar, w.T @ ct)


def test_reversed_layout_is_fluxs():
    x = np.arange(24.0).reshape(2, 3, 4)
    f = pb.from_julia("x -> (size(x), x)", layout="reversed")
    size, same = f(x)
    assert size == (4, 3, 2)
    np.testing.assert_array_equal(same, x)
    pick = pb.from_julia("x -> x[2, 1, 1] * x[1, 3, 2]", layout="reversed")
    gradient = pb.grad(pick, backend="zygote")(x)
    expected = np.zeros_like(x)
    expected[0, 0, 1], expected[1, 2, 0] = x[1, 2, 0], x[0, 0, 1]
    np.testing.assert_array_equal(gradient, expected)


@pytest.mark.parametrize("layout", ["logical", "reversed"])
def test_jacobian_and_hessian_have_jaxs_axes(layout, ad_system):
    x = np.arange(6.0).reshape(2, 3) / 10
    f = pb.from_julia("x -> 2 .* permutedims(x) .* permutedims(x)", layout=layout)
    expected = jax.jacobian(lambda x: 2 * x.T * x.T)(jnp.asarray(x))
    np.testing.assert_allclose(pb.jacobian(f, backend=ad_system)(x), expected, rtol=1e-6)
    scalar = pb.from_julia("x -> x[1, 1] * sum(x .^ 3)", layout=layout)
    if "second" in row(ad_system).modes:
        expected = jax.hessian(lambda x: x[0, 0] * (x**3).sum())(jnp.asarray(x))
        np.testing.assert_allclose(
            pb.hessian(scalar, backend=ad_system)(x), expected, rtol=1e-5, atol=1e-6
        )
    else:
        with pytest.raises(pb.UnsupportedModeError, match="forwarddiff"):
            pb.hessian(scalar, backend=ad_system)(x)


def test_trees_of_arguments(ad_system):
    params = Params(w=np.array([[0.1, 0.2], [0.3, -0.4]]), b=np.array([0.5, 0.6]))
    x = (np.array([1.0, 2.0]), {"scale": 2.0})
    f = pb.from_julia("(p, (x, o)) -> sum(abs2, p.w * x .+ p.b) * o.scale")
    value, (p_bar, x_bar) = pb.value_and_grad(f, argnums=(0, 1), backend=ad_system)(params, x)

    def same(p, x):
        return jnp.sum((p.w @ x[0] + p.b) ** 2) * x[1]["scale"]

    expected, (p_true, x_true) = jax.value_and_grad(same, argnums=(0, 1))(params, x)
    assert type(p_bar) is Params
    np.testing.assert_allclose(value, expected, rtol=1e-6)
    for got, want in zip(
        jax.tree.leaves((p_bar, x_bar)), jax.tree.leaves((p_true, x_true)), strict=True
    ):
        np.testing.assert_allclose(got, want, rtol=1e-5)


def test_argnums_like_jax(ad_system):
    f = pb.from_julia("(x, y, z) -> x * y^2 + z")
    grads = pb.grad(f, argnums=(2, 0), backend=ad_system)(2.0, 3.0, 4.0)
    np.testing.assert_allclose(grads, (1.0, 9.0))
    np.testing.assert_allclose(pb.grad(f, argnums=-2, backend=ad_system)(2.0, 3.0, 4.0), 12.0)


def test_jvp_goes_forward():
    f = pb.from_julia("(x, y) -> (sum(x) * y, x .* y)")
    x, y = np.array([1.0, 2.0]), 3.0
    primals, tangents = (x, y), (np.array([1.0, 0.0]), 0.5)
    value, tangent = pb.jvp(f, primals, tangents, backend="forwarddiff")
    want = jax.jvp(lambda x, y: (x.sum() * y, x * y), primals, tangents)
    for got, expected in zip(jax.tree.leaves((value, tangent)), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-6)


@pytest.mark.ad_systems(*REVERSE)
def test_vjp_may_be_pulled_twice(ad_system):
    value, pull = pb.vjp(pb.from_julia("x -> x .^ 2"), np.array([1.0, 2.0]), backend=ad_system)
    np.testing.assert_allclose(value, [1.0, 4.0])
    np.testing.assert_allclose(pull(np.array([1.0, 0.0]))[0], [2.0, 0.0])
    np.testing.assert_allclose(pull(np.array([0.0, 1.0]))[0], [0.0, 4.0])


def test_has_aux(ad_system):
    f = pb.from_julia("x -> (sum(abs2, x), 2 .* x)")
    x = np.array([1.0, 2.0])
    (value, aux), gradient = pb.value_and_grad(f, backend=ad_system, has_aux=True)(x)
    assert value == 5
    np.testing.assert_allclose(aux, [2, 4])
    np.testing.assert_allclose(gradient, [2, 4])


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_complex_gradients_follow_jax(dtype):
    z = np.array([1 + 2j, -0.5 + 0.25j], dtype)
    f = pb.from_julia("z -> sum(abs2, z .* z .+ 2im) + real(z[1])")
    gradient = pb.grad(f, backend="zygote")(z)

    def same(z):
        return jnp.sum(jnp.abs(z * z + 2j) ** 2) + z[0].real

    assert gradient.dtype == dtype
    np.testing.assert_allclose(gradient, jax.grad(same)(jnp.asarray(z)), rtol=1e-4)
    _, pull = pb.vjp(pb.from_julia("z -> z .* (1 + 2im)"), z, backend="zygote")
    want = jax.vjp(lambda z: z * (1 + 2j), jnp.asarray(z))[1](jnp.asarray(z))[0]
    np.testing.assert_allclose(pull(z)[0], want, rtol=1e-5)


@pytest.mark.ad_systems(*BY_VALUE)
def test_complex_is_refused_where_the_system_cannot(ad_system):
    with pytest.raises(pb.UnsupportedModeError, match="zygote"):
        pb.grad(pb.from_julia("z -> sum(abs2, z)"), backend=ad_system)(np.array([1 + 2j]))


def test_nan_and_inf_pass_through(ad_system):
    x = np.array([np.nan, np.inf, -np.inf, 1.0])
    value, gradient = pb.value_and_grad(pb.from_julia("x -> sum(x .+ 3)"), backend=ad_system)(x)
    assert np.isnan(value)
    np.testing.assert_array_equal(gradient, [1, 1, 1, 1])


def test_jax_arrays_in_jax_arrays_out():
    f = pb.from_julia("x -> sum(abs2, x)")
    x = jnp.arange(3, dtype=jnp.float32)
    value, gradient = pb.value_and_grad(f, backend="zygote")(x)
    assert isinstance(value, jax.Array) and isinstance(gradient, jax.Array)
    assert gradient.dtype == jnp.float32
    np.testing.assert_allclose(gradient, [0, 2, 4])


def test_the_default_backend_of_a_julia_function_is_its_ad():
    f = pb.from_julia("x -> PyBridge.within_gradient(x) ? 10x : x", ad="forwarddiff")
    assert f(2.0) == 2.0
    assert pb.grad(f)(2.0) == 10.0


def test_a_function_that_mutates_its_argument_changes_nothing_here(ad_system):
    x = np.array([1.0, 2.0])
    pb.from_julia("x -> (x .= 0; sum(x))")(x)
    np.testing.assert_array_equal(x, [1, 2])


def test_strided_and_read_only_arrays():
    f = pb.from_julia("x -> sum(abs2, x)")
    x = np.arange(12.0).reshape(3, 4)[::2, ::-2]
    x.setflags(write=False)
    np.testing.assert_allclose(pb.grad(f, backend="zygote")(x), 2 * x)
    np.testing.assert_allclose(pb.grad(f, backend="zygote")(x.T), 2 * x.T)
    big_endian = np.arange(3.0).astype(">f8")
    np.testing.assert_allclose(pb.grad(f, backend="zygote")(big_endian), 2 * big_endian)


@pytest.mark.parametrize(
    "dtype",
    "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 "
    "complex64 complex128".split(),
)
@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (2, 0, 3)])
@pytest.mark.parametrize("layout", ["logical", "reversed"])
def test_every_dtype_comes_back_as_it_went(dtype, shape, layout):
    x = (np.arange(np.prod(shape)) % 2).reshape(shape).astype(dtype)
    y = pb.from_julia("identity", layout=layout)(x)
    assert y.dtype == x.dtype
    assert y.shape == x.shape
    np.testing.assert_array_equal(y, x)


@settings(deadline=None, max_examples=examples(40))
@given(
    x=hnp.arrays(
        np.float64,
        hnp.array_shapes(max_dims=4, max_side=4),
        elements=st.floats(-2, 2, allow_nan=False, width=32),
    ),
    backend=st.sampled_from(["zygote", "forwarddiff", "tracker", "reversediff"]),
)
def test_gradients_equal_jaxs_on_any_array(x, backend):
    f = pb.from_julia("x -> sum(tanh.(x) .* x .+ exp.(-x .^ 2))")
    got = pb.grad(f, backend=backend)(x)
    with enable_x64(True):
        want = jax.grad(lambda x: jnp.sum(jnp.tanh(x) * x + jnp.exp(-(x**2))))(jnp.asarray(x))
        np.testing.assert_allclose(got, np.asarray(want), rtol=1e-9, atol=1e-12)


def test_juliacall_values_are_functions_too(ad_system):
    from juliacall import Main

    f = pb.from_julia(Main.seval("x -> x^3"))
    np.testing.assert_allclose(pb.grad(f, backend=ad_system)(2.0), 12.0)


def test_zygote_computes_no_gradient_that_nobody_asked_for():
    f = pb.from_julia("""
    begin
        times(a, b) = a * b
        function ChainRulesCore.rrule(::typeof(times), a, b)
            unwanted = ChainRulesCore.@thunk(error("nobody asked for it"))
            return times(a, b), ȳ -> (ChainRulesCore.NoTangent(), ȳ * b, unwanted)
        end
        (a, b) -> times(a, b)
    end
    """)
    assert float(jax.grad(f)(2.0, 3.0)) == 3.0
    assert float(pb.grad(f)(2.0, 3.0)) == 3.0
    with pytest.raises(pb.JuliaError, match="nobody asked for it"):
        pb.grad(f, argnums=1)(2.0, 3.0)


def test_results_in_a_dict(ad_system):
    f, x = pb.from_julia("x -> Dict(:a => x .^ 2)"), np.array([1.0, 2.0])
    if ad_system == "yota":
        with pytest.raises(pb.JuliaError, match=r"No derivative rule found for op .*Dict"):
            pb.jacobian(f, backend=ad_system)(x)
        return
    np.testing.assert_allclose(pb.jacobian(f, backend=ad_system)(x).a, np.diag(2 * x))
    if ad_system != "forwarddiff":
        value, pull = pb.vjp(f, x, backend=ad_system)
        for _ in range(2):
            np.testing.assert_allclose(pull(value)[0], 2 * x**3)


def test_the_advice_is_no_synonym_of_what_was_asked():
    f = pb.from_julia("x -> sum(x)", ad="yota")
    with pytest.raises(pb.UnsupportedModeError, match=r'or "mooncake". jax.jvp works'):
        pb.jvp(f, (np.ones(2),), (np.ones(2),))
    with pytest.raises(pb.UnsupportedModeError, match=r'"zygote" or "mooncake". jax.hessian works'):
        pb.hessian(f)(np.ones(2))


def test_rules_of_ones_own_are_jaxs():
    f = pb.from_julia("x -> x^2", vjp="x -> (x^2, ȳ -> (20 * ȳ * x,))")
    assert pb.grad(f)(1.0) == 2.0
    assert float(jax.grad(f)(1.0)) == 20.0
