"""Programs that nobody here wrote, lowered as they are: value and gradient under each system."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from bridge_helpers import SYSTEMS
from peer_functions import GROUPS, as_program, optax_groups
from peer_programs import PROGRAMS

import pybridge as pb
from pybridge.lowering import lower

# Compiling is what takes the time; the night has all systems. Groups have a dozen functions each:
# by day the values of a few, since test_lowered_primitives.py has what they are made of.
GROUPS_BY_DAY = (
    "jax.scipy.special: logistic and normal",
    "jax.scipy.special: integrals and series",
    "jax.scipy.stats: counts",
    "optax losses: classification",
)
OF_GROUPS = ("value", *(pytest.param(name, marks=pytest.mark.nightly) for name in SYSTEMS))
NIGHT = [pytest.mark.nightly]
OPTAX = ["regression", "classification", "sequences"]

# Programs that a system cannot do, each with its reason; one that works again is an error.
GAPS: dict[tuple[str, str], str] = {}


def compare(got, want):
    assert jax.tree.structure(got) == jax.tree.structure(want)
    sizes = [_size(leaf) for leaf in jax.tree.leaves(want)]
    # What ought to be zero, as the gradient of an attention's key bias, has the rounding of the
    # numbers that cancel, which are those of the other leaves.
    cancelled = 16 * float(jnp.finfo(jnp.float32).eps) * max(sizes)
    pairs = zip(jax.tree.leaves(got), jax.tree.leaves(want), sizes, strict=True)
    for one, other, size in pairs:
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
        if jnp.issubdtype(one.dtype, np.inexact):
            atol = max(2e-5 * size, cancelled, 2e-7)
            np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=1e-4, atol=atol)


def _size(leaf):
    """Return the largest finite number; 0 of integers."""
    if not jnp.issubdtype(leaf.dtype, np.inexact):
        return 0.0
    return float(jnp.max(jnp.where(jnp.isfinite(leaf), jnp.abs(leaf), 0), initial=0.0))


def functions(group):
    if group.startswith("optax"):
        return optax_groups()[group]
    return GROUPS[group]


def gradient_agrees(f, args, numbers, system, of_jax):
    compare(
        pb.value_and_grad(f, numbers, backend=system)(*args),
        of_jax(f, numbers)(*args),
    )


def value_and_jacfwd(f, numbers):
    return lambda *args: (f(*args), jax.jacfwd(f, numbers)(*args))


def checked(title, f, args, numbers, column, saw, expected, of_jax=jax.value_and_grad):
    lowered = lower(f, *args)
    assert expected <= set(lowered.primitives)
    gap = GAPS.get((title, column), "")
    saw(column, {title: lambda: lowered}, table="programs", gap=gap)
    if column == "value":
        compare(lowered(*args), f(*args))
    elif gap:
        with pytest.raises(pb.BridgeError):
            gradient_agrees(f, args, numbers, column, of_jax)
    else:
        gradient_agrees(f, args, numbers, column, of_jax)


# The gradients that take a minute to compile have the night as well.
LONG = (
    "Flax linen: transformer block with dropout",
    "Flax nnx: self-attention",
    "Flax nnx: CNN with batch normalisation",
    "Gaussian process: multivariate normal density",
)


def whose(title):
    """Mark a program with the peer that its title begins with."""
    peer = title.split()[0].strip(":").lower()
    return [pytest.mark.peers(peer)] if peer in ("equinox", "flax", "optax") else []


def when(title, column):
    # The gradient's test has the value as well.
    long = column != ("value" if title in LONG else "zygote")
    return NIGHT if long else []


EACH = [
    pytest.param(title, column, marks=whose(title) + when(title, column))
    for title in PROGRAMS
    for column in ("value", *SYSTEMS)
]
ALL_GROUPS = [
    pytest.param(group, marks=whose(group) + ([] if group in GROUPS_BY_DAY else NIGHT))
    for group in [*GROUPS, *(f"optax losses: {name}" for name in OPTAX)]
]


@pytest.mark.parametrize(("title", "column"), EACH)
def test_a_program(title, column, saw):
    f, args, expected = PROGRAMS[title]()
    checked(title, f, args, 0, column, saw, expected)


@pytest.mark.parametrize("column", OF_GROUPS)
@pytest.mark.parametrize("group", ALL_GROUPS)
def test_a_group_of_functions(group, column, saw):
    calls, expected = functions(group)
    f, args = as_program(calls)
    if column == "value":
        checked(group, f, args, 0, column, saw, expected)
        return

    def total(*args):
        return sum(f(*args))

    numbers = tuple(i for i, x in enumerate(args) if jnp.issubdtype(x.dtype, np.inexact))
    # In reverse mode JAX's own `spence` is NaN between 1 and 2, in forward mode it is not.
    of_jax = value_and_jacfwd if column == "forwarddiff" else jax.value_and_grad
    checked(group, total, args, numbers, column, saw, expected, of_jax)
