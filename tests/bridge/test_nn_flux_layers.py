"""Layers and activation functions against Flux itself, on the same weights and inputs.

JAX's arrays are Flux's with the axes reversed, which `layout="reversed"` does.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flux_helpers import flux
from quick import by_day

import pybridge as pb


def draw(seed, shape, dtype):
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def compare(layer, source, x, dtype):
    """Compare values and gradients; `source` is `(p, x) -> y` in Julia."""
    tolerance = {"float32": (1e-5, 1e-4), "float64": (1e-12, 1e-12)}[dtype]
    shapes = jax.eval_shape(lambda: layer.init(jax.random.key(0), dtype))[0]
    params = {name: draw(i, s.shape, dtype) for i, (name, s) in enumerate(shapes.items())}
    params = params or {"none": np.zeros((), dtype)}  # an empty dict is no NamedTuple

    def ours(p, x):
        return layer.apply({k: v for k, v in p.items() if k != "none"}, {}, x)[0]

    theirs = flux(source)
    y, back = jax.vjp(ours, params, x)
    want, want_back = jax.vjp(theirs, params, x)
    assert (y.shape, y.dtype) == (want.shape, want.dtype)
    close(y, want, tolerance[0])
    cotangent = draw(7, y.shape, dtype)
    for a, b in zip(
        jax.tree.leaves(back(cotangent)), jax.tree.leaves(want_back(cotangent)), strict=True
    ):
        close(a, b, tolerance[1])


def close(got, want, tolerance):
    """Compare with the largest value as the scale: sums of many terms may cancel."""
    scale = max(1.0, float(np.abs(want).max(initial=0)))
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance * scale)


def in_julia(options):
    """Write options as Julia's keywords, with spatial axes in Julia's order."""
    words = []
    for name, value in options.items():
        if value == "same":
            text = "Flux.SamePad()"
        elif isinstance(value, tuple):
            pairs = list(value)
            if name == "pad" and len(value) > 3:
                pairs = [n for i in range(len(value) - 2, -1, -2) for n in value[i : i + 2]]
            else:
                pairs.reverse()
            text = f"({', '.join(map(str, pairs))},)"
        else:
            text = str(value)
        words.append(f"{name}={text}")
    return "; " + ", ".join(words) if words else ""


CONVOLUTIONS = [
    ((4,), {}),
    ((3, 2), {}),
    ((2, 3, 2), {}),
    ((3,), {"stride": 2, "pad": 1}),
    ((3, 2), {"stride": (2, 1), "pad": (1, 0, 2, 1)}),
    ((2, 3, 2), {"stride": (1, 2, 1), "pad": (1, 0, 2), "dilation": (2, 1, 1)}),
    ((3, 2), {"groups": 2, "dilation": (1, 2)}),
    ((2, 4), {"pad": "same"}),
    ((3, 4), {"pad": "same", "stride": 2}),
]


# Julia compiles each anew.
@pytest.mark.parametrize("kernel, options", by_day(CONVOLUTIONS, CONVOLUTIONS[4:5]), ids=str)
@pytest.mark.parametrize("name", ["Conv", "ConvTranspose"])
def test_convolutions(name, kernel, options, dtype):
    layer = getattr(pb.nn, name)(kernel, 4, 6, pb.nn.tanh, **options)
    x = draw(3, (2, 4, 7, 8, 6)[: 2 + len(kernel)], dtype)
    source = f"(p, x) -> Flux.{name}(p.weight, p.bias, tanh{in_julia(options)})(x)"
    compare(layer, source, x, dtype)


def test_output_padding(dtype):
    layer = pb.nn.ConvTranspose((3, 2), 4, 6, bias=False, stride=(2, 3), outpad=(1, 2))
    source = "(p, x) -> Flux.ConvTranspose(p.weight, false; stride=(3, 2), outpad=(2, 1))(x)"
    compare(layer, source, draw(0, (2, 4, 3, 5), dtype), dtype)


def test_same_padding_of_a_dilated_transposed_convolution():
    """Flux means size * stride and misses it; the twin does not."""
    layer = pb.nn.ConvTranspose((3,), 1, 1, stride=2, dilation=2, pad="same", bias=False)
    params, x = {"weight": np.ones((1, 1, 3), np.float32)}, np.ones((1, 1, 5), np.float32)
    assert layer.apply(params, {}, x)[0].shape == (1, 1, 10)
    theirs = flux(
        "(w, x) -> Flux.ConvTranspose(w, false; stride=2, dilation=2, pad=Flux.SamePad())(x)"
    )
    assert theirs(params["weight"], x).shape == (1, 1, 11)


@pytest.mark.parametrize("axes", by_day([0, 1, 2], [2]))
def test_dense(axes, dtype):
    layer = pb.nn.Dense(4, 3, pb.nn.sigmoid)
    x = draw(0, (*(5, 3)[:axes], 4), dtype)
    compare(layer, "(p, x) -> Flux.Dense(p.weight, p.bias, Flux.sigmoid)(x)", x, dtype)


POOLS = [
    ((2,), {}),
    ((3, 2), {}),
    ((2, 2, 2), {}),
    ((3, 3), {"stride": (2, 1), "pad": (1, 0, 2, 1)}),
    ((3, 2), {"stride": 2, "pad": "same"}),
    ((7, 6), {"stride": 1}),
]


@pytest.mark.parametrize("window, options", by_day(POOLS, POOLS[3:4]), ids=str)
@pytest.mark.parametrize("name", ["MaxPool", "MeanPool"])
def test_pools(name, window, options, dtype):
    layer = getattr(pb.nn, name)(window, **options)
    size = ", ".join(map(str, window[::-1]))
    source = f"(p, x) -> Flux.{name}(({size},){in_julia(options)})(x)"
    compare(layer, source, draw(0, (2, 3, 7, 8, 6)[: 2 + len(window)], dtype), dtype)


@pytest.mark.parametrize("rank", by_day([1, 2, 3], [2]))
def test_global_mean(rank, dtype):
    x = draw(0, (2, 3, 7, 8, 6)[: 2 + rank], dtype)
    compare(pb.nn.GlobalMeanPool(), "(p, x) -> Flux.GlobalMeanPool()(x)", x, dtype)


def test_what_nnlib_takes_for_the_largest_value():
    """The twin is exact: NaN comes through, -inf stays, and nearly equal is not equal."""
    layer, theirs = pb.nn.MaxPool((2,)), flux("x -> Flux.MaxPool((2,))(x)")

    def ours(x):
        return layer.apply({}, {}, x)[0]

    x = np.array([[[np.nan, 1, -np.inf, -np.inf]]], np.float32)
    np.testing.assert_array_equal(ours(x), [[[np.nan, -np.inf]]])
    np.testing.assert_array_equal(theirs(x), [[[1, np.finfo(np.float32).min]]])
    x = np.array([[[1, 1 + 1e-5]]], np.float32)
    assert jax.grad(lambda x: ours(x).sum())(x).tolist() == [[[0, 1]]]
    assert jax.grad(lambda x: theirs(x).sum())(x).tolist() == [[[1, 0]]]


def test_embedding(dtype):
    weight = draw(0, (6, 4), dtype)
    x = np.array([[5, 1, 0], [1, 0, 2]])
    theirs = flux("(w, x) -> Flux.Embedding(w)(x)")
    layer = pb.nn.Embedding(6, 4)

    def ours(weight, x):
        return layer.apply({"weight": weight}, {}, x)[0]

    np.testing.assert_array_equal(ours(weight, x), theirs(weight, x + 1))
    cotangent = draw(1, (2, 3, 4), dtype)
    got = jax.vjp(lambda w: ours(w, x), weight)[1](cotangent)[0]
    want = jax.vjp(lambda w: theirs(w, x + 1), weight)[1](cotangent)[0]
    np.testing.assert_allclose(got, want, rtol=1e-12 if dtype == "float64" else 1e-5)
    one_hot = np.eye(6, dtype=bool)[x[0]]
    np.testing.assert_array_equal(ours(weight, one_hot), theirs(weight, one_hot))


NAMES = (
    "sigmoid hardsigmoid logsigmoid hardtanh relu leakyrelu relu6 elu gelu gelu_tanh gelu_sigmoid "
    "gelu_erf swish hardswish lisht selu celu trelu softsign softplus logcosh mish tanhshrink "
    "softshrink tanh_fast sigmoid_fast σ hardσ logσ thresholdrelu"
).split()
KINKS = [-3, -1, -0.5, 0, 0.5, 1, 3, 6]


def test_activations(dtype):
    """All at once: values and slopes, at NNlib's kinks too."""
    calls = ", ".join(f"NNlib.{name}.(x)" for name in NAMES)
    theirs = flux(f"x -> ({calls},)")
    x = np.concatenate([3 * draw(0, (60,), dtype), np.array(KINKS, dtype)])
    values, back = jax.vjp(theirs, x)
    # NNlib's exp(x) - 1 and tanh_fast lose digits that XLA's do not, near zero.
    exact, slopes = {"float32": (1e-5, 1e-4), "float64": (1e-12, 1e-12)}[dtype]
    for i, name in enumerate(NAMES):
        function = getattr(pb.nn, name)
        np.testing.assert_allclose(function(x), values[i], rtol=exact, atol=exact, err_msg=name)
        seeds = tuple(np.ones_like(x) * (j == i) for j in range(len(NAMES)))
        want = back(seeds)[0]
        got = jax.vmap(jax.grad(function))(x)
        np.testing.assert_allclose(got, want, rtol=slopes, atol=slopes, err_msg=name)


def test_slope_of_a_threshold_below_zero():
    """NNlib takes the slope to be zero wherever the value is not positive."""
    theirs = flux("x -> NNlib.trelu.(x, -1f0)")
    x = jnp.array([-0.5], jnp.float32)
    assert theirs(x) == pb.nn.trelu(x, -1.0) == -0.5
    assert jax.grad(lambda x: theirs(x).sum())(x) == 0
    assert jax.grad(lambda x: pb.nn.trelu(x, -1.0).sum())(x) == 1


@pytest.mark.parametrize("name", ["softmax", "logsoftmax", "logsumexp", "glu"])
def test_functions_of_an_axis(name, dtype):
    theirs = flux(f"x -> NNlib.{name}(x)")
    x = 3 * draw(0, (5, 4), dtype)
    y, back = jax.vjp(getattr(pb.nn, name), x)
    want, want_back = jax.vjp(theirs, x)
    tolerance = 1e-5 if dtype == "float32" else 1e-12
    np.testing.assert_allclose(y, want, rtol=tolerance, atol=tolerance)
    cotangent = draw(1, y.shape, dtype)
    np.testing.assert_allclose(
        back(cotangent)[0], want_back(cotangent)[0], rtol=10 * tolerance, atol=10 * tolerance
    )


def test_softmax_with_infinities():
    x = np.array([np.inf, 1, np.inf], np.float32)
    for name in ("softmax", "logsoftmax"):
        np.testing.assert_allclose(getattr(pb.nn, name)(x), flux(f"x -> NNlib.{name}(x)")(x))
    assert pb.nn.logsumexp(x) == np.inf
    assert np.isnan(flux("x -> NNlib.logsumexp(x)")(x))


@pytest.mark.parametrize(
    "name, shape, source",
    [
        ("glorot_uniform", (30, 50), "Flux.glorot_uniform(50, 30)"),
        ("kaiming_uniform", (60, 20, 5, 3), "Flux.kaiming_uniform(3, 5, 20, 60)"),
        ("glorot_normal", (60, 20, 5, 3), "Flux.glorot_normal(3, 5, 20, 60)"),
        ("kaiming_normal", (90, 50), "Flux.kaiming_normal(50, 90)"),
        ("lecun_normal", (90, 50), "Flux.lecun_normal(50, 90)"),
        ("truncated_normal", (90, 50), "Flux.truncated_normal(50, 90)"),
        ("orthogonal", (90, 50), "Flux.orthogonal(50, 90)"),
    ],
)
def test_initialisers_have_the_same_spread(name, shape, source):
    want = np.asarray(flux(f"x -> {source}")(np.float32(0)))
    got = getattr(pb.nn, name)(jax.random.key(0), shape)
    assert got.shape == want.shape
    np.testing.assert_allclose(got.std(), want.std(), rtol=0.05)
    if name.endswith("uniform"):
        np.testing.assert_allclose(np.abs(got).max(), np.abs(want).max(), rtol=0.01)


def test_identity_initialiser():
    for shape in ((3, 5), (2, 3, 4, 3)):
        sizes = ", ".join(map(str, shape[::-1]))
        want = flux(f"x -> Flux.identity_init({sizes}; gain=2, shift=1)")(np.float32(0))
        got = pb.nn.identity_init(None, shape, gain=2, shift=1)
        np.testing.assert_array_equal(got, want)
