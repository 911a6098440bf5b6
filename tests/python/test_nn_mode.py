"""One rule for the mode: the truth table, warnings, and what training cannot do."""

from __future__ import annotations

import dataclasses
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from layer_helpers import fresh, ignore_mode_warnings

import pybridge as pb
from pybridge import nn


@dataclasses.dataclass(frozen=True)
class Probe(nn.Layer):
    """Ten times its input in training."""

    def init(self, key, dtype=jnp.float32):
        return {"weight": jnp.ones((), dtype)}, {}

    def forward(self, params, state, x, *, key, mode):
        ten = mode.choose(lambda x: 10 * x, lambda x: x, x)
        return params["weight"] * ten, state


PROBE = Probe()


def probe(x, weight=1.0, training="auto"):
    return PROBE.apply({"weight": jnp.asarray(weight)}, {}, x, training=training)[0]


WAYS = {
    "value": (lambda f: f, False),
    "jit": (jax.jit, False),
    "vmap": (lambda f: lambda x: jax.vmap(f)(x[None])[0], False),
    "grad": (lambda f: lambda x: jax.value_and_grad(f)(x)[0], True),
    "jit of grad": (lambda f: jax.jit(lambda x: jax.value_and_grad(f)(x)[0]), True),
    "grad of jit": (lambda f: lambda x: jax.value_and_grad(jax.jit(f))(x)[0], True),
    "jvp": (lambda f: lambda x: jax.jvp(f, (x,), (x,))[0], True),
    "linearize": (lambda f: lambda x: jax.linearize(f, x)[0], True),
    "grad of checkpoint": (lambda f: lambda x: jax.value_and_grad(jax.checkpoint(f))(x)[0], True),
    "vmap of grad": (
        lambda f: lambda x: jax.vmap(lambda x: jax.value_and_grad(f)(x)[0])(x[None])[0],
        True,
    ),
}


@ignore_mode_warnings
@pytest.mark.parametrize("training", [True, False, "auto"])
@pytest.mark.parametrize("way", WAYS)
def test_the_truth_table(way, training):
    run, differentiated = WAYS[way]
    trains = differentiated if training == "auto" else training
    assert float(run(lambda x: probe(x, training=training))(jnp.array(2.0))) == (
        20.0 if trains else 2.0
    )


def test_a_derivative_of_the_parameters_counts():
    value, slope = jax.value_and_grad(lambda w: probe(2.0, w))(1.0)
    assert (float(value), float(slope)) == (20.0, 20.0)


def test_a_container_asks_once_for_all_its_layers():
    """The first layer sees plain data, and trains because a later one is differentiated."""
    model = nn.Chain(nn.Dropout(0.5), Probe())
    params, state = model.init(jax.random.key(0))

    def loss(params, x):
        return model.apply(params, state, x, key=jax.random.key(1))[0].sum()

    x = jnp.ones(64)
    assert float(loss(params, x)) == 64.0
    value = float(jax.value_and_grad(loss)(params, x)[0])
    assert value != 640.0 and value % 20 == 0  # ten times 2, as often as the mask keeps
    assert value == float(jax.jit(jax.value_and_grad(loss))(params, x)[0])


@pytest.mark.parametrize("training", [np.True_, np.False_])
@ignore_mode_warnings
def test_numpy_bools_are_bools(training):
    assert float(probe(2.0, training=training)) == (20.0 if training else 2.0)


def test_a_traced_mode():
    run = jax.jit(lambda x, training: probe(x, training=training))
    assert float(run(2.0, True)) == 20.0 and float(run(2.0, False)) == 2.0


@pytest.mark.parametrize("training", ["yes", 1, None, 0.0])
def test_other_modes_are_refused(training):
    with pytest.raises(pb.ArgumentTypeError, match='True, False or "auto"'):
        probe(2.0, training=training)


CONTRADICTIONS = {
    "training without a derivative": lambda: probe(2.0, training=True),
    "test within one": lambda: jax.grad(lambda x: probe(x, training=False))(2.0),
    "test, jit of grad": lambda: jax.jit(jax.grad(lambda x: probe(x, training=False)))(2.0),
    "test, grad of jit": lambda: jax.grad(jax.jit(lambda x: probe(x, training=False)))(2.0),
}


@pytest.mark.parametrize("case", CONTRADICTIONS)
def test_a_contradiction_warns_at_the_users_line(case):
    with pytest.warns(nn.ModeWarning, match="explicit mode wins") as caught:
        CONTRADICTIONS[case]()
    assert caught[0].filename == __file__


AGREEMENTS = {
    "test without a derivative": lambda: probe(2.0, training=False),
    "training within one": lambda: jax.grad(lambda x: probe(x, training=True))(2.0),
    "test under jit": lambda: jax.jit(lambda x: probe(x, training=False))(2.0),
    "training under jit": lambda: jax.jit(lambda x: probe(x, training=True))(2.0),
}


@pytest.mark.parametrize("case", AGREEMENTS)
def test_agreement_is_silent(case):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        AGREEMENTS[case]()


@ignore_mode_warnings
def test_two_modes_in_one_program():
    layer = nn.BatchNorm(2)
    params, state = fresh(layer)
    x = jnp.arange(8.0).reshape(4, 2)

    @jax.jit
    def both(x):
        y, after = layer.apply(params, state, x, training=True)
        z, same = layer.apply(params, after, x, training=False)
        return y, z, after, same

    y, z, after, same = both(x)
    assert not np.allclose(y, z)
    assert all((after[name] == same[name]).all() for name in after)


@ignore_mode_warnings
def test_test_mode_within_a_gradient_is_test_mode():
    layer = nn.BatchNorm(2)
    params, state = fresh(layer)
    x = jnp.arange(8.0).reshape(4, 2)
    plain, _ = layer.apply(params, state, x)

    def loss(x):
        y, after = layer.apply(params, state, x, training=False)
        return y.sum(), (y, after)

    slope, (y, after) = jax.grad(loss, has_aux=True)(x)
    assert (y == plain).all()
    assert all((after[name] == state[name]).all() for name in state)
    inv = params["scale"] / np.sqrt(np.asarray(state["var"]) + 1e-5)
    np.testing.assert_allclose(slope, np.broadcast_to(inv, x.shape), rtol=1e-6)


DIFFERENTIATE = {
    "grad": lambda f: jax.grad(f),
    "jit of grad": lambda f: jax.jit(jax.grad(f)),
    "grad of jit": lambda f: jax.grad(jax.jit(f)),
    "grad of checkpoint": lambda f: jax.grad(jax.checkpoint(f)),
    "grad of scan": lambda f: jax.grad(
        lambda x: jax.lax.scan(lambda c, _: (f(c) * x, None), x, None, length=2)[0].sum()
    ),
}


@pytest.mark.parametrize("way", DIFFERENTIATE)
@pytest.mark.parametrize(
    "layer", [nn.Dropout(0.5), nn.AlphaDropout(0.5), nn.Chain(jnp.sin, nn.Dropout(0.5))], ids=repr
)
def test_training_without_a_key_is_an_error_and_testing_is_none(layer, way):
    params, state = layer.init(jax.random.key(0))

    def f(x):
        return layer.apply(params, state, x)[0].sum()

    x = jnp.ones(3)
    assert float(jax.jit(f)(x)) == float(f(x))
    with pytest.raises(pb.ArgumentValueError, match="a key in training"):
        DIFFERENTIATE[way](f)(x if way != "grad of scan" else jnp.array(1.0))


@pytest.mark.parametrize("way", DIFFERENTIATE)
def test_without_a_key_the_derivative_of_the_parameters_alone_is_refused_too(way):
    """The dropout itself sees plain data."""
    model = nn.Chain(nn.Dropout(0.5), Probe())
    _, state = model.init(jax.random.key(0))

    def f(weight):
        params = ({}, {"weight": weight})
        return model.apply(params, state, jnp.ones(()))[0]

    assert float(jax.jit(f)(1.0)) == 1.0
    with pytest.raises(pb.ArgumentValueError, match="a key in training"):
        DIFFERENTIATE[way](f)(jnp.array(1.0))


@ignore_mode_warnings
@pytest.mark.parametrize("jit", [False, True], ids=["eager", "jit"])
def test_explicit_training_without_a_key_is_refused_at_once(jit):
    def f(x):
        return nn.Dropout(0.5).apply({}, {}, x, training=True)[0]

    with pytest.raises(pb.ArgumentValueError, match="a key in training"):
        (jax.jit(f) if jit else f)(jnp.ones(3))


SHAPES = [(1, 3), (1, 3, 1, 1), (0, 3)]


@pytest.mark.parametrize("way", [way for way in DIFFERENTIATE if "scan" not in way])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_one_value_per_channel_is_an_error_in_training_only(shape, way):
    layer = nn.BatchNorm(3)
    params, state = fresh(layer)

    def f(x):
        return layer.apply(params, state, x)[0].sum()

    x = jnp.ones(shape)
    assert np.isfinite(jax.jit(f)(x)) and np.isfinite(f(x))
    with pytest.raises(pb.ArgumentValueError, match="more than one value per channel"):
        DIFFERENTIATE[way](f)(x)


@pytest.mark.parametrize("shape", [(4, 3), (4, 3, 1)], ids=str)
def test_one_value_per_channel_of_an_instance(shape):
    layer = nn.InstanceNorm(3)

    def f(x):
        return layer.apply({}, {}, x)[0].sum()

    assert float(jax.jit(f)(jnp.ones(shape))) == 0.0
    with pytest.raises(pb.ArgumentValueError, match="more than one value per channel"):
        jax.grad(f)(jnp.ones(shape))


@pytest.mark.usefixtures("optimised")
def test_the_mode_of_the_answer_costs_nothing():
    """The gradient's program in auto mode is the one with an explicit mode."""
    model = nn.Chain(nn.BatchNorm(4), jnp.tanh, nn.Dropout(0.5))
    params, state = fresh(model)

    def step(params, x, key, training):
        def loss(params):
            y, after = model.apply(params, state, x, key=key, training=training)
            return (y**2).sum(), after

        return jax.grad(loss, has_aux=True)(params)

    def program(training):
        run = jax.jit(lambda params, x, key: step(params, x, key, training))
        return run.lower(params, jnp.ones((8, 4)), jax.random.key(0)).compile().as_text()

    auto, explicit = program("auto"), program(True)
    assert "conditional" not in auto
    assert auto.count("fusion(") == explicit.count("fusion(")
    # Beside its instructions the text has a table of the lines of source that were traced.
    assert auto.count(" = ") == explicit.count(" = ")
