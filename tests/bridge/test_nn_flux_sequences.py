"""Losses, recurrent layers, attention and bags against Flux itself, on the same numbers.

JAX's arrays are Flux's with the axes reversed, which `layout="reversed"` does.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flux_helpers import close, flux, inputs
from quick import by_day

import pybridge as pb


def draw(seed, shape, dtype):
    return inputs(shape, dtype, seed)


def test_losses(dtype):
    """All at once: values and slopes of Flux's losses, at kinks too."""
    x = draw(0, (5, 4), dtype)
    p = np.exp(x) / np.exp(x).sum(-1, keepdims=True)
    hot = np.eye(4, dtype=dtype)[[0, 3, 1, 1, 2]]
    yes = (draw(1, (5, 4), dtype) > 0).astype(dtype)
    positive = np.abs(x) + np.asarray(0.1, dtype)
    x[0, :3] = 1, 0, -1  # kinks of hinge, absolute value and Huber's loss
    pairs = {"x": (x, 2 * yes - 1), "p": (p, hot), "q": (p, yes), "n": (positive, yes)}
    losses = [
        *(("x", name, "", {}) for name in ("mae", "mse", "huber_loss", "hinge_loss")),
        ("x", "huber_loss", "; delta=0.3", {"delta": 0.3}),
        ("x", "squared_hinge_loss", "; agg=sum", {"agg": jnp.sum}),
        ("x", "logitbinarycrossentropy", "", {}),
        *(("p", name, "", {}) for name in ("crossentropy", "kldivergence", "focal_loss")),
        ("p", "logitcrossentropy", "", {}),
        # Flux leaves the type of this option as it is, and so of the loss.
        ("p", "crossentropy", "; dims=2, eps=0.125f0", {"axis": 0, "eps": 0.125}),
        ("p", "focal_loss", "; gamma=3", {"gamma": 3}),
        *(("q", name, "", {}) for name in ("binarycrossentropy", "binary_focal_loss")),
        ("q", "dice_coeff_loss", "; smooth=0.5", {"smooth": 0.5}),
        ("q", "tversky_loss", "; beta=0.6", {"beta": 0.6}),
        *(("n", name, "", {}) for name in ("msle", "poisson_loss", "siamese_contrastive_loss")),
    ]
    calls = ", ".join(f"Flux.{name}({on}, y{on}{options})" for on, name, options, _ in losses)
    names = ", ".join(f"{on}, y{on}" for on in pairs)
    theirs = flux(f"({names}) -> Base.vect({calls})")
    flat = [array for pair in pairs.values() for array in pair]

    def ours(*arrays):
        found = dict(zip(pairs, zip(arrays[::2], arrays[1::2], strict=True), strict=True))
        return jnp.stack(
            [getattr(pb.nn.losses, name)(*found[on], **options) for on, name, _, options in losses]
        )

    values, want = ours(*flat), theirs(*flat)
    tolerance = {"float32": 1e-5, "float64": 1e-12}[dtype]
    np.testing.assert_allclose(values, want, rtol=tolerance, atol=tolerance)
    places = tuple(range(0, len(flat), 2))
    got, back = (
        jax.vjp(lambda *a, f=f: f(*fill(flat, places, a)), *flat[::2])[1] for f in (ours, theirs)
    )
    for i in range(len(losses)):
        seed = np.zeros(len(losses), dtype)
        seed[i] = 1
        for a, b in zip(got(seed), back(seed), strict=True):
            close(a, b, 100 * tolerance)


def fill(values, places, new):
    return [dict(zip(places, new, strict=True)).get(i, value) for i, value in enumerate(values)]


RECURRENT = {
    "RNN": "Flux.RNNCell(tanh, p.weight_in, p.weight_hidden, p.bias)",
    "LSTM": "Flux.LSTMCell(p.weight_in, p.weight_hidden, p.bias)",
    "GRU": "Flux.GRUCell(p.weight_in, p.weight_hidden, p.bias)",
    "GRUv3": "Flux.GRUv3Cell(p.weight_in, p.weight_hidden, p.bias, p.weight_candidate)",
}


@pytest.mark.parametrize("name", by_day(RECURRENT, ["LSTM"]))
def test_recurrent_layers_with_states(name, dtype):
    """Outputs and last state from a state that is given, and the gradients of all of them."""
    layer = getattr(pb.nn, name)(3, 2, return_state=True)
    shapes = jax.eval_shape(lambda: layer.init(jax.random.key(0), dtype))[0]
    params = {key: draw(i, s.shape, dtype) for i, (key, s) in enumerate(shapes.items())}
    x, hidden = draw(5, (4, 5, 3), dtype), draw(6, (4, 2), dtype)
    hidden = (hidden, draw(7, (4, 2), dtype)) if name == "LSTM" else hidden
    theirs = flux(f"(p, x, h) -> Flux.{name}({RECURRENT[name]}; return_state=true)(x, h)")

    def ours(params, x, hidden):
        return layer.apply(params, {}, x, hidden=hidden)[0]

    (got, back), (want, theirs_back) = (jax.vjp(f, params, x, hidden) for f in (ours, theirs))
    cotangent = jax.tree.map(lambda leaf: draw(8, leaf.shape, dtype), got)
    tolerance = {"float32": (1e-5, 1e-4), "float64": (1e-12, 1e-12)}[dtype]
    for pair, limit in (
        ((got, want), tolerance[0]),
        ((back(cotangent), theirs_back(cotangent)), tolerance[1]),
    ):
        for a, b in zip(*map(jax.tree.leaves, pair), strict=True):
            close(a, b, limit)


@pytest.mark.parametrize("name", by_day(["causal", "bias", "three inputs"], ["causal"]))
def test_attention(name, dtype):
    layer = pb.nn.MultiHeadAttention((4, 4, 4), (6, 4), 5, nheads=2)
    shapes = jax.eval_shape(lambda: layer.init(jax.random.key(0), dtype))[0]
    params = {
        k: {"weight": draw(i, s["weight"].shape, dtype)} for i, (k, s) in enumerate(shapes.items())
    }
    dense = ", ".join(f"Flux.Dense(p.{k}.weight, false)" for k in ("q_proj", "k_proj", "v_proj"))
    out = "Flux.Dense(p.out_proj.weight, false)"
    model = f"Flux.MultiHeadAttention(2, {dense}, Flux.Dropout(0), {out})"
    x = draw(5, (2, 3, 4), dtype)
    more, call, given = {
        "causal": ({"mask": pb.nn.make_causal_mask(x)}, "q; mask=NNlib.make_causal_mask(q)", x),
        "bias": ({"bias": draw(6, (2, 3, 3), dtype)}, "q, q, q, b", x),
        "three inputs": ({}, "q, k, v", (x, draw(6, (2, 5, 4), dtype), draw(7, (2, 5, 4), dtype))),
    }[name]
    q, k, v = given if isinstance(given, tuple) else (x, x, x)
    bias = more.get("bias", np.zeros((1,), dtype))
    theirs = flux(f"(p, q, k, v, b) -> {model}({call})")
    got = layer.apply(params, {}, given, **more)[0]
    want = theirs(params, q, k, v, bias)
    tolerance = {"float32": 1e-5, "float64": 1e-12}[dtype]
    for a, b in zip(got, want, strict=True):
        close(a, b, tolerance)

    def loss(f):
        return lambda params: sum(jnp.sin(leaf).sum() for leaf in f(params))

    one = jax.grad(loss(lambda p: layer.apply(p, {}, given, **more)[0]))(params)
    other = jax.grad(loss(lambda p: theirs(p, q, k, v, bias)))(params)
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        close(a, b, 100 * tolerance)


def test_bags(dtype):
    weight = draw(0, (6, 4), dtype)
    layer = pb.nn.EmbeddingBag(6, 4)
    x, starts = np.array([[5, 1, 0], [1, 0, 2]]), np.array([0, 2])
    bag = flux("(w, x) -> Flux.EmbeddingBag(w)(x)")
    split = flux("(w, x, at) -> Flux.EmbeddingBag(w)(x, at)")
    tolerance = {"float32": 1e-6, "float64": 1e-15}[dtype]
    close(layer.apply({"weight": weight}, {}, x)[0], bag(weight, x + 1), tolerance)
    pair = (x.ravel(), starts)
    close(
        layer.apply({"weight": weight}, {}, pair)[0],
        split(weight, pair[0] + 1, starts + 1),
        tolerance,
    )


def test_a_query_without_a_key_is_nan_in_flux():
    x = np.ones((1, 2, 4), np.float32)
    theirs = flux("x -> Flux.MultiHeadAttention(4; nheads=2)(x; mask=falses(2, 2))")
    assert all(np.isnan(leaf).all() for leaf in theirs(x))
    layer = pb.nn.MultiHeadAttention(4, nheads=2)
    params, _ = layer.init(jax.random.key(0))
    ours = layer.apply(params, {}, x, mask=np.zeros((2, 2), bool))[0]
    assert all((leaf == 0).all() for leaf in ours)
