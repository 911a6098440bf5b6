"""Layers of `pybridge.nn` against their twins in Julia, under every AD system.

`pybridge check --layers` compares every layer with every system in both precisions; here is a part.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from bridge_helpers import SYSTEMS

import pybridge as pb
from pybridge import nn
from pybridge.consistency import compare, load_layers, prepare
from pybridge.consistency.suites import plain_dicts

CASES = load_layers()
# tests/julia/nn_systems.jl has every layer under every system, against finite differences.
ALL_SYSTEMS = ("BatchNorm (6, 3)", "Chain (6, 3)")


# One layer with weights and one with a key by day, since every shape is compiled anew;
# test_from_flux.py and tests/julia/nn_flux.jl have all layers.
BY_DAY = ("GroupNorm (4, 6)", "Dropout (6, 5)")
NIGHT = pytest.mark.nightly
OF_EACH = [case if case.title in BY_DAY else pytest.param(case, marks=NIGHT) for case in CASES]


@pytest.mark.parametrize("case", OF_EACH, ids=lambda case: case.title)
def test_values_and_gradients_are_the_twins(case):
    answer = compare(case, prepare("zygote"), "float64")
    assert answer.status in ("right", "known"), answer


@pytest.mark.nightly
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("system", [name for name in SYSTEMS if name != "zygote"])
@pytest.mark.parametrize("title", ALL_SYSTEMS)
def test_every_system_agrees(title, system, dtype):
    case = next(case for case in CASES if case.title == title)
    answer = compare(case, prepare(system), dtype)
    assert answer.status in ("right", "known"), answer


MODELS = {
    "Dense": (nn.Dense(3, 5), "PyBridge.Dense(3 => 5)"),
    "Conv": (nn.Conv((2, 3), 1, 4), "PyBridge.Conv((3, 2), 1 => 4)"),
    "Chain": (
        nn.Chain(nn.Dense(3, 4, bias=False), nn.SkipConnection(nn.Dense(4, 4), jnp.add)),
        """PyBridge.Chain(PyBridge.Dense(3 => 4; bias=false),
            PyBridge.SkipConnection(PyBridge.Dense(4 => 4), +))""",
    ),
    "Parallel": (
        nn.Parallel(jnp.add, nn.Dense(3, 4), nn.WeightNorm(nn.Dense(3, 4))),
        """PyBridge.Parallel(+, PyBridge.Dense(3 => 4),
            PyBridge.WeightNorm(PyBridge.Dense(3 => 4)))""",
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_key_gives_the_same_weights_in_both_languages(name):
    layer, julia = MODELS[name]
    key = jax.random.key(11)
    twin = pb.from_julia(f"key -> PyBridge.init(key, {julia})", layout="reversed")
    got = twin(np.asarray(jax.random.key_data(key)))
    want = layer.init(key)
    got = plain_dicts(got)
    assert jax.tree.structure(got) == jax.tree.structure(want)
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=3e-7, atol=1e-7)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(
    "layer",
    [nn.BatchNorm(2), nn.LayerNorm(2), nn.GroupNorm(2, 2), nn.Dropout(0.5), nn.AlphaDropout(0.5)],
    ids=repr,
)
def test_nan_and_inf_go_the_same_way(layer, value):
    source = {
        nn.BatchNorm: "PyBridge.BatchNorm(2)",
        nn.LayerNorm: "PyBridge.LayerNorm(2)",
        nn.GroupNorm: "PyBridge.GroupNorm(2, 2)",
        nn.Dropout: "PyBridge.Dropout(0.5)",
        nn.AlphaDropout: "PyBridge.AlphaDropout(0.5)",
    }[type(layer)]
    key = jax.random.key(3)
    params, state = layer.init(key)
    x = np.array(jax.random.normal(key, (6, 2)))
    x[::2, 0] = value
    twin = pb.from_julia(
        f"(p, s, x, key) -> PyBridge.apply({source}, p, s, x;\n"
        "    key, training=PyBridge.Settled(true))",
        layout="reversed",
    )
    got = twin(params, state, x, np.asarray(jax.random.key_data(key)))
    want = layer.apply(params, state, x, key=key, training=jnp.array(True))
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
