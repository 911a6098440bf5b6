"""`pb.nn.from_flux` and `to_flux`: the same network in JAX and in Flux, with the same weights."""

from __future__ import annotations

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flux_helpers import close, in_julia, inputs, model
from flux_layers import LAYERS, exported_layers, layer_input, made_by, shaken, twin_input
from precision import enable_x64

import pybridge as pb
from pybridge import nn


def equal(one, other):
    same = jax.tree.map(lambda a, b: a.dtype == b.dtype and np.array_equal(a, b), one, other)
    return all(jax.tree.leaves(same))


# Flux compiles every layer anew: by day one of each kind, in double precision.
FIRST = {source.split("(")[0]: source for source in reversed(LAYERS)}.values()
ONE_OF_EACH = [
    source if source in FIRST else pytest.param(source, marks=pytest.mark.nightly)
    for source in LAYERS
]


@pytest.mark.parametrize(
    ("dtype", "precision", "tolerance"),
    [pytest.param(np.float32, "f32", 1e-5, marks=pytest.mark.nightly), (np.float64, "f64", 1e-12)],
    ids=["float32", "float64"],
)
@pytest.mark.parametrize("source", ONE_OF_EACH)
def test_numbers_are_equal_and_round_trips_exact(source, dtype, precision, tolerance):
    with enable_x64(dtype == np.float64):
        flux = model(f"Flux.{precision}({source})")
        flux.load(*shaken(flux.init(), dtype))
        layer, params, state = nn.from_flux(flux)
        assert isinstance(layer, nn.Layer)
        x, key = layer_input(source, dtype), jax.random.key(3)
        arguments = flux.init()
        here = twin_input(layer, x)
        close(layer.apply(params, state, here)[0], flux.apply(*arguments, x)[0], tolerance)
        mode = {"key": key, "training": jnp.bool_(True)}
        got, new = layer.apply(params, state, here, **mode)
        want, theirs = flux.apply(*arguments, x, **mode)
        close(got, want, tolerance)
        back = pb.flux(nn.to_flux(layer, params, state))
        assert equal(back.init(), arguments)
        again, *trees = nn.from_flux(back)
        assert again == layer and equal(tuple(trees), (params, state))
        layer_state, flux_state = nn.from_flux(loaded(flux, arguments[0], theirs))[2], new
        close(layer_state, flux_state, tolerance)


def test_every_layer_that_flux_exports_is_here():
    assert {
        name for name in exported_layers() if not any(made_by(name, s) for s in LAYERS)
    } == set()


def loaded(flux, params, state):
    flux.load(params, state)
    return flux


def test_gradients_are_equal():
    source = """Chain(Conv((3, 3), 2 => 4, relu; pad=1), BatchNorm(4), Dropout(0.4),
        MaxPool((2, 2)), Flux.flatten, Dense(16 => 3, tanh), LayerNorm(3))"""
    flux = model(source)
    params, state = flux.init(jax.random.key(5))
    layer, ours, kept = nn.from_flux(flux, params, state)
    x, key = inputs((6, 2, 4, 4)), jax.random.key(3)

    def loss(apply, state):
        return lambda params, x: jnp.sum(jnp.sin(apply(params, state, x, key=key)[0]))

    one = jax.grad(loss(flux.apply, state), argnums=(0, 1))(params, x)
    two = jax.grad(loss(layer.apply, kept), argnums=(0, 1))(ours, x)
    close(one[1], two[1], 1e-4)
    # By way of Flux's tree: the gradients are trees like the weights.
    flux.load(one[0], state)
    close(nn.from_flux(flux)[1], two[0], 1e-4)


def test_embedding_counts_from_zero_here():
    flux = model("Embedding(5 => 3)")
    layer, params, state = nn.from_flux(flux)
    x = jnp.array([[1, 5], [2, 2]])
    want, _ = flux.apply(*flux.init(), x)
    assert np.array_equal(layer.apply(params, state, x - 1)[0], want)


def test_flux_adds_the_square_of_eps_and_the_twin_eps():
    layer, _, _ = nn.from_flux("LayerNorm(3; eps=1f-2)")
    assert isinstance(layer, nn.LayerNorm)
    assert layer.eps == float(np.float32(1e-2)) ** 2
    x = np.array([[0.0, 1e-3, 2e-3]], np.float32)
    plain = in_julia("x -> Flux.LayerNorm(3; eps=1f-2)(R(x))", x)
    close(layer.apply(*layer.init(None), x)[0], plain, 1e-5)


@pytest.mark.parametrize("layer", [
    nn.Chain(nn.Conv((3, 2), 2, 4, nn.relu, stride=(2, 1), pad="same"), nn.BatchNorm(4, nn.tanh)),
    nn.Chain(a=nn.Dense(3, 4, jnp.tanh), b=nn.SkipConnection(nn.Dense(4, 4), jnp.add)),
    nn.WeightNorm(nn.Dense(3, 4), axis=None),
    nn.Parallel(jnp.add, nn.LayerNorm((2, 3)), nn.LayerNorm((2, 3), jax.nn.relu, affine=False)),
    nn.ConvTranspose((3, 3), 2, 4, stride=2, pad="same", bias=False),
    nn.Dropout(0.25, dims=(-3, -4)),
])  # fmt: skip
def test_layers_of_ours_become_flux_models(layer):
    params, state = layer.init(jax.random.key(0))
    flux = pb.flux(nn.to_flux(layer, params, state))
    again, *trees = nn.from_flux(flux)
    assert equal(tuple(trees), (params, state))
    if jax.tree.leaves(params):
        shape = {"Chain": (2, 2, 6, 4), "ConvTranspose": (2, 2, 6, 4), "Parallel": (4, 2, 3)}
        wide = shape.get(type(layer).__name__, (5, 3))
        x = inputs(wide if not isinstance(params, dict) or "a" not in params else (5, 3))
        close(flux.apply(*flux.init(), x)[0], layer.apply(params, state, x)[0], 1e-5)
        close(again.apply(params, state, x)[0], layer.apply(params, state, x)[0], 1e-6)


def test_from_flux_takes_source_objects_and_models():
    flux = model("Chain(Dense(2 => 3))")
    known = nn.from_flux(flux)
    assert nn.from_flux(flux.model)[0] == known[0] == nn.from_flux("Chain(Dense(2 => 3))")[0]
    assert equal(nn.from_flux(flux.model)[1], known[1])


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("Chain(Flux.Scale(3), Returns(1))", "the function Returns at model.layers[1]"),
        ("Chain(EmbeddingBag(3 => 4, prod))", "the function prod at model.layers[0]"),
        ("Chain(a=Chain(x -> 2x))", "at model.layers['a'].layers[0]"),
        ("Chain(Dense(2 => 3, x -> x^2))", "at model.layers[0]"),
        ("Chain(Dense(2 => 3), x -> softmax.(x))", "the function softmax. at model.layers[1]"),
        ("SkipConnection(Dense(2 => 2), (y, x) -> x + y)", "at model.connection"),
        ("SkipConnection(Dense(2 => 2), -)", "the function - at model.connection"),
        ("Chain(Dropout(0.5; active=false))", "held in a mode"),
    ],
)
def test_what_has_no_twin_is_named_with_its_path(source, text):
    with pytest.raises(pb.ArgumentTypeError, match=re.escape(text)):
        nn.from_flux(source)


@pytest.mark.parametrize(
    ("layer", "text"),
    [
        (nn.Chain(nn.Dense(2, 2), jnp.cos), "the function cos at layer[1]"),
        (nn.Dropout(0.5, dims=1), "dims=1, counted from the first axis"),
        (nn.BatchNorm(2, axis_name="batch"), "axis_name='batch'"),
        (nn.Chain(a=nn.Dense(2, 2, jnp.cos)), "the function cos at layer['a']"),
    ],
)
def test_what_flux_lacks_is_named_with_its_path(layer, text):
    with pytest.raises(pb.ArgumentTypeError, match=re.escape(text)):
        nn.to_flux(layer, *layer.init(jax.random.key(0)))


def test_to_flux_wants_a_layer():
    with pytest.raises(pb.ArgumentTypeError, match="expected a layer, got a int"):
        pb.nn.to_flux(3, {}, {})


def test_to_flux_refuses_the_arrays_of_another_layer():
    layer, other = nn.Dense(2, 3), nn.Dense(2, 4)
    with pytest.raises(pb.ArgumentValueError, match="'bias'"):
        nn.to_flux(layer, *other.init(jax.random.key(0)))
