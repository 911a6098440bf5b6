"""Upsample, PixelShuffle, adaptive pools, GlobalMaxPool, CrossCor, DepthwiseConv."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads
from nn_helpers import conv_reference, draw, fixed, forward, pool_reference

import pybridge as pb
from pybridge import nn

SHAPE = (2, 3, 4, 3, 5)


def image(rank, dtype=np.float64):
    return draw(0, SHAPE[: 2 + rank], dtype)


def interpolated(x, size):
    """Interpolate along one axis after the other, with NumPy."""
    for axis, m in enumerate(size, start=2):
        n = x.shape[axis]
        places = np.linspace(0, n - 1, m) if m > 1 else np.zeros(1)
        x = np.apply_along_axis(lambda row, p=places, n=n: np.interp(p, np.arange(n), row), axis, x)
    return x


@pytest.mark.parametrize("rank, scale", [(1, 3), (2, 2), (2, (1, 3)), (3, (2, 3, 1))], ids=str)
def test_nearest_repeats(rank, scale, maybe_jit):
    x = image(rank, np.float32)
    factors = (scale,) * rank if isinstance(scale, int) else scale
    want = np.kron(x, np.ones((1, 1, *factors), np.float32))
    y = maybe_jit(lambda x: forward(nn.Upsample(scale=scale), {}, x))(x)
    np.testing.assert_array_equal(y, want)
    size = tuple(n * f for n, f in zip(x.shape[2:], factors, strict=True))
    np.testing.assert_array_equal(forward(nn.Upsample(size=size), {}, x), want)
    slope = jax.grad(lambda x: forward(nn.Upsample(scale=scale), {}, x).sum())(x)
    np.testing.assert_array_equal(slope, np.full_like(x, np.prod(factors)))


@pytest.mark.parametrize(
    "options, factors",
    [({"scale": (3,)}, (1, 1, 3)), ({"size": (15,)}, (1, 1, 3)), ({"scale": (2, 3)}, (1, 2, 3))],
)
def test_a_short_tuple_is_for_the_last_axes(options, factors):
    # Flux's are the first: `Upsample(:nearest, scale=(3,))` of an image makes it wider.
    x = image(3, np.float32)
    want = np.kron(x, np.ones((1, 1, *factors), np.float32))
    np.testing.assert_array_equal(forward(nn.Upsample(**options), {}, x), want)
    with pytest.raises(pb.ArgumentValueError, match="an input with 4 axes"):
        forward(nn.Upsample(scale=(2, 2)), {}, x[0, 0])


@pytest.mark.parametrize(
    "mode, size, options",
    [
        ("bilinear", (8, 6), {"scale": 2}),
        ("bilinear", (4, 4), {"scale": (1, 1.5)}),
        ("bilinear", (9, 2), {"size": (9, 2)}),
        ("bilinear", (1, 3), {"size": (1, 3)}),
        ("trilinear", (6, 3, 11), {"size": (6, 3, 11)}),
    ],
)
def test_linear_interpolates_between_corners(mode, size, options, x64, maybe_jit):
    layer, x = nn.Upsample(mode, **options), image(len(size))
    y = maybe_jit(lambda x: forward(layer, {}, x))(x)
    np.testing.assert_allclose(y, interpolated(x, size), rtol=1e-12, atol=1e-14)
    check_grads(jax.jit(lambda x: jnp.sin(forward(layer, {}, x)).sum()), (x,), order=2)
    if 1 not in size:
        corners = (slice(None), slice(None), *(slice(None, None, n - 1) for n in size))
        same = (slice(None), slice(None), *(slice(None, None, n - 1) for n in x.shape[2:]))
        np.testing.assert_array_equal(y[corners], x[same])


def test_upsampled_dtypes():
    x = jnp.arange(4).reshape(1, 1, 2, 2)
    assert forward(nn.Upsample(scale=2), {}, x).dtype == x.dtype
    assert forward(nn.Upsample("bilinear", scale=2), {}, x).dtype == jnp.float32
    half = forward(nn.Upsample("bilinear", size=(3, 2)), {}, x.astype(jnp.float16))
    assert half.dtype == jnp.float16 and half[0, 0, 1].tolist() == [1, 2]


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_pixel_shuffle_puts_channels_between_pixels(rank, maybe_jit):
    r, spatial = 2, SHAPE[2 : 2 + rank]
    x = draw(0, (2, 3 * r**rank, *spatial), np.float32)
    y = maybe_jit(lambda x: forward(nn.PixelShuffle(r), {}, x))(x)
    assert y.shape == (2, 3, *(n * r for n in spatial))
    for offset in np.ndindex(*(r,) * rank):
        place = (slice(None), slice(None), *(slice(o, None, r) for o in offset))
        number = np.ravel_multi_index(offset, (r,) * rank)
        np.testing.assert_array_equal(y[place], x[:, number :: r**rank])


@pytest.mark.parametrize("size", [(2,), (4, 3), (3, 2), (1, 1), (3, 2, 4)], ids=str)
def test_adaptive_pools_have_equal_windows(size, x64, maybe_jit):
    x = image(len(size))
    stride = tuple(n // m for n, m in zip(x.shape[2:], size, strict=True))
    window = tuple(n - (m - 1) * s for n, m, s in zip(x.shape[2:], size, stride, strict=True))
    for cls, reduce in ((nn.AdaptiveMaxPool, np.max), (nn.AdaptiveMeanPool, np.mean)):
        y = maybe_jit(lambda x, cls=cls: forward(cls(size), {}, x))(x)
        want = pool_reference(x, window, stride=stride, reduce=reduce, fill=0)
        assert y.shape[2:] == size
        np.testing.assert_allclose(y, want, rtol=1e-12)


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_global_max(rank, maybe_jit):
    x = image(rank, np.float32)
    layer = nn.GlobalMaxPool()
    y = maybe_jit(lambda x: forward(layer, {}, x))(x)
    np.testing.assert_array_equal(y, x.max(tuple(range(2, x.ndim)), keepdims=True))
    slope = maybe_jit(jax.grad(lambda x: forward(layer, {}, x).sum()))(x)
    np.testing.assert_array_equal(slope, x == np.asarray(y))
    ties = jnp.array([[[1.0, 7.0, 7.0]]])
    assert jax.grad(lambda x: forward(layer, {}, x).sum())(ties).tolist() == [[[0, 1, 0]]]
    assert np.isnan(forward(layer, {}, ties.at[0, 0, 2].set(np.nan)))
    assert forward(layer, {}, jnp.array([[[3, 5]]], jnp.int8)).dtype == jnp.int8


@pytest.mark.parametrize(
    "kernel, options",
    [((3,), {}), ((3, 2), {"stride": (2, 1), "pad": (1, 0)}), ((2, 2), {"dilation": 2})],
    ids=str,
)
def test_cross_correlation_reverses_no_kernel(kernel, options, x64, maybe_jit):
    layer = nn.CrossCor(kernel, 3, 4, nn.tanh, init=fixed(1), **options)
    params, state = layer.init(None, np.float64)
    params["bias"] = jnp.asarray(draw(2, (4,)))
    x = draw(0, (2, 3, 6, 5)[: 2 + len(kernel)])
    flipped = np.flip(params["weight"], tuple(range(2, 2 + len(kernel))))
    want = conv_reference(x, flipped, **options)
    want = np.tanh(want + np.asarray(params["bias"]).reshape(-1, *(1 for _ in kernel)))
    y = maybe_jit(lambda p, x: forward(layer, p, x))(params, x)
    np.testing.assert_allclose(y, want, rtol=1e-12)
    assert repr(nn.CrossCor((3,), 1, 2, pad=1)) == "CrossCor((3,), 1, 2, pad=1)"
    assert nn.CrossCor((3,), 1, 2) != nn.Conv((3,), 1, 2) and state == {}
    with pytest.raises(TypeError):
        nn.CrossCor((3,), 2, 2, groups=2)


def test_depthwise_convolution():
    layer = nn.DepthwiseConv((3, 2), 3, 6, nn.relu, stride=2, bias=False)
    assert layer == nn.Conv((3, 2), 3, 6, nn.relu, stride=2, bias=False, groups=3)
    with pytest.raises(pb.ArgumentValueError, match="3 groups divide, got 3 => 4"):
        nn.DepthwiseConv((3,), 3, 4)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: nn.Upsample("cubic", scale=2), "one of 'nearest', 'bilinear', 'trilinear'"),
        (lambda: nn.Upsample(), "either `scale` or `size`"),
        (lambda: nn.Upsample(scale=2, size=(2,)), "either `scale` or `size`"),
        (lambda: nn.Upsample(scale=1.5), "a positive integer, or one for each spatial axis"),
        (lambda: nn.Upsample("bilinear", scale=(1, 2, 3)), "a positive number, or one for each"),
        (lambda: nn.Upsample("bilinear", scale=-1), "a positive number"),
        (lambda: nn.PixelShuffle(0), "a positive integer as factor"),
        (lambda: nn.AdaptiveMaxPool(2), "a tuple of positive integers"),
    ],
)
def test_wrong_options(make, message):
    with pytest.raises(pb.ArgumentValueError, match=re.escape(message)):
        make()


@pytest.mark.parametrize(
    ("layer", "shape", "message"),
    [
        (nn.Upsample("bilinear", scale=2), (1, 1, 3), "an input with 4 axes"),
        (nn.Upsample(scale=2), (1, 3), "an input with 3 axes"),
        (nn.Upsample(size=(5,)), (1, 1, 3), "multiples of the input's size"),
        (nn.Upsample("bilinear", scale=0.1), (1, 1, 3, 3), "at least one element"),
        (nn.PixelShuffle(2), (1, 6, 2, 2), "channels that 4 divides, got shape (1, 6, 2, 2)"),
        (nn.PixelShuffle(2), (1, 4), "(batch, channels, *spatial)"),
        (nn.AdaptiveMeanPool((4,)), (1, 1, 3), "at least (4,) elements on the spatial axes"),
        (nn.AdaptiveMaxPool((2, 2)), (1, 1, 3), "an input with 4 axes"),
        (nn.GlobalMaxPool(), (3, 4), "with spatial elements"),
        (nn.CrossCor((3,), 2, 2), (1, 2, 2), "CrossCor: expected at least one element of output"),
    ],
)
def test_wrong_inputs(layer, shape, message):
    params, state = layer.init(jax.random.key(0))
    with pytest.raises(pb.ArgumentValueError, match=re.escape(message)):
        layer.apply(params, state, np.ones(shape, np.float32))
    if isinstance(layer, nn.GlobalMaxPool):
        with pytest.raises(pb.ArgumentTypeError, match="an input of real numbers"):
            forward(layer, {}, np.ones((1, 1, 2), bool))
