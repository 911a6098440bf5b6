"""Multi-head attention: values, masks, bias, dropout, gradients, dtypes, errors."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads
from layer_helpers import close, ignore_mode_warnings, shaken
from nn_helpers import draw

import pybridge as pb
from pybridge import nn

KEY = jax.random.key(3)


def materials(*sizes, dtype=np.float64, **options):
    layer = nn.MultiHeadAttention(*sizes, **options)
    params, state = layer.init(KEY, dtype)
    assert state == {}
    return layer, shaken(params, KEY)


def reference(layer, params, q, k, v, *, mask=None, bias=None):
    """Head by head, in NumPy."""

    def linear(name, x):
        p = params[name]
        return x @ np.asarray(p["weight"]) + np.asarray(p.get("bias", 0))

    q, k, v = linear("q_proj", q), linear("k_proj", k), linear("v_proj", v)
    parts, scores = [], []
    shape = (q.shape[0], layer.nheads, q.shape[1], k.shape[1])
    mask = np.broadcast_to(True if mask is None else mask, shape)
    bias = np.broadcast_to(0.0 if bias is None else bias, shape)
    for head, (a, b, c) in enumerate(
        zip(*(np.split(one, layer.nheads, -1) for one in (q, k, v)), strict=True)
    ):
        logits = a @ b.swapaxes(1, 2) / np.sqrt(a.shape[-1]) + bias[:, head]
        weights = np.where(mask[:, head], np.exp(logits), 0)
        weights = weights / weights.sum(-1, keepdims=True)
        parts.append(weights @ c)
        scores.append(weights)
    return linear("out_proj", np.concatenate(parts, -1)), np.stack(scores, 1)


SIZES = [
    ((4,), {"nheads": 2}),
    ((4, 6, 5), {"nheads": 3, "bias": True}),
    (((4, 3, 5), (8, 4), 2), {"nheads": 4, "bias": True}),
]


@pytest.mark.parametrize("sizes, options", SIZES, ids=str)
@pytest.mark.parametrize("masked", [False, True])
def test_values_are_those_of_the_formula(sizes, options, masked, x64, maybe_jit):
    layer, params = materials(*sizes, **options)
    widths = sizes[0] if isinstance(sizes[0], tuple) else (sizes[0],) * 3
    x = tuple(draw(n, (2, n, width)) for n, width in zip((3, 5, 5), widths, strict=True))
    more = {}
    if masked:
        more = {"mask": draw(7, (2, 1, 3, 5)) > -0.5, "bias": draw(8, (layer.nheads, 1, 5))}
        more["mask"][..., 0] = True
    y, scores = maybe_jit(lambda p, x, more: layer.apply(p, {}, x, **more)[0])(params, x, more)
    close((y, scores), reference(layer, params, *x, **more), rtol=1e-12)


def test_one_or_two_inputs_stand_for_three(x64):
    layer, params = materials(4, nheads=2)
    q, kv = draw(0, (2, 3, 4)), draw(1, (2, 5, 4))
    close(layer.apply(params, {}, q)[0], layer.apply(params, {}, (q, q, q))[0], rtol=0)
    close(layer.apply(params, {}, (q, kv))[0], layer.apply(params, {}, (q, kv, kv))[0], rtol=0)


def test_derivatives_of_both_orders(x64):
    layer, params = materials(4, nheads=2, bias=True)
    x, mask = draw(0, (2, 3, 4)), nn.make_causal_mask(np.ones((2, 3, 4)))

    def loss(params, x, bias):
        y, scores = layer.apply(params, {}, x, mask=mask, bias=bias)[0]
        return jnp.sin(y).sum() + (scores**2).sum()

    check_grads(jax.jit(loss), (params, x, draw(5, (3, 3))), order=2, atol=1e-5, rtol=1e-5)


def test_nobody_sees_what_is_behind_a_causal_mask():
    layer, params = materials(4, nheads=2, dtype=np.float32)
    x = draw(0, (2, 5, 4), np.float32)
    mask = nn.make_causal_mask(x)
    assert mask.tolist() == np.tril(np.ones((5, 5), bool)).tolist()
    assert nn.make_causal_mask(x, axis=0).shape == (2, 2)
    y, scores = layer.apply(params, {}, x, mask=mask)[0]
    later = x.copy()
    later[:, 3:] = 7
    close(layer.apply(params, {}, later, mask=mask)[0][0][:, :3], y[:, :3], rtol=1e-6)
    assert (np.triu(scores, 1) == 0).all()
    np.testing.assert_allclose(scores.sum(-1), 1, rtol=1e-6)


def test_a_query_without_a_key_is_zero_and_has_no_gradient(maybe_jit):
    layer, params = materials(4, nheads=2, dtype=np.float32)
    x = draw(0, (1, 3, 4), np.float32)
    mask = np.array([[True, False, False], [False, False, False], [True, True, True]])

    def loss(params, x):
        y, scores = layer.apply(params, {}, x, mask=mask)[0]
        return jnp.sin(y).sum(), (y, scores)

    (_, (y, scores)), slopes = maybe_jit(jax.value_and_grad(loss, (0, 1), has_aux=True))(params, x)
    assert (y[0, 1] == 0).all() and (scores[0, :, 1] == 0).all() and (y[0, 2] != 0).all()
    assert all(jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(slopes))


@ignore_mode_warnings
def test_dropout_of_the_scores(maybe_jit):
    layer, params = materials(4, nheads=2, dropout_prob=0.5, dtype=np.float32)
    plain = nn.MultiHeadAttention(4, nheads=2)
    x = draw(0, (2, 6, 4), np.float32)
    want = plain.apply(params, {}, x)[0]
    close(layer.apply(params, {}, x, training=False)[0], want, rtol=0)
    close(layer.apply(params, {}, x, key=KEY)[0], want, rtol=0)  # test mode, though with a key
    y, scores = maybe_jit(
        lambda p, x: layer.apply(p, {}, x, key=KEY, training=jnp.asarray(True))[0]
    )(params, x)
    keep = jax.random.bernoulli(jax.random.fold_in(KEY, 4), 0.5, want[1].shape)
    close(scores, jnp.where(keep, 2 * want[1], 0), rtol=1e-6)
    v = x @ params["v_proj"]["weight"]
    mixed = jnp.einsum("bhqk,bkhd->bqhd", scores, v.reshape(2, 6, 2, 2)).reshape(2, 6, 4)
    close(y, mixed @ params["out_proj"]["weight"], rtol=1e-5)
    with pytest.raises(pb.ArgumentValueError, match="a key in training"):
        layer.apply(params, {}, x, training=True)


def test_fresh_parameters_and_dtypes():
    layer = nn.MultiHeadAttention((300, 200, 100), (80, 160), 40, bias=True)
    params, _ = layer.init(KEY, jnp.bfloat16)
    shapes = {name: p["weight"].shape for name, p in params.items()}
    assert shapes == {
        "q_proj": (300, 80),
        "k_proj": (200, 80),
        "v_proj": (100, 160),
        "out_proj": (160, 40),
    }
    for i, name in ((1, "q_proj"), (2, "k_proj"), (3, "v_proj"), (5, "out_proj")):
        want = nn.glorot_uniform(jax.random.fold_in(KEY, i), shapes[name], jnp.bfloat16)
        assert (params[name]["weight"] == want).all() and (params[name]["bias"] == 0).all()
    x = (np.ones((1, 2, 300), int), np.ones((1, 3, 200)), np.ones((1, 3, 100)))
    y, scores = layer.apply(params, {}, x)[0]
    assert y.dtype == scores.dtype == jnp.bfloat16


def test_configuration():
    assert (
        nn.MultiHeadAttention(8, 8, 8)
        == nn.MultiHeadAttention((8, 8, 8))
        == (nn.MultiHeadAttention(8))
    )
    assert repr(nn.MultiHeadAttention(8)) == "MultiHeadAttention(8)"
    layer = nn.MultiHeadAttention(8, (4, 2), 3, nheads=2, bias=True, dropout_prob=0.25)
    assert repr(layer) == (
        "MultiHeadAttention(8, qkv_features=(4, 2), out_features=3, nheads=2, bias=True, "
        "dropout_prob=0.25)"
    )
    assert hash(layer) == hash(eval(repr(layer), vars(nn)))


@pytest.mark.parametrize(
    ("sizes", "options", "message"),
    [
        ((0,), {}, "a positive integer as in_features"),
        ((6,), {"nheads": 4}, "`qkv_features` that 4 heads divide, got 6"),
        (((4, 5, 5),), {}, "`qkv_features` and `out_features` where inputs differ"),
        (((4, 5), 8, 8), {}, "a positive integer or 3 of them as in_features"),
        ((8, (4, 4, 4)), {}, "a positive integer or 2 of them as qkv_features"),
        ((8,), {"bias": None}, "True or False as `bias`"),
        ((8,), {"dropout_prob": 2}, "a probability 0 <= p <= 1"),
    ],
)
def test_wrong_options(sizes, options, message):
    with pytest.raises(pb.BridgeError, match=re.escape(message)):
        nn.MultiHeadAttention(*sizes, **options)


X = np.ones((2, 3, 4), np.float32)


@pytest.mark.parametrize(
    ("x", "options", "message"),
    [
        (X[0], {}, "(batch, length, features), or a tuple of two or three such arrays"),
        ((X, X, X, X), {}, "or a tuple of two or three such arrays"),
        ((X, X[:1]), {}, "one batch size, and as many keys as values"),
        ((X, X, X[:, :2]), {}, "one batch size, and as many keys as values"),
        (X[..., :3], {}, "4 features on axis -1, got shape (2, 3, 3)"),
        (X, {"mask": np.ones((3, 4), bool)}, "`mask` that broadcasts to (batch, nheads, queries"),
        (X, {"mask": np.ones((3, 3))}, "a bool array as `mask`, got float"),
        (X, {"bias": np.ones((2, 3, 3, 3))}, "`bias` that broadcasts to"),
    ],
)
def test_wrong_calls(x, options, message):
    layer, params = materials(4, nheads=2, dtype=np.float32)
    with pytest.raises(pb.BridgeError, match=re.escape(message)):
        layer.apply(params, {}, x, **options)
