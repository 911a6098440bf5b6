"""What `pb.check` makes of functions that are others in double precision."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import pybridge as pb
from pybridge.consistency import check

KEY = jax.random.key(0)

# JAX draws other numbers in double precision, while the value may be the same.
DRAWS = {
    "mask": lambda x: jnp.sum(jnp.where(jax.random.bernoulli(KEY, 0.5, x.shape), x, 0)),
    "noise": lambda x: jnp.sum(x * jax.random.normal(KEY, x.shape)),
    "score": lambda x: jax.nn.log_softmax(x)[jax.random.categorical(KEY, lax.stop_gradient(x))],
    "choice": lambda x: jax.random.choice(KEY, x, p=jnp.full(4, 0.25)),
    "scan": lambda x: lax.scan(
        lambda c, key: (c * jax.random.uniform(key, (4,)), None), x, jax.random.split(KEY, 3)
    )[0].sum(),
}


@pytest.mark.parametrize("name", DRAWS)
def test_random_numbers_of_another_dtype_are_no_fault(name):
    assert check(DRAWS[name], jnp.ones(4), backends=["jax"]).findings == ()


def test_a_wrong_rule_beside_random_numbers_is_found():
    sin = jax.custom_jvp(jnp.sin)
    sin.defjvp(lambda p, t: (jnp.sin(*p), 1.01 * jnp.cos(*p) * t[0]))
    report = check(lambda x: DRAWS["noise"](sin(x)), jnp.ones(4), backends=["jax"])
    assert {f.kind for f in report.findings if f.severity == "error"} == {"finite"}


def test_a_gamma_samples_derivative_is_that_of_its_distribution():
    def sample(a):
        return jax.random.gamma(jax.random.key(7), a)

    report = check(sample, jnp.float32(1.7), backends=["jax"])
    (finding,) = report.findings
    assert (finding.kind, finding.severity, finding.primitive) == (
        "finite",
        "warning",
        "random_gamma",
    )
    assert "implicit reparametrisation" in finding.advice
    assert pb.explain_nan(sample, jnp.float32(1.7)).ok


def single(x):
    return jnp.ones(x.shape, jnp.float32)


def forward_rule(factor):
    f = jax.custom_jvp(jnp.sin)
    f.defjvp(lambda p, t: (jnp.sin(*p), (factor * jnp.cos(*p) * t[0]).astype(jnp.float32)))
    return f


def backward_rule(factor):
    f = jax.custom_vjp(jnp.sin)
    f.defvjp(
        lambda x: (jnp.sin(x), x),
        lambda x, ct: (lax.mul(factor * ct * jnp.cos(x), single(x)),),
    )
    return f


def root(factor):
    def solve(x):
        return lax.custom_root(
            lambda y: y**2 - x,
            jnp.sqrt(x),
            lambda f, y: y,
            lambda g, y: lax.mul(factor * y / g(jnp.ones_like(y)), single(y)),
        )

    return solve


@pytest.mark.parametrize("make", [forward_rule, backward_rule, root])
@pytest.mark.parametrize("factor", [1.0, 1.1])
def test_a_rule_for_single_precision_alone_is_checked_in_single_precision(make, factor):
    report = check(lambda x: make(factor)(x).sum(), jnp.linspace(0.1, 1, 4), backends=["jax"])
    kinds = {finding.kind for finding in report.findings if finding.severity == "error"}
    assert kinds == (set() if factor == 1 else {"finite"})


@pytest.mark.parametrize("action", ["default", "error"])
def test_warnings_as_errors_lose_no_finding(action):
    def overflows(x):
        return jnp.sum(jnp.log(jnp.exp(x * 60) + 1)) + jnp.sum(
            jnp.exp(lax.complex(0 * x, x)).imag ** 2
        )

    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter(action)
        report = check(overflows, np.linspace(0.3, 3, 10, dtype=np.float32), backends=["jax"])
    assert not seen
    assert [finding.kind for finding in report.findings] == ["precision", "precision"]


def test_what_jax_warns_of_in_double_precision_alone_is_not_shown():
    def scatter(x):
        return jnp.zeros(6, jnp.float32).at[jnp.array([1, 2])].set(x).sum()

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert check(scatter, jnp.ones(2), backends=["jax"]).ok
