"""Activation functions: NNlib's formulas in NumPy, slopes at kinks, infinities, dtypes."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from nn_helpers import draw

import pybridge as pb

nn = pb.nn


def sigmoid(x):
    return np.exp(-np.logaddexp(0, -x))  # without overflow


def softplus(x):
    return np.log1p(np.exp(-np.abs(x))) + np.maximum(x, 0)


def inner(x):
    return math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)


ALPHA, LAMBDA = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946
FORMULAS = {
    "identity": lambda x: x,
    "sigmoid": sigmoid,
    "hardsigmoid": lambda x: np.clip((x + 3) / 6, 0, 1),
    "logsigmoid": lambda x: -np.logaddexp(0, -x),
    "hardtanh": lambda x: np.clip(x, -1, 1),
    "relu": lambda x: np.maximum(x, 0),
    "leakyrelu": lambda x: np.where(x > 0, x, 0.01 * x),
    "relu6": lambda x: np.clip(x, 0, 6),
    "elu": lambda x: np.where(x >= 0, x, np.expm1(x)),
    "gelu": lambda x: x / 2 * (1 + np.tanh(inner(x))),
    "gelu_tanh": lambda x: x / 2 * (1 + np.tanh(inner(x))),
    "gelu_sigmoid": lambda x: x * sigmoid(2 * inner(x)),
    "gelu_erf": lambda x: x / 2 * (1 + np.vectorize(math.erf)(x / math.sqrt(2))),
    "swish": lambda x: x * sigmoid(x),
    "hardswish": lambda x: x * np.clip((x + 3) / 6, 0, 1),
    "lisht": lambda x: x * np.tanh(x),
    "selu": lambda x: LAMBDA * np.where(x > 0, x, ALPHA * np.expm1(x)),
    "celu": lambda x: np.where(x >= 0, x, np.expm1(x)),
    "trelu": lambda x: np.where(x > 1, x, 0),
    "softsign": lambda x: x / (1 + np.abs(x)),
    "softplus": softplus,
    "logcosh": lambda x: np.log(np.cosh(x)),
    "mish": lambda x: x * np.tanh(softplus(x)),
    "tanhshrink": lambda x: x - np.tanh(x),
    "softshrink": lambda x: np.where(np.abs(x) <= 0.5, 0, x - 0.5 * np.sign(x)),
    "tanh": np.tanh,
}
# name: (place, slope) for every kink, NNlib's choice
KINKS = {
    "hardsigmoid": {-3.0: 0, 3.0: 0},
    "hardtanh": {-1.0: 0, 1.0: 0},
    "relu": {0.0: 0},
    "leakyrelu": {0.0: 0.01},
    "relu6": {0.0: 0, 6.0: 0},
    "hardswish": {-3.0: -0.5, 3.0: 1.5},
    "selu": {0.0: LAMBDA * ALPHA},
    "elu": {0.0: 1},
    "celu": {0.0: 1},
    "trelu": {1.0: 0},
    "softshrink": {-0.5: 0, 0.5: 0},
    "softsign": {0.0: 1},
}


@pytest.mark.parametrize("name", FORMULAS)
def test_value_and_slope_are_those_of_the_formula(name, x64):
    function, formula = getattr(nn, name), FORMULAS[name]
    x = np.concatenate([4 * draw(0, (40,)), [0.0, 1e-3, -1e-3, 30.0, -30.0]])
    np.testing.assert_allclose(jax.jit(function)(x), formula(x), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(function(x), formula(x), rtol=1e-12, atol=1e-14)
    x, step = 4 * draw(1, (40,)), 1e-6
    both = jax.vmap(lambda x: (jax.grad(function)(x), jax.jacfwd(function)(x)))
    slope, forward = jax.jit(both)(x)
    quotient = (formula(x + step) - formula(x - step)) / (2 * step)
    np.testing.assert_allclose(slope, quotient, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(forward, slope, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", KINKS)
def test_slope_at_a_kink_is_nnlibs(name, x64):
    function = getattr(nn, name)
    both = jax.jit(lambda x: (jax.grad(function)(x), jax.jacfwd(function)(x)))
    for place, want in KINKS[name].items():
        for slope in both(place):
            assert float(slope) == pytest.approx(want)


@pytest.mark.parametrize("name", FORMULAS)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_dtype_is_kept(name, dtype):
    x = np.asarray([-2.5, 0.0, 0.7, 3.0], jnp.dtype(dtype))
    y = jax.jit(getattr(nn, name))(x)
    assert y.dtype == dtype
    want = FORMULAS[name](np.asarray(x, np.float64))
    tolerance = 20 * float(jnp.finfo(dtype).eps)
    np.testing.assert_allclose(np.asarray(y, np.float64), want, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", FORMULAS)
def test_integers_and_nan(name):
    y = getattr(nn, name)(jnp.array([-4, 0, 3]))
    np.testing.assert_allclose(y, FORMULAS[name](np.array([-4.0, 0, 3])), rtol=1e-5, atol=1e-5)
    integers = {"identity", "hardtanh", "relu", "relu6", "trelu"}
    assert jnp.issubdtype(y.dtype, jnp.integer) == (name in integers)
    assert np.isnan(getattr(nn, name)(jnp.nan))


@pytest.mark.parametrize("name", sorted(set(FORMULAS) - {"gelu", "gelu_tanh", "gelu_sigmoid"}))
def test_slopes_of_large_numbers_are_finite(name):
    slope = jax.jit(jax.vmap(jax.grad(getattr(nn, name))))(np.array([-1e30, 1e30], np.float32))
    assert np.isfinite(slope).all()


def test_options(x64):
    x = np.array([-2.0, -0.25, 0.0, 0.25, 2.0])
    cases = [
        (nn.leakyrelu(x, 0.2), [-0.4, -0.05, 0, 0.25, 2]),
        (nn.elu(x, 2), [*2 * np.expm1(x[:2]), 0, 0.25, 2]),
        (nn.celu(x, 2), [*2 * np.expm1(x[:2] / 2), 0, 0.25, 2]),
        (nn.trelu(x, -1), [0, -0.25, 0, 0.25, 2]),
        (nn.softshrink(x, 0.2), [-1.8, -0.05, 0, 0.05, 1.8]),
    ]
    for got, want in cases:
        np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-15)
    assert float(jax.jit(jax.grad(nn.elu))(0.0, 2.0)) == 1
    assert float(jax.jit(jax.grad(nn.trelu))(-0.5, -1.0)) == 1
    assert float(jax.jit(jax.grad(nn.leakyrelu, 1))(-3.0, 0.1)) == -3


def test_other_names():
    assert nn.σ is nn.sigmoid_fast is nn.sigmoid
    assert nn.hardσ is nn.hardsigmoid
    assert nn.logσ is nn.logsigmoid
    assert nn.tanh_fast is nn.tanh
    assert nn.gelu is nn.gelu_tanh
    assert nn.thresholdrelu is nn.trelu


def test_rrelu_draws_a_slope_for_each_element(key):
    x = jnp.array([[1.0, -1.0, -1.0, -1.0]])
    y = np.asarray(nn.rrelu(x, key))
    assert y[0, 0] == 1
    assert len(set(y[0, 1:].tolist())) == 3
    assert ((y[0, 1:] <= -1 / 8) & (y[0, 1:] > -1 / 3)).all()


@pytest.mark.parametrize("axis", [-1, 0, (0, 1)])
def test_functions_of_an_axis(axis, x64):
    x = 5 * draw(0, (3, 4))
    total = np.exp(x).sum(axis, keepdims=True)
    weight = draw(1, (3, 4))

    @jax.jit
    def values(x):
        return (
            nn.softmax(x, axis),
            nn.logsoftmax(x, axis),
            nn.logsumexp(x, axis, keepdims=True),
            jax.grad(lambda x: jnp.vdot(weight, nn.softmax(x, axis)))(x),
        )

    softmax, logsoftmax, logsumexp, got = values(x)
    np.testing.assert_allclose(softmax, np.exp(x) / total, rtol=1e-12)
    np.testing.assert_allclose(logsoftmax, x - np.log(total), rtol=1e-12)
    np.testing.assert_allclose(logsumexp, np.log(total), rtol=1e-12)
    share = np.exp(x) / total
    want = share * (weight - (share * weight).sum(axis, keepdims=True))
    np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-12)


def test_axis_defaults(x64):
    x = draw(0, (3, 4))
    np.testing.assert_array_equal(nn.softmax(x), nn.softmax(x, 1))
    np.testing.assert_array_equal(nn.logsoftmax(x), nn.logsoftmax(x, 1))
    assert nn.logsumexp(x).shape == ()
    np.testing.assert_allclose(nn.glu(x), x[:, :2] * sigmoid(x[:, 2:]), rtol=1e-12)
    np.testing.assert_array_equal(nn.softmax(jnp.array([1, 2])), nn.softmax(jnp.array([1.0, 2])))


def test_softmax_with_infinities():
    x = jnp.array([jnp.inf, 1.0, jnp.inf, -jnp.inf])
    assert nn.softmax(x).tolist() == [0.5, 0, 0.5, 0]
    np.testing.assert_allclose(nn.logsoftmax(x), [-math.log(2), -jnp.inf, -math.log(2), -jnp.inf])
    assert np.isfinite(jax.grad(lambda x: nn.softmax(x)[0])(x)).all()
    assert nn.logsumexp(x) == jnp.inf
    assert np.isnan(nn.softmax(jnp.array([jnp.nan, 1.0]))).all()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("name", ["gelu_tanh", "gelu_sigmoid"])
def test_gelu_far_from_0(name, dtype):
    """The cube of 41 is infinite in half precision, and that of 6e4 no number there either."""
    f, dtype = getattr(nn, name), jnp.dtype(dtype)
    x = np.asarray([-6e4, -200, -41, -30, 30, 41, 200, 6e4], dtype)

    @jax.jit
    @jax.vmap
    def derivatives(x):
        return f(x), jax.grad(f)(x), jax.grad(jax.grad(f))(x)

    value, slope, curvature = derivatives(x)
    np.testing.assert_array_equal(value, np.where(x > 0, x, 0))
    np.testing.assert_array_equal(slope, x > 0)
    np.testing.assert_array_equal(curvature, 0 * x)
