"""Special functions, Fourier transforms and reductions of lowered programs against other truths."""

from __future__ import annotations

import jax
import jax.extend
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from precision import enable_x64
from scipy import special

import pybridge as pb
from pybridge.lowering import lower

RNG = np.random.default_rng(11)


def grid(*axes):
    return [np.ravel(a).astype(np.float32) for a in np.meshgrid(*axes)]


def close(got, want, rtol=2e-6, atol=0.0):
    np.testing.assert_allclose(np.asarray(got), want, rtol=rtol, atol=atol)


def test_values_are_right_to_float32_where_jaxs_own_are_not_quite():
    a, x = grid([1e-3, 0.5, 2, 9.5, 40, 1e4, 3e9], [1e-3, 0.7, 3, 12, 38, 1.01e4, 3.0001e9])
    p, q, y = grid([0.1, 1, 2.5, 60, 300], [0.1, 1, 15, 300], [1e-10, 0.1, 0.5, 0.9])
    s, t = grid([1.1, 2, 5.5, 30], [0.1, 1, 9, 50])
    n, u = grid([0, 1, 2, 7], [0.1, 1, 2.5, 30])
    z = np.float32([-30, -3, -1e-3, 0, 0.2, 5, 29, 31, 500])

    def f(a, x, p, q, y, s, t, n, u, z):
        return (
            lax.igamma(a, x),
            lax.igammac(a, x),
            lax.betainc(p, q, y),
            lax.zeta(s, t),
            lax.polygamma(n, u),
            lax.bessel_i0e(z),
            lax.bessel_i1e(z),
        )

    args = [a, x, p, q, y, s, t, n, u, z]
    a, x, p, q, y, s, t, n, u, z = (v.astype(np.float64) for v in args)
    wants = (
        special.gammainc(a, x),
        special.gammaincc(a, x),
        special.betainc(p, q, y),
        special.zeta(s, t),
        special.polygamma(n.astype(int), u),
        special.i0e(z),
        special.i1e(z),
    )
    for got, want in zip(lower(f, *args)(*args), wants, strict=True):
        close(got, want.astype(np.float32), atol=1e-37)


ONE_ARGUMENT = (
    *("log", "log1p", "sqrt", "rsqrt", "cbrt", "exp", "exp2", "expm1", "logistic", "sin", "cos"),
    *("tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf"),
    *("erfc", "erf_inv", "lgamma", "digamma", "bessel_i0e", "bessel_i1e"),
)


@pytest.mark.parametrize("system", ["zygote", "tracker", "yota", "mooncake", "reversediff"])
def test_derivatives_on_the_whole_line_are_jaxs(system):
    """Julia's own functions raise a DomainError where XLA's give NaN."""
    x = np.float32([-np.inf, -3, -2, -0.5, 0, 0.5, 1, 3, np.inf, np.nan])
    functions = [getattr(lax, name) for name in ONE_ARGUMENT]

    def total(*xs):
        return sum(f(x).sum() for f, x in zip(functions, xs, strict=True))

    numbers, xs = tuple(range(len(functions))), [x] * len(functions)
    found = pb.grad(total, numbers, backend=system)(*xs)
    for name, got, want in zip(ONE_ARGUMENT, found, jax.grad(total, numbers)(*xs), strict=True):
        # JAX has 1/2 for bessel_i1e of NaN, and NaN for the derivative of digamma at infinity.
        want = np.where(np.isnan(x), np.nan, want)
        # Older ones have a derivative of acosh where that has no value, and none of lgamma at 0.
        if name == "acosh":
            want = np.where(x < 1, np.nan, want)
        if name == "lgamma":
            want = np.where(x == 0, -np.inf, want)
        if name == "digamma":
            want = np.where(x == np.inf, 0, want)
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6, err_msg=name)


def test_second_derivatives_outside_of_the_domain_are_nan():
    x = np.float32([-3, 3, -np.inf])
    for f in (lax.log, lax.log1p, lax.sqrt, lax.asin, lax.acos, lax.erf_inv, lax.sin, lax.cos):
        got = pb.hessian(lambda x, f=f: f(x).sum(), backend="zygote")(x)
        want = np.array([jax.grad(jax.grad(f))(at) for at in x])
        np.testing.assert_allclose(np.diag(got), want, rtol=1e-5)


def test_values_at_the_edges_are_jaxs():
    nan, inf = np.nan, np.inf
    a = np.float32([0, 1, 1, 1, 0.5, -1, nan, 2, 0, 1])
    x = np.float32([0, 0, inf, -1, nan, 1, 1, -0.0, 2, -inf])
    p = np.float32([0, 0, 1, 1, 1, 2, inf, 0, -1, nan])
    q = np.float32([0, 1, 0, 1, 1, 2, 1, 1, 1, 1])
    y = np.float32([0.5, 0.5, 0.5, -0.1, 1.1, 0, 0.5, 0, 0.5, 0.5])
    s = np.float32([1, 0.5, 2, 3, 2.5, 3, 2, nan, 1.5])
    t = np.float32([2, 2, 0, -2, -0.5, -0.5, -3, 1, nan])
    z = np.float32([0, -0.0, inf, -inf, nan, 1e-30])
    args = [a, x, p, q, y, s, t, z]

    def f(a, x, p, q, y, s, t, z):
        return (
            lax.igamma(a, x),
            lax.igammac(a, x),
            # At x = inf JAX has NaN where the slope is 0.
            lax.igamma_grad_a(a, jnp.where(x == inf, 1e30, x)),
            lax.betainc(p, q, y),
            lax.zeta(s, t),
            lax.polygamma(s - 1, t),
            lax.bessel_i0e(z),
            lax.bessel_i1e(z),
            lax.erf_inv(z * 2),
            jnp.where(z == 0, -inf, lax.digamma(z)),  # older ones have NaN at 0
        )

    for got, want in zip(lower(f, *args)(*args), f(*args), strict=True):
        close(got, np.asarray(want), rtol=1e-5)


def test_the_slopes_that_jax_does_not_have_are_those_of_finite_differences():
    a, b, x = grid([0.4, 3, 20], [0.7, 12], [0.2, 0.6])
    s, q = grid([1.5, 4], [0.3, 2.5])

    def f(a, b, x, s, q):
        return jnp.sum(lax.betainc(a, b, x)) + jnp.sum(lax.zeta(s, q))

    got = pb.grad(f, (0, 1, 3, 4), backend="zygote")(a, b, x, s, q)
    a, b, x, s, q = (v.astype(np.float64) for v in (a, b, x, s, q))
    h = 1e-5
    wants = (
        special.betainc(a + h, b, x) - special.betainc(a - h, b, x),
        special.betainc(a, b + h, x) - special.betainc(a, b - h, x),
        special.zeta(s + h, q) - special.zeta(s - h, q),
        special.zeta(s, q + h) - special.zeta(s, q - h),
    )
    for one, want in zip(got, wants, strict=True):
        close(one, want / (2 * h), rtol=1e-5, atol=1e-8)


def test_second_derivatives_are_jaxs():
    def f(x):
        gamma = lax.lgamma(x) + lax.digamma(x) + lax.igamma(jnp.float32(1.5), x)
        return gamma + lax.bessel_i0e(x) + lax.bessel_i1e(x)

    x = jnp.float32(1.7)
    close(pb.hessian(f, backend="zygote")(x), jax.hessian(f)(x), rtol=1e-5)


# 101 is a prime and goes the way of 67, which the quick run interprets for seconds.
@pytest.mark.parametrize(
    "length", [1, 2, 7, 12, 64, 67, pytest.param(101, marks=pytest.mark.nightly), 134]
)
def test_fourier_transforms_of_any_length_are_numpys(length):
    x = RNG.normal(size=(2, length)).astype(np.float32)

    def f(x):
        there, half = jnp.fft.fft(lax.complex(x, x[::-1])), jnp.fft.rfft(x)
        return there, half, jnp.fft.irfft(half, length), jnp.fft.ifft(there)

    there, half, back, again = lower(f, x)(x)
    both = x + 1j * x[::-1]
    atol = 1e-6 * np.sqrt(length)
    close(there, np.fft.fft(both), rtol=0, atol=2 * atol)
    close(half, np.fft.rfft(x), rtol=0, atol=2 * atol)
    close(back, x, rtol=0, atol=atol)
    close(again, both, rtol=0, atol=atol)


def test_reductions_keep_the_order_of_a_product_that_has_one():
    x = RNG.normal(size=(4, 5, 3)).astype(np.float32)

    def compose(f, g):  # of the functions a * x + b
        return f[0] * g[0], f[1] * g[0] + g[1]

    def reduced(x, y):
        return lax.reduce((x, y), (1.0, 0.0), compose, (1,))

    def moving(x, y):
        padding = ((0, 0), (2, 0), (0, 0))
        return lax.reduce_window((x, y), (1.0, 0.0), compose, (1, 3, 1), (1, 1, 1), padding)

    for f in (reduced, moving):
        for got, want in zip(lower(f, x, x + 1)(x, x + 1), f(x, x + 1), strict=True):
            close(got, np.asarray(want), rtol=1e-4, atol=1e-5)
    # By hand, in double precision.
    a, b = np.ones((4, 3)), np.zeros((4, 3))
    for k in range(5):
        a, b = compose((a, b), (x[:, k].astype(float), x[:, k].astype(float) + 1))
    close(lower(reduced, x, x + 1)(x, x + 1)[1], b, rtol=1e-4, atol=1e-5)


def test_integers_of_64_bits_wrap_around():
    numbers = RNG.integers(-(2**63), 2**63 - 1, (2, 2, 6))

    def f(x, y):
        widths = jnp.broadcast_to(jnp.uint64([1, 63, 64, 2, 0, 70]), y.shape)
        shifted = lax.shift_right_arithmetic(y, widths)
        return [lax.conv(n, n[..., :3], (1,), "SAME") for n in (x, y)], shifted

    args = numbers, numbers.view(np.uint64)
    with enable_x64(True):
        got = jax.tree.leaves(lower(f, *args)(*args))
        want = jax.tree.leaves(f(*map(jnp.asarray, args)))
    for one, other in zip(got, want, strict=True):
        np.testing.assert_array_equal(np.asarray(one), np.asarray(other))


@pytest.mark.nightly  # loops that Julia has to compile
def test_sums_of_many_numbers_are_right(compiling_system):
    many = jnp.full((100_000, 3), 0.1)

    def f(x):
        sums = many.sum(0) + (many * x).sum(0) + jnp.cumsum(many[:, 0] * x[0])[-1]
        return sums.sum() + (many * x[1]).sum()

    value, slope = pb.value_and_grad(f, backend=compiling_system)(jnp.ones(3))
    close(value, 120_000, rtol=1e-6)
    close(slope, [4e4, 4e4, 1e4], rtol=1e-6)


@pytest.mark.nightly  # loops that Julia has to compile
def test_sums_of_half_precision_are_those_of_single(compiling_system):
    v = jnp.full(2000, 0.1, jnp.float16)
    k = jnp.full((1, 8, 48), 0.1, jnp.float16)

    def f(v, k):
        sums = jnp.stack([v @ v, jnp.cumsum(v)[-1], lax.conv(k, k, (1,), "VALID")[0, 0, 0]])
        return sums.astype(jnp.float32).sum()

    (value, slopes) = pb.value_and_grad(f, (0, 1), backend=compiling_system)(v, k)
    tenth = float(v[0])
    close(value, 2000 * tenth * (tenth + 1) + 384 * tenth**2, rtol=4e-4)
    close(slopes[0], np.full(2000, 1 + 2 * tenth, np.float16), rtol=1e-3)
    close(slopes[1], np.full(k.shape, 2 * tenth, np.float16), rtol=1e-3)


def test_select_and_scatter_takes_any_functions():
    primitive = jax.extend.core.primitives.select_and_scatter_p
    x, source = RNG.normal(size=(6,)).astype(np.float32), np.float32([1, 2, 3])
    less = jax.make_jaxpr(lambda a, b: a <= b)(0.0, 0.0)
    add = jax.make_jaxpr(lambda a, b: a + b)(0.0, 0.0)

    def f(x, source):
        return primitive.bind(
            x,
            source,
            jnp.float32(5),
            select_jaxpr=less.jaxpr,
            select_consts=(),
            scatter_jaxpr=add.jaxpr,
            scatter_consts=(),
            window_dimensions=(2,),
            window_strides=(2,),
            padding=((0, 0),),
        )

    close(lower(f, x, source)(x, source), np.asarray(jax.jit(f)(x, source)))


def test_samples_of_the_gamma_distribution_move_with_the_shape(compiling_system):
    key, a = jax.random.key(3), jnp.float32([0.3, 1.0, 4.5])

    def f(a):
        return jnp.sum(jax.random.gamma(key, a) ** 2) + jnp.sum(jax.random.loggamma(key, a))

    want = jax.value_and_grad(f)(a)
    got = pb.value_and_grad(f, backend=compiling_system)(a)
    close(got[0], want[0], rtol=1e-5)
    close(got[1], want[1], rtol=1e-4)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_the_largest_are_taken_in_jaxs_order(dtype):
    """NaN and zero by their signs; approximate ones have an order of their own."""
    nan, inf = dtype(np.nan), dtype(np.inf)
    x = np.array([0, -0.0, 1, nan, -inf, -nan, 0, inf, -0.0, 1, nan, -1], dtype)
    assert np.signbit(x[5]) and not np.signbit(x[3])

    def f(x, y, n):
        extremes = [lax.approx_max_k(y, 4), lax.approx_min_k(y, 4)]
        return [lax.top_k(x, 12), lax.top_k(jnp.stack([x, -x], 1).T, 5), lax.top_k(n, 2), *extremes]

    args = x, x[[0, 1, 2, 4, 6, 7, 8, 9, 11]], np.array([3, -2, 3, 5], np.int32)
    got, want = jax.tree.leaves(lower(f, *args)(*args)), jax.tree.leaves(f(*args))
    for one, other in zip(got, want, strict=True):
        np.testing.assert_array_equal(np.asarray(one), other)
        np.testing.assert_array_equal(np.signbit(np.asarray(one)), np.signbit(other))


@pytest.mark.parametrize(
    "geometry",
    [
        ((2,), (1,), ((0, 1),)),
        ((3,), (2,), ((2, 3),)),
        ((2,), (1,), ((3, 0),), (2,)),
        ((3,), (1,), ((-1, 2),), (1,), (2,)),
        ((2,), (1,), ((2, 2),), (3,), (2,)),
    ],
)
def test_padding_counts_for_nothing_where_the_start_is_no_identity(geometry):
    x = RNG.normal(size=5).astype(np.float32)

    def combined(a, b):
        return a[0] + b[0], a[1] * b[1]

    def f(x, y):
        window = lax.reduce_window((x, y), (2.0, 3.0), combined, *geometry)
        return *window, lax.reduce_window(x, -1.5, lambda a, b: a + b + a * b, *geometry)

    for got, want in zip(lower(f, x, x + 1)(x, x + 1), f(x, x + 1), strict=True):
        close(got, np.asarray(want), rtol=1e-5, atol=1e-6)


def test_the_padding_of_a_short_sum():
    def f(x):
        return lax.reduce_window(x, 1.0, lax.add, (2,), (1,), ((0, 1),))

    x = jnp.array([0.0, 2.0, 3.0])
    close(lower(f, x)(x), [3, 6, 4])
    close(f(x), [3, 6, 4])


def test_a_batch_of_convolutions():
    x = RNG.normal(size=(3, 5)).astype(np.float32), RNG.normal(size=(3, 2)).astype(np.float32)

    def f(x, w):
        return jnp.sum(jnp.sin(jax.vmap(jnp.convolve)(x, w)))

    got = pb.grad(f, (0, 1), backend="zygote")(*x)
    for one, want in zip(got, jax.grad(f, (0, 1))(*x), strict=True):
        close(one, want, rtol=1e-4, atol=1e-5)


COMPLEX = jnp.array([1 + 2j, 3.0, 4j], jnp.complex64)
THROUGH_COMPLEX = {
    "product": lambda t: jnp.sum(jnp.abs(t * COMPLEX) ** 2),
    "number": lambda t: jnp.real(jnp.exp(1j * t) ** 2),
    "number and array": lambda t: jnp.real(jnp.sum(lax.complex(t, 2 * t) * COMPLEX)),
    "branch": lambda t: jnp.imag(lax.cond(t > 0, jnp.sin, jnp.cos, t * (1 + 2j))),
    "loop": lambda t: jnp.abs(lax.fori_loop(0, 3, lambda i, z: z * z + t, t * (1 + 2j))),
    "scan": lambda t: jnp.abs(lax.scan(lambda z, w: (z * w + t, z), t * 2j, COMPLEX)[0]),
}


@pytest.mark.parametrize("system", ["tracker", "reversediff"])
@pytest.mark.parametrize("name", THROUGH_COMPLEX)
def test_from_a_real_number_through_complex_ones(name, system):
    f = THROUGH_COMPLEX[name]
    close(pb.grad(f, backend=system)(0.3), jax.jacfwd(f)(0.3), rtol=1e-4)
