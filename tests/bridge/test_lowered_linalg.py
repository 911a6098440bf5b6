"""Linear algebra in Julia against JAX: values, gradients by each AD system, whole programs."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import jax.scipy.linalg as jsl
import numpy as np
import pytest
from bridge_helpers import SYSTEMS
from jax import lax
from lowering_cases_linalg import SMOOTH, VALUES
from quick import by_day
from test_lowered_primitives import arrays, compare, lowered_cases, together, weighted

import pybridge as pb
from pybridge.finite import double_precision
from pybridge.lowering import lower

# Float32 matrices whose condition is up to a few hundred.
TOLERANCE = {"rtol": 2e-4, "atol": 2e-4}

# ForwardDiff and Zygote share no code in a rule: one has its tangents, one its cotangents.
ORDINARY = ("zygote", "forwarddiff")
GROUP = 15


def groups(table):
    names = list(table)
    return [names[i : i + GROUP] for i in range(0, len(names), GROUP)]


def gradients_agree(f, args, system):
    args = arrays(args)
    numbers = tuple(range(len(args)))
    want = jax.value_and_grad(weighted(f), numbers)(*args)
    compare(pb.value_and_grad(weighted(f), numbers, backend=system)(*args), want, **TOLERANCE)


@pytest.mark.parametrize(
    ("table", "names"),
    [pytest.param(t, names, id=names[0]) for t in (SMOOTH, VALUES) for names in groups(t)],
)
def test_the_values_are_jaxs(table, names, saw):
    saw("value", lowered_cases(names, table))
    f, args = together(names, table)
    args = arrays(args)
    compare(lower(f, *args)(*args), f(*args), rtol=2e-5, atol=2e-5)


# What others here do as well, in other words or of other shapes.
OTHERWISE = (
    *("cholesky of one number", "cholesky in a scan", "solve for a vector", "lu of a tall matrix"),
    *("lu_solve", "cho_solve", "solve_triangular", "cg", "svd of a wide matrix", "pinv"),
    "solve of one matrix under vmap",
)
BY_DAY = {name: case for name, case in SMOOTH.items() if name not in OTHERWISE}


@pytest.mark.parametrize("names", groups(BY_DAY), ids=lambda names: names[0])
def test_the_gradients_are_jaxs(names, saw):
    saw("zygote", lowered_cases(names, SMOOTH))
    gradients_agree(*together(names, SMOOTH), "zygote")


@pytest.mark.nightly
@pytest.mark.parametrize("name", SMOOTH)
def test_the_gradient_is_jaxs(name, system, saw):
    saw(system, lowered_cases([name], SMOOTH))
    gradients_agree(*together([name], SMOOTH), system)


@pytest.mark.nightly
def test_the_gradient_is_that_of_finite_differences():
    def f(a, b):
        s = a @ a.T + jnp.eye(3)
        w, v = jnp.linalg.eigh(s)
        q, r = jnp.linalg.qr(a)
        u, d, _ = jnp.linalg.svd(a)
        x = jsl.cho_solve(jsl.cho_factor(s), b) + jnp.linalg.solve(a, b)
        return jnp.sum(jnp.sin(x)) + (v[:, 0] @ b) ** 2 * w[1] + q[0, 1] * r[0, 0] + u[0, 0] * d[1]

    random = np.random.default_rng(5)
    a, b = random.normal(size=(3, 3)) + 2 * np.eye(3), random.normal(size=3)
    with double_precision():
        got = pb.grad(f, (0, 1), backend="zygote")(a, b)
        for x, slope, put in ((a, got[0], lambda x: f(x, b)), (b, got[1], lambda x: f(a, x))):
            direction = random.normal(size=x.shape)
            h = 1e-6
            difference = (put(x + h * direction) - put(x - h * direction)) / (2 * h)
            np.testing.assert_allclose(np.sum(slope * direction), difference, rtol=1e-7)


def test_equal_eigenvalues_give_what_jax_gives():
    def f(a):
        return jnp.sum(jnp.linalg.eigh(a)[1] * jnp.arange(4.0).reshape(2, 2))

    a = jnp.eye(2)
    want = jax.grad(f)(a)
    assert not np.all(np.isfinite(want))
    np.testing.assert_array_equal(pb.grad(f, backend="zygote")(a), want)


@pytest.mark.parametrize(
    ("f", "said"),
    [
        (lambda a: jnp.sum(lax.linalg.hessenberg(a)[0]), "'hessenberg' is not defined"),
        (lambda a: jnp.abs(jnp.linalg.eig(a)[1]).sum(), "enable_eigvec_derivs=True"),
    ],
    ids=["hessenberg", "eigenvectors"],
)
def test_a_derivative_that_jax_does_not_have_is_refused(f, said):
    a = jnp.array([[1.0, 2.0], [3.0, 5.0]])
    with pytest.raises(NotImplementedError):
        jax.grad(f)(a)
    with pytest.raises(pb.JuliaError, match=said):
        pb.grad(f, backend="zygote")(a)


def test_what_jax_has_on_no_cpu_is_refused_by_name():
    with pytest.raises(pb.LoweringError, match="'eigh' with subset_by_index"):
        lower(lambda a: lax.linalg.eigh(a, subset_by_index=(0, 1)), jnp.eye(3))


def evidence(parameters, x, y):
    """The log marginal likelihood of a Gaussian process with an RBF kernel, less its constant."""
    scale, width, noise = jnp.exp(parameters)
    gaps = (x[:, None] - x[None, :]) / width
    k = scale**2 * jnp.exp(-0.5 * gaps**2) + noise * jnp.eye(x.size)
    factor = jsl.cho_factor(k, lower=True)
    fit = y @ jsl.cho_solve(factor, y)
    return -0.5 * fit - jnp.sum(jnp.log(jnp.diag(factor[0])))


def test_the_evidence_of_a_gaussian_process(compiling_system):
    x = jnp.linspace(-2.0, 2.0, 8)
    args = jnp.array([0.1, -0.3, -1.5]), x, jnp.sin(2 * x)
    got = pb.value_and_grad(evidence, backend=compiling_system)(*args)
    compare(got, jax.value_and_grad(evidence)(*args), rtol=1e-4, atol=1e-4)


def filtered(noise, turn, observed):
    """The negative log likelihood of a Kalman filter, up to its constant."""
    motion = jnp.array([[jnp.cos(turn), jnp.sin(turn)], [-jnp.sin(turn), jnp.cos(turn)]])
    q, r = jnp.exp(noise[0]) * jnp.eye(2), jnp.exp(noise[1]) * jnp.eye(2)

    def step(carry, y):
        mean, cov = carry
        mean, cov = motion @ mean, motion @ cov @ motion.T + q
        s = cov + r
        solved = jnp.linalg.solve(s, jnp.concatenate([(y - mean)[:, None], cov], 1))
        loss = (y - mean) @ solved[:, 0] + jnp.log(jnp.linalg.det(s))
        return (mean + cov @ solved[:, 0], cov - cov @ solved[:, 1:]), loss

    _, losses = lax.scan(step, (jnp.zeros(2), jnp.eye(2)), observed)
    return 0.5 * jnp.sum(losses)


def test_a_kalman_filter(compiling_system):
    observed = jnp.asarray(np.random.default_rng(2).normal(size=(5, 2)), jnp.float32)
    args = jnp.array([-0.5, 0.2]), jnp.float32(0.3), observed
    got = pb.value_and_grad(filtered, (0, 1), backend=compiling_system)(*args)
    compare(got, jax.value_and_grad(filtered, (0, 1))(*args), rtol=1e-4, atol=1e-4)


@pytest.mark.nightly
def test_second_derivatives():
    def f(s):
        s = s @ s.T + jnp.eye(2)
        return jnp.sum(jnp.log(jnp.diag(jnp.linalg.cholesky(s)))) + jnp.linalg.solve(s, s[0])[1]

    s = jnp.array([[1.0, 2.0], [0.5, -1.0]])
    want = jax.hessian(f)(s)
    for backend in ORDINARY:
        compare(pb.hessian(f, backend=backend)(s), want, rtol=1e-4, atol=1e-4)


def _numbers(tree):
    """Make a real number of complex results, in which no conjugate cancels."""
    return sum(jnp.sum(jnp.real(y * (1 + 0.5j) ** jnp.arange(1, 3))) for y in jax.tree.leaves(tree))


@jax.custom_vjp
def square_of(z):
    return 1j * z * z


square_of.defvjp(lambda z: (1j * z * z, z), lambda z, ct: (2j * z * ct,))

COMPLEX_RULES = {
    "slogdet": jnp.linalg.slogdet,
    "log of a determinant": lambda a: jnp.linalg.slogdet(a[..., :1, :1] + a)[1],
    "det": jnp.linalg.det,
    "solve": lambda a: jnp.linalg.solve(a, a[:, :1] + 1),
    "custom_vjp": square_of,
}


# Each rule by one system, and each system by one: this one is what Mooncake derives soonest.
PAIRS = [
    ("slogdet", "zygote"),
    ("slogdet", "reversediff"),
    ("log of a determinant", "forwarddiff"),
    ("det", "tracker"),
    ("solve", "yota"),
    ("custom_vjp", "mooncake"),
]


@pytest.mark.parametrize(
    ("name", "system"), by_day(itertools.product(COMPLEX_RULES, SYSTEMS), PAIRS)
)
def test_rules_of_jax_for_complex_numbers(name, system):
    """A real argument and, where the system takes one, a complex one."""
    if (name, system) == ("custom_vjp", "forwarddiff"):
        pytest.skip("a custom_vjp has no rule for forward mode, in JAX neither")
    at = jnp.array([[1.0 + 0.5j, -0.3j], [0.7, 2.0 - 1.0j]], jnp.complex64)
    towards = jnp.array([[0.2 - 1.0j, 0.5], [0.3j, -0.4 + 0.1j]], jnp.complex64)

    def of_real(t):
        return _numbers(COMPLEX_RULES[name](at + t * towards))

    want = jax.grad(of_real)(0.3)
    np.testing.assert_allclose(pb.grad(of_real, backend=system)(0.3), want, rtol=1e-4)
    if system in ("zygote", "yota"):
        want = jax.grad(lambda a: _numbers(COMPLEX_RULES[name](a)))(at)
        got = pb.grad(lambda a: _numbers(COMPLEX_RULES[name](a)), backend=system)(at)
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_flags_given_as_numbers():
    s, b = jnp.array([[2.0, 0.3], [1.0, 3.0]]), jnp.array([[1.0], [2.0]])

    def f(s):
        return (
            lax.linalg.triangular_solve(s, b, left_side=1, lower=1, transpose_a=0),
            lax.linalg.qr(s, full_matrices=0),
            lax.linalg.svd(s, compute_uv=0, full_matrices=0),
            lax.linalg.eigh(s, lower=1),
        )

    jax.tree.map(
        lambda got, want: np.testing.assert_allclose(jnp.abs(got), jnp.abs(want), rtol=1e-5),
        jax.tree.leaves(lower(f, s)(s)),
        jax.tree.leaves(f(s)),
    )
