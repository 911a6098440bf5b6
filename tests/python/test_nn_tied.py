"""Tied weights, and what is said of structs of one's own."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from layer_helpers import close

import pybridge as pb
from pybridge import nn

KEY = jax.random.key(0)
TIES = (((2, "weight"), (0, "weight")), ((3, "last", "bias"), (0, "bias")))


def tied():
    chain = nn.Chain(nn.Dense(3, 3), jnp.tanh, nn.Dense(3, 3), nn.Chain(last=nn.Dense(3, 3)))
    return nn.Tied(chain, TIES)


def test_a_tied_parameter_is_there_once(maybe_jit):
    layer = tied()
    params, state = layer.init(KEY)
    assert sorted(params[2]) == ["bias"] and sorted(params[3]["last"]) == ["weight"]
    full = layer.filled(params)
    assert full[2]["weight"] is params[0]["weight"]
    x = np.ones((2, 3), np.float32)
    y, after = maybe_jit(lambda p, x: layer.apply(p, state, x))(params, x)
    close(y, layer.layer.apply(full, state, x)[0])
    assert after == state
    one = jax.grad(lambda p: jnp.sin(layer.apply(p, state, x)[0]).sum())(params)
    each = jax.grad(lambda p: jnp.sin(layer.layer.apply(p, state, x)[0]).sum())(full)
    close(one[0]["weight"], each[0]["weight"] + each[2]["weight"], rtol=1e-5)
    close(one[0]["bias"], each[0]["bias"] + each[3]["last"]["bias"], rtol=1e-5)
    assert layer == tied() and hash(layer) == hash(tied())


@pytest.mark.parametrize("backwards", [False, True])
def test_a_place_may_be_tied_to_a_place_in_any_order_and_paths_may_be_lists(backwards):
    chain = nn.Chain(nn.Dense(3, 3), nn.Dense(3, 3), nn.Dense(3, 3))
    ties = [((2, "weight"), [1, "weight"]), ([1, "weight"], (0, "weight"))]
    layer = nn.Tied(chain, ties[::-1] if backwards else ties)
    params, state = layer.init(KEY)
    assert jax.tree.map(jnp.shape, params)[1:] == ({"bias": (3,)},) * 2
    x = jnp.ones((2, 3))
    want = x
    for _ in range(3):
        want = want @ params[0]["weight"]
    close(layer.apply(params, state, x)[0], want)


@pytest.mark.parametrize(
    ("ties", "message"),
    [
        ((((2, "weight"), (0, "bias")),), "two parameters of one shape"),
        ((((2, "scale"), (0, "bias")),), "paths that lead to parameters of the layer"),
        ((((2,), (0,)),), "paths that lead to parameters"),
        ((((7, "weight"), (0, "weight")),), "paths that lead to parameters"),
        ((((0, "weight"), (0, "weight")),), "(0, 'weight') tied to itself"),
        (
            (((0, "weight"), (2, "weight")), ((2, "weight"), (0, "weight"))),
            "(0, 'weight') tied to itself",
        ),
    ],
)
def test_wrong_ties(ties, message):
    with pytest.raises(pb.ArgumentValueError, match=re.escape(message)):
        nn.Tied(tied().layer, ties).init(KEY)
    with pytest.raises(pb.ArgumentTypeError, match="Tied: expected a layer, got a"):
        nn.Tied(jnp.sin, ())


@pytest.mark.parametrize(
    "arguments, options",
    [((1,), {}), ((dict,), {"layer": nn.Dense}), ((dict, dict), {}), ((dict, dict), {"layer": 1})],
)
def test_wrong_registrations(arguments, options):
    with pytest.raises(pb.ArgumentTypeError, match=r"register_flux: expected a function `from_`"):
        nn.register_flux("Mine", *arguments, **options)
