"""The layers that PyTorch has too, on the same weights: values and gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from nn_helpers import draw, fixed, forward, pairs
from peers import import_torch

import pybridge as pb

torch = import_torch()
pytestmark = pytest.mark.peers
functional = torch.nn.functional


def compare(layer, params, x, reference):
    """Compare value and gradients of `sum(weight * y)` to torch's, for params and x."""
    tensors = {k: torch.tensor(np.asarray(v), requires_grad=True) for k, v in params.items()}
    image = torch.tensor(x, requires_grad=True)
    want = reference(tensors, image)
    weight = draw(9, tuple(want.shape), np.float32)
    (want * torch.tensor(weight)).sum().backward()

    def loss(params, x):
        y = forward(layer, params, x)
        return jnp.vdot(weight, y), y

    (_, y), gradients = jax.jit(jax.value_and_grad(loss, (0, 1), has_aux=True))(params, x)
    np.testing.assert_allclose(y, want.detach().numpy(), rtol=1e-5, atol=1e-5)
    expected = ({k: t.grad.numpy() for k, t in tensors.items()}, image.grad.numpy())
    for got, right in zip(jax.tree.leaves(gradients), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(got, right, rtol=1e-4, atol=1e-4)


def flipped(weight):
    return weight.flip(tuple(range(2, weight.ndim)))


CONVOLUTIONS = [
    ((3,), {}),
    ((3,), {"stride": 2, "pad": 1, "dilation": 2}),
    ((3, 2), {"stride": (2, 1), "pad": (2, 1)}),
    ((3, 3), {"groups": 2, "pad": 1}),
    ((2, 3, 2), {"stride": (1, 2, 1), "groups": 4, "dilation": (1, 1, 2)}),
]


def setting(cls, kernel, options):
    layer = cls(kernel, 4, 8, init=fixed(0), **options)
    params, _ = layer.init(None)
    params["bias"] = jnp.asarray(draw(1, (8,), np.float32))
    rank = len(kernel)
    same = {"stride": options.get("stride", 1), "dilation": options.get("dilation", 1)}
    same |= {"padding": [a for a, _ in pairs(options.get("pad", 0), rank)]}
    same["groups"] = options.get("groups", 1)
    return layer, params, draw(2, (2, 4, 9, 8, 7)[: 2 + rank], np.float32), same


@pytest.mark.parametrize("kernel, options", CONVOLUTIONS, ids=str)
def test_conv(kernel, options):
    layer, params, x, same = setting(pb.nn.Conv, kernel, options)
    conv = getattr(functional, f"conv{len(kernel)}d")
    compare(layer, params, x, lambda p, x: conv(x, flipped(p["weight"]), p["bias"], **same))


@pytest.mark.parametrize("kernel, options", CONVOLUTIONS, ids=str)
def test_conv_transpose(kernel, options):
    outpad = 1 if options.get("stride") == 2 else 0
    layer, params, x, same = setting(pb.nn.ConvTranspose, kernel, {**options, "outpad": outpad})
    conv = getattr(functional, f"conv_transpose{len(kernel)}d")
    compare(
        layer,
        params,
        x,
        lambda p, x: conv(x, flipped(p["weight"]), p["bias"], output_padding=outpad, **same),
    )


def test_dense():
    layer = pb.nn.Dense(4, 3, init=fixed(0))
    params, _ = layer.init(None)
    compare(
        layer,
        params,
        draw(1, (5, 4), np.float32),
        lambda p, x: functional.linear(x, p["weight"].T, p["bias"]),
    )


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("options", [{}, {"stride": 1, "pad": 1}, {"stride": 2}], ids=str)
def test_pools(rank, options):
    x = draw(0, (2, 3, 9, 8, 7)[: 2 + rank], np.float32)
    same = {"stride": options.get("stride"), "padding": options.get("pad", 0)}
    for cls, name in ((pb.nn.MaxPool, "max"), (pb.nn.MeanPool, "avg")):
        pool = getattr(functional, f"{name}_pool{rank}d")
        compare(cls((3,) * rank, **options), {}, x, lambda p, x, pool=pool: pool(x, 3, **same))
    mean = getattr(functional, f"adaptive_avg_pool{rank}d")
    compare(pb.nn.GlobalMeanPool(), {}, x, lambda p, x: mean(x, 1))


def test_embedding():
    layer = pb.nn.Embedding(6, 4, init=fixed(0))
    params, _ = layer.init(None)
    x = np.array([[5, 1], [1, 0]])
    weight = torch.tensor(np.asarray(params["weight"]), requires_grad=True)
    want = functional.embedding(torch.tensor(x), weight)
    want.pow(3).sum().backward()
    np.testing.assert_array_equal(forward(layer, params, x), want.detach().numpy())
    gradient = jax.grad(lambda p: (forward(layer, p, x) ** 3).sum())(params)["weight"]
    np.testing.assert_allclose(gradient, weight.grad.numpy(), rtol=1e-5)


ACTIVATIONS = {
    "sigmoid": functional.sigmoid,
    "hardsigmoid": functional.hardsigmoid,
    "logsigmoid": functional.logsigmoid,
    "hardtanh": functional.hardtanh,
    "relu": functional.relu,
    "leakyrelu": functional.leaky_relu,
    "relu6": functional.relu6,
    "elu": functional.elu,
    "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "gelu_erf": functional.gelu,
    "swish": functional.silu,
    "hardswish": functional.hardswish,
    "selu": functional.selu,
    "celu": functional.celu,
    "softsign": functional.softsign,
    "softplus": functional.softplus,
    "mish": functional.mish,
    "tanhshrink": functional.tanhshrink,
    "softshrink": functional.softshrink,
    "tanh": torch.tanh,
    "glu": functional.glu,
    "softmax": lambda x: functional.softmax(x, -1),
    "logsoftmax": lambda x: functional.log_softmax(x, -1),
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations(name):
    x = 3 * draw(0, (4, 10), np.float32)
    tensor = torch.tensor(x, requires_grad=True)
    want = ACTIVATIONS[name](tensor)
    want.pow(2).sum().backward()
    function = getattr(pb.nn, name)
    np.testing.assert_allclose(function(x), want.detach().numpy(), rtol=1e-5, atol=1e-6)
    gradient = jax.jit(jax.grad(lambda x: (function(x) ** 2).sum()))(x)
    np.testing.assert_allclose(gradient, tensor.grad.numpy(), rtol=1e-4, atol=1e-5)
