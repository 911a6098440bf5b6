"""Functions that vary over lengths far below their arguments: differences converge elsewhere."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.scipy import special

from pybridge.consistency import check
from pybridge.finite import Curve, is_closer, steady_quotients


def logistic_map(steps):
    return lambda x: lax.fori_loop(0, steps, lambda _, y: 3.9 * y * (1 - y), x)


def lorenz(x):
    def step(_, s):
        x, y, z = s
        return s + 0.01 * jnp.array([10 * (y - x), x * (28 - z) - y, x * y - 8 / 3 * z])

    return lax.fori_loop(0, 1500, step, x)[0]


def deviation(x):
    return jnp.sqrt((x * x).mean() - x.mean() ** 2)


SHARP = {
    "chaos": (logistic_map(32), 0.3),
    "more of it": (logistic_map(36), 0.4),
    "a chaotic flow": (lorenz, np.ones(3)),
    "a deviation that cancels": (deviation, np.array([1000.0, 1000.01, 1000.0201])),
    "of larger numbers": (deviation, np.array([1e4, 1e4 + 0.2, 1e4 + 0.101])),
    "the top of a peak": (lambda x: 1 / ((x - 1000) ** 2 + 1e-4), 1000.0),
    "a ratio of large numbers": (
        lambda n: jnp.exp(special.gammaln(n + 1)) / jnp.exp(special.gammaln(n)),
        60.0,
    ),
    "a difference of what is nearly equal": (lambda x: (jnp.exp(x) - 1 - x) / x**2, 1e-3),
    "1": (lambda x: jnp.exp(x) / (1 + jnp.exp(x)), 100.0),
}


@pytest.mark.parametrize("name", SHARP)
def test_a_right_derivative_is_no_error(name, x64):
    f, x = SHARP[name]
    report = check(f, x, backends=["jax"])
    assert [f.title for f in report.findings if f.severity == "error"] == []
    assert not any("not symmetric" in f.title for f in report.findings)


@pytest.mark.parametrize("factor", [2.0, 0.5, -1.0])
@pytest.mark.parametrize("name", ["chaos", "a deviation that cancels", "the top of a peak"])
def test_a_wrong_one_is(name, factor, x64):
    f, x = SHARP[name]
    wrong = jax.custom_jvp(f)
    wrong.defjvp(lambda x, t: (f(*x), factor * jax.jvp(f, x, t)[1]))
    x = x + 0.003 if name == "the top of a peak" else x
    assert check(wrong, x, backends=["jax"]).of_kind("finite")


def curve(f, x, size=1.0):
    return Curve(lambda ts: f(x + ts)[:, None], np.array([f(x)]), size, blur=abs(x))


def test_the_closest_quotients_show_what_varies_over_short_lengths():
    f = np.vectorize(lambda x: x + 1e-7 * np.sin(1e9 * x), otypes=[float])
    steady = steady_quotients(curve(f, 1.0))[:, 0]
    slopes = steady[~np.isnan(steady)]
    near, far = 1 + 100 * np.cos(1e9), 1.0
    np.testing.assert_allclose(slopes[0], near, rtol=0.05)
    np.testing.assert_allclose(slopes[-1], far, rtol=0.05)
    # Both are there, so that neither is preferred.
    both = np.array([near, far]), np.array([far, near])
    assert not is_closer(*both, np.stack([steady, steady], 1)).any()


def test_a_derivative_is_preferred_only_where_the_other_is_not_there():
    steady = steady_quotients(curve(np.sin, 1.0))
    right, wrong = np.array([np.cos(1.0)]), np.array([0.0])
    assert is_closer(right, wrong, steady).all()
    assert not is_closer(wrong, right, steady).any()
    assert not is_closer(right * (1 + 1e-6), right, steady).any()
    assert not is_closer(wrong, wrong, steady_quotients(curve(np.ones_like, 1.0))).any()


BESIDE_A_KINK = {
    "a tiny number": (jnp.abs, 1e-25),
    "another point": (lambda x: jnp.abs(x - 1), 1 + 1e-9),
    "on the flat side": (lambda x: jax.nn.relu(x - 3) + x, 3 - 1e-7),
    "a length": (lambda x: jnp.hypot(x[0], x[1]), np.array([1e-25, 2e-25])),
    "a norm": (jnp.linalg.norm, np.array([1e-20, 3e-20, -2e-20])),
    "round and sharp": (lambda x: jnp.sqrt(x * x + 1e-30), 1e-16),
    "one among many": (lambda x: jnp.abs(x).sum(), np.append(1e-9, np.linspace(1, 2, 60))),
}


@pytest.mark.parametrize("name", BESIDE_A_KINK)
def test_next_to_a_kink_there_is_a_derivative(name, x64):
    report = check(*BESIDE_A_KINK[name])
    assert report.ok and not report.of_kind("kink")


def test_and_a_wrong_one_is_found(x64):
    f = jax.custom_jvp(jnp.abs)
    f.defjvp(lambda primals, tangents: (jnp.abs(primals[0]), 0.5 * tangents[0]))
    (finding,) = check(f, 1e-9).of_kind("finite")
    assert finding.severity == "error"
    np.testing.assert_allclose(finding.numbers["finite"], 1.0, rtol=1e-4)


def test_a_kink_is_at_the_point_where_the_callers_numbers_do_not_tell():
    # 0.1 in float32 is 1.5e-9 away from 0.1, and the caller's difference is 0.
    assert check(lambda x: jnp.abs(x - 0.1), np.float32(0.1)).of_kind("kink")
