"""`from_flux` and `to_flux`: tied weights, trained weights, structs of one's own, bags."""

from __future__ import annotations

import dataclasses
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flux_helpers import close, in_julia, inputs, model

import pybridge as pb
from pybridge import nn

X = inputs((5, 3))


def test_tied_weights_are_one_parameter_with_the_sum_of_gradients():
    source = """let d = Dense(3 => 3, tanh), e = Dense(3 => 3)
        Chain(first=d, between=Chain(e, d), last=Dense(d.weight, true)) end"""
    flux = model(source)
    arguments = flux.init()
    layer, params, state = nn.from_flux(flux)
    assert isinstance(layer, nn.Tied)
    assert layer.ties == (
        (("between", 1, "bias"), ("first", "bias")),
        (("between", 1, "weight"), ("first", "weight")),
        (("last", "weight"), ("first", "weight")),
    )
    assert len(jax.tree.leaves(params)) == len(jax.tree.leaves(arguments[0])) == 5
    close(layer.apply(params, state, X)[0], flux.apply(*arguments, X)[0], 1e-5)
    slopes = jax.grad(lambda p: jnp.sin(layer.apply(p, state, X)[0]).sum())(params)
    theirs = jax.grad(lambda p: jnp.sin(flux.apply(p, arguments[1], X)[0]).sum())(arguments[0])
    close(slopes["first"], theirs["layers"]["first"], 1e-4)
    back = pb.flux(nn.to_flux(layer, params, state))
    close(back.init(), arguments, 0)
    again, *trees = nn.from_flux(back)
    assert again == layer
    close(trees, (params, state), 0)


def test_an_embedding_tied_to_the_last_layer_of_ours():
    chain = nn.Chain(nn.Embedding(5, 3), nn.Dense(3, 3), nn.Dense(3, 3))
    layer = nn.Tied(chain, (((2, "weight"), (1, "weight")),))
    params, state = layer.init(jax.random.key(0))
    flux = pb.flux(nn.to_flux(layer, params, state))
    ids = np.array([[1, 5], [2, 2]])
    close(flux.apply(*flux.init(), ids)[0], layer.apply(params, state, ids - 1)[0], 1e-5)
    assert nn.from_flux(flux)[0] == layer


def test_a_model_trained_from_jax_with_what_it_learned():
    flux = model("Chain(Dense(3 => 4, tanh), BatchNorm(4), Dense(4 => 1))")
    params, state = flux.init()
    loss = lambda p, s: (flux.apply(p, s, X)[0].sum(), flux.apply(p, s, X)[1])  # noqa: E731
    slopes, state = jax.grad(loss, has_aux=True)(params, state)
    params = jax.tree.map(lambda p, g: p - 0.1 * g, params, slopes)
    layer, ours, kept = nn.from_flux(flux, params, state)
    close(layer.apply(ours, kept, X)[0], flux.apply(params, state, X)[0], 1e-5)
    assert not np.array_equal(kept[1]["mean"], nn.from_flux(flux)[2][1]["mean"])
    with pytest.raises(pb.ArgumentTypeError, match="from_flux: expected an array at params"):
        nn.from_flux(flux, {})


def test_embedding_bags():
    flux = model("EmbeddingBag(5 => 3, sum)")
    layer, params, state = nn.from_flux(flux)
    ids = np.array([[1, 5], [2, 2]])
    close(layer.apply(params, state, ids - 1)[0], flux.apply(*flux.init(), ids)[0], 1e-6)
    assert nn.from_flux(nn.to_flux(layer, params, state))[0] == layer


@dataclasses.dataclass(frozen=True)
class Residual(nn.Layer):
    """The twin of the struct below."""

    inner: nn.Layer

    def init(self, key, dtype=jnp.float32):
        params, state = self.inner.init(key, dtype)
        return {"inner": params, "gain": jnp.ones(3, dtype)}, state

    def forward(self, params, state, x, *, key, mode):
        y, state = self.inner.forward(params["inner"], state, x, key=key, mode=mode)
        return x + params["gain"] * y, state


STRUCT = """
struct Residual{I,G}; inner::I; gain::G; end
Main.Flux.@layer Residual
(r::Residual)(x) = x .+ r.gain .* r.inner(x)
nothing"""


@pytest.fixture(scope="module")
def residual():
    """Define the struct in Julia's Main, once."""
    pb.flux("Dense(1 => 1)")  # Flux is there
    in_julia(f'x -> (Main.eval(Meta.parse(raw"""begin {STRUCT} end""")); [1f0])', 1)
    return "Chain(Main.Residual(Dense(3 => 3, tanh), Float32[1, 2, 3]), Dense(3 => 2))"


@pytest.fixture(autouse=True)
def nothing_registered(monkeypatch):
    """Forget what other tests have registered, and afterwards what these have."""
    monkeypatch.setattr("pybridge.flux_models._registry._BY_STRUCT", {})


def from_residual(fields, params, state, read):
    layer, inner, inner_state = read("inner")
    return Residual(layer), {"inner": inner, "gain": params["gain"]}, inner_state


def to_residual(layer, params, state, write):
    inner = write("inner", layer.inner, params["inner"], state)
    return f"Main.Residual({inner}, {write('gain', params['gain'])})"


def test_a_struct_of_ones_own_is_refused_with_the_line_to_write(residual):
    text = "the struct Residual (name its twin: nn.register_flux('Residual', from_, to, layer=...))"
    with pytest.raises(pb.ArgumentTypeError, match=re.escape(text)):
        nn.from_flux(residual)


def test_a_registered_struct_goes_both_ways(residual):
    nn.register_flux("Residual", from_residual, to_residual, layer=Residual)
    flux = pb.flux(residual)
    layer, params, state = nn.from_flux(flux)
    assert layer[0] == Residual(nn.Dense(3, 3, nn.tanh))
    arguments = flux.init()
    close(layer.apply(params, state, X)[0], flux.apply(*arguments, X)[0], 1e-5)
    back = pb.flux(nn.to_flux(layer, params, state))
    close(back.init(), arguments, 0)
    close(back.apply(*arguments, X)[0], flux.apply(*arguments, X)[0], 0)
