"""A gradient that is zero because of a flat operation has a note with the line."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from pybridge.consistency import check

X = np.array([0.3, 1.7, -0.6])


@jax.jit
def rounded(x):
    return jnp.round(x) * 2


def looped(x):
    return lax.fori_loop(0, 3, lambda i, y: y + jnp.floor(x), jnp.zeros_like(x)).sum()


FLAT = {
    "round": (lambda x: jnp.round(x).sum(), "round"),
    "round, jit": (lambda x: rounded(x).sum(), "round"),
    "floor, then smooth": (lambda x: jnp.sin(jnp.floor(x)).sum(), "floor"),
    "ceil": (lambda x: jnp.ceil(x).sum(), "ceil"),
    "sign": (lambda x: (jnp.sign(x) * 3.0).sum(), "sign"),
    "cast": (lambda x: x.astype(int).astype(float).sum(), "convert_element_type"),
    "argmax": (lambda x: jnp.argmax(x).astype(float), "argmax"),
    "read": (lambda x: jnp.arange(5.0)[jnp.argmin(x)], "argmin"),
    "step": (lambda x: jnp.where(x > 0, 1.0, 0.5).sum(), "gt"),
    "count": (lambda x: jnp.mean(x > 0), "gt"),
    "search": (lambda x: jnp.searchsorted(jnp.arange(3.0), x).astype(float).sum(), "le_to"),
    "branch": (lambda x: lax.cond(x[0] > 0, lambda: 1.0, lambda: 2.0), "gt"),
    "loop": (looped, "floor"),
    "scan": (lambda x: lax.scan(lambda c, y: (c + jnp.sign(y), None), 0.0, x)[0], "sign"),
}


@pytest.mark.parametrize(("f", "primitive"), FLAT.values(), ids=FLAT)
def test_a_flat_operation_is_named_with_its_line(f, primitive):
    report = check(f, X, backends=["jax"])
    (finding,) = report.of_kind("zero")
    assert report.ok
    assert (finding.severity, finding.primitive, finding.argument) == ("note", primitive, "args[0]")
    assert finding.location.file == __file__
    assert ("comparison" in finding.title) == (primitive in ("gt", "le_to"))


SMOOTH = {
    "read at the largest": lambda x: x[jnp.argmax(x)],
    "dead relu": lambda x: jax.nn.relu(x - 10).sum(),
    "product": lambda x: (x * jnp.sign(x)).sum(),
    "times zero": lambda x: (0 * x).sum(),
    "straight through": lambda x: (x + lax.stop_gradient(jnp.round(x) - x)).sum() * 1.0,
    "unused": lambda x: 1.0 + 0 * x.sum(),
    "sorted": lambda x: jnp.sort(x)[0],
}


@pytest.mark.parametrize("f", SMOOTH.values(), ids=SMOOTH)
def test_a_gradient_that_is_zero_for_another_reason_has_no_note(f):
    assert check(f, X, backends=["jax"]).of_kind("zero") == []


def test_the_argument_is_named():
    report = check(lambda w, x: (w * jnp.round(x)).sum(), X, X, backends=["jax"])
    assert [f.argument for f in report.of_kind("zero")] == ["args[1]"]
