"""The table of AD systems: what it says of each is what it does."""

import jax.numpy as jnp
import pytest

import pybridge as pb
from pybridge._backends import TABLE, row

PYTHON = [system for system in TABLE if system.language == "python"]


@pytest.mark.parametrize("system", PYTHON, ids=lambda system: system.name)
def test_modes_and_second_order_of_pythons_systems(system):
    tried = {
        "reverse": lambda: pb.vjp(jnp.sin, 1.0, backend=system.name),
        "forward": lambda: pb.jvp(jnp.sin, (1.0,), (1.0,), backend=system.name),
        "second": lambda: pb.hessian(jnp.sin, backend=system.name)(1.0),
    }
    able = set()
    for mode, run in tried.items():
        try:
            run()
            able.add(mode)
        except pb.UnsupportedModeError:
            pass
    assert able == set(system.modes)


@pytest.mark.parametrize("system", PYTHON, ids=lambda system: system.name)
def test_detection_of_pythons_systems(system):
    def f(w, x):
        asked = jnp.stack([pb.within_gradient(w), pb.within_gradient(x)])
        return w * x, asked

    _, (w, x) = pb.grad(f, backend=system.name, has_aux=True)(2.0, 3.0)
    expected = {"value": (True, False), "program": (True, True), "none": (False, False)}
    assert (bool(w), bool(x)) == expected[system.detection]


def test_what_a_system_can_do_is_not_shown_twice():
    shown = repr(row("zygote"))
    assert "mode='reverse'" in shown and "chainrules" not in shown
