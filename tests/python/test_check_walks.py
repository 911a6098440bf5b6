"""How a check looks into programs: as far as it has to, and rules beside their functions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from pybridge.consistency.detectors._custom_rules import faulty_rules
from pybridge.consistency.subject import walk

# The first is run in NumPy, the second has more steps than that takes.
LENGTHS = (3, 3000)


def double(length, factor):
    """Make a function that is 2 x, by so many steps, and other numbers in its rule."""

    @jax.custom_jvp
    def twice(x):
        return lax.fori_loop(0, length, lambda i, y: y + 2 * x / length, 0 * x)

    @twice.defjvp
    def _(primals, tangents):
        return factor * twice(*primals), 2 * tangents[0]

    return twice


@pytest.mark.parametrize("length", LENGTHS)
def test_a_rule_that_computes_another_value_is_found_however_long_its_loop_is(length):
    x = np.float32(1.5)
    right, wrong = (jax.make_jaxpr(double(length, factor))(x) for factor in (1, 1.01))
    assert faulty_rules(right, (x,), 1e-5) == []
    (fault,) = faulty_rules(wrong, (x,), 1e-5)
    assert fault.name == "twice"
    assert fault.inside == pytest.approx(1.01 * fault.plain)
    assert fault.plain == pytest.approx(3, rel=1e-3)


def test_what_comes_after_the_last_operation_to_visit_is_not_run():
    ran, met = [], []

    def watched(x):
        before = jnp.floor(x + 1)
        return jax.pure_callback(lambda y: ran.append(y) or y, before, jnp.cos(before))

    walk(
        jax.make_jaxpr(watched)(1.5),
        (jnp.float32(1.5),),
        frozenset({"floor"}),
        lambda seen: met.append((seen.ins, seen.outs())),
    )
    assert met == [([2.5], [2.0])]
    assert ran == []
