"""What differs in other frameworks: each line of the tables in docs/layers, measured."""

import math
import os
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from nn_helpers import draw, fixed, forward
from peers import import_torch

import pybridge as pb

pytestmark = [pytest.mark.peers, pytest.mark.filterwarnings("ignore")]
os.environ.setdefault("KERAS_BACKEND", "jax")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    nnx = pytest.importorskip("flax.nnx")
    eqx = pytest.importorskip("equinox")
    torch = import_torch()
    keras = pytest.importorskip("keras")


@pytest.fixture(autouse=True)
def standard_promotion(strict_promotion):
    """Let other frameworks mix dtypes."""
    with jax.numpy_dtype_promotion("standard"):
        yield


def slope(function, x):
    return float(jax.grad(function)(x))


def test_slopes_of_jax_at_kinks():
    for x in (-1.0, 1.0):
        assert (slope(pb.nn.hardtanh, x), slope(jax.nn.hard_tanh, x)) == (0, 1)
    assert slope(pb.nn.leakyrelu, 0.0) == pytest.approx(0.01)
    assert slope(jax.nn.leaky_relu, 0.0) == 1
    assert slope(lambda x: pb.nn.elu(x, 2.0), 0.0) == 1
    assert slope(lambda x: jax.nn.elu(x, 2.0), 0.0) == 2
    assert [slope(pb.nn.hardswish, x) for x in (-3.0, 3.0)] == [-0.5, 1.5]
    assert [slope(jax.nn.hard_swish, x) for x in (-3.0, 3.0)] == [0, 1]


def test_slopes_of_jax_that_agree():
    for name, other, kinks in (
        ("relu", jax.nn.relu, [0.0]),
        ("relu6", jax.nn.relu6, [0.0, 6.0]),
        ("hardsigmoid", jax.nn.hard_sigmoid, [-3.0, 3.0]),
        ("selu", jax.nn.selu, [0.0]),
        ("celu", jax.nn.celu, [0.0]),
    ):
        for x in kinks:
            assert slope(getattr(pb.nn, name), x) == pytest.approx(slope(other, x))


def test_gelu():
    x = jnp.float32(1.0)
    approximate, exact = 0.8411920, 0.8413447
    assert float(pb.nn.gelu(x)) == pytest.approx(approximate)
    assert float(jax.nn.gelu(x)) == pytest.approx(approximate)
    assert torch.nn.functional.gelu(torch.tensor(1.0)).item() == pytest.approx(exact)
    assert float(keras.activations.gelu(x)) == pytest.approx(exact)
    assert float(pb.nn.gelu_erf(x)) == pytest.approx(exact)


def test_softmax_of_infinity():
    x = np.array([np.inf, 1], np.float32)
    assert pb.nn.softmax(x).tolist() == [1, 0]
    assert np.isnan(jax.nn.softmax(x)).all()
    assert torch.softmax(torch.tensor(x), 0).isnan().all()


def test_spread_of_fresh_dense_weights(key):
    """400 inputs, 300 outputs: Glorot's bound is sqrt(6 / 700), LeCun's deviation 1/20."""
    ours = pb.nn.Dense(400, 300).init(key)[0]
    bound = math.sqrt(6 / 700)
    assert float(jnp.abs(ours["weight"]).max()) == pytest.approx(bound, rel=1e-3)
    other = keras.layers.Dense(300)
    other.build((1, 400))
    weight, bias = other.get_weights()
    assert np.abs(weight).max() == pytest.approx(bound, rel=1e-3)
    assert (bias == 0).all()
    other = nnx.Linear(400, 300, rngs=nnx.Rngs(0))
    weight = np.asarray(other.kernel[...])
    assert weight.std() == pytest.approx(1 / 20, rel=0.02)
    assert np.abs(weight).max() < 2.3 / 20  # cut at two deviations, before they are rescaled
    torch.manual_seed(0)
    for other in (eqx.nn.Linear(400, 300, key=key), torch.nn.Linear(400, 300)):
        weight, bias = (
            np.asarray(jax.device_get(p.detach() if hasattr(p, "detach") else p))
            for p in (other.weight, other.bias)
        )
        assert weight.shape == (300, 400)
        assert np.abs(weight).max() == pytest.approx(1 / 20, rel=1e-2)
        assert np.abs(bias).max() == pytest.approx(1 / 20, rel=2e-2)


def test_spread_of_fresh_embeddings(key):
    def spread(table):
        return float(np.std(np.asarray(table)))

    assert spread(pb.nn.Embedding(1000, 50).init(key)[0]["weight"]) == pytest.approx(1, rel=0.02)
    assert spread(eqx.nn.Embedding(1000, 50, key=key).weight) == pytest.approx(1, rel=0.02)
    assert spread(torch.nn.Embedding(1000, 50).weight.detach()) == pytest.approx(1, rel=0.02)
    table = nnx.Embed(1000, 50, rngs=nnx.Rngs(0)).embedding[...]
    assert spread(table) == pytest.approx(1 / math.sqrt(50), rel=0.02)
    other = keras.layers.Embedding(1000, 50)
    other.build()
    assert np.abs(other.get_weights()[0]).max() == pytest.approx(0.05, rel=1e-2)


def test_indices_out_of_range(key):
    layer = pb.nn.Embedding(6, 4)
    params, _ = layer.init(key)
    for index in (6, -1):
        with pytest.raises(pb.ArgumentValueError, match="indices from 0 to 5"):
            forward(layer, params, jnp.array([index]))
    flax = nnx.Embed(6, 4, rngs=nnx.Rngs(0))
    assert np.isnan(flax(jnp.array([6]))).all()
    assert (flax(jnp.array([-1])) == flax(jnp.array([5]))).all()
    table = eqx.nn.Embedding(6, 4, key=key)
    for index in (6, -1):
        assert (table(jnp.array(index)) == table.weight[5]).all()
    with pytest.raises(IndexError):
        torch.nn.Embedding(6, 4)(torch.tensor([6]))


def test_reversal_of_the_kernel(key):
    kernel, x = np.float32([[[1, 10]]]), np.float32([[[1, 2, 3]]])
    layer = pb.nn.Conv((2,), 1, 1, bias=False)
    assert forward(layer, {"weight": kernel}, x).ravel().tolist() == [12, 23]
    others = [
        torch.nn.functional.conv1d(torch.tensor(x), torch.tensor(kernel)).numpy(),
        keras.ops.conv(x.swapaxes(1, 2), kernel.T),
        nnx.Conv(
            1, 1, (2,), padding="VALID", use_bias=False, rngs=nnx.Rngs(0),
            kernel_init=lambda key, shape, dtype: jnp.asarray(kernel.T, dtype),
        )(x.swapaxes(1, 2)),
        eqx.tree_at(
            lambda c: c.weight, eqx.nn.Conv1d(1, 1, 2, use_bias=False, key=key), jnp.array(kernel)
        )(x[0]),
    ]  # fmt: skip
    for y in others:
        assert np.asarray(y).ravel().tolist() == [21, 32]


def test_default_padding_of_convolutions(key):
    layer = pb.nn.Conv((3, 3), 1, 1, init=fixed(0))
    x = np.ones((1, 1, 8, 8), np.float32)
    assert forward(layer, layer.init(None)[0], x).shape[2:] == (6, 6)
    assert nnx.Conv(1, 1, (3, 3), rngs=nnx.Rngs(0))(x.swapaxes(1, 3)).shape[1:3] == (8, 8)
    assert keras.layers.Conv2D(1, 3)(x.swapaxes(1, 3)).shape[1:3] == (6, 6)
    assert eqx.nn.Conv2d(1, 1, 3, key=key)(x[0]).shape[1:] == (6, 6)
    assert torch.nn.Conv2d(1, 1, 3)(torch.tensor(x)).shape[2:] == (6, 6)


def test_side_of_same_padding():
    """Taps [1, 10]: what stands over the last or the first element is the padding."""
    x = np.float32([[[1, 2, 3]]])
    layer = pb.nn.Conv((2,), 1, 1, bias=False, pad="same")
    kernel = np.float32([[[10, 1]]])  # reversed, [1, 10]
    assert forward(layer, {"weight": kernel}, x).ravel().tolist() == [10, 21, 32]
    taps = jnp.float32([[[1]], [[10]]])
    flax = nnx.Conv(1, 1, (2,), use_bias=False, kernel_init=lambda *_: taps, rngs=nnx.Rngs(0))
    assert flax(x.swapaxes(1, 2)).ravel().tolist() == [21, 32, 3]
    got = keras.ops.conv(x.swapaxes(1, 2), taps, padding="same")
    assert np.asarray(got).ravel().tolist() == [21, 32, 3]
    got = torch.nn.functional.conv1d(torch.tensor(x), torch.tensor([[[1.0, 10.0]]]), padding="same")
    assert got.ravel().tolist() == [21, 32, 3]


def test_default_stride_of_pools():
    x = np.ones((1, 1, 8, 8), np.float32)
    assert forward(pb.nn.MaxPool((2, 2)), {}, x).shape[2:] == (4, 4)
    assert torch.nn.MaxPool2d(2)(torch.tensor(x)).shape[2:] == (4, 4)
    assert keras.layers.MaxPooling2D(2)(x.swapaxes(1, 3)).shape[1:3] == (4, 4)
    assert nnx.max_pool(jnp.asarray(x.swapaxes(1, 3)), (2, 2)).shape[1:3] == (7, 7)
    assert eqx.nn.MaxPool2d(2)(jnp.asarray(x[0])).shape[1:] == (7, 7)


def test_padding_in_the_mean():
    x = jnp.ones((1, 1, 3, 3))
    assert forward(pb.nn.MeanPool((3, 3), stride=1, pad=1), {}, x)[0, 0, 0, 0] == pytest.approx(
        4 / 9
    )
    pool = torch.nn.AvgPool2d(3, 1, padding=1)
    assert pool(torch.ones(1, 1, 3, 3))[0, 0, 0, 0].item() == pytest.approx(4 / 9)
    flax = nnx.avg_pool(x.swapaxes(1, 3), (3, 3), padding=((1, 1), (1, 1)))
    assert float(flax[0, 0, 0, 0]) == pytest.approx(4 / 9)
    assert float(eqx.nn.AvgPool2d(3, 1, padding=1)(x[0])[0, 0, 0]) == pytest.approx(4 / 9)
    pool = keras.layers.AveragePooling2D(3, strides=1, padding="same")
    assert float(pool(x.swapaxes(1, 3))[0, 0, 0, 0]) == pytest.approx(1)


def test_dtype_of_the_output(key):
    x = draw(0, (2, 3), np.float32)
    layer = pb.nn.Dense(3, 4)
    assert forward(layer, layer.init(key, jnp.bfloat16)[0], x).dtype == jnp.bfloat16
    assert nnx.Linear(3, 4, param_dtype=jnp.bfloat16, rngs=nnx.Rngs(0))(x).dtype == jnp.float32
    assert eqx.nn.Linear(3, 4, dtype=jnp.bfloat16, key=key)(x[0]).dtype == jnp.float32
    with pytest.raises(RuntimeError, match="dtype"):
        torch.nn.Linear(3, 4, dtype=torch.bfloat16)(torch.tensor(x))


def test_what_lecun_normal_cuts(key):
    """Flux cuts at -2 and 2; JAX at two deviations, and rescales what is left."""
    ours, other = (
        f(key, (100, 2000)) for f in (pb.nn.lecun_normal, jax.nn.initializers.lecun_normal())
    )
    assert float(jnp.abs(ours).max()) > 4 / 10
    assert float(jnp.abs(other).max()) < 2.3 / 10
    np.testing.assert_allclose([ours.std(), other.std()], 0.1, rtol=0.02)
