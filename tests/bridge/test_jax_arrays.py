"""What crosses the border in compiled programs: dtypes, shapes, memory, trees, and results."""

from __future__ import annotations

import functools
from collections import namedtuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from bridge_helpers import BY_VALUE, counted, julia, same
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from precision import enable_x64
from quick import by_day, examples

import pybridge as pb

LAYOUTS = ("logical", "reversed")
REAL = "float16 float32 float64".split()
COMPLEX = "complex64 complex128".split()
INTEGER = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64".split()


@pytest.fixture
def x64():
    with enable_x64(True):
        yield


@pytest.fixture(params=LAYOUTS)
def layout(request):
    return request.param


def julias(x, layout):
    """Turn the axes of an array into the order that Julia sees."""
    return x.T if layout == "reversed" else x


def in_layout(twin, layout):
    """Make what a function of Julia's arrays is for JAX: the same between two transposes."""
    if layout == "logical":
        return twin
    return lambda *xs: jnp.transpose(twin(*(jnp.transpose(x) for x in xs)))


# --- dtypes -------------------------------------------------------------------------------

SHAPES = [(), (3,), (2, 3), (0,), (2, 1, 2, 3)]


@pytest.mark.parametrize("dtype", [*INTEGER, *REAL, *COMPLEX, "bfloat16"])
@pytest.mark.parametrize("wide", [False, True], ids=["x32", "x64"])
def test_every_dtype_comes_back_as_it_went(dtype, wide, layout):
    f = julia(
        "(a, b, c, d, e) -> (a, reverse(b), reverse(c; dims=1), d, reverse(e; dims=3))",
        layout=layout,
    )
    with enable_x64(wide):
        canonical = jax.dtypes.canonicalize_dtype(dtype)
        xs = [(np.arange(np.prod(s)) % 7).reshape(s).astype(canonical) for s in SHAPES]
        got = jax.jit(f)(*xs)
        first, third = (0, 2) if layout == "logical" else (-1, -3)
        a, b, c, d, e = xs
        same(got, (a, b[::-1], np.flip(c, first), d, np.flip(e, third)), rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [*REAL, *COMPLEX, "bfloat16"])
def test_derivatives_have_the_arguments_dtype(dtype, x64, system):
    if dtype in COMPLEX and system in BY_VALUE:
        pytest.skip("has no complex derivatives")
    f = julia("x -> sum(abs2, x)", system)
    x = jnp.array([1.0, -2.0, 0.5], dtype)
    value, gradient = jax.jit(jax.value_and_grad(f))(x)
    assert gradient.dtype == dtype
    np.testing.assert_array_equal(np.asarray(gradient, np.complex64), 2 * np.array([1, -2, 0.5]))
    assert value.dtype == jnp.abs(x).dtype
    tangent = jax.jit(lambda x: jax.jvp(f, (x,), (x,))[1])(x)
    assert (tangent.dtype, float(tangent)) == (value.dtype, 10.5)


def test_bfloat16_outside_of_jit():
    f, x = julia("x -> 2 .* x"), jnp.ones(3, jnp.bfloat16)
    same(f(x), 2 * x)


def test_64_bits_with_x64_off_are_no_silent_cast():
    x = jnp.ones(3, jnp.float32)
    for source in ("x -> Float64.(x)", "x -> sum(x) * 1.0", "x -> length(x)"):
        with pytest.raises(pb.ArgumentTypeError, match="64"):
            jax.jit(julia(source))(x)
    declared = julia("x -> sum(x) * 1.0", out=jax.ShapeDtypeStruct((), jnp.float32))
    same(jax.jit(declared)(x), np.float32(3))
    same(jax.jit(jax.grad(declared))(x), np.ones(3, np.float32))
    wide = julia("x -> sum(x) * 1.0", out=jax.ShapeDtypeStruct((), np.float64))
    for wrap in (lambda f: f, jax.jit):
        with pytest.raises(pb.ArgumentTypeError, match="64"):
            wrap(wide)(x)


def test_mixed_dtypes(x64):
    f = julia("(x, y, n) -> (x .* y .* n, sum(y) * n)")
    x, y = jnp.arange(3, dtype=jnp.float32), jnp.arange(3.0) + 1
    same(jax.jit(f)(x, y, jnp.int32(2)), (2.0 * x * y, jnp.float64(12)))

    def loss(f, x, y):
        return jnp.sum(f(x, y, jnp.int32(2))[0] ** 2)

    got = jax.jit(jax.grad(functools.partial(loss, f), argnums=(0, 1)))(x, y)
    want = jax.grad(
        functools.partial(loss, lambda x, y, n: (2.0 * x.astype(y.dtype) * y,)), argnums=(0, 1)
    )(x, y)
    same(got, want, rtol=1e-6)


@pytest.mark.parametrize("number", [3, 3.0, True, np.float32(3), np.int8(3), 3 + 0j])
def test_python_and_numpy_numbers(number):
    got = jax.jit(julia("(x, n) -> x .* n"))(jnp.ones(2), number)
    same(got, jnp.ones(2) * jnp.asarray(number).astype(jnp.result_type(number, jnp.float32)))


@pytest.mark.parametrize(
    ("shape", "layout"), [((0,), "logical"), ((0,), "reversed"), ((0, 3, 2), "reversed")]
)
def test_arrays_without_elements(shape, layout, system, x64):
    f = julia("x -> sum(abs2, x)", system, layout=layout)
    x = jnp.zeros(shape)
    twin = lambda x: jnp.sum(x**2)  # noqa: E731
    same(jax.jit(jax.value_and_grad(f))(x), jax.value_and_grad(twin)(x))
    same(jax.jit(julia("x -> 2 .* x", layout=layout))(x), x)
    if len(shape) == 1:
        same(jax.jit(jax.hessian(f))(x), jax.hessian(twin)(x))
        same(jax.jit(jax.vmap(f))(jnp.zeros((0, 3))), jnp.zeros(0))


def test_matrices_without_elements(run_python):
    run_python(
        """
        import jax, jax.numpy as jnp, pybridge as pb
        f = pb.from_julia("x -> (sum(x), 2 .* x)")
        for function in (f, jax.value_and_grad(lambda x: f(x)[0])):
            jax.jit(function)(jnp.zeros((2, 0)))
        """,
        packages=(),
    )


def test_strided_and_read_only_arrays(layout):
    x = np.arange(24, dtype=np.float32).reshape(4, 6)[::2, ::-2]
    x.setflags(write=False)
    f = julia("x -> (x .= 2 .* x; x)", layout=layout)
    for one in (x, x.T, x[:, 1]):
        same(jax.jit(f)(one), 2 * one)


# --- layouts ------------------------------------------------------------------------------

INDEXED = {
    3: (
        "x -> x[2, 1, 3] .* x .^ 2 .+ sum(x; dims=2)",
        lambda x: x[1, 0, 2] * x**2 + jnp.sum(x, 1, keepdims=True),
    ),
    4: (
        "x -> permutedims(x, (3, 1, 4, 2)) .* x[1, 2, 1, 2] .^ 2",
        lambda x: jnp.transpose(x, (2, 0, 3, 1)) * x[0, 1, 0, 1] ** 2,
    ),
}


@pytest.mark.parametrize("rank", INDEXED)
@pytest.mark.parametrize("derivative", ["value", "jacrev", "jacfwd", "hvp", "vmap"])
def test_arrays_of_three_and_four_axes(rank, derivative, layout, x64):
    source, twin = INDEXED[rank]
    shape = {3: (2, 2, 3), 4: (1, 2, 3, 2)}[rank]
    shape = shape if layout == "logical" else shape[::-1]
    x = jnp.sin(jnp.arange(float(np.prod(shape)))).reshape(shape)
    f, twin = julia(source, layout=layout), in_layout(twin, layout)
    transform = {
        "value": lambda f: f,
        "jacrev": jax.jacrev,
        "jacfwd": jax.jacfwd,
        "hvp": lambda f: lambda x: jax.jvp(jax.grad(lambda x: jnp.sum(f(x) ** 2)), (x,), (x,)),
        "vmap": lambda f: lambda x: jax.vmap(f, 1, 2)(jnp.stack([x, -x, 2 * x], 1)),
    }[derivative]
    same(jax.jit(transform(f))(x), jax.jit(transform(twin))(x))


ARRAYS = hnp.arrays(
    np.float32,
    hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4),
    elements=st.floats(-2, 2, width=16),
)


@settings(deadline=None, max_examples=examples(25))
@given(x=ARRAYS, layout=st.sampled_from(LAYOUTS))
def test_any_array_comes_back(x, layout):
    same(jax.jit(julia("identity", layout=layout))(x), x, rtol=0, atol=0)


@settings(deadline=None, max_examples=examples(25))
@given(x=ARRAYS.filter(lambda x: x.ndim > 0), layout=st.sampled_from(LAYOUTS))
def test_julia_counts_elements_as_the_layout_says(x, layout):
    numbers = np.arange(1, x.size + 1, dtype=np.float32)
    numbers = numbers.reshape(x.shape, order="F" if layout == "logical" else "C")
    numbered = julia("x -> x .* reshape(1:length(x), size(x))", layout=layout)
    same(jax.jit(numbered)(x), x * numbers)
    squares = julia("x -> sum(x .* x .* reshape(1:length(x), size(x)))", layout=layout)
    same(jax.jit(jax.grad(squares))(x), 2 * x * numbers, rtol=1e-6)


# --- big arrays: read in place, and copied before the first write -------------------------

SIDE = 256  # of float32: the least that Julia reads in place


def _put(x, value, at=0):
    x = x.copy()
    x[at, at] = value
    return x


def _shifted(x):
    return np.concatenate([x[:1], x[:-1]])


def _thirds(x):
    return (np.arange(1, x.size + 1) % 3).astype(x.dtype).reshape(x.shape, order="F")


MUTATIONS = {
    "broadcast a number": ("x .= 0", lambda x: 0 * x),
    "one element": ("x[1] = 5", lambda x: _put(x, 5)),
    "broadcast itself": ("x .+= 1", lambda x: x + 1),
    "broadcast an expression": ("x .= x .* x .- x", lambda x: x * x - x),
    "fill!": ("fill!(x, 3)", lambda x: 0 * x + 3),
    "sort!": ("sort!(vec(x))", lambda x: np.sort(x, None).reshape(x.shape, order="F")),
    "reverse!": ("reverse!(vec(x))", lambda x: x[::-1, ::-1]),
    "map!": ("map!(abs, x, x)", np.abs),
    "copyto!": ("copyto!(x, 2 .* x)", lambda x: 2 * x),
    "permutedims": ("x .= permutedims(x)", lambda x: x.T),
    "adjoint": ("x .= x'", lambda x: x.T),
    "column": ("x[:, 1] .= 7", lambda x: np.concatenate([0 * x[:, :1] + 7, x[:, 1:]], 1)),
    "view": ("view(x, 2:size(x, 1), :) .= view(x, 1:size(x, 1)-1, :)", _shifted),
    "swap": (
        "(y = x[1]; x[1] = x[end]; x[end] = y)",
        lambda x: _put(_put(x, x[-1, -1]), x[0, 0], -1),
    ),
    "mul!": ("(A = copy(x); mul!(x, A, A))", lambda x: x @ x),
    "mul! with itself": ("mul!(x, copy(x), 2)", lambda x: 2 * x),
    "rmul!": ("rmul!(x, 3)", lambda x: 3 * x),
    "axpy!": ("axpy!(2, copy(x), x)", lambda x: 3 * x),
    "pointer": ("GC.@preserve x unsafe_store!(pointer(x), 9)", lambda x: _put(x, 9)),
    "cumsum!": ("cumsum!(x, copy(x); dims=1)", lambda x: np.cumsum(x, 0, dtype=x.dtype)),
    "then read": ("(x[1] = 5; x .+= x)", lambda x: 2 * _put(x, 5)),
    "loop": ("for i in eachindex(x); @inbounds x[i] += i % 3; end", lambda x: x + _thirds(x)),
}


@functools.cache
def big():
    x = np.sin(np.arange(SIDE * SIDE, dtype=np.float32) * 0.37).reshape(SIDE, SIDE)
    x.setflags(write=False)
    return x


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_mutating_a_big_argument_changes_nothing_here(mutation, layout):
    body, twin = MUTATIONS[mutation]
    f = julia(f"begin using LinearAlgebra; x -> ({body}; x) end", layout=layout)
    x = jax.device_put(big().copy())
    want = np.asarray(julias(twin(julias(big(), layout)), layout))
    for _ in range(2):
        got, after, total = jax.jit(lambda x: (f(x), x, x.sum()))(x)
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
        np.testing.assert_array_equal(after, big())
        np.testing.assert_array_equal(x, big())
        np.testing.assert_allclose(total, big().sum(), atol=0.1)


def test_mul_of_three_big_arguments(layout):
    f = julia("begin using LinearAlgebra; (x, a, b) -> mul!(x, a, b) end", layout=layout)
    x, a, b = (jax.device_put(big() * k) for k in (1, 2, -1))
    want = np.asarray(a) @ np.asarray(b) if layout == "logical" else np.asarray(b) @ np.asarray(a)
    np.testing.assert_allclose(jax.jit(f)(x, a, b), want, rtol=1e-3, atol=1e-3)
    for array, k in ((x, 1), (a, 2), (b, -1)):
        np.testing.assert_array_equal(array, big() * k)


@pytest.mark.parametrize("type_", ["Array", "Matrix{Float32}", "Array{<:Real,2}"])
def test_big_arguments_of_functions_typed_for_arrays(type_, layout):
    f = julia(f"(x::{type_}) -> (x .*= 2; x)", layout=layout)
    x = jax.device_put(big().copy())
    for _ in range(2):
        np.testing.assert_array_equal(jax.jit(f)(x), 2 * big())
        np.testing.assert_array_equal(x, big())
    total = julia(f"(x::{type_}) -> sum(abs2, x)", layout=layout)
    np.testing.assert_array_equal(jax.jit(jax.grad(total))(x), 2 * big())


@pytest.mark.parametrize("source", ["x -> push!(x, 1)", "x -> resize!(x, length(x) + 1)"])
def test_big_vectors_that_grow(source):
    x = jax.device_put(big().ravel())
    got = jax.jit(julia(f"x -> (y = ({source})(x); y[end] = 1; y)"))(x)
    np.testing.assert_array_equal(got, np.append(big().ravel(), np.float32(1)))
    np.testing.assert_array_equal(x, big().ravel())


@pytest.mark.parametrize(
    ("source", "twin"),
    [
        ("x -> sum(tanh.(x) .* x)", lambda x: jnp.sum(jnp.tanh(x) * x)),
        ("x -> sum(abs2, x * permutedims(x))", lambda x: jnp.sum((x @ x.T) ** 2)),
        ("x -> sum(x[2:3, :] .* x[1:2, :])", lambda x: jnp.sum(x[1:3] * x[:2])),
    ],
)
def test_gradients_of_big_arguments(source, twin, system):
    x = jnp.asarray(big()) * 0.1
    got = jax.jit(jax.value_and_grad(julia(source, system)))
    # ForwardDiff takes a pass for every dozen elements.
    if system == "forwarddiff":
        pytest.skip("90 000 elements in forward mode take minutes")
    want = jax.value_and_grad(twin)(x)
    same(got(x), want, rtol=1e-3, atol=1e-3)
    np.testing.assert_array_equal(x, jnp.asarray(big()) * 0.1)


# --- trees --------------------------------------------------------------------------------

Pair = namedtuple("Pair", "first second")


def test_trees_of_arguments(system, x64):
    args = ({"a": jnp.arange(2.0)}, (jnp.array(2.0), None), [Pair(jnp.ones(2), jnp.array(3.0))])
    source = "(d, (n, none), (p,)) -> none === nothing ? sum(d.a .* p.first) * n * p.second : 0n"

    def twin(d, t, p):
        return jnp.sum(d["a"] * p[0].first) * t[0] * p[0].second

    f = julia(source, system)
    for transform in (lambda f: f, functools.partial(jax.grad, argnums=(0, 1, 2))):
        same(jax.jit(transform(f))(*args), transform(twin)(*args))


CONTAINERS = {
    "Dict": "f(x) = Dict(:a => x .^ 2, :b => sum(x))",
    "Dict of another order": 'f(x) = (d = Dict{String,Any}("b" => sum(x)); d["a"] = x .^ 2; d)',
    "struct": "struct Of; a; b; end; f(x) = Of(x .^ 2, sum(x))",
    "mutable struct": "mutable struct Of; a; b; end; f(x) = Of(x .^ 2, sum(x))",
    "mutated struct": "mutable struct Of; a; b; end\nf(x) = (y = Of(x, sum(x)); y.a = x .^ 2; y)",
}


@pytest.mark.parametrize(
    "kind", by_day(CONTAINERS, ["Dict of another order", "struct", "mutated struct"])
)
def test_derivatives_of_results_in_containers(kind, x64):
    x = np.array([1.0, 2.0, 3.0])
    for body in ("f", "x -> (1.0, (; inner=f(x)))"):
        f = julia(f"begin {CONTAINERS[kind]}\n{body} end")

        def total(x, f=f):
            y = f(x)
            y = y if hasattr(y, "a") else y[1].inner
            return y.a.sum() + y.b

        for wrap in (lambda f: f, jax.jit):
            same(wrap(jax.grad(total))(x), 2 * x + 1)
        same(jax.jit(jax.hessian(total))(x), 2 * np.eye(3))
        for jacobian in (jax.jacrev(f)(x), jax.jacfwd(f)(x)):
            same(jax.tree.leaves(jacobian)[-2], np.diag(2 * x))


VECTORS = {
    "arrays": ("[x .^ 2, [sum(x)]]", lambda x: (x**2, jnp.sum(x)[None])),
    "arrays and numbers": ("Any[x .^ 2, sum(x)]", lambda x: (x**2, jnp.sum(x))),
    "named tuples": ("[(a=x .^ 2,), (a=2 .* x,)]", lambda x: ((x**2,), (2 * x,))),
    "vectors": ("[[x, 2 .* x], [x .^ 3]]", lambda x: ((x, 2 * x), (x**3,))),
    "in a tuple": ("(1.0, [x .^ 2, x])", lambda x: (jnp.array(1.0), (x**2, x))),
    "map": ("map(n -> x .^ n, 1:3)", lambda x: (x, x**2, x**3)),
}


def weighted(f):
    def total(x):
        leaves = enumerate(jax.tree.leaves(f(x)), 1)
        return sum(jnp.sum(weight * jnp.sin(leaf)) for weight, leaf in leaves)

    return total


def test_a_vector_of_arrays_is_a_tuple_for_every_system(system, x64):
    body, twin = VECTORS["arrays"]
    f, x = julia(f"x -> {body}", system), jnp.array([1.0, 2.0, 3.0])
    same(f(x), twin(x))
    same(jax.jit(jax.grad(weighted(f)))(x), jax.grad(weighted(twin))(x))


@pytest.mark.parametrize("kind", by_day(VECTORS, ["vectors", "in a tuple"]))
def test_derivatives_of_vectors_of_arrays(kind, compiling_system, x64):
    if compiling_system == "yota" and kind in ("arrays and numbers", "map"):
        pytest.skip("Yota has no rule for Any[...], nor for map with a closure")
    body, twin = VECTORS[kind]
    f, x = julia(f"x -> {body}", compiling_system), jnp.array([1.0, 2.0, 3.0])

    def leaves(y):
        return jax.tree.leaves(y)

    for transform in (
        lambda f: f,
        lambda f: jax.grad(weighted(f)),
        lambda f: jax.hessian(weighted(f)),
        jax.jacrev,
        jax.jacfwd,
    ):
        same(leaves(jax.jit(transform(f))(x)), leaves(transform(twin)(x)))


def test_an_empty_vector_of_arrays_and_one_of_nobody_knows_what(x64):
    x = jnp.ones(2)
    assert julia("x -> Vector{Float64}[]")(x) == ()
    with pytest.raises(pb.ArgumentTypeError, match=r"got a Vector\{Any\}"):
        julia("x -> Any[]")(x)


def test_rules_of_ones_own_get_vectors_for_vectors(x64):
    f = julia(
        "x -> [x .^ 2, x]",
        vjp="x -> ([x .^ 2, x], ȳ -> (ȳ isa Vector ? 20 .* x .* ȳ[1] .+ 10 .* ȳ[2] : error(),))",
    )
    x = jnp.array([1.0, 2.0])

    def total(x):
        square, same_again = f(x)
        return jnp.sum(square) + jnp.sum(same_again)

    same(jax.jit(jax.grad(total))(x), 20 * x + 10)
    same(jax.jit(jax.jacfwd(total))(x), 20 * x + 10)


@pytest.mark.parametrize(
    "source", ["x -> (x₁=x, σ²=sum(x))", 'x -> Dict("class"=>x, "x y"=>sum(x))']
)
def test_names_that_python_cannot_spell(source, x64):
    f, x = julia(source), np.array([1.0, 2.0])
    for wrap in (lambda f: f, jax.jit):
        same(tuple(wrap(f)(jnp.asarray(x))), (x, np.float64(3)))
        same(wrap(jax.grad(lambda x: f(x)[0] @ f(x)[0] + f(x)[1]))(x), 2 * x + 1)
    again = julia("y -> y")  # it goes back under its own names
    same(jax.jit(again)(f(x)), f(jnp.asarray(x)))


def test_trees_of_results(x64):
    f = julia("x -> (x, (a=sum(x), b=(2 .* x, nothing)), nothing, ())")
    x = jnp.arange(2.0)
    got = jax.jit(f)(x)
    first, second, third, last = got
    assert (second._fields, third, last) == (("a", "b"), None, ())
    same((first, second.a, second.b), (x, x.sum(), (2 * x, None)))
    jacobian = jax.jit(jax.jacrev(f))(x)
    same((jacobian[1].a, jacobian[1].b[0]), (jnp.ones(2), 2 * jnp.eye(2)))


# --- complex numbers ----------------------------------------------------------------------

OF_COMPLEX = {
    "holomorphic": ("z -> z .^ 2 .* exp.(z)", lambda z: z**2 * jnp.exp(z)),
    "conjugate": ("z -> conj.(z) .* (1 + 2im) .+ z", lambda z: jnp.conj(z) * (1 + 2j) + z),
    "absolute value": ("z -> abs2.(z) .* z", lambda z: (z * jnp.conj(z)).real * z),
    "parts": ("z -> real.(z) .* imag.(z)", lambda z: z.real * z.imag),
    "number": ("z -> sum(abs2, z .* z .+ 2im)", lambda z: jnp.sum(jnp.abs(z * z + 2j) ** 2)),
}


def _cotangent(y):
    base = jnp.cos(jnp.arange(float(y.size))).reshape(y.shape)
    return (base * (1 - 2j)).astype(y.dtype) if jnp.iscomplexobj(y) else base.astype(y.dtype)


COMPLEX_TRANSFORMS = {
    "value": lambda f: f,
    "vjp": lambda f: lambda z: jax.vjp(f, z)[1](_cotangent(f(z))),
    "jvp": lambda f: lambda z: jax.jvp(f, (z,), (_cotangent(z),)),
    "grad of real": lambda f: jax.grad(lambda z: jnp.sum(jnp.abs(f(z)) ** 2)),
    "jvp of grad": lambda f: (
        lambda z: jax.jvp(jax.grad(lambda z: jnp.sum(jnp.abs(f(z)) ** 2)), (z,), (_cotangent(z),))[
            1
        ]
    ),
    "vmap of vjp": lambda f: (
        lambda z: jax.vmap(lambda z: jax.vjp(f, z)[1](_cotangent(f(z))))(jnp.stack([z, 1j * z]))
    ),
}


@pytest.mark.parametrize("transform", COMPLEX_TRANSFORMS)
@pytest.mark.parametrize("function", OF_COMPLEX)
def test_complex_functions(function, transform, x64):
    source, twin = OF_COMPLEX[function]
    z = jnp.array([1 + 2j, -0.5 + 0.25j])
    run = COMPLEX_TRANSFORMS[transform]
    same(jax.jit(run(julia(source)))(z), jax.jit(run(twin))(z))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_complex_of_real_and_holomorphic_grad(x64):
    f, twin = julia("x -> exp.(im .* x) .* x"), lambda x: jnp.exp(1j * x) * x
    x = jnp.array([0.3, -1.2])
    for run in (COMPLEX_TRANSFORMS["vjp"], COMPLEX_TRANSFORMS["jvp"]):
        same(jax.jit(run(f))(x), jax.jit(run(twin))(x))
    g, twin = julia("z -> z^3 * sin(z)"), lambda z: z**3 * jnp.sin(z)
    for transform in (jax.grad, jax.jacfwd):
        got = jax.jit(transform(g, holomorphic=True))(0.4 + 0.3j)
        same(got, transform(twin, holomorphic=True)(0.4 + 0.3j))


# --- how shapes and dtypes of results are found -------------------------------------------

SHAPE = jax.ShapeDtypeStruct((3,), jnp.float32)


@pytest.mark.parametrize(
    ("source", "out"),
    [
        ("x -> 2 .* x", SHAPE),
        ("x -> 2 .* x", lambda x: x),
        ("x -> 2.0 .* x", SHAPE),
        ("x -> view(2 .* x, :)", SHAPE),
        ("x -> (2 .* x)'", jax.ShapeDtypeStruct((1, 3), jnp.float32)),
        ("x -> (2 .* x, (sum(x),))", lambda x: [x, (jax.ShapeDtypeStruct((), x.dtype),)]),
    ],
)
def test_declared_results(source, out):
    x = jnp.arange(3, dtype=jnp.float32)
    f = julia(source, out=out) if callable(out) else pb.from_julia(source, out=out)
    declared = out(x) if callable(out) else out
    got = jax.jit(f)(x)
    assert jax.tree.structure(got) == jax.tree.structure(declared)
    assert [y.dtype for y in jax.tree.leaves(got)] == [jnp.float32] * len(jax.tree.leaves(got))
    np.testing.assert_array_equal(np.ravel(jax.tree.leaves(got)[0]), 2 * x)
    gradient = jax.jit(jax.grad(lambda x: jax.tree.leaves(f(x))[0].sum()))(x)
    same(gradient, np.full(3, 2, np.float32))


@pytest.mark.parametrize(
    ("source", "calls"),
    [
        ("x -> 2 * sum(x)", 0),
        ("x -> (sum(x), (n=length(x) > 2,))", 0),
        ("x -> 2 .* x", 1),
        ("x -> x[1] > 100 ? 0 : sum(x)", 1),  # of an uncertain type
    ],
)
def test_finding_a_result_calls_the_function_at_most_once(source, calls):
    source, count = counted(source)
    f = pb.from_julia(source)
    x = jnp.arange(3, dtype=jnp.float32)
    for _ in range(2):
        jax.jit(lambda x: f(x)).lower(x)
        jax.eval_shape(f, x)
        jax.make_jaxpr(f)(x)
    assert count() == calls
    jax.make_jaxpr(f)(jnp.arange(4, dtype=jnp.float32))
    assert count() == calls
    declared = pb.from_julia(source, out=lambda x: x)
    jax.make_jaxpr(declared)(x)
    assert count() == 0


def struct(*shape, dtype=np.float16):
    return jax.ShapeDtypeStruct(shape, dtype)


def test_declared_results_outside_of_jit(x64):
    x, tree = np.arange(6.0).reshape(2, 3), {"b": struct(2, 3), "c": struct(dtype=jnp.bfloat16)}
    for layout in LAYOUTS:
        f = julia("x -> (b=2 .* x, c=1.5)", layout=layout, out=lambda x: tree)
        for wrap in (lambda f: f, jax.jit):
            got = wrap(f)(jnp.asarray(x))
            same(got, {"b": np.float16(2 * x), "c": jnp.bfloat16(1.5)})
            assert all(isinstance(y, jax.Array) for y in jax.tree.leaves(got))
        got = f(x)
        same(got, {"b": np.float16(2 * x), "c": jnp.bfloat16(1.5)})
        assert not any(isinstance(y, jax.Array) for y in jax.tree.leaves(got))
    number = julia("(x, n) -> n .* x", out=lambda x, n: n)
    with enable_x64(False):  # a number is what JAX makes of it
        same(number(jnp.float32(2), 3.0), np.float32(6))


@pytest.mark.parametrize("out", [struct(3), {"b": struct(2)}, (struct(2), struct(2))])
def test_wrong_declarations_outside_of_jit(out, x64):
    f = pb.from_julia("x -> x", out=out)
    for x in (np.ones(2), jnp.ones(2)):
        with pytest.raises(pb.ArgumentTypeError, match="as declared by out="):
            f(x)


def test_declared_bfloat16(x64):
    f = julia("x -> 2 .* x", out=lambda x: struct(*x.shape, dtype=jnp.bfloat16))
    x = jnp.ones(3)
    for wrap in (lambda f: f, jax.jit):
        same(wrap(f)(x), jnp.bfloat16(2) * jnp.ones(3, jnp.bfloat16))
        same(wrap(jax.grad(lambda x: jnp.sum(f(x))))(x), 2 * x)
    single = julia("x -> 2 .* x", out=lambda x: struct(*x.shape, dtype=np.float32))
    assert jax.jit(single)(x.astype(jnp.bfloat16)).dtype == np.float32
