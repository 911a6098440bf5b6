"""Chains, skip connections, parallel layers, weight normalisation, and training them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from layer_helpers import close, fresh, ignore_mode_warnings, random

import pybridge as pb
from pybridge import nn

KEY = jax.random.key(21)


def small():
    return nn.Chain(
        nn.Dense(3, 4, jnp.tanh),
        nn.BatchNorm(4),
        nn.Dropout(0.3),
        nn.SkipConnection(nn.Dense(4, 4), jnp.add),
        nn.Parallel(jnp.multiply, nn.Dense(4, 2), nn.Chain(nn.Dense(4, 2), nn.LayerNorm(2))),
        nn.WeightNorm(nn.Dense(2, 1)),
    )


@ignore_mode_warnings
def test_a_chain_is_its_layers_one_after_the_other():
    model = small()
    params, state = fresh(model)
    x = random(KEY, (8, 3))

    @jax.jit
    def one_after_the_other(x):
        states = []
        for i, layer in enumerate(model):
            key = jax.random.fold_in(KEY, i)
            x, s = layer.apply(params[i], state[i], x, key=key, training=True)
            states.append(s)
        return x, tuple(states)

    y, after = jax.jit(lambda x: model.apply(params, state, x, key=KEY, training=True))(x)
    want, states = one_after_the_other(x)
    np.testing.assert_array_equal(y, want)
    close(after, states, rtol=0)


def test_children_draw_different_numbers():
    model = nn.Chain(nn.Dense(3, 3), nn.Dense(3, 3), nn.Chain(nn.Dense(3, 3)))
    params, _ = model.init(KEY)
    weights = [params[0]["weight"], params[1]["weight"], params[2][0]["weight"]]
    assert all((a != b).any() for a in weights for b in weights if a is not b)
    again, _ = nn.Dense(3, 3).init(jax.random.fold_in(KEY, 1))
    assert (again["weight"] == weights[1]).all()


def test_names():
    model = nn.Chain(first=nn.Dense(3, 4), act=jnp.tanh, last=nn.BatchNorm(4))
    params, state = model.init(KEY)
    assert list(params) == ["first", "act", "last"]
    y, after = model.apply(params, state, jnp.ones((2, 3)))
    plain = nn.Chain(*model)
    assert (
        y == plain.apply(tuple(params.values()), tuple(state.values()), jnp.ones((2, 3)))[0]
    ).all()
    assert list(after) == list(state)
    assert model["last"] == nn.BatchNorm(4)
    assert model[:2] == nn.Chain(first=nn.Dense(3, 4), act=jnp.tanh)
    assert repr(model) == "Chain(first=Dense(3, 4), act=tanh, last=BatchNorm(4))"


def test_length_index_and_equality():
    model = nn.Chain(nn.Dense(3, 4), jnp.tanh)
    assert len(model) == 2 and model[1] is jnp.tanh and model[:1] == nn.Chain(nn.Dense(3, 4))
    assert model == nn.Chain(nn.Dense(3, 4), jnp.tanh) != nn.Chain(nn.Dense(3, 5), jnp.tanh)
    assert hash(model) == hash(nn.Chain(nn.Dense(3, 4), jnp.tanh))


def test_layers_are_static_pytrees():
    model = nn.Chain(nn.Dense(3, 4), jnp.tanh)
    assert jax.tree.leaves(model) == []
    params, state = model.init(KEY)
    run = jax.jit(lambda model, params, x: model.apply(params, state, x)[0])
    close(run(model, params, jnp.ones((2, 3))), model.apply(params, state, jnp.ones((2, 3)))[0])


def test_skip_connection():
    layer = nn.SkipConnection(nn.Dense(3, 3), lambda y, x: y - 2 * x)
    params, state = fresh(layer)
    x = random(KEY, (4, 3))
    want = nn.Dense(3, 3).apply(params, {}, x)[0] - 2 * x
    close(layer.apply(params, state, x)[0], want)


def test_parallel_with_one_input_and_with_many():
    layer = nn.Parallel(lambda *ys: sum(ys), nn.Dense(3, 2), nn.Dense(4, 2), jnp.zeros_like)
    params, state = fresh(layer)
    xs = (random(KEY, (5, 3)), random(KEY, (5, 4)), jnp.ones((5, 2)))
    want = sum(nn.Dense(n, 2).apply(params[i], {}, xs[i])[0] for i, n in enumerate((3, 4)))
    close(layer.apply(params, state, xs)[0], want)
    same = nn.Parallel(jnp.add, nn.Dense(3, 2), nn.Dense(3, 2))
    params, state = fresh(same)
    want = sum(nn.Dense(3, 2).apply(p, {}, xs[0])[0] for p in params)
    close(same.apply(params, state, xs[0])[0], want)


@ignore_mode_warnings
def test_one_layer_of_a_parallel_takes_every_element_in_turn():
    norm, xs = nn.BatchNorm(3), tuple(random(jax.random.key(i), (4, 3)) for i in range(3))
    layer = nn.Parallel(lambda *ys: ys, norm)
    params, state = layer.init(KEY)
    ys, new = layer.apply(params, state, xs, training=True)
    (alone,) = state
    for x, y in zip(xs, ys, strict=True):
        want, alone = norm.apply(params[0], alone, x, training=True)
        close(y, want)
    close(new[0]["mean"], alone["mean"])
    masks = tuple(jnp.arange(4)[:, None] < n for n in (2, 3, 4))
    masked, _ = layer.apply(params, state, xs, training=True, mask=masks)
    close(masked[1], norm.apply(params[0], state[0], xs[1], training=True, mask=masks[1])[0])

    drop = nn.Parallel(lambda *ys: ys, noise=nn.Dropout(0.5))
    x, key = jnp.ones((40,)), jax.random.key(5)
    first, second = drop.apply({"noise": {}}, {"noise": {}}, (x, x), key=key, training=True)[0]
    own = jax.random.fold_in(key, 0)
    for y, its_key in ((first, own), (second, jax.random.fold_in(own, 1))):
        close(y, nn.Dropout(0.5).apply({}, {}, x, key=its_key, training=True)[0])
    with pytest.raises(pb.ArgumentValueError, match="one for each layer, got a tuple of 0"):
        layer.apply(params, state, ())


@pytest.mark.parametrize("axis", [0, 1, -1, (0, 1), None])
def test_weight_norm(axis):
    layer = nn.WeightNorm(nn.Dense(3, 2), axis=axis)
    params, state = layer.init(KEY)
    x = random(KEY, (4, 3))
    inner = params["layer"]
    close(layer.apply(params, state, x)[0], nn.Dense(3, 2).apply(inner, {}, x)[0], rtol=1e-5)
    params = {"layer": inner, "g": 3 * params["g"]}
    got = layer.apply(params, state, x)[0] - inner["bias"]
    close(got, 3 * (x @ inner["weight"]), rtol=1e-5)


def test_a_weight_norm_takes_what_its_layer_takes():
    layer = nn.WeightNorm(nn.LSTM(2, 3, return_state=True), "weight_hidden")
    params, state = layer.init(KEY)
    x, mask = jnp.ones((2, 5, 2)), jnp.arange(5) < jnp.array([[3], [5]])
    hidden = (jnp.ones((2, 3)), jnp.zeros((2, 3)))
    (y, _), _ = layer.apply(params, state, x, mask=mask, hidden=hidden)
    close(y, layer.layer.apply(params["layer"], state, x, mask=mask, hidden=hidden)[0][0])
    assert nn.WeightNorm(nn.Conv((3, 3), 2, 4), axis=[1, 2, 3]).axis == (1, 2, 3)


def test_the_length_of_a_weight_norm_does_not_depend_on_v():
    layer = nn.WeightNorm(nn.Dense(3, 2, bias=False))
    params, state = layer.init(KEY)
    longer = {"layer": {"weight": 7 * params["layer"]["weight"]}, "g": params["g"]}
    x = random(KEY, (4, 3))
    close(layer.apply(params, state, x)[0], layer.apply(longer, state, x)[0], rtol=1e-5)


@pytest.mark.parametrize("way", ["plain", "jit", "checkpoint", "scan", "vmap"])
def test_a_model_trains(way):
    """Gradient descent in every way of running it reaches the same loss."""
    model = nn.Chain(nn.Dense(2, 8, jnp.tanh), nn.BatchNorm(8), nn.Dropout(0.1), nn.Dense(8, 1))
    params, state = model.init(KEY)
    x = random(KEY, (64, 2))
    y = jnp.sin(x[:, :1]) + x[:, 1:] ** 2

    def run_model(params, state, key):
        return model.apply(params, state, x, key)

    def loss(params, state, key):
        run = jax.checkpoint(run_model) if way == "checkpoint" else run_model
        out, state = run(params, state, key)
        return ((out - y) ** 2).mean(), state

    def step(carry, key):
        params, state = carry
        (value, state), slopes = jax.value_and_grad(loss, has_aux=True)(params, state, key)
        params = jax.tree.map(lambda p, g: p - 0.1 * g, params, slopes)
        return (params, state), value

    keys = jax.random.split(KEY, 60)
    want = jax.lax.scan(step, (params, state), keys)[1]
    assert float(want[-1]) < 0.5 * float(want[0])
    if way == "scan":
        want = jax.jit(lambda carry: jax.lax.scan(step, carry, keys)[1])((params, state))
    carry, run = (params, state), step if way == "plain" else jax.jit(step)
    if way == "vmap":  # an ensemble of one
        carry = jax.tree.map(lambda v: v[None], carry)
        run = jax.jit(jax.vmap(step, in_axes=(0, None)))
    for key, value in zip(keys[:5], want, strict=False):
        carry, got = run(carry, key)
        close(jnp.ravel(got)[0], value, rtol=2e-3)


ERRORS = {
    "a list": (lambda: nn.Chain([nn.Dense(2, 2)]), "layers and functions, got a list"),
    "names for some": (lambda: nn.Chain(nn.Dense(2, 2), a=jnp.tanh), "all have a name"),
    "no connection": (lambda: nn.Parallel(nn.Dense(2, 2), 3), "got a int"),
    "wrong count": (
        lambda: nn.Parallel(jnp.add, jnp.sin, jnp.cos).apply(((),) * 2, ((),) * 2, (1.0,)),
        "as `init` gives",
    ),
    "tuple of another length": (
        lambda: nn.Parallel(jnp.add, jnp.sin, jnp.cos).apply(({}, {}), ({}, {}), (1.0,)),
        "a tuple of 2, one for each layer, got a tuple of 1",
    ),
    "options of another length": (
        lambda: nn.Parallel(jnp.add, nn.LayerNorm(3), nn.LayerNorm(3)).apply(
            ({"scale": jnp.ones(3), "bias": jnp.ones(3)},) * 2,
            ({}, {}),
            (jnp.ones((2, 3)),) * 2,
            mask=(None, None, None),
        ),
        "one `mask`, or a tuple of 2, one for each input, got a tuple of 3",
    ),
    "weight norm of a function": (lambda: nn.WeightNorm(jnp.tanh), "expected a layer"),
    "weight norm without the parameter": (
        lambda: nn.WeightNorm(nn.BatchNorm(2)).init(KEY),
        "a layer with a parameter 'weight'",
    ),
}


@pytest.mark.parametrize("case", ERRORS)
def test_bad_input_is_explained(case):
    make, text = ERRORS[case]
    with pytest.raises(pb.BridgeError, match=text):
        make()


def test_first_takes_the_first_of_several_outputs():
    layer = nn.Chain(nn.MultiHeadAttention(4, nheads=2), nn.first)
    params, state = layer.init(jax.random.key(0))
    x = jnp.ones((2, 3, 4))
    (y, _), _ = layer[0].apply(params[0], state[0], x)
    np.testing.assert_array_equal(layer.apply(params, state, x)[0], y)


@pytest.mark.parametrize(("xs", "got"), [(np.ones(3), "got a ndarray"), ((), r"got \(\)")])
def test_first_refuses_what_is_no_tuple_of_outputs(xs, got):
    with pytest.raises(pb.ArgumentTypeError, match=got):
        nn.first(xs)
