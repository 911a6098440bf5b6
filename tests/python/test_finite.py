"""Finite differences against derivatives that are known in closed form."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from quick import examples

from pybridge._errors import ArgumentTypeError
from pybridge.finite import (
    TOLERANCES,
    Curve,
    as_given,
    differentiate_curve,
    double_precision,
    finite_gradient,
    finite_hessian,
    finite_jacobian,
    finite_jvp,
)

SMOOTH = {
    "sin": (jnp.sin, np.cos, 0.7),
    "exp": (jnp.exp, np.exp, 1.3),
    "steep exp": (lambda x: jnp.exp(50 * x), lambda x: 50 * np.exp(50 * x), 0.1),
    "fast sine": (lambda x: jnp.sin(1e4 * x), lambda x: 1e4 * np.cos(1e4 * x), 0.3),
    "log near its edge": (jnp.log, lambda x: 1 / x, 1e-6),
    "log far out": (jnp.log, lambda x: 1 / x, 1e8),
    "pole": (lambda x: 1 / x, lambda x: -1 / x**2, -0.02),
    "power of a large number": (lambda x: x**3, lambda x: 3 * x**2, 1e5),
    "constant": (lambda x: 0 * x + 3.0, lambda x: 0.0, 2.0),
    "small numbers": (jnp.square, lambda x: 2 * x, 1e-10),
    "beside a pole": (lambda x: 1 / x, lambda x: -1 / x**2, 1.1e-8),
    "a wave far out": (jnp.sin, np.cos, 3e6),
    "a step at its own width": (
        lambda x: jnp.tanh(x / 1e-5),
        lambda x: 1e5 / np.cosh(x / 1e-5) ** 2,
        1.3e-5,
    ),
    "lost beside a one": (lambda x: (1.0 + x) - 1.0, lambda x: 1.0, 1e-18),
    "step nearby": (lambda x: jnp.where(x > 0.101, 5.0, x), lambda x: 1.0, 0.1),
}


@pytest.mark.parametrize("name", SMOOTH)
def test_smooth_functions(name):
    f, slope, x = SMOOTH[name]
    value, derivative, error = finite_gradient(f, (x,))
    assert value == pytest.approx(float(f(x)), rel=1e-4)
    assert derivative == pytest.approx(slope(x), rel=1e-8, abs=1e-10)
    assert abs(derivative - slope(x)) <= 10 * error + 1e-12
    assert derivative.dtype == error.dtype == np.float64


@given(
    st.lists(st.floats(-5, 5), min_size=1, max_size=6),
    st.floats(-3, 3),
)
@settings(max_examples=examples(30), deadline=None)
def test_polynomials(coefficients, x):
    poly = np.polynomial.Polynomial(coefficients)
    _, derivative, error = finite_gradient(lambda v: poly(np.asarray(v)), (x,))
    assert derivative == pytest.approx(poly.deriv()(x), rel=1e-9, abs=1e-9)
    assert error <= 1e-8 * (1 + abs(derivative))


@given(st.floats(-2, 2), st.floats(-2, 2), st.floats(-2, 2))
@settings(max_examples=examples(20), deadline=None)
def test_jvp_is_linear_in_the_tangent(x, v, w):
    def f(a):
        return jnp.stack([jnp.sin(a), a**2])

    one = finite_jvp(f, (x,), (v,)).derivative
    two = finite_jvp(f, (x,), (w,)).derivative
    both = finite_jvp(f, (x,), (v + w,)).derivative
    np.testing.assert_allclose(both, one + two, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("length", [0.0, 5e-324, 1e-200, 1e200, math.nan])
def test_tangents_of_any_length(length):
    result = finite_jvp(jnp.sin, (0.5,), (length,))
    assert result.derivative == pytest.approx(length * math.cos(0.5), nan_ok=True)


def test_x32_callers_get_float64_digits():
    assert not jax.config.read("jax_enable_x64")
    x = np.linspace(0.1, 1, 4, dtype=np.float32)
    weight = jnp.float32(0.5)
    _, derivative, error = finite_gradient(lambda v: jnp.sum(jnp.tanh(weight * v)), (x,))
    exact = 0.5 / np.cosh(0.5 * x.astype(float)) ** 2
    np.testing.assert_allclose(derivative, exact, rtol=1e-9)
    assert np.all(error < 1e-9)
    assert not jax.config.read("jax_enable_x64")


def test_strict_promotion_of_the_caller_does_not_matter():
    weight = jnp.float32(2.0)
    with jax.numpy_dtype_promotion("strict"):
        result = finite_gradient(lambda v: jnp.sum(weight * v), (np.ones(2, np.float32),))
    np.testing.assert_allclose(result.derivative, [2.0, 2.0])


def test_trees_and_argnums():
    tree = {"w": np.array([[1.0, 2.0], [3.0, 4.0]]), "n": 3, "b": (0.5,)}

    def f(p, x):
        return jnp.sum(p["w"] @ x) * p["n"] + p["b"][0] ** 2

    x = np.array([1.0, -1.0])
    value, (dx,), _ = finite_gradient(f, (tree, x), argnums=(1,))
    np.testing.assert_allclose(dx, 3 * tree["w"].sum(0))
    assert value == pytest.approx(-5.75)
    _, tangent, _ = finite_jvp(
        lambda p: {"out": p["w"].sum() + p["b"][0], "count": p["n"]},
        (tree,),
        ({"w": np.ones((2, 2)), "n": None, "b": (10.0,)},),
    )
    assert tangent["out"] == pytest.approx(14.0)
    assert tangent["count"] == 0.0


def test_jacobian_has_output_shape_then_input_shape():
    a, b = np.array([[1.0, 2.0, 3.0]]), 0.5

    def f(a, b):
        return {"y": jnp.sin(a[0]) * b, "z": b**2}

    jacobian = finite_jacobian(f, (a, b), argnums=(0, 1)).derivative
    expected = jax.jit(jax.jacobian(f, argnums=(0, 1)))(a, b)
    shapes = jax.tree.map(np.shape, expected)
    assert jax.tree.map(np.shape, jacobian) == shapes
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-5), jacobian, expected)


def test_hessian():
    def f(a, b):
        return jnp.sum(jnp.sin(a) * b) + a[0] * a[1] * b**3

    a, b = np.array([0.3, 0.7]), np.float64(1.1)
    hessian = finite_hessian(f, (a, b), argnums=(0, 1))
    sin, cos = np.sin(a), np.cos(a)
    aa = np.diag(-sin * b) + np.array([[0, b**3], [b**3, 0]])
    ab = cos + 3 * b**2 * a[::-1]
    bb = 6 * b * a[0] * a[1]
    np.testing.assert_allclose(hessian[0][0], aa, rtol=1e-7, atol=1e-8)
    np.testing.assert_allclose(hessian[0][1], ab, rtol=1e-7)
    np.testing.assert_allclose(hessian[1][0], ab, rtol=1e-7)
    np.testing.assert_allclose(hessian[1][1], bb, rtol=1e-7)


def test_a_tiny_function_keeps_its_digits():
    f = lambda x: 1e-20 * jnp.sin(x)  # noqa: E731
    assert finite_gradient(f, (0.7,)).derivative / 1e-20 == pytest.approx(np.cos(0.7), rel=1e-9)
    assert finite_hessian(f, (0.7,)) / 1e-20 == pytest.approx(-np.sin(0.7), rel=1e-7)


@pytest.mark.parametrize("x", [1.1e-6, 1.1e-8, 3e6])
def test_hessian_where_lengths_are_far_from_one(x):
    np.testing.assert_allclose(finite_hessian(jnp.log, (x,)), -1 / x**2, rtol=1e-6)
    np.testing.assert_allclose(finite_hessian(jnp.sin, (3e6 + x,)), -np.sin(3e6 + x), rtol=1e-6)


def test_hessian_of_several_outputs_matches_jax():
    def f(x):
        return (x**2, {"s": jnp.prod(x)})

    x = np.array([1.0, 2.0, 3.0])
    expected = jax.jit(jax.hessian(f))(x)
    result = finite_hessian(f, (x,))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), result, expected)


def test_complex_inputs_follow_jax():
    z = np.array([1.0 + 2.0j, -0.5j])

    def f(z):
        return jnp.sum(jnp.abs(z) ** 2 + jnp.real(z**3))

    _, derivative, _ = finite_gradient(f, (z,))
    np.testing.assert_allclose(derivative, jax.jit(jax.grad(f))(z), rtol=1e-5)
    tangent = finite_jvp(lambda z: z**2, (z,), (np.array([1j, 1.0]),)).derivative
    np.testing.assert_allclose(tangent, 2 * z * np.array([1j, 1.0]), rtol=1e-8)


KINKS = {
    "relu": (lambda x: jnp.maximum(x, 0), 0.0, 0.0, 1.0),
    "abs": (jnp.abs, 0.0, -1.0, 1.0),
    "max at a tie": (lambda x: jnp.maximum(2 * x, x**2), 2.0, 2.0, 4.0),
    "square root's edge": (jnp.sqrt, 0.0, math.nan, math.inf),
    "power 1.5's edge": (lambda x: x**1.5, 0.0, math.nan, 0.0),
    "power 1.1's edge": (lambda x: 3 * x + x**1.1, 0.0, math.nan, 3.0),
    "cube root": (jnp.cbrt, 0.0, math.inf, math.inf),
    "cusp": (lambda x: jnp.sqrt(jnp.abs(x)), 0.0, -math.inf, math.inf),
    "entropy": (lambda x: jnp.where(x > 0, x * jnp.log(x), 0), 0.0, 0.0, -math.inf),
    "jump": (lambda x: jnp.where(x >= 0, 1.0, 0.0), 0.0, math.inf, 0.0),
    "smooth": (jnp.sin, 0.5, math.cos(0.5), math.cos(0.5)),
}


@pytest.mark.parametrize("name", KINKS)
def test_slopes_from_each_side(name):
    f, x, left, right = KINKS[name]
    with double_precision():
        curve = Curve(lambda ts: np.array([[f(x + t)] for t in ts]), np.array([f(x)]))
        result = differentiate_curve(curve)
    assert result.left.value == pytest.approx(left, abs=1e-4, nan_ok=True)
    assert result.right.value == pytest.approx(right, abs=1e-4, nan_ok=True)


@pytest.mark.parametrize(
    ("name", "derivative", "error"),
    [
        ("relu", 0.5, 0.5),
        ("abs", 0.0, 1.0),
        ("max at a tie", 3.0, 1.0),
        ("square root's edge", math.inf, math.inf),
        ("power 1.5's edge", 0.0, 0.0),
        ("cube root", math.inf, math.inf),
        ("cusp", math.nan, math.inf),
        ("entropy", math.nan, math.inf),
        ("jump", math.nan, math.inf),
    ],
)
def test_a_kink_shows_in_the_error(name, derivative, error):
    f, x, _, _ = KINKS[name]
    result = finite_gradient(f, (x,))
    assert result.derivative == pytest.approx(derivative, abs=1e-4, nan_ok=True)
    assert result.error == pytest.approx(error, abs=1e-3)


def test_functions_that_raise_outside_their_domain():
    value, derivative, _ = finite_gradient(math.log, (1e-3,), convert=as_given)
    assert value == pytest.approx(math.log(1e-3))
    assert derivative == pytest.approx(1e3, rel=1e-8)


def test_an_error_at_the_point_itself_is_raised():
    with pytest.raises(ValueError, match=r"domain|positive"):
        finite_gradient(math.log, (-1.0,), convert=as_given)


def test_as_given_keeps_the_kind():
    kinds = []

    def f(*args):
        kinds.append([type(a) for a in args])
        return args[0] * 1.0

    finite_gradient(f, (1.0, np.ones(2), jnp.ones(2), 3), convert=as_given)
    one = kinds[0]
    assert one[0] is float and one[1] is np.ndarray and one[3] is int
    assert issubclass(one[2], jax.Array)


@pytest.mark.parametrize("x", [math.nan, math.inf, -math.inf])
def test_not_finite_inputs_pass_through(x):
    result = finite_gradient(lambda v: v**2, (x,))
    assert np.isnan(result.derivative)
    assert np.isinf(result.error)


def test_empty_arrays():
    result = finite_gradient(lambda x: jnp.sum(x), (np.zeros((0, 3)),))
    assert result.derivative.shape == (0, 3)
    jacobian = finite_jacobian(lambda x: 2 * x, (np.zeros((0, 3)),)).derivative
    assert jacobian.shape == (0, 3, 0, 3)
    assert finite_hessian(lambda x: jnp.sum(x), (np.zeros(0),)).shape == (0, 0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: finite_gradient(lambda x: x, (3,)), "got int"),
        (lambda: finite_gradient(lambda x: x, (np.ones(2),)), "one real scalar"),
        (lambda: finite_gradient(lambda x: x, (1j,)), "one real scalar"),
        (lambda: finite_jacobian(lambda x: x, (1j,)), "real floating-point"),
    ],
)
def test_errors_say_what_to_do(call, message):
    with pytest.raises(ArgumentTypeError, match=message):
        call()


# Each of these functions is called thousands of times, so the tests compile it as a whole.
INSIDE = {
    "sqrt": (lambda d: jnp.sqrt(d), lambda d: 0.5 / jnp.sqrt(d)),
    "sqrt + 20": (lambda d: 20 + jnp.sqrt(d), lambda d: 0.5 / jnp.sqrt(d)),
    "log": (lambda d: 5 + jnp.log(d), lambda d: 1 / d),
    "power": (lambda d: d**0.25 - d, lambda d: 0.25 * d**-0.75 - 1),
}


@pytest.mark.parametrize("name", INSIDE)
@pytest.mark.parametrize("edge", [1.0, -3.0, 700.0])
@settings(max_examples=examples(40), deadline=None)
@given(st.floats(-11.7, -1), st.sampled_from([1.0, -1.0]))
def test_points_beside_the_edge_of_a_domain_are_no_edges(name, edge, exponent, side):
    f, slope = map(jax.jit, INSIDE[name])
    x = edge + side * abs(edge) * 10**exponent
    with double_precision():
        want = side * slope(side * (x - edge))
        found = finite_gradient(lambda x: f(side * (x - edge)), [x])
    # The last digits of x, of which the distance to the edge has few.
    rtol = 1e-7 + 4 * np.finfo(float).eps / 10**exponent
    np.testing.assert_allclose(found.derivative, want, rtol=rtol)


POLES = {
    "1/x": (lambda d: 7 + 1 / d, lambda d: -1 / d**2),
    "1/x^2": (lambda d: 1 / d**2 - d, lambda d: -2 / d**3 - 1),
    "tan": (lambda d: jnp.tan(d + jnp.pi / 2), lambda d: 1 / jnp.sin(d) ** 2),
    "log |x|": (lambda d: jnp.log(jnp.abs(d)), lambda d: 1 / d),
    "1/sqrt |x|": (
        lambda d: 1 / jnp.sqrt(jnp.abs(d)),
        lambda d: -jnp.sign(d) / 2 / jnp.abs(d) ** 1.5,
    ),
    "steep": (lambda d: jnp.tanh(d * 1e8), lambda d: 1e8 / jnp.cosh(d * 1e8) ** 2),
}


@pytest.mark.parametrize("name", POLES)
@pytest.mark.parametrize("pole", [1.0, -3.0, 700.0])
@settings(max_examples=examples(40), deadline=None)
@given(st.floats(-11.5, -1), st.sampled_from([1.0, -1.0]))
@example(-7.585, 1.0)  # The far side of a steep step is flat: it has its digits, the near one none.
@example(-10.0, -1.0)
def test_steps_do_not_go_past_a_pole_that_is_near(name, pole, exponent, side):
    f, slope = map(jax.jit, POLES[name])
    x = pole + side * abs(pole) * 10**exponent
    with double_precision():
        want = slope(x - pole)
        found = finite_gradient(lambda x: f(x - pole), [x]).derivative
    rtol = 1e-6 + 32 * np.finfo(float).eps / 10**exponent
    # The last digits of a tanh that is 1, over a step that is short against 1e-8.
    atol = 16 * np.finfo(float).eps / 1e-9
    np.testing.assert_allclose(found, want, rtol=rtol, atol=atol)


# Smooth beside 0, and something else on its other side.
PIECES = {
    "|x|": lambda d: jnp.abs(d) + jnp.cos(d),
    "relu": jax.nn.relu,
    "step": lambda d: jnp.where(d >= 0, d, d - 1),
    "sqrt(relu)": lambda d: jnp.sqrt(jax.nn.relu(d)),
    "1/(1e-6 + relu)": lambda d: 1 / (1e-6 + jax.nn.relu(d)),
    "exp(-1e4 relu)": lambda d: jnp.exp(-1e4 * jax.nn.relu(d)),
    "1/x or 0": lambda d: jnp.where(d > 0, 1 / jnp.where(d > 0, d, 1), 0.0),
}


@pytest.mark.parametrize("name", PIECES)
@pytest.mark.parametrize("joint", [1.0, -3.0, 700.0])
@settings(max_examples=examples(40), deadline=None)
@given(st.floats(-11.5, -1), st.sampled_from([1.0, -1.0]))
@example(-8.5, -1.0)
@example(-11.5, 1.0)
def test_the_other_piece_of_a_curve_is_not_mistaken_for_its_own(name, joint, exponent, side):
    f = jax.jit(PIECES[name])
    x = joint + side * abs(joint) * 10**exponent
    with double_precision():
        want = jax.grad(f)(jnp.float64(x - joint))
        found = finite_gradient(lambda x: f(x - joint), [x])
    rtol = 1e-6 + 32 * np.finfo(float).eps / 10**exponent
    # A kink that cannot be told from one here has both one-sided derivatives within its error; the
    # estimate of any other error meets the order of magnitude.
    error = found.error if np.isfinite(found.error) else 0.0
    atol = max(1e-6, TOLERANCES.estimates * error)
    np.testing.assert_allclose(found.derivative, want, rtol=rtol, atol=atol)


@pytest.mark.parametrize("distance", [1e-7, 1e-8, 1e-9])
@pytest.mark.parametrize("side", [1.0, -1.0])
def test_a_derivative_of_which_no_digit_is_known_is_none(distance, side):
    """The last digits of a million are too far apart for steps that stay before the pole."""
    with double_precision():
        found = finite_gradient(lambda x: 1 / (x - 1e6), [1e6 + side * distance])
    assert np.isnan(found.derivative) and np.isinf(found.error)
