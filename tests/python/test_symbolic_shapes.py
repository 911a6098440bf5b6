"""Programs with symbolic sizes are exported, and give what they give with known ones."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cond_helpers import log_or_zero, sqrt_or_zero, total, zero
from jax import export
from quick import by_day

import pybridge as pb
from pybridge import nn

X = np.array([4.0, 0.0, -1.0], np.float32)
ROWS = np.arange(12, dtype=np.float32).reshape(3, 4) - 5
IMAGES = np.random.default_rng(0).normal(size=(3, 4, 6, 6)).astype(np.float32)


def check(f, specs, *args):
    """Export for symbolic shapes, call it on two sizes, and compare."""
    scope = export.SymbolicScope()
    structs = [
        jax.ShapeDtypeStruct(export.symbolic_shape(spec, scope=scope), jnp.asarray(x).dtype)
        for spec, x in zip(specs, args, strict=True)
    ]
    exported = export.export(jax.jit(f))(*structs)
    again = [
        np.concatenate([x, x]) if spec.startswith("b") else x
        for spec, x in zip(specs, args, strict=True)
    ]
    for given in (args, again):
        out, expected = exported.call(*given), jax.jit(f)(*given)
        assert jax.tree.structure(out) == jax.tree.structure(expected)
        for a, b in zip(jax.tree.leaves(out), jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize(
    "f",
    [
        sqrt_or_zero,
        jax.vmap(sqrt_or_zero),
        jax.grad(total(log_or_zero)),
        jax.vmap(jax.grad(log_or_zero)),
        lambda x: pb.cond(x.sum() > 0, jnp.sin, zero, x),
        lambda x: pb.cond(x > 0, lambda v: pb.cond(v > 1, jnp.sqrt, zero, v), zero, x),
        lambda x: pb.switch(x.astype(int), [zero, jnp.sin, jnp.cos], x),
        lambda x: pb.cond(pb.within_gradient(x), jnp.sin, zero, x),
        lambda x: pb.strong_zero(lambda x: jnp.where(x > 0, jnp.sqrt(x), 0.0))(x),
    ],
)
def test_conds(f):
    check(f, ["b"], X)


def test_conds_of_matrices_and_closed_over_rows():
    def f(x, s):
        return pb.cond(x > 0, lambda v: v / s, zero, x)

    check(f, ["b, c", "c"], ROWS, 1 + ROWS[2])
    check(jax.grad(total(f), (0, 1)), ["b, c", "c"], ROWS, 1 + ROWS[2])
    check(lambda x: pb.cond(x[:, :1] > -2, jnp.sqrt, zero, x + 9), ["b, 4"], ROWS)


OPTIONS = [{"mode": "clip"}, {"mode": "fill", "fill_value": 0.5}, {"mode": "wrap"}]
INDICES = np.array([0, 2, 7, -1])


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("axis", [0, 1, None])
def test_take(options, axis):
    def f(x, i):
        return pb.take(x, i, axis, **options)

    check(f, ["b, c", "n"], ROWS, INDICES)
    check(jax.grad(total(f)), ["b, c", "n"], ROWS, INDICES)
    check(lambda x: f(x, np.array([0, 7])), ["b, c"], ROWS)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_at(options):
    check(lambda x, i: pb.at(x)[i, 1:3].get(**options), ["b, 4", "n"], ROWS, INDICES)
    check(lambda x, i: pb.at(x)[:, i].get(**options), ["b, c", "n"], ROWS, INDICES)


LAYERS = {
    "dense": (nn.Dense(4, 3), ["b, 4", "b, t, 4"]),
    "batchnorm": (nn.BatchNorm(4), ["b, 4", "b, 4, h", "b, 4, h, w"]),
    "batchnorm without state": (nn.BatchNorm(4, track_stats=False), ["b, 4"]),
    "instancenorm": (nn.InstanceNorm(4, track_stats=True), ["b, 4, h, w", "b, 4, 6, 6"]),
    "groupnorm": (nn.GroupNorm(4, 2), ["b, 4", "b, 4, h"]),
    "layernorm": (nn.LayerNorm(4), ["b, 4", "b, t, 4"]),
    "dropout": (nn.Dropout(0.5), ["b, 4"]),
    "dropout of rows": (nn.Dropout(0.5, dims=0), ["b, 4"]),
    "alphadropout": (nn.AlphaDropout(0.5), ["b, 4"]),
    "conv": (nn.Conv((3, 3), 4, 2), ["b, 4, 6, 6", "b, 4, h, w"]),
    "conv, same": (nn.Conv((3, 3), 4, 2, pad="same"), ["b, 4, 6, 6", "b, 4, h, w"]),
    "conv, stride": (nn.Conv((3, 3), 4, 4, stride=2, groups=2), ["b, 4, 6, 6", "b, 4, h, w"]),
    "convtranspose": (nn.ConvTranspose((3, 3), 4, 2, stride=2), ["b, 4, 6, 6", "b, 4, h, w"]),
    "maxpool": (nn.MaxPool((2, 2)), ["b, 4, 6, 6", "b, 4, h, w"]),
    "meanpool": (nn.MeanPool((2, 2), pad=1), ["b, 4, 6, 6", "b, 4, h, w"]),
    "globalmeanpool": (nn.GlobalMeanPool(), ["b, 4, 6, 6", "b, 4, h, w"]),
    "weightnorm": (nn.WeightNorm(nn.Dense(4, 3)), ["b, 4"]),
    "chain": (
        nn.Chain(nn.Dense(4, 8, nn.relu), nn.BatchNorm(8), nn.Dropout(0.5), nn.softmax),
        ["b, 4"],
    ),
    "image classifier": (
        nn.Chain(nn.Conv((3, 3), 4, 8), nn.BatchNorm(8), nn.MaxPool((2, 2)), nn.flatten),
        ["b, 4, 6, 6"],
    ),
    "connections": (
        nn.SkipConnection(nn.Parallel(jnp.add, nn.Dense(4, 4), jnp.sin), jnp.add),
        ["b, 4"],
    ),
}


# By day one of each way in which a layer depends on sizes: of the batch, of channels, of windows.
@pytest.mark.parametrize("name", by_day(LAYERS, ["dense", "batchnorm", "conv, stride"]))
def test_layers(name):
    layer, specs = LAYERS[name]
    params, state = layer.init(jax.random.key(0))

    def f(x, training):
        return layer.apply(params, state, x, key=jax.random.key(1), training=training)

    for spec in specs:
        sizes = [(3, 4, 6, 6)[i] if i != 1 else 4 for i in range(spec.count(",") + 1)]
        sizes[-1] = 4 if spec.endswith("t, 4") else sizes[-1]
        x = IMAGES.ravel()[: int(np.prod(sizes))].reshape(sizes)
        for training in ("auto", False):
            check(lambda x, t=training: f(x, t), [spec], x)
        # JAX exports no derivative of a window that moves over an axis of symbolic size.
        if not (name.startswith(("conv", "maxpool")) and "h" in spec):
            check(jax.grad(lambda x: jnp.sin(f(x, "auto")[0]).sum()), [spec], x)


def test_embedding():
    layer = nn.Embedding(5, 2)
    params, state = layer.init(jax.random.key(0))
    check(lambda x: layer.apply(params, state, x)[0], ["b, t"], np.array([[0, 1], [4, 2]]))
    one_hot = np.eye(5, dtype=bool)[:3]
    check(lambda x: layer.apply(params, state, x)[0], ["b, 5"], one_hot)


@pytest.mark.skipif(jax.__version_info__ < (0, 7, 1), reason="jax 0.7.0 loses the symbolic size")
def test_masks():
    layer = nn.BatchNorm(4)
    params, state = layer.init(jax.random.key(0))

    def f(x, mask):
        return layer.apply(params, state, x, mask=mask)

    mask = np.array([[True], [False], [True]])
    check(f, ["b, 4", "b, 1"], ROWS, mask)
    check(jax.grad(lambda x, m: jnp.sin(f(x, m)[0]).sum()), ["b, 4", "b, 1"], ROWS, mask)
