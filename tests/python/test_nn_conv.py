"""Conv and ConvTranspose: values, gradients, geometry, dtypes, transformations, errors."""

import functools
import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from nn_helpers import (
    check_derivatives,
    conv_reference,
    conv_transpose_reference,
    draw,
    fixed,
    forward,
)
from quick import examples

import pybridge as pb

CASES = [
    ((4,), {}),
    ((3, 2), {}),
    ((2, 3, 2), {}),
    ((3,), {"stride": 2, "pad": 1}),
    ((3, 3), {"stride": (2, 1), "pad": (1, 0, 2, 1)}),
    ((3, 2), {"dilation": (1, 3), "pad": 2}),
    ((2, 2, 2), {"stride": 2, "dilation": 2, "pad": (1, 2, 1)}),
    ((3, 3), {"groups": 2, "stride": 2}),
    ((2, 2), {"groups": 4, "dilation": 2}),
]
KINDS = [(pb.nn.Conv, conv_reference), (pb.nn.ConvTranspose, conv_transpose_reference)]


def small(kernel, dtype=jnp.float64, cls=pb.nn.Conv, **options):
    layer = cls(kernel, 4, 8, init=fixed(0), **options)
    params, state = layer.init(None, dtype)
    assert state == {}
    params["bias"] = jnp.asarray(draw(1, (8,), dtype))
    return layer, params, draw(2, (2, 4, 9, 8, 7)[: 2 + len(kernel)], dtype)


@pytest.mark.parametrize("cls, reference", KINDS)
@pytest.mark.parametrize("kernel, options", CASES, ids=str)
def test_value_and_gradient_are_those_of_the_formula(
    cls, reference, kernel, options, x64, maybe_jit
):
    layer, params, x = small(kernel, cls=cls, **options)
    y = maybe_jit(lambda p, x: forward(layer, p, x))(params, x)
    bias = np.asarray(params["bias"]).reshape(-1, *(1 for _ in kernel))
    np.testing.assert_allclose(
        y, reference(x, params["weight"], **options) + bias, rtol=1e-12, atol=1e-12
    )
    # The layer is linear in each argument, so a difference quotient is its slope.
    cotangent, direction = draw(3, y.shape), jax.tree.map(lambda p: draw(4, p.shape), params)
    push = draw(5, x.shape)
    inner = maybe_jit(
        jax.grad(lambda p, x: jnp.vdot(cotangent, forward(layer, p, x)), argnums=(0, 1))
    )
    for_params, for_x = inner(params, x)
    want = np.sum(cotangent * reference(push, params["weight"], **options))
    np.testing.assert_allclose(np.vdot(for_x, push), want, rtol=1e-11)
    want = np.sum(
        cotangent
        * (
            reference(x, direction["weight"], **options)
            + np.asarray(direction["bias"]).reshape(bias.shape)
        )
    )
    got = sum(np.vdot(for_params[name], direction[name]) for name in params)
    np.testing.assert_allclose(got, want, rtol=1e-11)


@pytest.mark.parametrize("cls", [pb.nn.Conv, pb.nn.ConvTranspose])
def test_all_orders_of_derivative(cls, x64):
    layer, params, x = small((3, 2), cls=cls, activation=pb.nn.tanh, stride=2, pad=1, groups=2)

    def loss(params, x):
        return jnp.sum(forward(layer, params, x) ** 2)

    check_derivatives(loss, (params, x), rtol=1e-5)


def test_transposed_is_the_gradient_of_conv(x64):
    options = {"stride": (2, 3), "pad": (1, 0, 2, 1), "dilation": (2, 1), "groups": 2}
    conv = pb.nn.Conv((3, 2), 4, 8, bias=False, **options)
    params, x = {"weight": draw(0, (8, 2, 3, 2))}, draw(1, (2, 4, 12, 11))
    y, back = jax.vjp(lambda x: forward(conv, params, x), x)
    outpad = ((12 + 1 - 5) % 2, (11 + 3 - 2) % 3)
    transposed = pb.nn.ConvTranspose((3, 2), 8, 4, bias=False, outpad=outpad, **options)
    got = forward(transposed, params, y)
    np.testing.assert_allclose(got, back(y)[0], rtol=1e-12, atol=1e-12)


def test_the_kernel_is_reversed():
    layer = pb.nn.Conv((2,), 1, 1, bias=False)
    params = {"weight": jnp.array([[[1.0, 10.0]]])}
    assert forward(layer, params, jnp.array([[[1.0, 2.0, 3.0]]])).tolist() == [[[12.0, 23.0]]]


SIZES = st.lists(
    st.tuples(*[st.integers(1, 4)] * 3, *[st.integers(0, 3)] * 2), min_size=1, max_size=3
)


@settings(deadline=None, max_examples=examples(25))
@given(SIZES.filter(lambda axes: len(axes) < 3), st.sampled_from([1, 2]), st.data())
def test_a_kernel_larger_than_the_patches_is_not_copied(axes, groups, data):
    kernel, stride, dilation, before, after = zip(*axes, strict=True)
    size = tuple(data.draw(st.integers(1, 4)) for _ in axes)
    reach = [(k - 1) * d for k, d in zip(kernel, dilation, strict=True)]
    padded = [sum(ns) for ns in zip(size, before, after, strict=True)]
    assume(math.prod(kernel) > 1 and all(n > r for n, r in zip(padded, reach, strict=True)))
    pad = tuple(n for pair in zip(before, after, strict=True) for n in pair)
    options = {"stride": stride, "dilation": dilation, "pad": pad, "groups": groups}
    channels = 128 * groups
    layer = pb.nn.Conv(kernel, channels, channels, bias=False, init=fixed(0), **options)
    run = lambda x, weight: forward(layer, {"weight": weight}, x)  # noqa: E731
    x, push = (draw(seed, (1, channels, *size), np.float32) for seed in (1, 2))
    weight, turn = (draw(seed, (channels, 128, *kernel), np.float32) for seed in (3, 4))
    assert "conv_general_dilated" not in str(jax.make_jaxpr(run)(x, weight))
    want = conv_reference(x, weight, **options)
    cotangent = draw(5, want.shape, np.float32)

    @jax.jit
    def value_and_pullback(x, weight, cotangent):
        y, back = jax.vjp(run, x, weight)
        return y, back(cotangent)

    y, (for_x, for_weight) = value_and_pullback(x, weight, cotangent)
    np.testing.assert_allclose(y, want, atol=1e-3)
    # It is linear in each argument, so that a gradient gives what any direction gives.
    close = functools.partial(np.testing.assert_allclose, rtol=1e-3, atol=0.1)
    close(np.vdot(for_x, push), np.vdot(cotangent, conv_reference(push, weight, **options)))
    close(np.vdot(for_weight, turn), np.vdot(cotangent, conv_reference(x, turn, **options)))


@settings(deadline=None, max_examples=examples(25))
@given(SIZES, st.data())
def test_output_size_is_the_formula(axes, data):
    kernel, stride, dilation, before, after = zip(*axes, strict=True)
    size = tuple(data.draw(st.integers(1, 9)) for _ in axes)
    pad = tuple(n for pair in zip(before, after, strict=True) for n in pair)
    want = tuple(
        (n + a + b - (k - 1) * d - 1) // s + 1
        for n, k, s, d, a, b in zip(size, kernel, stride, dilation, before, after, strict=True)
    )
    layer = pb.nn.Conv(kernel, 1, 2, stride=stride, dilation=dilation, pad=pad, init=fixed(0))
    shape = jax.ShapeDtypeStruct((3, 1, *size), jnp.float32)
    params, _ = layer.init(None)
    if min(want) < 1:
        with pytest.raises(pb.ArgumentValueError, match="at least one element of output"):
            jax.eval_shape(lambda x: forward(layer, params, x), shape)
        return
    assert jax.eval_shape(lambda x: forward(layer, params, x), shape).shape == (3, 2, *want)
    x = draw(1, shape.shape, np.float32)
    y = conv_reference(x, params["weight"], stride=stride, pad=pad, dilation=dilation)
    got = jax.jit(lambda x: forward(layer, params, x))(x)
    np.testing.assert_allclose(got, y, rtol=1e-4, atol=1e-4)


@settings(deadline=None, max_examples=examples(25))
@given(SIZES, st.data())
def test_transposed_output_size_is_the_formula(axes, data):
    kernel, stride, dilation, before, after = zip(*axes, strict=True)
    size = tuple(data.draw(st.integers(1, 5)) for _ in axes)
    outpad = tuple(data.draw(st.integers(0, s - 1)) for s in stride)
    pad = tuple(n for pair in zip(before, after, strict=True) for n in pair)
    want = tuple(
        (n - 1) * s + (k - 1) * d + 1 - a - b + more
        for n, k, s, d, a, b, more in zip(
            size, kernel, stride, dilation, before, after, outpad, strict=True
        )
    )
    assume(min(want) > 0)
    layer = pb.nn.ConvTranspose(
        kernel, 1, 2, stride=stride, dilation=dilation, pad=pad, outpad=outpad, init=fixed(0)
    )
    params, _ = layer.init(None)
    x = draw(1, (2, 1, *size), np.float32)
    y = jax.jit(lambda x: forward(layer, params, x))(x)
    assert y.shape == (2, 2, *want)
    reference = conv_transpose_reference(
        x, params["weight"], stride=stride, pad=pad, dilation=dilation, outpad=outpad
    )
    np.testing.assert_allclose(y, reference, rtol=1e-4, atol=1e-4)


@settings(deadline=None, max_examples=examples(25))
@given(st.integers(1, 5), st.integers(1, 4), st.integers(1, 3), st.integers(1, 20))
def test_same_padding(kernel, stride, dilation, size):
    options = {"stride": stride, "dilation": dilation, "pad": "same"}
    x = jax.ShapeDtypeStruct((1, 1, size), jnp.float32)
    for cls, want in ((pb.nn.Conv, -(-size // stride)), (pb.nn.ConvTranspose, size * stride)):
        layer = cls((kernel,), 1, 1, init=fixed(0), **options)
        params, _ = layer.init(None)
        assert jax.eval_shape(lambda x: forward(layer, params, x), x).shape == (1, 1, want)  # noqa: B023


def test_same_padding_has_more_in_front(x64):
    layer = pb.nn.Conv((2,), 1, 1, bias=False, pad="same", init=pb.nn.identity_init)
    params, _ = layer.init(None, jnp.float64)
    assert forward(layer, params, jnp.array([[[1.0, 2.0, 3.0]]])).tolist() == [[[1, 2, 3]]]


@pytest.mark.parametrize("cls", [pb.nn.Conv, pb.nn.ConvTranspose])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("given", ["float16", "float32", "float64", "int8", "bool"])
def test_the_input_takes_the_weights_dtype(cls, dtype, given, x64):
    layer, params, x = small((3, 3), jnp.dtype(dtype), cls)
    x = np.clip(x, 0, 1).astype(given)
    y = jax.jit(lambda p: forward(layer, p, x))(params)
    assert y.dtype == dtype
    bias = np.asarray(params["bias"], np.float64).reshape(-1, 1, 1)
    want = dict(KINDS)[cls](x.astype(dtype), params["weight"]) + bias
    np.testing.assert_allclose(
        np.asarray(y, np.float64), want, atol=60 * float(jnp.finfo(dtype).eps), rtol=0
    )
    gradient = jax.eval_shape(jax.grad(lambda p: forward(layer, p, x).sum()), params)
    assert gradient["weight"].dtype == dtype


@pytest.mark.parametrize("cls", [pb.nn.Conv, pb.nn.ConvTranspose])
def test_an_empty_batch(cls, maybe_jit):
    layer, params, x = small((3, 3), jnp.float32, cls)
    size = forward(layer, params, x).shape[2:]
    function = maybe_jit(lambda p: forward(layer, p, x[:0]))
    assert function(params).shape == (0, 8, *size)
    gradient = jax.grad(lambda p: function(p).sum())(params)
    assert all((np.asarray(leaf) == 0).all() for leaf in jax.tree.leaves(gradient))


@pytest.mark.parametrize("cls", [pb.nn.Conv, pb.nn.ConvTranspose])
def test_transformations(cls):
    layer, params, x = small((3, 2), jnp.float32, cls, pad=1, groups=2)
    want = np.asarray(forward(layer, params, x))
    rows = jax.vmap(lambda row: forward(layer, params, row[None])[0])(x)
    np.testing.assert_allclose(rows, want, rtol=1e-5, atol=1e-5)
    stacked = {name: np.stack([p, 2 * np.asarray(p)]) for name, p in params.items()}
    twice = jax.vmap(lambda p: forward(layer, p, x))(stacked)
    np.testing.assert_allclose(twice, np.stack([want, 2 * want]), rtol=1e-4, atol=1e-5)

    def loss(p):
        return forward(layer, p, x).sum()

    plain = jax.grad(loss)(params)
    for other in (jax.checkpoint(loss), jax.jit(loss)):
        slopes = jax.grad(other)(params)
        for a, b in zip(jax.tree.leaves(plain), jax.tree.leaves(slopes), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    _, ys = jax.lax.scan(lambda c, row: (c, forward(layer, params, row[None])[0]), 0, x)
    np.testing.assert_allclose(ys, want, rtol=1e-5, atol=1e-5)


def test_single_precision_is_not_rounded_to_less():
    layer, params, x = small((3, 3), jnp.float32)
    text = str(jax.make_jaxpr(lambda x: forward(layer, params, x))(x))
    assert "HIGHEST" in text
    with jax.default_matmul_precision("tensorfloat32"):
        text = str(jax.make_jaxpr(lambda x: forward(layer, params, x))(x))
    assert "HIGHEST" not in text


def test_the_input_is_not_copied_or_reordered():
    """The reversal touches the small kernel only: one program, one convolution."""
    layer, params, x = small((3, 3), jnp.float32)
    jaxpr = jax.make_jaxpr(lambda p, x: forward(layer, p, x))(params, x)
    text = str(jaxpr)
    assert text.count("conv_general_dilated[") == 1
    assert "transpose[" not in text


def test_configuration():
    one = pb.nn.Conv((3, 3), 1, 8, pb.nn.relu, stride=2, pad=(1, 1, 1, 1))
    other = pb.nn.Conv([3, 3], 1, 8, pb.nn.relu, stride=(2, 2), pad=1)
    assert one == other
    assert hash(one) == hash(other)
    assert repr(one) == "Conv((3, 3), 1, 8, activation=relu, stride=2, pad=1)"
    assert one != pb.nn.Conv((3, 3), 1, 8, pb.nn.relu)
    assert pb.nn.Conv((1,), 1, 1) != pb.nn.ConvTranspose((1,), 1, 1)
    other = pb.nn.ConvTranspose((3,), 2, 1, stride=2, outpad=1, bias=False, pad="same")
    assert repr(other) == "ConvTranspose((3,), 2, 1, stride=2, pad='same', bias=False, outpad=1)"
    params, _ = other.init(jax.random.key(0), jnp.bfloat16)
    assert {k: (v.shape, str(v.dtype)) for k, v in params.items()} == {
        "weight": ((2, 1, 3), "bfloat16")
    }
    assert jax.tree.leaves(one) == []


@pytest.mark.parametrize("cls", [pb.nn.Conv, pb.nn.ConvTranspose])
@pytest.mark.parametrize(
    "kernel, options, message",
    [
        (3, {}, "a tuple of positive integers"),
        ((), {}, "a tuple of positive integers"),
        ((3, 0), {}, "a tuple of positive integers"),
        ((3.0,), {}, "a tuple of positive integers"),
        ((3, 3), {"stride": 0}, "an integer of at least 1, or 2 of them, as `stride`"),
        ((3, 3), {"stride": (1, 1, 1)}, "as `stride`"),
        ((3, 3), {"dilation": -1}, "as `dilation`"),
        ((3, 3), {"dilation": True}, "as `dilation`"),
        ((3, 3), {"pad": -1}, '"same", a natural number, 2 or 4 of them, as `pad`'),
        ((3, 3), {"pad": (1, 2, 3)}, "as `pad`"),
        ((3, 3), {"pad": "valid"}, "as `pad`"),
        ((3, 3), {"groups": 3}, "numbers of channels that 3 groups divide, got 4 => 8"),
        ((3, 3), {"groups": 0}, "a positive integer as groups"),
        ((3, 3), {"activation": pb.nn.softmax}, "an elementwise function"),
        ((3, 3), {"activation": "relu"}, "a function as `activation`"),
        ((3, 3), {"bias": 1}, "True or False as `bias`"),
        ((3, 3), {"init": None}, "a function as `init`"),
    ],
)
def test_wrong_options(cls, kernel, options, message):
    with pytest.raises(pb.BridgeError, match=re.escape(message)):
        cls(kernel, 4, 8, **options)


def test_wrong_outpad():
    with pytest.raises(pb.ArgumentValueError, match="`outpad` below the stride 2, got 2"):
        pb.nn.ConvTranspose((3,), 1, 1, stride=2, outpad=2)
    with pytest.raises(pb.ArgumentValueError, match="as `outpad`"):
        pb.nn.ConvTranspose((3,), 1, 1, stride=2, outpad=-1)
    with pytest.raises(TypeError, match="outpad"):
        pb.nn.Conv((3,), 1, 1, outpad=1)


@pytest.mark.parametrize("cls", [pb.nn.Conv, pb.nn.ConvTranspose])
@pytest.mark.parametrize(
    "shape, message",
    [
        ((4, 9, 9), "an input with 4 axes, (batch, channels, *spatial), got shape (4, 9, 9)"),
        ((2, 9, 9, 4), "an input with 4 channels on axis 1, got shape (2, 9, 9, 4)"),
        ((2, 4, 0, 3), "at least one element of output"),
    ],
)
def test_wrong_inputs(cls, shape, message):
    layer, params, _ = small((3, 3), jnp.float32, cls)
    with pytest.raises(pb.ArgumentValueError, match=re.escape(message)):
        forward(layer, params, jnp.ones(shape))


def test_complex_input_for_a_real_weight():
    layer, params, x = small((3, 3), jnp.float32)
    with pytest.raises(pb.ArgumentTypeError, match="convert to the weight's dtype float32"):
        forward(layer, params, x.astype(jnp.complex64))


@pytest.mark.parametrize(
    "layer",
    [
        pb.nn.DepthwiseConv((3, 2), 4, 8, stride=2, init=fixed(0)),
        pb.nn.Conv((3, 3), 4, 6, groups=2, pad=(1, 0, 2, 1), dilation=(2, 1), init=fixed(0)),
        pb.nn.CrossCor((2, 3), 4, 4, pad=1, init=fixed(0)),
        pb.nn.ConvTranspose(
            (3, 2), 4, 6, groups=2, stride=(2, 3), pad=(3, 1), outpad=(1, 0), init=fixed(0)
        ),
    ],
    ids=lambda layer: type(layer).__name__,
)
def test_groups_on_a_mesh_of_several_axes(layer):
    """The batch is sharded over one axis, and nothing over the other."""
    mesh = jax.make_mesh((4, 2), ("i", "j"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    params, state = layer.init(None)
    x = draw(1, (8, 4, 7, 6), np.float32)

    @jax.jit
    def gradient(params, x):
        def loss(params, x):
            y = layer.apply(params, state, x)[0]
            return (jnp.sin(jnp.arange(y[0].size)).reshape(y.shape[1:]) * y**2).sum()

        return jax.value_and_grad(loss, (0, 1))(params, x)

    rows = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("i"))
    everywhere = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    on_mesh = gradient(jax.device_put(params, everywhere), jax.device_put(x, rows))
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4),
        on_mesh,
        gradient(params, x),
    )
