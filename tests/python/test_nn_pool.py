"""MaxPool, MeanPool, GlobalMeanPool: values, gradients, geometry, ties, NaN, errors."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nn_helpers import check_derivatives, draw, forward, pool_reference
from quick import examples

import pybridge as pb

KINDS = [(pb.nn.MaxPool, np.max, -np.inf), (pb.nn.MeanPool, np.mean, 0)]
CASES = [
    ((2,), {}),
    ((3, 2), {}),
    ((2, 2, 2), {}),
    ((3,), {"stride": 1, "pad": 2}),
    ((3, 3), {"stride": (2, 1), "pad": (1, 0, 2, 1)}),
    ((2, 3, 2), {"stride": (3, 1, 2), "pad": (0, 2, 1)}),
    ((7, 6), {"stride": 1, "pad": 1}),
]


def small(rank, dtype=np.float64):
    return draw(0, (2, 3, 9, 8, 5)[: 2 + rank], dtype)


@pytest.mark.parametrize("cls, reduce, fill", KINDS)
@pytest.mark.parametrize("window, options", CASES, ids=str)
def test_value_is_that_of_the_formula(cls, reduce, fill, window, options, x64, maybe_jit):
    x, layer = small(len(window)), cls(window, **options)
    y = maybe_jit(lambda x: forward(layer, {}, x))(x)
    want = pool_reference(x, window, reduce=reduce, fill=fill, **options)
    np.testing.assert_allclose(y, want, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("cls", [pb.nn.MaxPool, pb.nn.MeanPool])
@pytest.mark.parametrize("window, options", CASES, ids=str)
def test_behind_a_convolution_it_is_the_same(cls, window, options, x64):
    # Equal numbers too, of which the first has the gradient.
    x, layer = np.round(small(len(window))), cls(window, **options)
    y, back = jax.vjp(lambda x: forward(layer, {}, x), x)
    moved, moved_back = jax.vjp(lambda x: forward(layer.behind_convolution(), {}, x), x)
    np.testing.assert_allclose(moved, y, rtol=1e-12)
    cotangent = draw(1, y.shape, np.float64)
    np.testing.assert_allclose(*moved_back(cotangent), *back(cotangent), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("cls", [pb.nn.MaxPool, pb.nn.MeanPool])
@pytest.mark.parametrize("window, options", [CASES[4], CASES[6]], ids=str)
def test_derivatives_of_all_orders(cls, window, options, x64):
    layer = cls(window, **options)
    x = small(len(window))[:1, :1]
    check_derivatives(lambda x: jnp.sin(forward(layer, {}, x)).sum(), (x,), eps=1e-6)


WINDOWS = st.lists(
    st.tuples(st.integers(1, 7), st.integers(1, 4), st.integers(0, 6), st.integers(0, 6)),
    min_size=1,
    max_size=3,
)


@settings(deadline=None, max_examples=examples(25))
@given(WINDOWS, st.data())
def test_output_size_is_the_formula(axes, data):
    window, stride, before, after = zip(*axes, strict=True)
    size = tuple(data.draw(st.integers(1, 9)) for _ in axes)
    pad = tuple(
        min(n, k - 1) for a, b, k in zip(before, after, window, strict=True) for n in (a, b)
    )
    want = tuple(
        (n + a + b - k) // s + 1
        for n, k, s, a, b in zip(size, window, stride, pad[::2], pad[1::2], strict=True)
    )
    x = draw(0, (2, 1, *size), np.float32)
    for cls, reduce, fill in KINDS:
        layer = cls(window, stride=stride, pad=pad)

        def pooled(x, layer=layer):
            return forward(layer, {}, x)

        if min(want) < 1:
            with pytest.raises(pb.ArgumentValueError, match="at least one element of output"):
                jax.eval_shape(pooled, x)
            continue
        y = jax.jit(pooled)(x)
        assert y.shape == (2, 1, *want)
        reference = pool_reference(x, window, stride=stride, pad=pad, reduce=reduce, fill=fill)
        np.testing.assert_allclose(y, reference, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("cls", [pb.nn.MaxPool, pb.nn.MeanPool])
@pytest.mark.parametrize("window, stride", [(3, 2), (2, 2), (5, 3), (4, 1)])
def test_same_padding(cls, window, stride):
    layer = cls((window,), stride=stride, pad="same")
    for size in (1, 5, 6, 11):
        x = jax.ShapeDtypeStruct((1, 1, size), jnp.float32)
        out = jax.eval_shape(lambda x: forward(layer, {}, x), x)
        assert out.shape[2] == -(-size // stride)


@pytest.mark.parametrize("window, options", [((2, 2), {}), ((3, 2), {"stride": 1, "pad": (1, 0)})])
def test_both_ways_of_pooling_agree(window, options, monkeypatch):
    """Slices and XLA's own moving window: values and gradients, ties included."""
    x = jnp.asarray(np.random.default_rng(0).integers(0, 3, (2, 2, 6, 6)), jnp.float32)
    weight = draw(1, (2, 2, 6, 6), np.float32)
    for cls in (pb.nn.MaxPool, pb.nn.MeanPool):
        layer = cls(window, **options)

        def loss(x, layer=layer):
            y = forward(layer, {}, x)
            return (y * weight[:, :, : y.shape[2], : y.shape[3]]).sum()

        few = jax.jit(jax.value_and_grad(loss))(x)
        monkeypatch.setattr("pybridge.nn._pool._FEW_SLICES", 0)
        # By another function, as JAX keeps what it has traced of one.
        many = jax.jit(jax.value_and_grad(lambda x: loss(x)))(x)
        monkeypatch.undo()
        for a, b in zip(few, many, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def test_at_a_tie_the_first_takes_the_gradient(maybe_jit):
    layer = pb.nn.MaxPool((2, 2))
    gradient = maybe_jit(jax.grad(lambda x: forward(layer, {}, x).sum()))
    x = jnp.array([[[[0.0, 7.0], [7.0, 7.0]]]])
    assert gradient(x).tolist() == [[[[0, 1], [0, 0]]]]
    # Nearly equal is not equal.
    assert gradient(x.at[0, 0, 1, 0].add(1e-5)).tolist() == [[[[0, 0], [1, 0]]]]


@pytest.mark.parametrize("window", [(2, 2), (8, 8)])
def test_nan_and_infinities(window):
    layer = pb.nn.MaxPool(window, stride=1)
    pooled = jax.jit(lambda x: forward(layer, {}, x))
    x = np.zeros((1, 1, 8, 8), np.float32)
    for place in ((0, 0), (0, 1), (1, 0), (1, 1)):
        one = x.copy()
        one[0, 0, *place] = np.nan
        assert np.isnan(pooled(one)[0, 0, 0, 0])
    assert pooled(np.full_like(x, -np.inf)).max() == -np.inf
    assert pooled(np.full_like(x, np.inf)).min() == np.inf


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "int8", "uint16"])
def test_dtypes(dtype, x64):
    x = jnp.asarray([[[1, 100, 3, 50]]], dtype)
    y = forward(pb.nn.MaxPool((2,), pad=1), {}, x)
    assert (y.dtype, y.tolist()) == (dtype, [[[1, 100, 50]]])
    want = dtype if jnp.issubdtype(x.dtype, jnp.floating) else jnp.float64
    for layer in (pb.nn.MeanPool((4,)), pb.nn.GlobalMeanPool()):
        y = forward(layer, {}, x)
        assert (y.dtype, y.tolist()) == (want, [[[38.5]]])


def test_half_precision_sums_in_single():
    x = jnp.full((1, 1, 4096), 16.0, jnp.float16)  # the sum is 65536, above float16's range
    for layer in (pb.nn.MeanPool((4096,)), pb.nn.GlobalMeanPool()):
        assert float(forward(layer, {}, x)[0, 0, 0]) == 16


def test_mean_counts_padding():
    y = forward(pb.nn.MeanPool((2, 2), pad=1), {}, jnp.ones((1, 1, 2, 2)))
    assert y.tolist() == [[[[0.25, 0.25], [0.25, 0.25]]]]


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_global_mean(rank, x64, maybe_jit):
    x, layer = small(rank), pb.nn.GlobalMeanPool()
    axes = tuple(range(2, x.ndim))
    y = maybe_jit(lambda x: forward(layer, {}, x))(x)
    np.testing.assert_allclose(y, x.mean(axes, keepdims=True), rtol=1e-12)
    gradient = maybe_jit(jax.grad(lambda x: forward(layer, {}, x).sum()))(x)
    np.testing.assert_allclose(gradient, 1 / np.prod(x.shape[2:]), rtol=1e-12)


@pytest.mark.parametrize(
    "layer", [pb.nn.MaxPool((2, 3)), pb.nn.MeanPool((2, 3), pad=1), pb.nn.GlobalMeanPool()]
)
def test_transformations(layer):
    x = small(2, np.float32)
    params, state = layer.init(jax.random.key(0))
    assert params == state == {}
    want = forward(layer, {}, x)
    assert forward(layer, {}, x[:0]).shape == (0, *want.shape[1:])
    rows = jax.vmap(lambda row: forward(layer, {}, row[None])[0])(x)
    np.testing.assert_allclose(rows, want, rtol=1e-6)
    _, ys = jax.lax.scan(lambda c, row: (c, forward(layer, {}, row[None])[0]), 0, x)
    np.testing.assert_allclose(ys, want, rtol=1e-6)

    def loss(x):
        return jnp.sum(forward(layer, {}, x) ** 2)

    plain = jax.grad(loss)(x)
    for other in (jax.checkpoint(loss), jax.jit(loss)):
        np.testing.assert_allclose(jax.grad(other)(x), plain, rtol=1e-5, atol=1e-6)
    _, slope = jax.jvp(loss, (x,), (x,))
    np.testing.assert_allclose(slope, np.vdot(plain, x), rtol=1e-4)


def test_configuration():
    one, other = pb.nn.MaxPool((2, 2)), pb.nn.MaxPool([2, 2], stride=2, pad=(0, 0, 0, 0))
    assert one == other
    assert hash(one) == hash(other)
    assert repr(one) == "MaxPool((2, 2))"
    assert repr(pb.nn.MeanPool((2, 3), stride=(1, 2), pad="same")) == (
        "MeanPool((2, 3), stride=(1, 2), pad='same')"
    )
    assert repr(pb.nn.GlobalMeanPool()) == "GlobalMeanPool()"


@pytest.mark.parametrize("cls", [pb.nn.MaxPool, pb.nn.MeanPool])
@pytest.mark.parametrize(
    "window, options, message",
    [
        (2, {}, "a tuple of positive integers"),
        ((2, 2), {"stride": 0}, "an integer of at least 1, or 2 of them, as `stride`"),
        ((2, 2), {"pad": (0, -1)}, "as `pad`"),
    ],
)
def test_wrong_options(cls, window, options, message):
    with pytest.raises(pb.ArgumentValueError, match=re.escape(message)):
        cls(window, **options)


def test_padding_without_input():
    with pytest.raises(pb.ArgumentValueError, match=r"less padding than the window \(2, 2\)"):
        pb.nn.MaxPool((2, 2), pad=2)
    assert forward(pb.nn.MeanPool((1,), pad=1), {}, jnp.ones((1, 1, 1))).tolist() == [[[0, 1, 0]]]


def test_wrong_inputs():
    for layer in (pb.nn.MaxPool((2, 2)), pb.nn.MeanPool((2, 2))):
        with pytest.raises(pb.ArgumentValueError, match="an input with 4 axes"):
            forward(layer, {}, jnp.ones((3, 4, 4)))
        with pytest.raises(pb.ArgumentValueError, match="at least one element of output"):
            forward(layer, {}, jnp.ones((1, 1, 1, 4)))
    for shape in ((3, 4), (1, 1, 0)):
        with pytest.raises(pb.ArgumentValueError, match="with spatial elements"):
            forward(pb.nn.GlobalMeanPool(), {}, jnp.ones(shape))
    for dtype in (bool, jnp.complex64):
        with pytest.raises(pb.ArgumentTypeError, match="an input of real numbers"):
            forward(pb.nn.MaxPool((2,)), {}, jnp.ones((1, 1, 2), dtype))
