"""Every parameter of every primitive is read by its emitter, or cannot change a number."""

from __future__ import annotations

import dataclasses
import inspect
from collections import defaultdict

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from lowering_cases import DISCRETE, SMOOTH
from lowering_cases_linalg import SMOOTH as SMOOTH_LINALG
from lowering_cases_linalg import VALUES as VALUES_LINALG

import pybridge as pb
from pybridge.lowering import _emit, _source, lower

# Whatever these are, the numbers are the same.
HARMLESS = {
    "where it is computed, and how it is laid out": (
        *("sharding", "out_sharding", "devices", "srcs", "copy_semantics", "branches_platforms"),
        *("in_shardings", "out_shardings", "in_layouts", "out_layouts", "ctx_mesh", "dst_sharding"),
        *("donated_invars", "compiler_options_kvs", "inline", "keep_unused", "use_magma", "unroll"),
    ),
    "how exactly it is computed": ("accuracy", "precision", "algorithm", "implementation"),
    "a promise about the operands, or one that is kept anyway": (
        *("indices_are_sorted", "unique_indices", "is_stable", "sort_eigenvalues"),
        *("aggregate_to_topk", "recall_target", "reduction_input_size_override"),
    ),
    "what the result's type says": (
        *("shape", "dtype", "new_dtype", "new_sizes", "dimensions", "index_dtype", "weak_type"),
        *("preferred_element_type", "limit_indices", "input_dtype", "k"),
    ),
    "what the program in another parameter says": (
        *("computation", "attributes", "version", "jvp_jaxpr_fun", "num_consts", "symbolic_zeros"),
        *("bwd", "fwd_jaxpr_thunk", "out_trees", "differentiated", "policy", "prevent_cse"),
    ),
}
# The same for single primitives.
HARMLESS_IN = {
    ("random_seed", "impl"): "keys of another generator are refused by their type",
    ("random_wrap", "impl"): "keys of another generator are refused by their type",
    ("scan", "_split_transpose"): "how exactly its derivative is computed (older JAX)",
    ("scan", "ft_out"): "what the carry of `ft_in` says (JAX 0.12)",
    ("scan", "linear"): "a promise about the operands (older JAX)",
    ("schur", "select_callable"): "it is refused with sort_eig_vals",
    **{
        (f"scatter{kind}", name): "the primitive's name says it"
        for kind in ("-add", "-mul", "-min", "-max", "-sub")
        for name in ("update_jaxpr", "update_consts")
    },
    ("scatter", "update_consts"): "there are none without update_jaxpr, which is refused",
}


def test_every_parameter_is_honoured_or_refused(monkeypatch):
    there, read = defaultdict(set), defaultdict(set)

    class Recorded(dict):
        def __init__(self, name, params):
            super().__init__(params)
            self.name = name
            there[name] |= set(params)

        def __getitem__(self, key):
            read[self.name].add(key)
            return super().__getitem__(key)

        def get(self, key, default=None):
            read[self.name].add(key)
            return super().get(key, default)

    emit = _emit.emit

    def recorded(equation):
        eqn = equation.eqn
        params = Recorded(equation.name, eqn.params)
        return emit(dataclasses.replace(equation, eqn=eqn.replace(params=params)))

    monkeypatch.setattr(_source, "emit", recorded)
    for cases in (SMOOTH, DISCRETE, SMOOTH_LINALG, VALUES_LINALG):
        for f, *args in cases.values():
            lower(f, *(jax.tree.map(jnp.asarray, arg) for arg in args))
    harmless = {name for names in HARMLESS.values() for name in names}
    ignored = {
        (primitive, name)
        for primitive, names in there.items()
        for name in names - read[primitive] - harmless
    }
    assert len(there) > 150
    assert ignored == set(HARMLESS_IN) & ignored, sorted(ignored - set(HARMLESS_IN))


REFUSED = {
    "at[].apply": (lambda x: x.at[1:].apply(jnp.exp), r"x\.at\[i\]\.set\(f\(x\[i\]\)\)"),
    "apply at repeated places": (
        lambda x: x.at[jnp.array([1, 1])].apply(lambda t: t * 2),
        r"x\.at\[i\]\.set",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_honoured_is_refused(name):
    f, words = REFUSED[name]
    with pytest.raises(pb.LoweringError, match=words):
        lower(f, jnp.arange(3.0))


@pytest.mark.skipif(
    "out_dtype" not in inspect.signature(lax.mul).parameters, reason="this JAX has none"
)
def test_a_product_of_another_type():
    def f(x):
        return lax.mul(x, x, out_dtype=jnp.float16)

    x = jnp.array([1.5, 300.0, 1e-3])
    got, want = lower(f, x)(x), f(x)
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(got, want)
