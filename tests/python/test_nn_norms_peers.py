"""Normalisation and dropout against other frameworks: what is the same, and what differs.

Every line of the tables of differences in docs/layers is a test here.
"""

from __future__ import annotations

import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from layer_helpers import close, fresh, ignore_mode_warnings, random
from peers import import_torch

from pybridge import nn

os.environ.setdefault("KERAS_BACKEND", "jax")
pytestmark = [pytest.mark.peers, ignore_mode_warnings]
KEY = jax.random.key(31)
X = np.asarray(2 + 3 * random(KEY, (6, 4)))


@pytest.fixture(autouse=True)
def standard_promotion(strict_promotion):
    """The peers promote dtypes."""
    with jax.numpy_dtype_promotion("standard"):
        yield


@pytest.fixture(scope="module")  # Julia starts before what watches each test
def torch():
    return import_torch()


@pytest.fixture
def linen():
    return pytest.importorskip("flax.linen")


@pytest.fixture
def equinox():
    return pytest.importorskip("equinox")


@pytest.fixture
def keras():
    return pytest.importorskip("keras")


def images(rank):
    return random(KEY, (3, 4, *(5, 4, 3)[:rank]))


TORCH = {
    "BatchNorm": (
        lambda: nn.BatchNorm(4),
        lambda t, rank: getattr(t.nn, f"BatchNorm{rank}d")(4),
    ),
    "BatchNorm untracked": (
        lambda: nn.BatchNorm(4, affine=False, track_stats=False),
        lambda t, rank: getattr(t.nn, f"BatchNorm{rank}d")(
            4, affine=False, track_running_stats=False
        ),
    ),
    "InstanceNorm": (
        lambda: nn.InstanceNorm(4, affine=True, track_stats=True),
        lambda t, rank: getattr(t.nn, f"InstanceNorm{rank}d")(
            4, affine=True, track_running_stats=True
        ),
    ),
    "GroupNorm": (lambda: nn.GroupNorm(4, 2), lambda t, rank: t.nn.GroupNorm(2, 4)),
}


@pytest.mark.parametrize("training", [True, False], ids=["train", "test"])
@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("name", TORCH)
def test_values_gradients_and_statistics_are_torchs(torch, name, rank, training):
    make, theirs = TORCH[name]
    layer = make()
    params, state = fresh(layer, KEY)
    module = theirs(torch, rank).train(training)
    as_torch = lambda v: torch.tensor(np.asarray(v))  # noqa: E731
    with torch.no_grad():
        if params:
            module.weight.copy_(as_torch(params["scale"]))
            module.bias.copy_(as_torch(params["bias"]))
        if state:
            module.running_mean.copy_(as_torch(state["mean"]))
            module.running_var.copy_(as_torch(state["var"]))
    x = images(rank)
    weights = random(jax.random.key(1), x.shape)

    def loss(params, x):
        y, after = layer.apply(params, state, x, training=training)
        return (weights * y).sum(), (y, after)

    (_, (y, after)), slopes = jax.value_and_grad(loss, (0, 1), has_aux=True)(params, x)
    tx = as_torch(x).requires_grad_()
    ty = module(tx)
    (as_torch(weights) * ty).sum().backward()
    close(y, ty.detach().numpy(), rtol=1e-5)
    close(slopes[1], tx.grad.numpy(), rtol=1e-4)
    if params:
        close(slopes[0]["scale"], module.weight.grad.numpy(), rtol=1e-4)
        close(slopes[0]["bias"], module.bias.grad.numpy(), rtol=1e-4)
    if state:
        close(after["mean"], module.running_mean.numpy())
        close(after["var"], module.running_var.numpy())


@pytest.mark.parametrize("size", [4, (3, 4)], ids=str)
def test_layer_norm_is_torchs(torch, size):
    layer = nn.LayerNorm(size)
    params, _ = fresh(layer, KEY)
    module = torch.nn.LayerNorm(size)
    with torch.no_grad():
        module.weight.copy_(torch.tensor(np.asarray(params["scale"])))
        module.bias.copy_(torch.tensor(np.asarray(params["bias"])))
    x = random(KEY, (5, 3, 4))
    want = module(torch.tensor(np.asarray(x))).detach().numpy()
    close(layer.apply(params, {}, x)[0], want)


def test_alpha_dropout_has_torchs_two_values(torch):
    """Its kept and its dropped values; the masks are other ones."""
    x = np.ones(1000, np.float32)
    theirs = torch.nn.AlphaDropout(0.3)(torch.tensor(x)).numpy()
    ours = nn.AlphaDropout(0.3).apply({}, {}, x, key=KEY, training=True)[0]
    close(np.unique(np.asarray(ours)), np.unique(theirs))


def test_weight_norm_is_torchs(torch):
    """Its length of each output unit is `axis=0` for Dense."""
    layer = nn.WeightNorm(nn.Dense(3, 2))
    params, state = fresh(layer, KEY)
    module = torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(3, 2))
    with torch.no_grad():
        module.bias.copy_(torch.tensor(np.asarray(params["layer"]["bias"])))
        module.parametrizations.weight.original0.copy_(torch.tensor(np.asarray(params["g"]).T))
        module.parametrizations.weight.original1.copy_(
            torch.tensor(np.asarray(params["layer"]["weight"]).T)
        )
    x = random(KEY, (5, 3))
    close(layer.apply(params, state, x)[0], module(torch.tensor(np.asarray(x))).detach().numpy())


# ------------------------------------------------------------- running statistics


def our_statistics(momentum):
    layer = nn.BatchNorm(4, momentum=momentum)
    after = layer.apply(*layer.init(KEY), X, training=True)[1]
    return np.asarray(after["mean"]), np.asarray(after["var"])


def flax_statistics(linen, **options):
    module = linen.BatchNorm(use_running_average=False, **options)
    variables = module.init(KEY, X)
    _, after = module.apply(variables, X, mutable=["batch_stats"])
    return after["batch_stats"]["mean"], after["batch_stats"]["var"]


def equinox_statistics(equinox, *batches):
    module, state = equinox.nn.make_with_state(equinox.nn.BatchNorm)(
        4, axis_name="i", mode="ema", momentum=0.9
    )
    run = jax.vmap(module, axis_name="i", in_axes=(0, None), out_axes=(0, None))
    for batch in batches:
        _, state = run(batch, state)
    return state.get(module.ema_state_index)


def keras_statistics(keras, **options):
    module = keras.layers.BatchNormalization(**options)
    module(X, training=True)
    return np.asarray(module.moving_mean), np.asarray(module.moving_variance)


def test_the_running_variance_is_unbiased_here_and_biased_elsewhere(linen, keras):
    n = len(X)
    mean, var = our_statistics(0.1)
    close(mean, 0.1 * X.mean(0))
    close(var, 0.9 + 0.1 * X.var(0) * n / (n - 1))
    biased = 0.9 + 0.1 * X.var(0)
    for theirs in (
        flax_statistics(linen, momentum=0.9),
        keras_statistics(keras, momentum=0.9),
    ):
        close(theirs[0], mean)
        close(theirs[1], biased)


def test_momentum_weighs_the_new_value_here_and_the_old_one_elsewhere(linen, keras):
    for theirs in (flax_statistics(linen), keras_statistics(keras)):
        close(theirs[0], 0.01 * X.mean(0))
    close(our_statistics(0.01)[0], 0.01 * X.mean(0))


def test_equinox_takes_the_first_batch_whole_and_a_biased_variance(equinox):
    mean, var = equinox_statistics(equinox, X)
    close((mean, var), (X.mean(0), X.var(0)))
    mean, var = equinox_statistics(equinox, X, 2 * X)
    close((mean, var), ((0.9 + 0.2) * X.mean(0), (0.9 + 0.4) * X.var(0)))


def test_a_large_mean_in_float32(linen, equinox, torch):
    x = np.array([[1.0], [2.0], [3.0], [4.0]], np.float32) + 1e4
    want = np.array([-1.3416354, -0.4472118, 0.4472118, 1.3416354])
    layer = nn.BatchNorm(1)
    close(layer.apply(*layer.init(KEY), x, training=True)[0][:, 0], want, atol=1e-3)
    module = linen.BatchNorm(use_running_average=False)
    y, _ = module.apply(module.init(KEY, x), x, mutable=["batch_stats"])
    assert float(jnp.abs(y).max()) > 100
    close(torch.nn.BatchNorm1d(1)(torch.tensor(x)).detach().numpy()[:, 0], want, atol=1e-3)


def test_one_value_per_channel(linen, torch):
    x = np.ones((1, 4), np.float32)
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        torch.nn.BatchNorm1d(4)(torch.tensor(x))
    module = linen.BatchNorm(use_running_average=False)
    y, _ = module.apply(module.init(KEY, x), x, mutable=["batch_stats"])
    assert (y == 0).all()


def test_default_eps(linen, equinox, torch, keras):
    ours = {k: k(4).eps for k in (nn.BatchNorm, nn.InstanceNorm, nn.LayerNorm)}
    ours[nn.GroupNorm] = nn.GroupNorm(4, 2).eps
    assert set(ours.values()) == {1e-5}
    assert {linen.BatchNorm().epsilon} == {1e-5}
    assert {m().epsilon for m in (linen.LayerNorm, linen.GroupNorm, linen.InstanceNorm)} == {1e-6}
    assert equinox.nn.LayerNorm(4).eps == equinox.nn.GroupNorm(2, 4).eps == 1e-5
    assert torch.nn.BatchNorm1d(4).eps == torch.nn.LayerNorm(4).eps == 1e-5
    layers = keras.layers
    assert {m().epsilon for m in (layers.BatchNormalization, layers.LayerNormalization)} == {1e-3}


def test_instance_norm_has_no_parameters_by_default(linen, torch):
    assert nn.InstanceNorm(4).init(KEY) == ({}, {})
    assert torch.nn.InstanceNorm1d(4).weight is None
    assert set(linen.InstanceNorm().init(KEY, X)["params"]) == {"scale", "bias"}


# -------------------------------------------------------------------------- dropout


def test_equinox_draws_the_same_mask(equinox):
    x = random(KEY, (50,))
    ours = nn.Dropout(0.3).apply({}, {}, x, key=KEY, training=True)[0]
    close(ours, equinox.nn.Dropout(0.3)(x, key=KEY))


def test_flax_draws_the_same_mask_from_the_key_that_it_derives(linen):
    x = random(KEY, (50,))

    class Model(linen.Module):
        @linen.compact
        def __call__(self, x):
            key = self.make_rng("dropout")
            return key, linen.Dropout(0.3, deterministic=False)(x, rng=key)

    key, theirs = Model().apply({}, x, rngs={"dropout": KEY})
    close(nn.Dropout(0.3).apply({}, {}, x, key=key, training=True)[0], theirs)


def test_what_is_dropped_is_zero_here_and_nan_in_torch(torch, equinox):
    x = np.full(100, np.nan, np.float32)
    ours = nn.Dropout(0.5).apply({}, {}, x, key=KEY, training=True)[0]
    assert (ours == 0).any()
    assert (equinox.nn.Dropout(0.5)(x, key=KEY) == 0).any()
    assert torch.isnan(torch.nn.Dropout(0.5)(torch.tensor(x))).all()


def test_dims_are_those_that_vary_here_and_those_that_do_not_in_flax(linen):
    x = jnp.ones((2, 3, 4, 4))
    ours = nn.Dropout(0.5, dims=(0, 1)).apply({}, {}, x, key=KEY, training=True)[0]
    module = linen.Dropout(0.5, broadcast_dims=(2, 3), deterministic=False)
    close(ours, module.apply({}, x, rng=KEY))


def test_dropout_without_a_word_about_the_mode(linen, equinox, torch, keras):
    x = jnp.ones(100)
    assert (nn.Dropout(0.5).apply({}, {}, x)[0] == 1).all()
    assert (equinox.nn.Dropout(0.5)(x, key=KEY) == 0).any()
    assert (torch.nn.Dropout(0.5)(torch.ones(100)) == 0).any()
    assert (keras.layers.Dropout(0.5)(np.ones((1, 100), np.float32)) == 1).all()
    with pytest.raises(ValueError, match="deterministic"):
        linen.Dropout(0.5).apply({}, x, rngs={"dropout": KEY})
