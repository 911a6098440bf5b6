"""Run with `pytest`, or `pytest --ad-systems=jax,finite` where nobody wants to wait for Julia."""

import losses
import numpy as np
import pytest

import pybridge as pb

X = np.array([-2.0, 0.5, 3.0])


def test_the_rule_of_log_cosh_is_right(assert_consistent):
    assert_consistent(losses.log_cosh, X)


def test_pinball_has_its_kink_and_nothing_else(assert_consistent):
    assert_consistent(
        losses.pinball,
        np.array([-1.0, 0.0, 2.0]),
        strict=True,
        allow=[("kink:jax", "the loss has a corner at 0, where any derivative between is right")],
    )


@pytest.mark.ad_systems("zygote", "forwarddiff", "tracker")
def test_the_twin_in_julia_has_the_same_gradient(ad_system):
    f = pb.from_julia(losses.LOG_COSH_IN_JULIA)
    np.testing.assert_allclose(pb.grad(f, backend=ad_system)(X), np.tanh(X), rtol=1e-9)
