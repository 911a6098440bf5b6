"""JAX functions called and differentiated in Julia."""

from __future__ import annotations

from collections import namedtuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from bridge_helpers import SYSTEMS
from quick import by_day, seconds

import pybridge as pb
from pybridge.julia import _callbacks
from pybridge.julia._session import session

DTYPES = (
    "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 "
    "complex64 complex128".split()
)
Params = namedtuple("Params", "w b")


@pytest.fixture
def x64():
    """Let JAX hold 64 bits, on every thread."""
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", False)


@pytest.fixture
def julia():
    """Evaluate Julia source on the main thread, beside the worker, with the AD systems there."""
    for package in ("Zygote", "ForwardDiff", "Tracker", "Yota", "ReverseDiff"):
        session().require(package)
    from juliacall import Main

    Main.seval("import Zygote, ForwardDiff, Tracker, Yota, ReverseDiff")
    Main.seval("const CRC = PyBridge.ChainRulesCore")
    return Main.seval


class Counted:
    """A function that counts how often JAX traces it."""

    def __init__(self, f):
        self.f = f
        self.traces = 0

    def __call__(self, *args):
        self.traces += 1
        return self.f(*args)


def wave(x):
    return jnp.sum(jnp.sin(x) * x**2)


def wave_slope(x):
    return np.cos(x) * x**2 + 2 * x * np.sin(x)


# --- values and gradients --------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (2, 3, 4), (0,), (2, 0)])
@pytest.mark.parametrize("layout", ["logical", "reversed"])
def test_value_and_gradient_of_every_system(system, shape, layout, x64):
    x = np.linspace(-1.0, 2.0, int(np.prod(shape))).reshape(shape)
    f = pb.from_julia(pb.to_julia(wave, layout=layout), layout=layout)
    value, slope = pb.value_and_grad(f, backend=system)(x)
    np.testing.assert_allclose(value, np.sum(np.sin(x) * x**2), rtol=1e-12)
    np.testing.assert_allclose(slope, wave_slope(x), rtol=1e-12)
    assert slope.shape == shape and slope.dtype == np.float64


def test_gradient_has_the_arguments_dtype(system):
    x = np.array([0.5, -1.0], np.float32)
    value, slope = pb.value_and_grad(pb.from_julia(pb.to_julia(wave)), backend=system)(x)
    assert value.dtype == np.float32 and slope.dtype == np.float32
    np.testing.assert_allclose(slope, wave_slope(x), rtol=1e-6)


def test_inside_a_julia_function_against_finite_differences(system, julia, x64):
    g = pb.to_julia(lambda a, b: (jnp.tanh(a) @ b, jnp.sum(a)))
    f = julia("g -> (a, b) -> ((y, s) = g(2 .* a, b); sum(abs2, y) * s)")(g)
    f = pb.from_julia(f)
    a, b = np.array([[0.1, -0.4], [0.3, 0.9]]), np.array([[1.0], [-2.0]])
    got = pb.grad(f, argnums=(0, 1), backend=system)(a, b)
    want = pb.grad(f, argnums=(0, 1), backend="finite")(a, b)
    for one, other in zip(got, want, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-8)


def test_trees_of_arguments_and_results(system, julia, x64):
    def model(params, scale):
        assert type(params).__name__ == "NamedTuple"
        y = params.w @ scale[0] + params.b
        return {"y": y, "rest": [jnp.sum(y**2), (scale[1] * y[0], jnp.arange(2), None)]}

    source = "g -> (p, s) -> (r = g(p, s); sum(r.y) + r.rest[1] * r.rest[2][1])"
    f = pb.from_julia(julia(source)(pb.to_julia(model)))
    params = Params(np.array([[0.1, 0.2], [0.3, -0.4]]), np.array([0.5, 0.6]))
    scale = (np.array([1.0, 2.0]), 2.5)

    def same(params, scale):
        y = params.w @ scale[0] + params.b
        return jnp.sum(y) + jnp.sum(y**2) * scale[1] * y[0]

    value, got = pb.value_and_grad(f, argnums=(0, 1), backend=system)(params, scale)
    expected, want = jax.value_and_grad(same, argnums=(0, 1))(params, scale)
    np.testing.assert_allclose(value, expected, rtol=1e-12)
    for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)


def test_traced_once_for_each_signature(system):
    counted = Counted(wave)
    f = pb.from_julia(pb.to_julia(counted))
    x = np.ones(3, np.float32)
    gradient = pb.grad(f, backend=system)
    f(x), gradient(x)
    before = counted.traces
    assert before <= 3
    for k in range(5):
        f(x + k), gradient(x - k)
    assert counted.traces == before
    gradient(np.ones(4, np.float32))
    assert counted.traces > before


def test_jacobian_and_hessian(x64):
    x = np.array([[0.3, -1.2], [0.7, 2.0]])
    f = pb.from_julia(pb.to_julia(lambda x: jnp.sin(x) * x.T))
    want = jax.jacobian(lambda x: jnp.sin(x) * x.T)(x)
    for backend in SYSTEMS:
        np.testing.assert_allclose(pb.jacobian(f, backend=backend)(x), want, rtol=1e-12)
    h = pb.from_julia(pb.to_julia(wave))
    for backend in ("zygote", "forwarddiff"):  # over Zygote's rule, and nested duals
        np.testing.assert_allclose(pb.hessian(h, backend=backend)(x), jax.hessian(wave)(x))


def test_jvp_and_vjp(x64):
    f = pb.from_julia(pb.to_julia(lambda x, y: (jnp.sum(x) * y, x * y)))
    primals, tangents = (np.array([1.0, 2.0]), 3.0), (np.array([1.0, 0.5]), 0.25)
    value, tangent = pb.jvp(f, primals, tangents, backend="forwarddiff")
    np.testing.assert_allclose(value[0], 9.0)
    np.testing.assert_allclose(tangent[0], 1.5 * 3 + 3 * 0.25)
    np.testing.assert_allclose(tangent[1], [3 + 0.25, 1.5 + 0.5])
    _, pull = pb.vjp(f, *primals, backend="zygote")
    x_bar, y_bar = pull((1.0, np.array([1.0, 10.0])))
    np.testing.assert_allclose(x_bar, [3 + 3, 3 + 30])
    np.testing.assert_allclose(y_bar, 3 + 1 + 20)
    np.testing.assert_allclose(pull((0.0, np.array([1.0, 0.0])))[0], [3, 0])


def test_jax_sees_the_gradient_of_every_system(system):
    f = pb.from_julia(
        pb.to_julia(lambda x: pb.cond(pb.within_gradient(x), lambda x: 10 * x, lambda x: x, x))
    )
    assert f(np.float32(2)) == 2
    assert pb.value_and_grad(f, backend=system)(np.float32(2)) == (20, 10)


# --- duals ------------------------------------------------------------------------------------


def test_nested_derivatives_of_numbers(julia, x64):
    g = pb.to_julia(lambda x, y: jnp.sin(x) * y**3)
    third = julia("""g -> begin
        d1(x) = ForwardDiff.derivative(x -> g(x, 2.0), x)
        d2(x) = ForwardDiff.derivative(d1, x)
        ForwardDiff.derivative(d2, 0.7)
    end""")(g)
    np.testing.assert_allclose(third, -np.cos(0.7) * 8)
    mixed = julia("""g -> ForwardDiff.derivative(0.7) do x
        x * ForwardDiff.derivative(y -> g(x, y) + g(0.0, y), 2.0)
    end""")(g)  # the inner function sees duals of both tags, of one, and none
    np.testing.assert_allclose(mixed, 12 * (np.sin(0.7) + 0.7 * np.cos(0.7)))


def test_many_partials_at_once(julia, x64):
    counted = Counted(lambda x: jnp.cumsum(x) * x[::-1])
    x = np.linspace(0.5, 1.5, 30)
    jacobian = julia("""(g, x) -> ForwardDiff.jacobian(
        g, x, ForwardDiff.JacobianConfig(g, x, ForwardDiff.Chunk{10}()))""")
    got = jacobian(pb.to_julia(counted), x)
    np.testing.assert_allclose(got, jax.jacobian(lambda x: jnp.cumsum(x) * x[::-1])(x))
    assert counted.traces == 1


def test_duals_in_arrays_of_real_numbers_and_of_complex_numbers(julia, x64):
    g = pb.to_julia(lambda x: jnp.sum(x**3))
    assert julia("g -> ForwardDiff.derivative(t -> g(Real[t, 2.0, 1]), 3.0)")(g) == 27
    h = pb.to_julia(lambda z: (z**2, jnp.sum(jnp.abs(z) ** 2)))
    slopes = julia("""h -> ForwardDiff.derivative(0.3) do t
        z, s = h([cis(t) * (1 + t), complex(t)])
        [real(z[1]), imag(z[1]), s]
    end""")(h)
    t, rim = 0.3, np.exp(0.3j)
    slope = 2 * rim * (1 + t) * rim * (1j * (1 + t) + 1)
    np.testing.assert_allclose(slopes, [slope.real, slope.imag, 2 * (1 + t) + 2 * t])


def test_integers_have_no_partials(julia, x64):
    g = pb.to_julia(lambda x, i: (x[i], i + 1, jnp.argmax(x)))
    run = julia("""g -> begin
        r = Ref{Any}()
        slope = ForwardDiff.gradient(x -> (r[] = g(x, 1); r[][1]), [1.0, 5.0])
        (slope, r[][2], r[][3])
    end""")
    slope, index, largest = run(g)
    np.testing.assert_array_equal(slope, [0, 1])
    assert (index, largest) == (2, 1)


def test_forwarddiff_at_integers(julia, x64):
    g = pb.to_julia(wave)
    gradient, hessian = julia("""g -> (
        ForwardDiff.gradient(g, [1, 2, 3]), ForwardDiff.hessian(g, [1, 2, 3]))""")(g)
    x = np.array([1.0, 2, 3])
    np.testing.assert_allclose(gradient, wave_slope(x))
    want = -np.sin(x) * x**2 + 4 * x * np.cos(x) + 2 * np.sin(x)
    np.testing.assert_allclose(hessian, np.diag(want), atol=1e-14)


def test_forward_over_reverse_with_a_constant_cotangent_and_without(julia, x64):
    g = pb.to_julia(lambda x, y: jnp.sum(jnp.sin(x) * y**2))
    run = julia("""g -> ForwardDiff.derivative(0.5) do t
        f(x, y) = g(x, y) + t * g(x, [1.0, 1.0])
        x, y = Zygote.gradient(f, [1.0, 2.0] .* t, [3.0, 4.0])
        sum(x) + sum(y)
    end""")

    def same(t):
        def f(x, y):
            return jnp.sum(jnp.sin(x) * y**2) + t * jnp.sum(jnp.sin(x))

        x, y = jax.grad(f, (0, 1))(jnp.array([1.0, 2.0]) * t, jnp.array([3.0, 4.0]))
        return jnp.sum(x) + jnp.sum(y)

    np.testing.assert_allclose(run(g), jax.grad(same)(0.5), rtol=1e-12)
    only_cotangent = julia("""g -> ForwardDiff.derivative(3.0) do t
        sum(Zygote.gradient(x -> t^2 * g(x, x), [1.0, 2.0])[1])
    end""")(g)
    slope = jax.grad(lambda x: jnp.sum(jnp.sin(x) * x**2))(jnp.array([1.0, 2.0]))
    np.testing.assert_allclose(only_cotangent, 6 * jnp.sum(slope), rtol=1e-12)


# Of what a wrapper shows, some is in its parent once and here twice, and some is constant.
WRAPPED = """g -> begin
    L = PyBridge.LinearAlgebra
    x -> g(x') + g(view(x, [1, 1], 2:3)) + g(L.Symmetric(x)) + g(L.UnitLowerTriangular(x)) +
        g(PermutedDimsArray(x, (2, 1))) + g(L.Diagonal(x)) + g(reshape(x', 3, 3))
end"""


def weighted(x):
    return jnp.sum(jnp.sin(x) * jnp.arange(x.size).reshape(x.shape))


def of_wrapped(x):
    symmetric = jnp.triu(x) + jnp.triu(x, 1).T
    unit = jnp.tril(x, -1) + jnp.eye(3)
    parts = (x.T, x[jnp.array([0, 0]), 1:3], symmetric, unit, x.T, jnp.diag(jnp.diag(x)))
    # Julia's reshape runs down the columns.
    return sum(map(weighted, parts)) + weighted(x.T)


@pytest.mark.parametrize("system", ["zygote", "forwarddiff", "mooncake"])
def test_arguments_that_are_views_of_others(julia, x64, system):
    f = pb.from_julia(julia(WRAPPED)(pb.to_julia(weighted)))
    x, v = np.random.default_rng(0).normal(size=(2, 3, 3))
    np.testing.assert_allclose(pb.grad(f, backend=system)(x), jax.grad(of_wrapped)(x), atol=1e-12)
    if system != "zygote":
        got = pb.jvp(f, (x,), (v,), backend=system)[1]
        np.testing.assert_allclose(got, jax.jvp(of_wrapped, (x,), (v,))[1], atol=1e-12)


def test_mooncake_pushes_through_a_jax_function(julia, x64):
    def g(t):
        return jnp.sum(t.a**2) * t.b, jnp.argmax(t.a), jnp.sin(t.a) + 1j * t.n

    h = pb.from_julia(julia("g -> (x, n) -> g((; a=x, b=x[1], n))")(pb.to_julia(g)))
    x, v = np.array([1.0, -2.0, 0.5]), np.array([0.3, 0.1, -1.0])
    (value, place, wave), (of_value, _, of_wave) = pb.jvp(h, (x, 3), (v, 0), backend="mooncake")
    np.testing.assert_allclose([value, of_value], [5.25, 5.25 * 0.3 + 2 * x @ v], rtol=1e-14)
    assert int(place) == 0
    np.testing.assert_allclose(wave, np.sin(x) + 3j, rtol=1e-14)
    np.testing.assert_allclose(of_wave, np.cos(x) * v, rtol=1e-14)


@pytest.mark.nightly  # a minute
def test_mooncake_refuses_second_derivatives_of_a_jax_function(julia, x64):
    f = pb.from_julia(julia("g -> x -> g(x) * x[1]")(pb.to_julia(wave)))
    with pytest.raises(pb.UnsupportedModeError, match="calls a JAX function"):
        pb.hessian(f, backend="mooncake")(np.ones(2))


SECOND = {
    "zygote": "Zygote.gradient(x -> sum(abs2, Zygote.gradient(h, x, y)[1]), x)[1]",
    "tracker": """Tracker.data(Tracker.gradient(x; nest=true) do x
        sum(abs2, Tracker.gradient(h, x, y; nest=true)[1])
    end[1])""",
    "forwarddiff": "ForwardDiff.gradient(x -> sum(abs2, ForwardDiff.gradient(x -> h(x, y), x)), x)",
    "both": "ForwardDiff.gradient(x -> sum(abs2, Zygote.gradient(h, x, y)[1]), x)",
}


# The night has all: nested rules of one system take half a minute to compile.
@pytest.mark.parametrize("way", by_day(SECOND, ["zygote", "both"]))
def test_gradient_of_a_gradient(way, julia, x64):
    g = pb.to_julia(lambda t, i: (jnp.sin(t[0]) * t[1], jnp.sum(t[0] ** 3), i + 1))
    run = julia(f"""g -> begin
        h(x, y) = (r = g((x, y), 1); sum(r[1]) * r[2] + sum(abs2, r[1]))
        x, y = [0.5, -1.5], [2.0, 3.0]
        {SECOND[way]}
    end""")

    def h(x, y):
        r = jnp.sin(x) * y
        return jnp.sum(r) * jnp.sum(x**3) + jnp.sum(r**2)

    y = jnp.array([2.0, 3.0])
    want = jax.grad(lambda x: jnp.sum(jax.grad(h)(x, y) ** 2))(jnp.array([0.5, -1.5]))
    np.testing.assert_allclose(run(g), want, rtol=1e-12)


def test_a_third_derivative_by_tracker_is_an_error_and_not_a_zero(julia, x64):
    with pytest.raises(Exception, match="beyond the second are ForwardDiff's"):
        julia("""g -> Tracker.gradient(1.0; nest=true) do x
            Tracker.gradient(x -> Tracker.gradient(g, x; nest=true)[1], x; nest=true)[1]
        end""")(pb.to_julia(wave))


# --- rules ------------------------------------------------------------------------------------


def test_the_rule_gives_integers_and_what_is_not_used_no_tangent(julia):
    g = pb.to_julia(lambda i, x, t: x[i] * t[0])
    kinds = julia("""g -> begin
        y, back = CRC.rrule(g, 1, Float32[1, 2], (3f0, 4))
        x̄s = back(1f0)
        zeros = back(CRC.ZeroTangent())
        (string.(typeof.(x̄s)), Array(x̄s[3]), x̄s[4][1], all(x̄ -> x̄ isa CRC.NoTangent, zeros))
    end""")(g)
    names, x_bar, t_bar, all_zero = kinds
    assert [str(name).split(".")[-1] for name in names][:2] == ["NoTangent", "NoTangent"]
    np.testing.assert_array_equal(x_bar, [0, 3])
    assert t_bar == 2 and all_zero


def test_complex_gradients_follow_chainrules(julia, x64):
    g = pb.to_julia(lambda z: z * z * (1 + 2j))
    same = "z -> z .* z .* (1 + 2im)"
    for reduction in ("y -> sum(abs2, y)", "y -> imag(sum(y))"):
        got, want = julia(f"""g -> begin
            z = [1.0 + 2im, -0.5 + 0.25im]
            Zygote.gradient(z -> ({reduction})(g(z)), z)[1],
            Zygote.gradient(z -> ({reduction})(({same})(z)), z)[1]
        end""")(g)
        np.testing.assert_allclose(got, want, rtol=1e-12)
    real = pb.to_julia(lambda x: x * (1 + 2j))
    got = julia("g -> Zygote.gradient(x -> abs2(g(x)), 3.0)[1]")(real)
    np.testing.assert_allclose(got, 30.0)


def test_structured_arguments_get_gradients_of_their_kind(julia, x64):
    got = julia("""g -> begin
        A = [1.0 2; 3 4]
        (Zygote.gradient(A -> g(A'), A)[1], Zygote.gradient(A -> g(view(A, :, 1)), A)[1],
         Zygote.gradient(x -> g(fill(x)), 2.0)[1])
    end""")(pb.to_julia(wave))
    a = np.array([[1.0, 2], [3, 4]])
    np.testing.assert_allclose(got[0], wave_slope(a))
    np.testing.assert_allclose(got[1], wave_slope(a) * [1, 0])
    np.testing.assert_allclose(got[2], wave_slope(2.0))


OF_OWN = {
    "struct": "(v, x) -> g(Two(v, 2v), x)",
    "vector": "(v, x) -> g([v, 2v], x)",
    "struct in a vector": "(v, x) -> g([Two(v, 2v)], x)",
}


@pytest.mark.parametrize("kind", by_day(OF_OWN, ["struct", "vector"]))
def test_structs_and_vectors_of_arrays_as_arguments(kind, system, julia, x64):
    # Both arguments have the same size: gradients that changed places would go unnoticed by sizes.
    def total(p, x):
        first, second = jax.tree.leaves(p)
        return jnp.sum(first**3 * second) + jnp.sum(5 * x)

    julia("isdefined(Main, :Two) || @eval struct Two; first; second; end")
    f = julia(f"g -> {OF_OWN[kind]}")
    v, x = np.array([1.0, 2.0]), np.array([3.0, 4.0])
    got = pb.grad(pb.from_julia(f(pb.to_julia(total))), (0, 1), backend=system)(v, x)
    np.testing.assert_allclose(got[0], 8 * v**3)
    np.testing.assert_allclose(got[1], [5, 5])


def test_a_dict_has_no_tangent(julia):
    with pytest.raises(Exception, match=r"got a Dict\{Symbol.*NamedTuple"):
        julia("g -> Zygote.gradient(x -> g(Dict(:a => x)), [1.0f0])")(
            pb.to_julia(lambda d: jnp.sum(d.a))
        )


def test_what_julia_writes_after_the_forward_pass_does_not_reach_the_pullback(julia, x64):
    # Long enough for JAX to take over memory instead of copying it.
    got = julia("""g -> begin
        x = ones(100_000)
        y, back = CRC.rrule(g, x)
        x .= 7; y .= 0
        back(ones(100_000))[2][[1, end]]
    end""")(pb.to_julia(lambda x: x**2))
    np.testing.assert_array_equal(got, [2, 2])


def test_tracker_directly(julia, x64):
    g = pb.to_julia(lambda x, p: (jnp.sum(x["a"] if isinstance(x, dict) else x) * p.k, p.v * 2))
    got = julia("""g -> begin
        f(x, k, v) = (r = g(x, (; k, v)); r[1] * sum(r[2]))
        a = Tracker.data.(Tracker.gradient(f, [1.0, 2.0], 3.0, [1.0]))
        # numbers that are tracked one by one
        h(v) = g([v[1], 2 * v[2]], (k=v[1], v=[1.0]))[1]
        (a, Tracker.data(Tracker.gradient(h, [1.0, 2.0])[1]))
    end""")(g)
    np.testing.assert_allclose(got[0][0], [6, 6])
    np.testing.assert_allclose(got[0][1], 6)
    np.testing.assert_allclose(got[0][2], [18])
    np.testing.assert_allclose(got[1], [5 + 1, 2])


def test_yota_directly(julia, x64):
    got = julia("g -> Yota.grad(x -> sum(abs2.(g(x .+ 1.0))), [0.5, 1.5])[2][2]")(
        pb.to_julia(jnp.sin)
    )
    y = np.array([1.5, 2.5])
    np.testing.assert_allclose(got, 2 * np.sin(y) * np.cos(y))


# --- values that cross ------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (2, 0, 3)])
@pytest.mark.parametrize("layout", ["logical", "reversed"])
def test_every_dtype_comes_back_as_it_went(dtype, shape, layout, x64):
    x = (np.arange(np.prod(shape)) % 2).reshape(shape).astype(dtype)
    y = pb.from_julia(pb.to_julia(lambda x: x, layout=layout))(x)
    assert y.dtype == x.dtype and y.shape == x.shape
    np.testing.assert_array_equal(y, x)


def test_axes(julia):
    seen = []

    def f(x):
        seen.append(x.shape)
        return x[0, 1, 2], jnp.zeros((3, 5))

    source = "g -> (r = g(reshape(Float32.(1:24), 2, 3, 4)); (r[1], size(r[2])))"
    assert julia(source)(pb.to_julia(f)) == (1 + 0 + 1 * 2 + 2 * 6, (3, 5))
    value, size = julia(source)(
        pb.to_julia(lambda x: (x[2, 1, 0], jnp.zeros((3, 5))), layout="reversed")
    )
    assert (value, size) == (1 + 0 + 1 * 2 + 2 * 6, (5, 3))
    assert seen == [(2, 3, 4)]


def test_arguments_are_seen_in_place(julia):
    addresses = []

    class Callee:
        def answer(self, request, words):
            (leaf,) = _callbacks.read_leaves(words, [(np.dtype("f4"), 2)])
            addresses.append(leaf.__array_interface__["data"][0])
            return _callbacks.Reply("n")

    g = _callbacks.expose(Callee(), "callee")
    where = julia("g -> (x = ones(Float32, 3, 2); g(x); Int(pointer(x)))")(g)
    assert addresses == [where]


def test_without_x64_a_float64_is_an_error_and_integers_are_not(julia):
    g = pb.to_julia(lambda x: x)
    with pytest.raises(Exception, match="expected Float32, since jax_enable_x64 is off") as error:
        g(2.0)
    assert "jax.config.update" in str(error.value)
    with pytest.raises(pb.JuliaError, match="ComplexF32"):
        pb.from_julia(g)(np.ones(2, complex))
    assert str(julia("g -> string(typeof(g([1, -2])))")(g)) == "Vector{Int32}"
    with pytest.raises(pb.JuliaError, match="ArgumentValueError.*fit into int32"):
        pb.from_julia(g)(np.array([2**40]))


def test_results_without_an_equal_in_julia():
    with pytest.raises(pb.JuliaError, match="bfloat16, which has no equal in Julia"):
        pb.from_julia(pb.to_julia(lambda x: x.astype(jnp.bfloat16)))(np.float32(1))
    with pytest.raises(pb.JuliaError, match="not a valid JAX"):
        pb.from_julia(pb.to_julia(lambda x: "text"))(np.float32(1))


def test_arguments_that_are_no_arrays(julia):
    with pytest.raises(Exception, match="convert the value"):
        julia('g -> g("text")')(pb.to_julia(lambda x: x))
    with pytest.raises(Exception, match="positional arguments alone, got the keywords k, m"):
        julia("g -> g(1.0; k=2, m=3)")(pb.to_julia(lambda x: x))


# --- errors -----------------------------------------------------------------------------------


def test_an_exception_has_its_type_message_and_the_users_lines(julia, system):
    def inner(x):
        raise KeyError("planted\nin two lines")

    def outer(x):
        return inner(x) if x.ndim else x

    g = pb.to_julia(outer)
    caught = julia("g -> try; g(Float32[1]); catch e; e; end")(g)
    assert str(caught.type) == "KeyError"
    assert "planted" in str(caught.message)
    assert f"inner at {__file__}:" in str(caught.lines)
    assert "outer at" in str(caught.lines)
    assert "site-packages" not in str(caught.lines)
    f = pb.from_julia(g)
    with pytest.raises(pb.JuliaError, match="Python raised KeyError.*planted") as error:
        pb.grad(f, backend=system)(np.ones(1, np.float32))
    assert error.value.julia_type == "JaxError"
    assert f(np.float32(3)) == 3
    assert pb.grad(f, backend=system)(np.float32(3)) == 1


def test_a_shape_error_is_jaxs():
    f = pb.from_julia(pb.to_julia(jnp.matmul))
    with pytest.raises(pb.JuliaError, match="TypeError.*matmul|TypeError.*dot_general"):
        f(np.ones((2, 3), np.float32), np.ones((2, 3), np.float32))
    assert f(np.ones((2, 3), np.float32), np.ones((3, 2), np.float32)).shape == (2, 2)


def test_a_leaked_tracer_is_named_by_jax():
    leaked = []
    jax.jit(lambda x: leaked.append(x) or x)(1.0)
    f = pb.from_julia(pb.to_julia(lambda x: x + leaked[0]))
    with pytest.raises(pb.JuliaError, match="UnexpectedTracerError(?s:.*)leaked"):
        f(np.float32(1))


def test_ctrl_c_inside_the_function_is_an_interrupt(julia):
    def interrupted(x):
        raise KeyboardInterrupt

    name = julia("g -> try; g(1f0); catch e; string(typeof(e)); end")(pb.to_julia(interrupted))
    assert str(name) == "InterruptException"


def test_what_cannot_be_a_function():
    with pytest.raises(pb.ArgumentTypeError, match="that JAX can trace, got a int"):
        pb.to_julia(3)
    with pytest.raises(pb.ArgumentValueError, match="logical.*reversed"):
        pb.to_julia(jnp.sin, layout="fortran")


# --- life -------------------------------------------------------------------------------------


def test_julia_calls_python_calls_julia():
    inner = pb.from_julia("x -> x .* 2")
    f = pb.from_julia(pb.to_julia(lambda x: x + inner(np.ones(2, np.float32))))
    np.testing.assert_array_equal(f(np.ones(2, np.float32)), [3, 3])


def test_called_while_another_function_is_traced():
    f = pb.from_julia(pb.to_julia(lambda x: x * 2))
    np.testing.assert_array_equal(jax.jit(lambda x: x + f(np.ones(2, np.float32)))(1.0), [3, 3])


def test_called_from_juliacall_while_another_function_is_traced():
    g = pb.to_julia(lambda x: x * 2)
    assert jax.jit(lambda x: x + g(np.float32(2)))(1.0) == 5


def test_what_nobody_holds_is_released(run_python):
    # In a process of its own: a collection looks at all that the one of the tests has.
    run_python(
        """
        import gc
        import jax.numpy as jnp
        import numpy as np
        import pybridge as pb
        from pybridge.julia import _callbacks
        g = pb.to_julia(lambda x: jnp.sin(x) * x)
        from juliacall import Main
        collect = Main.seval("() -> (GC.gc(); GC.gc())")
        pull_some = Main.seval('''g -> (for _ in 1:50
            y, back = PyBridge.ChainRulesCore.rrule(g, ones(Float32, 10)); back(y); end)''')
        pull_some(g)
        collect()
        pb.from_julia(g)(np.float32(1))  # takes the pile along
        before = len(_callbacks._held)
        pull_some(g)
        for _ in range(20):
            pb.to_julia(lambda x: x)
        gc.collect()
        assert len(_callbacks._held) > before + 2, (len(_callbacks._held), before)
        collect()
        pb.from_julia(g)(np.float32(1))
        assert len(_callbacks._held) <= before + 2
        """,
        packages=(),
    )


def test_shown(julia):
    g = pb.to_julia(wave)
    assert str(julia("repr")(g)) == "JaxFunction(wave)"
    shown = julia("g -> repr(PyBridge.JaxLayer(g, (; w=ones(2, 3), b=1)))")(g)
    assert str(shown) == "JaxLayer(JaxFunction(wave), (; w = 2\N{MULTIPLICATION SIGN}3, b = 1))"


def test_a_layer_in_flux(julia):
    session().require("Flux")
    julia("import Flux")
    g = pb.to_julia(lambda x: jnp.tanh(x) * 2, layout="reversed")
    dense = pb.to_julia(lambda p, x: x @ p.w + p.b, layout="reversed")
    run = julia("""(g, dense) -> begin
        layer = PyBridge.JaxLayer(dense, (; w=ones(Float32, 2, 3), b=zeros(Float32, 2)))
        model = Flux.Chain(layer, g, Flux.Dense(ones(Float32, 1, 2)))
        model = Flux.f32(Flux.f64(model))
        x = Float32[1 2; 3 4; 5 6] ./ 10
        loss(m) = sum(abs2, m(x))
        gradient = Flux.gradient(loss, model)[1]
        before = loss(model)
        state = Flux.setup(Flux.Descent(0.01f0), model)
        Flux.update!(state, model, gradient)
        flat, _ = Flux.destructure(model)
        (gradient.layers[1].params.w, before, loss(model), length(flat),
         model.layers[2] === g, sum(length, Flux.trainables(model)))
    end""")
    slope, before, after, length, same, trainable = run(g, dense)

    def loss(w):
        x = jnp.array([[1, 3, 5], [2, 4, 6]], jnp.float32) / 10
        return jnp.sum(jnp.sum(jnp.tanh(x @ w) * 2, 1) ** 2)

    want = jax.grad(loss)(jnp.ones((3, 2)))
    np.testing.assert_allclose(np.asarray(slope), want.T, rtol=1e-5)
    assert after < before and same
    assert length == trainable == 6 + 2 + 2 + 1, (length, trainable)


@pytest.mark.both
def test_threads_neither_hang_nor_crash_while_collections_run(run_python):
    run_python(
        """
        import gc, threading, time
        import jax.numpy as jnp
        import numpy as np
        import pybridge as pb
        g = pb.to_julia(lambda x: jnp.sum(jnp.sin(x) * x))
        broken = pb.from_julia(pb.to_julia(lambda x: x.planted))
        f = pb.from_julia(g)
        from juliacall import Main
        x = np.linspace(0, 1, 200, dtype=np.float32)
        want = np.cos(x) * x + np.sin(x)
        gradient = pb.grad(f, backend="zygote")
        busy = Main.seval("g -> x -> (y = [copy(x) for _ in 1:50]; GC.gc(false); g(last(y)))")(g)
        gradient(x), busy(x)
        stop, counts, wrong = time.monotonic() + SECONDS, [0] * 3, []
        def work(k):
            while time.monotonic() < stop or counts[k] <= 10:
                if not np.allclose(gradient(x), want, atol=1e-5):
                    wrong.append(k)
                if counts[k] % 30 == 0:
                    gc.collect()
                    try:
                        broken(x)
                        wrong.append("no error")
                    except pb.JuliaError:
                        pass
                counts[k] += 1
        threads = [threading.Thread(target=work, args=(k,)) for k in range(2)]
        [t.start() for t in threads]
        # The main thread calls through juliacall meanwhile.
        while time.monotonic() < stop or counts[2] <= 10:
            if not np.isclose(busy(x), np.sum(np.sin(x) * x), rtol=1e-4):
                wrong.append("main")
            counts[2] += 1
        [t.join() for t in threads]
        assert not wrong, wrong
        """.replace("SECONDS", str(seconds(12))),
        packages=(),
        timeout=300,
    )
