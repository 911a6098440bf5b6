"""Normalisations against their formulas in float64, finite differences, and masks."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from layer_helpers import central_difference, close, fresh, ignore_mode_warnings, random
from nn_helpers import fixed
from quick import by_day, examples

import pybridge as pb
from pybridge import nn
from pybridge.jaxprs import equations

pytestmark = ignore_mode_warnings
KEY = jax.random.key(11)

# Layer, shape of the input, axes of the statistics.
CASES = {
    "BatchNorm (N, C)": (nn.BatchNorm(3), (5, 3), (0,)),
    "BatchNorm 1-D": (nn.BatchNorm(3), (5, 3, 4), (0, 2)),
    "BatchNorm 2-D": (nn.BatchNorm(3, jnp.tanh), (2, 3, 4, 5), (0, 2, 3)),
    "BatchNorm 3-D": (nn.BatchNorm(2, affine=False), (2, 2, 3, 2, 2), (0, 2, 3, 4)),
    "BatchNorm untracked": (nn.BatchNorm(3, track_stats=False), (5, 3), (0,)),
    "InstanceNorm 1-D": (nn.InstanceNorm(3), (5, 3, 4), (2,)),
    "InstanceNorm 2-D": (nn.InstanceNorm(3, affine=True, track_stats=True), (2, 3, 4, 5), (2, 3)),
    "InstanceNorm 3-D": (nn.InstanceNorm(2, jnp.tanh), (2, 2, 3, 2, 2), (2, 3, 4)),
    "BatchNorm behind": (nn.BatchNorm(3).behind_convolution(), (2, 3, 4, 5), (0, 2, 3)),
    "InstanceNorm behind 3-D": (
        nn.InstanceNorm(2, affine=True, track_stats=True).behind_convolution(),
        (2, 2, 3, 2, 2),
        (2, 3, 4),
    ),
    "GroupNorm behind": (nn.GroupNorm(6, 3).behind_convolution(), (2, 6, 3, 4), None),
    "LayerNorm": (nn.LayerNorm(4), (3, 4), (1,)),
    "LayerNorm tuple": (nn.LayerNorm((3, 4), jnp.tanh), (5, 2, 3, 4), (2, 3)),
    "LayerNorm plain": (nn.LayerNorm(4, affine=False), (2, 3, 4), (2,)),
    "LayerNorm vector": (nn.LayerNorm(4), (4,), (0,)),
    "GroupNorm (N, C)": (nn.GroupNorm(4, 2), (3, 4), None),
    "GroupNorm 2-D": (nn.GroupNorm(6, 3, jnp.tanh), (2, 6, 3, 4), None),
    "GroupNorm one": (nn.GroupNorm(4, 1, affine=False), (3, 4, 5), None),
}


def formula(layer, params, x, axes):
    """Write the layer down again, in NumPy."""
    x = np.asarray(x)
    split = x
    if isinstance(layer, nn.GroupNorm):
        split = x.reshape(x.shape[0], layer.groups, -1)
        axes = (2,)
    mean, var = split.mean(axes, keepdims=True), split.var(axes, keepdims=True)
    y = ((split - mean) / np.sqrt(var + layer.eps)).reshape(x.shape)
    if params:
        if isinstance(layer, nn.LayerNorm):
            shape = params["scale"].shape
        else:
            shape = tuple(-1 if a == 1 else 1 for a in range(x.ndim))
        y = y * np.asarray(params["scale"]).reshape(shape)
        y = y + np.asarray(params["bias"]).reshape(shape)
    return np.asarray(layer.activation(y))


# By day each layer, each kind of parameters, and images.
DAY = [name for name in CASES if not name.endswith(("1-D", "3-D", "tuple", "vector"))]


@pytest.fixture(params=by_day(CASES, DAY), ids=str)
def case(request, x64):
    layer, shape, axes = CASES[request.param]
    params, state = fresh(layer, KEY, np.float64)
    return layer, params, state, random(KEY, shape, np.float64), axes


def test_training_is_the_formula(case, maybe_jit):
    layer, params, state, x, axes = case
    y, _ = maybe_jit(lambda x: layer.apply(params, state, x, training=True))(x)
    close(y, formula(layer, params, x, axes), rtol=1e-12)


def test_auto_is_the_formula_within_a_gradient_and_the_state_without(case):
    layer, params, state, x, axes = case
    apply = jax.jit(lambda x: layer.apply(params, state, x))
    y = jax.vjp(lambda x: apply(x)[0], x)[0]
    close(y, formula(layer, params, x, axes), rtol=1e-12)
    y, same = apply(x)
    assert all((same[name] == state[name]).all() for name in state)
    if not state:
        close(y, formula(layer, params, x, axes), rtol=1e-12)


@pytest.mark.parametrize("training", [True, False])
def test_gradients_are_the_finite_differences(case, training, maybe_jit):
    layer, params, state, x, _ = case
    weights = np.asarray(random(jax.random.key(1), x.shape, np.float64))

    def loss(params, x):
        y, _ = layer.apply(params, state, x, training=training)
        return (weights * y).sum()

    slopes = maybe_jit(jax.grad(loss, argnums=(0, 1)))(params, x)
    close(slopes, central_difference(lambda both: loss(*both), (params, x)), rtol=1e-6)


def test_forward_mode_and_second_order_agree_with_reverse(case, maybe_jit):
    layer, params, state, x, _ = case
    x, t = np.asarray(x), np.asarray(random(jax.random.key(2), x.shape, np.float64))

    def loss(x):
        return (layer.apply(params, state, x)[0] ** 3).sum()

    @maybe_jit
    def derivatives(x):
        return (
            jax.grad(loss)(x),
            jax.jvp(loss, (x,), (t,))[1],
            jax.jvp(jax.grad(loss), (x,), (t,))[1],
            jax.grad(lambda x: (jax.grad(loss)(x) * t).sum())(x),
        )

    slope, along, *products = derivatives(x)
    close(along, np.vdot(slope, t), rtol=1e-9)
    h = 1e-6
    above, below = (np.asarray(derivatives(x + sign * h * t)[0]) for sign in (1, -1))
    for product in products:
        close(product, (above - below) / (2 * h), rtol=1e-5)


def test_constant_input_has_finite_derivatives(case):
    layer, params, state, x, _ = case
    jacobian = jax.jit(jax.jacobian(lambda x: layer.apply(params, state, x)[0]))(jnp.ones_like(x))
    assert np.isfinite(jacobian).all()


@pytest.mark.parametrize("dtype", [np.float16, jnp.bfloat16])
def test_half_precision_is_the_rounded_float32(case, dtype):
    layer, params, state, x, axes = case
    half = (3000 * x).astype(dtype)  # squares overflow float16
    y, after = jax.jit(lambda x: layer.apply(params, state, x, training=True))(half)
    want = formula(layer, params, np.asarray(half, np.float64), axes)
    assert y.dtype == dtype
    np.testing.assert_allclose(np.asarray(y, np.float64), want, rtol=1e-2, atol=1e-2)
    assert all(np.isfinite(after[name]).all() for name in after)
    params, state = layer.init(KEY, dtype)
    assert {str(leaf.dtype) for leaf in jax.tree.leaves(state)} <= {"float32"}


def test_masked_places_count_for_nothing(case):
    layer, params, state, x, axes = case
    mask = np.asarray(random(jax.random.key(4), x.shape) < 0.5)
    spoilt = np.where(mask, x, np.nan)

    def loss(params, x):
        y, after = layer.apply(params, state, x, training=True, mask=mask)
        return (y**2).sum(), (y, after)

    slope = jax.jit(jax.value_and_grad(loss, (0, 1), has_aux=True))
    (_, (y, after)), slopes = slope(params, spoilt)
    y, slopes = jax.device_get((y, slopes))
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((y, after, slopes)))
    assert (y[~mask] == 0).all() and (slopes[1][~mask] == 0).all()
    if not isinstance(layer, nn.GroupNorm):
        hidden = np.ma.array(x, mask=~mask)
        mean, var = (m(axis=axes, keepdims=True) for m in (hidden.mean, hidden.var))
        plain = np.asarray((hidden - mean) / np.sqrt(var + layer.eps))
        shape = (params or {"scale": np.ones(1)})["scale"].shape
        if params and not isinstance(layer, nn.LayerNorm):
            shape = tuple(-1 if a == 1 else 1 for a in range(x.ndim))
        if params:
            plain = plain * params["scale"].reshape(shape) + params["bias"].reshape(shape)
        want = np.where(mask, layer.activation(plain), 0)
        close(y, want, rtol=1e-12)
    want = central_difference(
        lambda x: loss(params, jnp.where(mask, x, jnp.nan))[0], np.where(mask, x, 0)
    )
    close(slopes[1], want, rtol=1e-6)


def test_a_full_mask_is_no_mask(case):
    layer, params, state, x, _ = case

    @jax.jit
    def both(x):
        full = jnp.ones((1,) * x.ndim, bool)
        masked = layer.apply(params, state, x, training=True, mask=full)
        return masked, layer.apply(params, state, x, training=True)

    close(*both(x), rtol=1e-12)


@pytest.mark.parametrize("conv", [nn.Conv, nn.ConvTranspose])
@pytest.mark.parametrize("norm", [nn.BatchNorm(4), nn.InstanceNorm(4), nn.GroupNorm(4, 2)])
def test_a_chain_moves_channels_only_behind_a_convolution(norm, conv):
    def moves(*layers):
        chain = nn.Chain(*layers)
        params, state = chain.init(KEY)
        program = jax.make_jaxpr(lambda x: chain.apply(params, state, x, training=True))
        found = equations(program(jnp.ones((2, 4, 6, 6))))
        return [e.params["permutation"] for e in found if e.primitive.name == "transpose"]

    convolution = conv((3, 3), 4, 4, init=fixed(0))
    within = moves(convolution)
    there_and_back = [(0, 2, 3, 1), (0, 3, 1, 2)]
    assert moves(convolution, norm) == [*within, *there_and_back]
    assert moves(convolution, norm, nn.MaxPool((2, 2))) == [*within, *2 * there_and_back]
    assert moves(convolution, jnp.tanh, norm) == within
    assert moves(norm) == moves(nn.MeanPool((2, 2)), norm) == []


def test_running_statistics_of_batches_with_masks(x64):
    layer = nn.BatchNorm(3)
    params, state = fresh(layer, dtype=np.float64)
    x = random(KEY, (6, 3), np.float64)
    # 6 values, 2 values, 1 value: the last channel cannot say anything about a variance.
    mask = np.arange(6)[:, None] < np.array([6, 2, 1])
    _, after = layer.apply(params, state, x, training=True, mask=mask)
    for channel, count in enumerate((6, 2)):
        values = np.asarray(x)[:count, channel]
        close(after["mean"][channel], 0.9 * 0.25 + 0.1 * values.mean(), rtol=1e-12)
        close(after["var"][channel], 0.9 * 1.25 + 0.1 * values.var(ddof=1), rtol=1e-12)
    assert float(after["mean"][2]) == 0.25 and float(after["var"][2]) == 1.25


def test_running_statistics_of_instances(x64):
    layer = nn.InstanceNorm(2, track_stats=True, momentum=0.3)
    params, state = layer.init(KEY, np.float64)
    x = np.asarray(random(KEY, (4, 2, 5), np.float64))
    _, after = jax.jit(lambda x: layer.apply(params, state, x, training=True))(x)
    close(after["mean"], 0.3 * x.mean(2).mean(0), rtol=1e-12)
    close(after["var"], 0.7 + 0.3 * x.var(2, ddof=1).mean(0), rtol=1e-12)


def test_the_case_of_the_paper_numbers(maybe_jit):
    layer = nn.BatchNorm(1)
    params, state = layer.init(KEY)
    x = jnp.array([[1.0], [2.0], [3.0], [4.0]])
    y, after = maybe_jit(lambda x: layer.apply(params, state, x, training=True))(x)
    want = [-1.3416354, -0.4472118, 0.4472118, 1.3416354]
    close(y[:, 0], np.array(want), rtol=1e-6)
    close((after["mean"], after["var"]), (np.array([0.25]), np.array([1.0666667])), rtol=1e-6)
    y, _ = maybe_jit(lambda x: layer.apply(params, after, x))(x)
    close(y[:, 0], np.array([0.726181, 1.694423, 2.662664, 3.630906]), rtol=1e-6)
    slope = maybe_jit(jax.grad(lambda x: layer.apply(params, state, x)[0][0, 0]))(x)
    close(slope[:, 0], np.array([0.268330, -0.357768, -0.089443, 0.178882]), rtol=1e-5)
    train = maybe_jit(lambda x: layer.apply(params, state, x, training=True)[0])
    y = train(x + 1e4)
    close(y[:, 0], np.array(want), atol=1e-3)
    y = train(jnp.array([[0.0], [1e-3], [2e-3]]))
    close(y[:, 0], np.array([-0.3061862, 0, 0.3061862]), rtol=1e-6)


@given(
    mean=st.floats(-1e4, 1e4),
    scale=st.floats(0.5, 2.0),
    shape=st.tuples(st.integers(2, 20), st.integers(1, 5)),
)
@settings(max_examples=examples(20), deadline=None)
def test_float32_keeps_its_digits_where_the_mean_is_large(mean, scale, shape):
    """What is lost is the rounding of the sum, a unit in its last place."""
    x = np.float32(mean) + np.float32(scale) * np.asarray(random(KEY, shape))
    layer = nn.BatchNorm(shape[1])
    y, _ = jax.jit(lambda x: layer.apply(*layer.init(KEY), x, training=True))(x)
    wide = x.astype(np.float64)
    rounding = np.spacing(np.abs(x).sum(0).max()) / np.sqrt(wide.var(0).min() + layer.eps)
    close(y, formula(layer, {}, wide, (0,)), atol=1e-5 + rounding)


def test_the_state_carries_no_derivative():
    layer = nn.BatchNorm(2)
    params, state = fresh(layer)

    def moved(x):
        after = layer.apply(params, state, x)[1]
        return after["mean"].sum() + after["var"].sum()

    np.testing.assert_array_equal(jax.jit(jax.grad(moved))(random(KEY, (4, 2))), 0)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_nan_and_inf_stay_in_their_channel(bad):
    x = random(KEY, (4, 2)).at[1, 0].set(bad)
    layer = nn.BatchNorm(2)
    y, after = layer.apply(*layer.init(KEY), x, training=True)
    assert np.isnan(y[:, 0]).all() and np.isfinite(y[:, 1]).all()
    assert not np.isfinite(after["var"][0]) and np.isfinite(after["var"][1])


def test_one_trace_for_many_steps(count_traces):
    layer = nn.BatchNorm(2)
    params, state = layer.init(KEY)

    @jax.jit
    @count_traces
    def step(params, state, x):
        return jax.grad(lambda p: layer.apply(p, state, x)[0].sum())(params)

    for i in range(3):
        step(params, state, i + jnp.ones((4, 2)))
    assert step.__wrapped__.traces == 1


@pytest.mark.parametrize(
    "norm",
    [nn.LayerNorm(16), nn.BatchNorm(16), nn.GroupNorm(16, 4)],
    ids=lambda n: type(n).__name__,
)
def test_the_gradient_of_residual_blocks_costs_no_more_for_those_behind_them(norm):
    def operations(depth):
        blocks = [nn.SkipConnection(nn.Chain(norm, nn.Dense(16, 16, jnp.tanh)), jnp.add)] * depth
        model = nn.Chain(*blocks)
        params, state = model.init(KEY)

        def loss(params, x):
            return model.apply(params, state, x, training=True)[0].sum()

        compiled = jax.jit(jax.grad(loss)).lower(params, jnp.ones((8, 16))).compile()
        return compiled.cost_analysis()["flops"]

    at = {depth: operations(depth) for depth in (4, 8, 12)}
    assert at[12] - at[8] == at[8] - at[4]


ERRORS = {
    "channels": (lambda: nn.BatchNorm(0), "positive integer as channels"),
    "channels, a float": (lambda: nn.BatchNorm(2.5), "positive integer as channels"),
    "groups": (lambda: nn.GroupNorm(4, 3), "divides 4 channels"),
    "eps": (lambda: nn.LayerNorm(3, eps=-1), "eps >= 0"),
    "no axes": (lambda: nn.LayerNorm(()), "one size or more"),
    "momentum": (lambda: nn.BatchNorm(3, momentum=1.5), r"momentum in \[0, 1\]"),
    "wrong channels": (
        lambda: nn.BatchNorm(3).apply(*nn.BatchNorm(3).init(KEY), jnp.ones((4, 2))),
        "3 channels on axis 1",
    ),
    "no channel axis": (
        lambda: nn.BatchNorm(3).apply(*nn.BatchNorm(3).init(KEY), jnp.ones(3)),
        "3 channels on axis 1",
    ),
    "layer size": (
        lambda: nn.LayerNorm((2, 3)).apply(*nn.LayerNorm((2, 3)).init(KEY), jnp.ones((3, 2))),
        r"last axes are \(2, 3\)",
    ),
    "integers": (
        lambda: nn.LayerNorm(3).apply(*nn.LayerNorm(3).init(KEY), jnp.arange(3)),
        "floating-point input",
    ),
    "mask of floats": (
        lambda: nn.LayerNorm(3).apply(
            *nn.LayerNorm(3).init(KEY), jnp.ones((2, 3)), mask=jnp.ones(3)
        ),
        "a bool array as `mask`",
    ),
    "mask too large": (
        lambda: nn.LayerNorm(3).apply(
            *nn.LayerNorm(3).init(KEY), jnp.ones((2, 3)), mask=jnp.ones((2, 2, 3), bool)
        ),
        "a mask that broadcasts",
    ),
    "state of another layer": (
        lambda: nn.BatchNorm(3).apply(nn.BatchNorm(3).init(KEY)[0], {}, jnp.ones((4, 3))),
        "state as `init` gives",
    ),
    "params of another size": (
        lambda: nn.BatchNorm(3).apply(*nn.BatchNorm(2).init(KEY), jnp.ones((4, 3))),
        r"shape \(3,\) for params\['bias'\]",
    ),
}


@pytest.mark.parametrize("case", ERRORS)
def test_bad_input_is_explained(case):
    make, text = ERRORS[case]
    with pytest.raises(pb.BridgeError, match=text):
        make()


SHARDED = {
    "BatchNorm": nn.BatchNorm(3),
    "BatchNorm untracked": nn.BatchNorm(3, track_stats=False),
}


def results(layer, params, state, x, mask, apply, weights):
    """Value, state and gradients of one program."""

    def loss(params, x):
        y, after = apply(params, state, x, mask)
        return (weights * y).sum(), (y, after)

    (_, aux), slopes = jax.value_and_grad(loss, (0, 1), has_aux=True)(params, x)
    return aux, slopes


@pytest.mark.parametrize("masked", [False, True], ids=["plain", "masked"])
@pytest.mark.parametrize("name", SHARDED)
@pytest.mark.parametrize("way", ["vmap", "shard_map", "jit"])
def test_statistics_of_all_devices(way, name, masked):
    layer = SHARDED[name]
    params, state = fresh(layer)
    x = random(KEY, (16, 3, 2))
    mask = np.random.default_rng(0).random(x.shape) < (0.6 if masked else 1)
    apply = lambda p, s, x, m: layer.apply(p, s, x, mask=m)  # noqa: E731
    weights = random(jax.random.key(9), x.shape)
    want = jax.jit(lambda p, x: results(layer, p, state, x, mask, apply, weights))(params, x)
    across = nn.BatchNorm(3, track_stats=layer.track_stats, axis_name="i")
    mesh = jax.make_mesh((8,), ("i",), axis_types=(jax.sharding.AxisType.Auto,))
    if way == "vmap":

        def spread(p, s, x, m):
            split = lambda v: v.reshape(8, 2, *v.shape[1:])  # noqa: E731
            y, s = jax.vmap(
                lambda x, m: across.apply(p, s, x, mask=m), axis_name="i", out_axes=(0, None)
            )(split(x), split(m))
            return y.reshape(x.shape), s

    elif way == "shard_map":

        def spread(p, s, x, m):
            return jax.shard_map(
                lambda p, s, x, m: across.apply(p, s, x, mask=m),
                mesh=mesh,
                in_specs=(jax.P(), jax.P(), jax.P("i"), jax.P("i")),
                out_specs=(jax.P("i"), jax.P()),
            )(p, s, x, m)

    else:
        spread = apply
        x, mask = (jax.device_put(v, jax.NamedSharding(mesh, jax.P("i"))) for v in (x, mask))
    got = jax.jit(lambda p, x: results(layer, p, state, x, mask, spread, weights))(params, x)
    close(jax.device_get(got), jax.device_get(want), rtol=2e-5)


@pytest.mark.parametrize(
    "layer",
    [
        nn.BatchNorm(2),
        nn.BatchNorm(2, track_stats=False),
        nn.InstanceNorm(2),
        nn.GroupNorm(2, 1),
        nn.LayerNorm((2, 4)),
    ],
)
@pytest.mark.parametrize("size", [1e30, 1e20])
def test_an_overflow_of_the_squares_is_no_zero(layer, size, maybe_jit):
    params, state = layer.init(jax.random.key(0))
    x = (np.random.default_rng(0).normal(size=(3, 2, 4)) * size).astype(np.float32)

    @maybe_jit
    def f(x):
        y, pull = jax.vjp(lambda x: layer.apply(params, state, x)[0], x)
        return y, pull(y)[0]

    assert all(np.isnan(result).all() for result in f(x))
    y, _ = f(x / np.float32(size))
    assert np.isfinite(y).all() and (np.abs(y) > 1e-3).any()


def test_test_mode_after_an_overflow_is_no_zero():
    layer = nn.BatchNorm(1)
    params, state = layer.init(jax.random.key(0))
    x = jnp.array([[1.0], [2.0]]) * 1e30
    with pytest.warns(nn.ModeWarning):
        _, state = layer.apply(params, state, x, training=True)
    assert jnp.isinf(state["var"]).all()
    assert jnp.isnan(layer.apply(params, state, x)[0]).all()
    assert jnp.isnan(layer.apply(params, state, x / 1e30)[0]).all()


def test_a_weight_whose_squares_overflow_is_no_zero():
    layer = nn.WeightNorm(nn.Dense(2, 1, bias=False))
    params = {"layer": {"weight": jnp.full((2, 1), 1e30)}, "g": jnp.ones((1, 1))}
    assert jnp.isnan(layer.apply(params, {}, jnp.ones((1, 2)))[0]).all()
