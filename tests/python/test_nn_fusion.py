"""Bilinear, Scale, Maxout, PairwiseFusion, names in Parallel, EmbeddingBag."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads
from layer_helpers import close, fresh, random
from nn_helpers import draw, fixed, forward

import pybridge as pb
from pybridge import nn

KEY = jax.random.key(4)


@pytest.mark.parametrize("leading", [(), (4,), (2, 4)], ids=str)
def test_bilinear(leading, x64, maybe_jit):
    layer = nn.Bilinear((3, 2), 5, nn.tanh, init=fixed(0))
    params = layer.init(None, np.float64)[0] | {"bias": jnp.asarray(draw(1, (5,)))}
    x, y = draw(2, (*leading, 3)), draw(3, (*leading, 2))
    want = np.tanh(np.einsum("...i,...j,jio->...o", x, y, params["weight"]) + params["bias"])
    got = maybe_jit(lambda p, x: forward(layer, p, x))(params, (x, y))
    np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-14)
    loss = jax.jit(lambda p, x: jnp.sin(forward(layer, p, x)).sum())
    check_grads(loss, (params, (x, y)), order=2)
    one = nn.Bilinear(3, 4, bias=False)
    params, _ = one.init(KEY, np.float64)
    assert list(params) == ["weight"]
    close(forward(one, params, x), forward(one, params, (x, x)), rtol=0)


def test_bilinear_options_and_errors():
    assert nn.Bilinear(3, 2) == nn.Bilinear((3, 3), 2)
    assert repr(nn.Bilinear((3, 4), 2, nn.relu)) == "Bilinear((3, 4), 2, activation=relu)"
    weight = nn.Bilinear((300, 200), 10).init(KEY)[0]["weight"]
    assert weight.shape == (200, 300, 10)  # Flux: (10, 300, 200), the last two are the fans
    np.testing.assert_allclose(np.abs(weight).max(), (6 / 5000) ** 0.5, rtol=1e-3)
    layer = nn.Bilinear((3, 4), 2)
    params, _ = layer.init(KEY)
    x = np.ones((5, 3), np.float32)
    for wrong in (x, (x, x), (x, np.ones((4, 4))), (x, x, x)):
        with pytest.raises(pb.ArgumentValueError, match=r"two inputs, \(..., 3\) and \(..., 4\)"):
            forward(layer, params, wrong)
    with pytest.raises(pb.ArgumentValueError, match="a positive integer or two of them"):
        nn.Bilinear((1, 2, 3), 2)


@pytest.mark.parametrize("size", [3, (2, 3)], ids=str)
def test_scale(size, x64, maybe_jit):
    layer = nn.Scale(size, nn.tanh, init=fixed(0))
    params, _ = layer.init(None, np.float64)
    params["bias"] = jnp.asarray(draw(1, layer.shape))
    x = draw(2, (4, 2, 3))
    want = np.tanh(np.asarray(params["scale"]) * x + np.asarray(params["bias"]))
    got = maybe_jit(lambda p, x: forward(layer, p, x))(params, x)
    np.testing.assert_allclose(got, want, rtol=1e-12)
    loss = jax.jit(lambda p, x: jnp.sin(forward(layer, p, x)).sum())
    check_grads(loss, (params, x), order=2)
    plain, _ = nn.Scale(size, bias=False).init(KEY)
    assert list(plain) == ["scale"] and (plain["scale"] == 1).all()
    assert forward(layer, params, x[..., :1]).shape == (4, 2, 3)
    assert repr(nn.Scale(2, nn.relu)) == "Scale(2, activation=relu)"


def test_scale_refuses_other_sizes():
    layer = nn.Scale((2, 3))
    params, _ = layer.init(KEY)
    for shape in ((2,), (3,), (2, 2), (5, 3, 3)):
        with pytest.raises(pb.ArgumentValueError, match=r"whose last axes are \(2, 3\)"):
            forward(layer, params, np.ones(shape))


def test_maxout(maybe_jit):
    two = nn.Maxout(nn.Dense(3, 2), nn.Dense(3, 2))
    params, state = fresh(two)
    x = random(KEY, (5, 3))
    outs = [forward(nn.Dense(3, 2), p, x) for p in params]
    y, _ = maybe_jit(lambda p, x: two.apply(p, state, x))(params, x)
    close(y, jnp.maximum(*outs), rtol=1e-6)
    slopes = jax.grad(lambda p: two.apply(p, state, x)[0].sum())(params)
    assert (slopes[0]["bias"] + slopes[1]["bias"] == 5).all()
    assert repr(two) == "Maxout(Dense(3, 2), Dense(3, 2))" and two[1] == nn.Dense(3, 2)


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (nn.Maxout, "Maxout"),
        (lambda: nn.Parallel(jnp.add), "Parallel"),
        (lambda: nn.PairwiseFusion(jnp.add), "PairwiseFusion"),
    ],
)
def test_no_layer(make, name):
    with pytest.raises(pb.ArgumentValueError, match=f"{name}: expected at least one layer"):
        make()


def test_maxout_at_a_tie_and_of_nan():
    layer = nn.Maxout(lambda x: x, lambda x: 2 * x, lambda x: 3 * x)
    trees = ({},) * 3
    run = lambda x: layer.apply(trees, trees, x)[0].sum()  # noqa: E731
    assert jax.grad(run)(jnp.array([1.0, -1.0, 0.0])).tolist() == [3, 1, 3]
    first = nn.Maxout(lambda x: x, jnp.zeros_like)
    assert np.isnan(first.apply(trees[:2], trees[:2], jnp.array([np.nan]))[0])
    second = nn.Maxout(jnp.zeros_like, lambda x: x)
    assert np.isnan(second.apply(trees[:2], trees[:2], jnp.array([np.nan]))[0])


@pytest.mark.parametrize("names", [False, True])
def test_pairwise_fusion(names):
    layers = (nn.Dense(3, 2), nn.Chain(nn.Dense(2, 2), nn.BatchNorm(2)), jnp.sin)
    named = dict(zip("abc", layers, strict=True))
    plain = nn.PairwiseFusion(jnp.multiply, *layers)
    layer = nn.PairwiseFusion(jnp.multiply, **named) if names else plain
    params, state = fresh(layer)
    xs = (random(KEY, (5, 3)), random(jax.random.key(1), (5, 2)), jnp.ones((5, 2)))
    (a, b, c), after = layer.apply(params, state, xs, training=jnp.asarray(True))
    p = tuple(params.values()) if names else params
    s = tuple(state.values()) if names else state
    close(a, forward(layers[0], p[0], xs[0]), rtol=1e-6)
    want, moved = layers[1].apply(p[1], s[1], a * xs[1], training=jnp.asarray(True))
    close((b, c), (want, jnp.sin(want)), rtol=1e-6)
    close(tuple(after.values())[1] if names else after[1], moved, rtol=1e-6)
    assert len(layer) == 3 and layer[1] == layers[1]
    same = nn.PairwiseFusion(jnp.add, jnp.sin, jnp.cos)
    y = same.apply(({}, {}), ({}, {}), jnp.array(0.5))[0]
    close(y, (jnp.sin(0.5), jnp.cos(jnp.sin(0.5) + 0.5)), rtol=1e-6)
    with pytest.raises(pb.ArgumentValueError, match="PairwiseFusion.apply: .*a tuple of 3, one"):
        layer.apply(params, state, xs[:2])
    text = "PairwiseFusion(multiply, " + ("a=Dense(3, 2), b=" if names else "Dense(3, 2), ")
    assert repr(layer).startswith(text)


def test_parallel_with_names():
    layer = nn.Parallel(jnp.add, left=nn.Dense(3, 2), right=nn.BatchNorm(2))
    params, state = fresh(layer)
    assert list(params) == ["left", "right"] == list(state)
    xs = (random(KEY, (5, 3)), random(KEY, (5, 2)))
    y, after = layer.apply(params, state, xs, training=jnp.asarray(True))
    plain = nn.Parallel(jnp.add, *layer)
    want, moved = plain.apply(
        tuple(params.values()), tuple(state.values()), xs, training=jnp.asarray(True)
    )
    close((y, tuple(after.values())), (want, moved), rtol=0)
    assert layer["right"] == nn.BatchNorm(2) and layer != plain
    assert repr(layer) == "Parallel(add, left=Dense(3, 2), right=BatchNorm(2))"
    with pytest.raises(pb.ArgumentValueError, match=r"Give every layer a name, `Parallel\(first"):
        nn.Parallel(jnp.add, jnp.sin, b=jnp.cos)


@pytest.fixture
def bag():
    layer = nn.EmbeddingBag(6, 4, init=fixed(0))
    return layer, layer.init(None)[0]


@pytest.mark.parametrize("reduction", [jnp.mean, jnp.sum, jnp.max])
@pytest.mark.parametrize("shape", [(3,), (2, 3), (2, 2, 3)], ids=str)
def test_a_bag_is_reduced(bag, reduction, shape, maybe_jit):
    params = bag[1]
    layer = nn.EmbeddingBag(6, 4, reduction)
    x = np.random.default_rng(0).integers(0, 6, shape)
    want = reduction(params["weight"][x], axis=-2)
    y = maybe_jit(lambda p, x: forward(layer, p, x))(params, x)
    np.testing.assert_allclose(y, want, rtol=1e-6)
    hot = np.eye(6, dtype=bool)[x]
    np.testing.assert_allclose(forward(layer, params, hot), want, rtol=1e-6)


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
def test_a_large_bag_in_half_precision_keeps_count(dtype, maybe_jit):
    params = {"weight": jnp.array([[1.0], [3.0]], dtype)}
    indices, starts = jnp.array([0] * 3000 + [1] * 3001), jnp.array([0, 6000])
    y = maybe_jit(lambda p, s: forward(nn.EmbeddingBag(2, 1), p, (indices, s)))(params, starts)
    assert y.dtype == dtype
    np.testing.assert_array_equal(y, [[2], [3]])


@pytest.mark.parametrize("reduction", [jnp.mean, jnp.sum, jnp.max])
def test_known_starts_stay_known_where_the_mode_is_given(bag, reduction):
    params, layer = bag[1], nn.EmbeddingBag(6, 4, reduction)
    bags, out_of_range = (np.array([5, 0, 0, 1]), np.array([0, 1])), np.array([6])
    run = jax.jit(lambda p, x=bags: layer.apply(p, {}, x, training=False)[0])
    np.testing.assert_allclose(run(params), forward(layer, params, bags), rtol=1e-6)
    with pytest.raises(pb.ArgumentValueError, match="indices from 0 to 5, got indices from 6"):
        jax.jit(lambda p: layer.apply(p, {}, out_of_range, training=False)[0])(params)


def test_tables_under_debug_nans(bag):
    layer, params = bag
    with jax.debug_nans(True):
        take = [forward(layer, params, np.array([0, 5])), pb.take(jnp.ones(3), 1, mode="fill")]
    assert all(jnp.isfinite(y).all() for y in take)


@pytest.mark.parametrize("reduction", [jnp.mean, jnp.sum, jnp.max])
def test_bags_of_several_lengths(bag, reduction):
    params = bag[1]
    layer = nn.EmbeddingBag(6, 4, reduction)
    indices, starts = np.array([5, 0, 0, 1, 2, 3]), np.array([0, 1, 4])
    rows = np.asarray(params["weight"])[indices]
    want = [reduction(part, axis=0) for part in np.split(rows, starts[1:])]
    y = forward(layer, params, (indices, starts))
    np.testing.assert_allclose(y, want, rtol=1e-6)
    run = jax.jit(lambda p, x: forward(layer, p, x))
    if reduction is jnp.max:
        with pytest.raises(pb.ArgumentTypeError, match="starts whose values are known"):
            run(params, (indices, starts))
        return
    np.testing.assert_allclose(run(params, (indices, starts)), want, rtol=1e-6)
    slopes = [
        jax.grad(lambda p, f=f: (f(p, (indices, starts)) ** 2).sum())(params)["weight"]
        for f in (run, lambda p, x: forward(layer, p, x))
    ]
    np.testing.assert_allclose(*slopes, rtol=1e-5)


@pytest.mark.parametrize("reduction", [jnp.mean, jnp.sum, jnp.max])
@pytest.mark.parametrize("hot", [False, True])
def test_a_list_of_bags(bag, reduction, hot, maybe_jit):
    params = bag[1]
    layer = nn.EmbeddingBag(6, 4, reduction)
    indices = [np.array(part) for part in ([5], [0, 0, 1], [2, 3])]
    bags = [np.eye(6, dtype=bool)[part] for part in indices] if hot else indices
    want = [reduction(params["weight"][part], axis=0) for part in indices]
    y = maybe_jit(lambda p, x: forward(layer, p, x))(params, bags)
    np.testing.assert_allclose(y, want, rtol=1e-6)


def test_what_is_known_of_a_list_of_bags_is_checked_under_jit(bag):
    layer, params = bag
    run = jax.jit(lambda p: layer.apply(p, {}, [np.array([0]), np.array([6])], training=False))
    with pytest.raises(pb.ArgumentValueError, match="indices from 0 to 5, got indices from 0 to 6"):
        run(params)


@pytest.mark.parametrize(
    ("x", "message"),
    [
        ([], "a list of bags"),
        ([np.array([0]), np.zeros(0, int)], "a list of arrays of shapes [(1,), (0,)]"),
        ([np.array([0]), np.eye(6, dtype=bool)], "a list of arrays of shapes [(1,), (6, 6)]"),
        ([0, 1], "a list of arrays of shapes [(), ()]"),
        ([[0, 1], [2]], "an array of JAX or NumPy as input, got a list"),
        (np.array(3), "indices of shape (..., bag)"),
        (np.ones((2, 0), int), "indices of shape (..., bag)"),
        (np.array([6]), "indices from 0 to 5"),
        (np.eye(6, dtype=bool)[0], "indices of shape (..., bag)"),
        (np.ones(2), "indices as an integer array"),
        ((np.array([1, 2]), np.array([1])), "starts that begin with 0, grow, and stay below 2"),
        ((np.array([1, 2]), np.array([0, 0])), "starts that begin with 0"),
        ((np.array([1, 2]), np.array([0, 2])), "starts that begin with 0"),
        ((np.ones((2, 2), int), np.array([0])), "indices of shape (..., bag)"),
    ],
)
def test_wrong_bags(bag, x, message):
    layer, params = bag
    with pytest.raises(pb.BridgeError, match=re.escape(message)):
        forward(layer, params, x)
