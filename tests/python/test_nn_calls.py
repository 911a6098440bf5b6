"""How layers are called: options that containers hand on, and errors that teach."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from layer_helpers import close, ignore_mode_warnings

import pybridge as pb
from pybridge import nn

KEY = jax.random.key(0)
X = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
MASK = np.array([[True], [False], [True], [True]])

LAYERS = [
    (nn.Dense(3, 2), (4, 3)),
    (nn.Conv((2,), 3, 2), (4, 3, 5)),
    (nn.ConvTranspose((2,), 3, 2), (4, 3, 5)),
    (nn.BatchNorm(3), (4, 3)),
    (nn.InstanceNorm(3), (4, 3, 5)),
    (nn.GroupNorm(3, 1), (4, 3)),
    (nn.LayerNorm(3), (4, 3)),
    (nn.Dropout(0.5), (4, 3)),
    (nn.AlphaDropout(0.5), (4, 3)),
    (nn.MaxPool((2,)), (4, 3, 5)),
    (nn.MeanPool((2,)), (4, 3, 5)),
    (nn.GlobalMeanPool(), (4, 3, 5)),
    (nn.WeightNorm(nn.Dense(3, 2)), (4, 3)),
    (nn.Embedding(5, 2), (4,)),
    (nn.Chain(nn.Dense(3, 2), nn.Dropout(0.5)), (4, 3)),
    (nn.SkipConnection(nn.Dense(3, 3), jnp.add), (4, 3)),
    (nn.Parallel(jnp.add, nn.Dense(3, 3), nn.Dense(3, 3)), (4, 3)),
    (nn.PairwiseFusion(jnp.add, nn.Dense(3, 3), nn.Dense(3, 3)), (4, 3)),
    (nn.Maxout(nn.Dense(3, 3), nn.Dense(3, 3)), (4, 3)),
    (nn.CrossCor((2,), 3, 2), (4, 3, 5)),
    (nn.AdaptiveMaxPool((2,)), (4, 3, 5)),
    (nn.AdaptiveMeanPool((2,)), (4, 3, 5)),
    (nn.GlobalMaxPool(), (4, 3, 5)),
    (nn.Upsample(scale=2), (4, 3, 5)),
    (nn.PixelShuffle(3), (4, 3, 5)),
    (nn.Bilinear(3, 2), (4, 3)),
    (nn.Scale(3), (4, 3)),
    (nn.EmbeddingBag(5, 2), (4, 3)),
    (nn.RNNCell(3, 2), (4, 3)),
    (nn.LSTMCell(3, 2), (4, 3)),
    (nn.RNN(3, 2), (4, 5, 3)),
    (nn.LSTM(3, 2), (4, 5, 3)),
    (nn.GRU(3, 2), (4, 5, 3)),
    (nn.GRUv3(3, 2), (4, 5, 3)),
    (nn.Recurrence(nn.GRUv3Cell(3, 2)), (4, 5, 3)),
    (nn.MultiHeadAttention(4, nheads=2), (2, 3, 4)),
]
IDS = [repr(layer) for layer, _ in LAYERS]


@pytest.mark.parametrize(
    "wrap",
    [
        lambda norm: nn.Chain(norm, jnp.tanh),
        lambda norm: nn.Chain(a=norm, b=jnp.tanh),
        lambda norm: nn.Chain(nn.Chain(norm), jnp.tanh),
        lambda norm: nn.Chain(nn.SkipConnection(norm, lambda y, x: y), jnp.tanh),
        lambda norm: nn.Chain(nn.Parallel(lambda a, b: a, norm, nn.Dropout(0)), jnp.tanh),
    ],
)
def test_a_mask_reaches_the_normalisations(wrap, maybe_jit):
    norm = nn.BatchNorm(3)
    params, state = norm.init(KEY)
    expected, after = norm.apply(params, state, X, mask=MASK, training=ignore(True))
    layer = wrap(norm)
    params, state = layer.init(KEY)

    def f(params, state, x, mask):
        return layer.apply(params, state, x, mask=mask, training=ignore(True))

    y, new = maybe_jit(f)(params, state, X, MASK)
    close(y, jnp.tanh(expected))
    for a, b in zip(jax.tree.leaves(new), jax.tree.leaves(after), strict=True):
        close(a, b)
    changed = np.where(MASK, X, 1e3).astype(np.float32)
    close(maybe_jit(f)(params, state, changed, MASK)[0], jnp.tanh(expected))


def ignore(training):
    return jnp.asarray(training)


def test_a_mask_passes_layers_that_take_none(maybe_jit):
    model = nn.Chain(nn.Dense(3, 4), nn.LayerNorm(4), nn.Dropout(0.5), nn.BatchNorm(4))
    params, state = model.init(KEY)

    def loss(params, x):
        y, _ = model.apply(params, state, x, key=KEY, mask=MASK)
        return jnp.sin(y).sum()

    slopes = maybe_jit(jax.grad(loss, 1))(params, X)
    assert (slopes[1] == 0).all() and (slopes[0] != 0).any()


def test_masks_for_each_input_of_parallel():
    layer = nn.Parallel(lambda a, b: (a, b), nn.LayerNorm(3), nn.LayerNorm(5))
    params, state = layer.init(KEY)
    wide = np.random.default_rng(1).normal(size=(4, 5)).astype(np.float32)
    masks = np.array([[True, True, False]]), np.array([[True] * 4 + [False]])
    (a, b), _ = layer.apply(params, state, (X, wide), mask=masks)
    close(a, layer.layers[0].apply(params[0], {}, X, mask=masks[0])[0])
    close(b, layer.layers[1].apply(params[1], {}, wide, mask=masks[1])[0])
    (a, b), _ = layer.apply(params, state, (X, wide), mask=MASK)
    assert (a[1] == 0).all() and (b[1] == 0).all()


@pytest.mark.parametrize("layer", [nn.Dense(3, 2), nn.Chain(nn.Dense(3, 2), nn.Dropout(0.5))])
def test_an_option_that_nobody_takes_is_refused(layer):
    with pytest.raises(pb.ArgumentTypeError, match=r"apply: expected options .* got mask="):
        layer.apply(*layer.init(KEY), X, mask=MASK)
    with pytest.raises(pb.ArgumentTypeError, match=r"got traning="):
        nn.Chain(nn.BatchNorm(3)).apply(*nn.Chain(nn.BatchNorm(3)).init(KEY), X, traning=True)


@pytest.mark.parametrize("layer, shape", LAYERS, ids=IDS)
@ignore_mode_warnings
def test_wrong_calls_teach(layer, shape):
    params, state = layer.init(KEY)
    x = np.zeros(shape, int if isinstance(layer, nn.Embedding | nn.EmbeddingBag) else np.float32)
    name = type(layer).__name__
    with pytest.raises(pb.ArgumentTypeError, match=rf"{name}: .*layer\.apply\(params, state, x\)"):
        layer(x)
    for args in ((x,), (params, x)):
        with pytest.raises(pb.ArgumentTypeError, match=rf"{name}\.apply: .*fewer arguments"):
            layer.apply(*args)
    with pytest.raises(pb.ArgumentTypeError, match="expected an array.*got a list.*asarray"):
        layer.apply(params, state, x.tolist())
    with pytest.raises(pb.ArgumentTypeError, match="expected an array of numbers.*dtype <U3"):
        layer.apply(params, state, np.full(shape, "1.5"))
    for key in (0, "0", np.zeros(3)):
        with pytest.raises(pb.ArgumentTypeError, match=rf"{name}\.apply: expected one key of JAX"):
            layer.apply(params, state, x, key=key)


@dataclasses.dataclass
class Times:
    """A function that can be changed, and so has no hash."""

    factor: float = 2.0

    def __call__(self, x):
        return self.factor * x


@pytest.mark.parametrize(
    "layer", [nn.Dense(3, 2, activation=Times()), nn.BatchNorm(3, activation=Times())]
)
def test_options_without_a_hash_are_named(layer):
    params, state = layer.init(jax.random.key(0))
    with pytest.raises(pb.ArgumentTypeError, match=r"can be hashed.*Times.*frozen=True"):
        layer.apply(params, state, jnp.ones((4, 3)))


@pytest.mark.parametrize("layer, shape", LAYERS, ids=IDS)
def test_a_batch_of_no_examples(layer, shape):
    x = np.zeros((0, *shape[1:]), "i" if isinstance(layer, nn.Embedding | nn.EmbeddingBag) else "f")
    params, state = layer.init(KEY)
    y, after = layer.apply(params, state, x)
    one, _ = jax.eval_shape(lambda: layer.apply(params, state, jnp.zeros((1, *shape[1:]), x.dtype)))
    for got, like in zip(jax.tree.leaves(y), jax.tree.leaves(one), strict=True):
        assert got.shape == (0, *like.shape[1:])
    assert nn.flatten(np.zeros((0, *shape[1:]))).shape == (0, np.prod(shape[1:], dtype=int))
    jax.tree.map(np.testing.assert_array_equal, after, state)


@pytest.mark.parametrize("layer", [nn.Dense(3, 2), nn.BatchNorm(3), nn.LSTM(3, 2)], ids=repr)
def test_init_says_what_a_dtype_is(layer):
    for dtype in ("floaty", object(), "<U3", np.int32):
        with pytest.raises(pb.ArgumentTypeError, match="init: expected a floating dtype, got"):
            layer.init(KEY, dtype)
    assert jax.tree.leaves(layer.init(KEY, "bfloat16")[0])[0].dtype == jnp.bfloat16


DRAWS = (nn.Dense, nn.Conv, nn.ConvTranspose, nn.Embedding, nn.WeightNorm, nn.Chain, nn.Parallel)
DRAWS += (nn.Bilinear, nn.EmbeddingBag, nn.LSTMCell, nn.GRU, nn.MultiHeadAttention, nn.Maxout)


@pytest.mark.parametrize("layer", [one for one, _ in LAYERS if isinstance(one, DRAWS)], ids=repr)
def test_init_says_what_a_key_is(layer):
    drawn = (None,) if isinstance(layer, nn.Dense | nn.Conv | nn.Embedding) else ()
    for key in (0, 1.5, "key", jax.random.split(KEY), *drawn):
        with pytest.raises(pb.ArgumentTypeError, match=r"init: expected one key of JAX's"):
            layer.init(key)
    assert jax.tree.leaves(layer.init(jax.random.PRNGKey(0))[0])


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (nn.Dense(4, 3), (2, 4)),
        (nn.Conv((2,), 4, 3), (2, 4, 5)),
        (nn.BatchNorm(4), (2, 4)),
        (nn.GRU(4, 3), (2, 5, 4)),
        (nn.MultiHeadAttention(4, nheads=2), (2, 5, 4)),
        (nn.Embedding(4, 3), None),
    ],
    ids=lambda value: type(value).__name__,
)
def test_parameters_that_numpy_made(layer, shape):
    """They have 64 bits, such as those of `np.load`, and JAX has 32: no warning, as many bits."""
    params, state = layer.init(jax.random.key(0))
    x = jnp.arange(3) if shape is None else jnp.ones(shape)
    expected = layer.apply(params, state, x)
    params, state = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), (params, state))
    found = layer.apply(params, state, x)
    jax.tree.map(np.testing.assert_array_equal, found, expected)
    assert {leaf.dtype for leaf in jax.tree.leaves(found[0])} == {jnp.dtype("float32")}
