"""A version of JAX that flattens trees in an unknown way: nothing is shown, and a warning."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pybridge as pb
from pybridge.primitives import _flattening
from pybridge.primitives._flattening import Asker, _Known, _known, _misheard


@pytest.fixture
def unknown(monkeypatch):
    """Return a function that lets JAX's functions be unknown, as if by another version."""
    _known.cache_clear()

    def change(**attributes):
        class Changed(_Known):
            def __init__(self):
                super().__init__()
                vars(self).update(attributes)

        monkeypatch.setattr(_flattening, "_Known", Changed)

    yield change
    _known.cache_clear()


def loss(parameters):
    return parameters["w"] * parameters["nd"].value


def tree():
    return {"w": 2.0, "nd": pb.NonDifferentiable(3.0)}


def test_this_version_of_jax_is_known():
    assert _misheard(_Known()) == []


def test_all_is_tried_once_only(monkeypatch):
    _known.cache_clear()
    runs = []
    monkeypatch.setattr(_flattening, "_misheard", lambda known: runs.append(known) or [])
    for _ in range(3):
        jax.tree.flatten(pb.NonDifferentiable(1.0))
    assert len(runs) == 1
    _known.cache_clear()


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"derives": frozenset()}, ["jax.jvp", "jax.vjp"]),
        ({"tree_files": frozenset()}, ["jax.tree.flatten", "jax.tree.map", "jax.jvp", "jax.vjp"]),
        ({"maps": frozenset()}, ["jax.tree.map"]),
        ({"folder": "/nowhere/"}, ["jax.jvp", "jax.vjp", "jax.vmap"]),
    ],
)
def test_what_is_not_recognised_is_named(unknown, change, named):
    unknown(**change)
    assert _misheard(_flattening._Known()) == named


def test_an_unknown_jax_gives_one_warning_that_says_what_to_do(unknown):
    unknown(derives=frozenset())
    with pytest.warns(UserWarning) as caught:
        for _ in range(3):
            jax.tree.leaves(pb.NonDifferentiable(1.0))
    (text,) = (str(warning.message) for warning in caught)
    assert f"jax {jax.__version__}, not recognised in jax.jvp, jax.vjp" in text
    assert "Install a version of JAX that this pybridge was tested with" in text


def test_functions_that_cannot_be_found_are_no_exception(unknown, monkeypatch):
    unknown()

    def broken():
        raise ValueError("too many values to unpack")

    monkeypatch.setattr(_flattening, "_Known", broken)
    with pytest.warns(UserWarning, match="ValueError: too many values"):
        assert _flattening.asker(0) is Asker.TREE


def test_under_an_unknown_jax_nothing_is_differentiated_or_moved(unknown):
    unknown(derives=frozenset())
    with pytest.warns(UserWarning, match="is a constant"):
        assert jax.tree.leaves(tree()) == [2.0]
    gradient = jax.grad(loss)(tree())
    assert gradient["w"] == 3.0
    moved = jax.tree.map(lambda p, g: p - g, tree(), gradient)
    assert (moved["w"], moved["nd"].value) == (-1.0, 3.0)


def test_under_an_unknown_jax_jit_sees_every_value(unknown):
    unknown(derives=frozenset())
    f = jax.jit(lambda nd, x: nd.value * x)
    with pytest.warns(UserWarning, match="compiles anew"):
        first = f(pb.NonDifferentiable(np.float32(3)), jnp.float32(2))
    assert (first, f(pb.NonDifferentiable(np.float32(5)), jnp.float32(2))) == (6.0, 10.0)
