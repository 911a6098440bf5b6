"""Iterative solvers are right to their own accuracy; a wrong rule of theirs is not."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental.ode import odeint
from jax.scipy.sparse.linalg import bicgstab, cg
from quick import by_day

from pybridge import ArgumentValueError
from pybridge.consistency import ConsistencyError, assert_consistent, check
from pybridge.consistency.subject import run_on


def fixed_point(a, tolerance=1e-5, factor=1.0):
    """Solve y = cos(a y) by iteration, with the derivative of the limit times a factor."""

    @jax.custom_jvp
    def solve(a):
        start = jnp.zeros_like(a), jnp.full_like(a, 0.5)
        far = lambda c: jnp.abs(c[1] - c[0]) > tolerance  # noqa: E731
        return lax.while_loop(far, lambda c: (c[1], jnp.cos(a * c[1])), start)[1]

    @solve.defjvp
    def _(primals, tangents):
        (a,) = primals
        y = solve(a)
        s = -jnp.sin(a * y)
        return y, factor * tangents[0] * s * y / (1 - s * a)

    return solve(a)


def root(a, steps):
    return lax.custom_root(
        lambda y: y - jnp.cos(a * y),
        0.5 * jnp.ones_like(a),
        lambda f, y: lax.fori_loop(0, steps, lambda i, y: y - f(y), y),
        lambda g, y: y / g(jnp.ones_like(y)),
    )


def decay(k):
    times = jnp.linspace(0.0, 2.0, 3)
    return odeint(lambda y, t, k: -k * y, jnp.array(1.0), times, k)[-1]


def bands(a):
    return bicgstab(lambda x: a * x + 0.1 * jnp.roll(x, 1), jnp.arange(1.0, 5), tol=1e-6)[0].sum()


SOLVERS = {
    "0.9": (fixed_point, 0.9),
    "0.5": (fixed_point, 0.5),
    "1e-3": (lambda a: fixed_point(a, 1e-3), 0.7),
    "root": (lambda a: root(a, 20), 0.9),
    "60 steps": (lambda a: root(a, 60), 1.2),
    "odeint": (decay, 0.7),
    "bicgstab": (bands, 2.0),
}


@pytest.mark.parametrize("name", by_day(SOLVERS, ["0.9", "root", "odeint"]))
def test_a_solver_that_is_right_to_its_tolerance_is_no_error(name):
    f, x = SOLVERS[name]
    report = check(f, x, backends=["jax"])
    assert report.ok
    assert {f.severity for f in report.findings} <= {"note"}
    for note in report.of_kind("finite"):
        assert "within the accuracy of the function itself" in note.title


@pytest.mark.parametrize("name", by_day(SOLVERS, ["0.9", "root", "bicgstab"]))
def test_so_it_is_in_each_lane_of_a_batch(name):
    f, x = SOLVERS[name]
    report = check(jax.vmap(f), jnp.array([x, 0.8 * x, x - 0.1]), backends=["jax"])
    assert {f.severity for f in report.findings} <= {"note"}


def test_a_lane_that_stops_far_from_its_limit_is_an_error():
    # 60 steps at 1.3 leave a tenth of the value: the limit's derivative is not the iterate's.
    report = check(jax.vmap(lambda a: root(a, 60)), jnp.array([1.2, 1.3]), backends=["jax"])
    (finding,) = (f for f in report.findings if f.severity == "error")
    assert finding.element == (1,)


@pytest.mark.parametrize("lanes", [False, True])
@pytest.mark.parametrize("factor", [-1.0, 1.01, 0.0])
@pytest.mark.parametrize("tolerance", [1e-5, 1e-8])
def test_a_wrong_rule_of_a_solver_is_an_error(factor, tolerance, lanes):
    f = lambda a: fixed_point(a, tolerance, factor)  # noqa: E731
    f, x = (jax.vmap(f), jnp.array([0.9, 0.5])) if lanes else (f, 0.9)
    report = check(f, x, backends=["jax"])
    assert {f.severity for f in report.of_kind("finite")} == {"error"}


def test_a_wrong_rule_beside_a_loop_that_does_not_converge_is_an_error():
    @jax.custom_jvp
    def power(x):
        return lax.fori_loop(0, 5, lambda i, y: y * x, jnp.ones_like(x))

    power.defjvp(lambda p, t: (power(*p), 5.001 * p[0] ** 4 * t[0]))
    assert not check(power, 1.3, backends=["jax"]).ok


def test_loops_run_on():
    closed = jax.make_jaxpr(lambda x: lax.fori_loop(0, 3, lambda i, y: y * x, x))(2.0)
    assert [float(run_on(closed, [2.0], more)[0]) for more in (0, 1, 4)] == [16, 32, 256]
    halves = jax.make_jaxpr(lambda x: lax.while_loop(lambda y: y > 1, lambda y: y / 2, x))(6.0)
    assert [float(run_on(halves, [6.0], more)[0]) for more in (0, 1, 2)] == [0.75, 0.375, 0.1875]


def test_loops_of_a_batch_run_on_lane_by_lane():
    f = lambda x, to: lax.while_loop(lambda y: y > to, lambda y: y / 2, x)  # noqa: E731
    points = jnp.array([6.0, 0.5, 40.0]), jnp.array([1.0, 2.0, 3.0])
    batch = jax.make_jaxpr(jax.vmap(f))(*points)
    for more in (0, 1, 4):
        alone = [run_on(jax.make_jaxpr(f)(*xs), xs, more)[0] for xs in zip(*points, strict=True)]
        assert run_on(batch, points, more)[0].tolist() == alone


def test_a_missing_hessian_of_a_linear_solver_is_a_note():
    matrix = jnp.array([[4.0, 1, 0], [1, 3, 1], [0, 1, 2]])
    report = check(
        lambda b: cg(lambda x: matrix @ x, b)[0].sum(), np.arange(1.0, 4), backends=["jax"]
    )
    assert [(f.kind, f.severity) for f in report.findings] == [("unsupported", "note")]


def scaled(factor):
    f = jax.custom_jvp(jnp.sin)
    f.defjvp(lambda p, t: (jnp.sin(*p), factor * jnp.cos(*p) * t[0]))
    return f


def test_tolerances_of_the_caller_let_derivatives_differ():
    f, x = scaled(1 + 1e-4), 0.3
    assert not check(f, x, backends=["jax"]).ok
    assert check(f, x, backends=["jax"], rtol=1e-3).ok
    assert check(f, x, backends=["jax"], atol=1e-3).ok
    assert not check(f, x, backends=["jax"], rtol=1e-5, atol=1e-5).ok
    assert_consistent(f, x, backends=["jax"], rtol=1e-3)
    with pytest.raises(ConsistencyError):
        assert_consistent(f, x, backends=["jax"], atol=1e-6)


@pytest.mark.parametrize("options", [{"rtol": -1.0}, {"atol": np.nan}, {"rtol": "1e-3"}])
def test_what_is_no_tolerance_is_refused(options):
    with pytest.raises(ArgumentValueError, match="at least 0"):
        check(jnp.sin, 0.3, backends=["jax"], **options)


def test_the_fixture_takes_tolerances(assert_consistent):
    assert assert_consistent(scaled(1 + 1e-4), 0.3, backends=["jax"], rtol=1e-3).ok


def test_a_loop_that_ends_at_the_very_point_alone_does_not_hang():
    f = lambda x: jax.lax.while_loop(lambda y: y != 1.0, lambda y: y - 0.5, x) * x  # noqa: E731
    for report in (
        check(f, 3.0, backends=["jax"]),
        check(jax.vmap(f), jnp.array([3.0, 2.0]), backends=["jax"]),
    ):
        assert [finding.kind for finding in report.findings if finding.severity == "error"] == []
