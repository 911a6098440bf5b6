"""Recurrent layers, attention, upsampling and losses that PyTorch has too, on the same weights."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from nn_helpers import draw, forward
from peers import import_torch

from pybridge import nn
from pybridge.nn import losses

torch = import_torch()
pytestmark = pytest.mark.peers
functional = torch.nn.functional


def tensor(x):
    return torch.tensor(np.array(x))


def close(got, want, tolerance=1e-5):
    np.testing.assert_allclose(got, want.detach().numpy(), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", ["RNN", "LSTM"])
def test_recurrent_layers(name):
    """The GRU of PyTorch has another formula: its reset gate multiplies a bias, too."""
    layer = getattr(nn, name)(3, 4, return_state=True)
    params, _ = layer.init(jax.random.key(0))
    x, h = draw(0, (2, 5, 3), np.float32), draw(1, (2, 4), np.float32)
    hidden = (h, draw(2, (2, 4), np.float32)) if name == "LSTM" else h
    theirs = getattr(torch.nn, name)(3, 4, batch_first=True)
    state = {"weight_ih_l0": params["weight_in"].T, "weight_hh_l0": params["weight_hidden"].T}
    state |= {"bias_ih_l0": params["bias"], "bias_hh_l0": jnp.zeros_like(params["bias"])}
    theirs.load_state_dict({key: tensor(value) for key, value in state.items()})
    image = tensor(x).requires_grad_()
    start = jax.tree.map(lambda leaf: tensor(leaf)[None], hidden)
    want, last = theirs(image, start)
    want.sin().sum().backward()
    y, end = layer.apply(params, {}, x, hidden=hidden)[0]
    close(y, want)
    for one, other in zip(jax.tree.leaves(end), jax.tree.leaves(last), strict=True):
        close(one, other[0])
    slopes = jax.grad(
        lambda p, x: jnp.sin(layer.apply(p, {}, x, hidden=hidden)[0][0]).sum(), (0, 1)
    )(params, x)
    close(slopes[1], image.grad, 1e-4)
    close(slopes[0]["weight_hidden"].T, theirs.weight_hh_l0.grad, 1e-4)
    close(slopes[0]["weight_in"].T, theirs.weight_ih_l0.grad, 1e-4)


def test_gru_without_the_bias_that_differs():
    layer = nn.GRU(3, 4, bias=False)
    params, _ = layer.init(jax.random.key(0))
    x = draw(0, (2, 5, 3), np.float32)
    theirs = torch.nn.GRU(3, 4, batch_first=True, bias=False)
    state = {"weight_ih_l0": params["weight_in"].T, "weight_hh_l0": params["weight_hidden"].T}
    theirs.load_state_dict({key: tensor(value) for key, value in state.items()})
    close(forward(layer, params, x), theirs(tensor(x))[0])


def test_a_mask_is_a_packed_sequence():
    layer = nn.LSTM(3, 4, return_state=True)
    params, _ = layer.init(jax.random.key(0))
    x, lengths = draw(0, (3, 5, 3), np.float32), np.array([5, 2, 3])
    theirs = torch.nn.LSTM(3, 4, batch_first=True, bias=False)
    state = {"weight_ih_l0": params["weight_in"].T, "weight_hh_l0": params["weight_hidden"].T}
    theirs.load_state_dict({key: tensor(value) for key, value in state.items()})
    packed = torch.nn.utils.rnn.pack_padded_sequence(
        tensor(x), lengths, batch_first=True, enforce_sorted=False
    )
    out, (h, c) = theirs(packed)
    want, _ = torch.nn.utils.rnn.pad_packed_sequence(out, batch_first=True)
    y, hidden = layer.apply(params, {}, x, mask=np.arange(5) < lengths[:, None])[0]
    close(y, want)
    close(hidden[0], h[0])
    close(hidden[1], c[0])


@pytest.mark.parametrize("causal", [False, True])
def test_attention(causal):
    layer = nn.MultiHeadAttention(6, nheads=3, bias=True)
    params, _ = layer.init(jax.random.key(0))
    params = jax.tree.map(lambda leaf: leaf + 0.1, params)
    x = draw(0, (2, 4, 6), np.float32)
    theirs = torch.nn.MultiheadAttention(6, 3, batch_first=True)
    names = ("q_proj", "k_proj", "v_proj")
    weight = jnp.concatenate([params[name]["weight"].T for name in names])
    bias = jnp.concatenate([params[name]["bias"] for name in names])
    state = {"in_proj_weight": weight, "in_proj_bias": bias}
    state |= {f"out_proj.{k}": v.T for k, v in params["out_proj"].items()}
    theirs.load_state_dict({key: tensor(value) for key, value in state.items()})
    mask = nn.make_causal_mask(x) if causal else None
    (y, scores), _ = layer.apply(params, {}, x, mask=mask)
    want, weights = theirs(
        *[tensor(x)] * 3,
        attn_mask=None if mask is None else ~tensor(mask),  # True hides there
        average_attn_weights=False,
    )
    close(y, want)
    close(scores, weights)


def test_upsampling():
    x = draw(0, (2, 8, 3, 4), np.float32)
    image = tensor(x)
    close(forward(nn.Upsample(scale=2), {}, x), functional.interpolate(image, scale_factor=2))
    want = functional.interpolate(image, size=(7, 5), mode="bilinear", align_corners=True)
    close(forward(nn.Upsample("bilinear", size=(7, 5)), {}, x), want)
    close(forward(nn.PixelShuffle(2), {}, x), functional.pixel_shuffle(image, 2))
    one, other = draw(1, (5, 3), np.float32), draw(2, (5, 4), np.float32)
    layer = nn.Bilinear((3, 4), 2)
    params, _ = layer.init(jax.random.key(0))
    want = functional.bilinear(
        tensor(one), tensor(other), tensor(params["weight"]).permute(2, 1, 0)
    )
    close(forward(layer, params, (one, other)), want)
    indices, starts = np.array([5, 0, 0, 1, 2, 3]), np.array([0, 1, 4])
    bag = nn.EmbeddingBag(6, 4)
    params, _ = bag.init(jax.random.key(0))
    want = functional.embedding_bag(tensor(indices), tensor(params["weight"]), tensor(starts))
    close(forward(bag, params, (indices, starts)), want)


def test_adaptive_pools_where_sizes_divide():
    x = draw(0, (2, 3, 6, 4), np.float32)
    for cls, pool in (
        (nn.AdaptiveMaxPool, functional.adaptive_max_pool2d),
        (nn.AdaptiveMeanPool, functional.adaptive_avg_pool2d),
    ):
        close(forward(cls((3, 2)), {}, x), pool(tensor(x), (3, 2)))


def test_losses():
    x, target = draw(0, (6, 4), np.float32), draw(1, (6, 4), np.float32)
    labels = np.array([0, 3, 1, 2, 2, 0])
    hot, yes = np.eye(4, dtype=np.float32)[labels], (target > 0).astype(np.float32)
    a, b = tensor(x), tensor(target)
    pairs = [
        (losses.mae(x, target), functional.l1_loss(a, b)),
        (losses.mse(x, target), functional.mse_loss(a, b)),
        (losses.huber_loss(x, target, delta=0.5), functional.huber_loss(a, b, delta=0.5)),
        (losses.logitcrossentropy(x, hot), functional.cross_entropy(a, tensor(labels))),
        (
            losses.logitcrossentropy(x, losses.label_smoothing(hot, 0.1)),
            functional.cross_entropy(a, tensor(labels), label_smoothing=0.1),
        ),
        (
            losses.logitbinarycrossentropy(x, yes),
            functional.binary_cross_entropy_with_logits(a, tensor(yes)),
        ),
        (
            losses.kldivergence(nn.softmax(x), nn.softmax(target)),
            functional.kl_div(a.log_softmax(-1), b.softmax(-1), reduction="batchmean"),
        ),
        (
            losses.poisson_loss(jnp.exp(x), yes),
            functional.poisson_nll_loss(a, tensor(yes), log_input=True),
        ),
    ]
    for got, want in pairs:
        close(got, want)
