"""`NonDifferentiable` in Julia: a value that arrives as it is and is never asked for."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from bridge_helpers import BY_VALUE, SYSTEMS
from quick import by_day

import pybridge as pb

ND = pb.NonDifferentiable
ANSWER = 2 * np.exp(4.0) / 100


class Pair(NamedTuple):
    p: Any
    n: Any


@pytest.fixture(scope="module")
def program():
    return pb.from_julia("s -> exp(s.p)^2 / s.n")


@pytest.fixture(scope="module")
def product():
    return pb.from_julia("(s, x) -> sum(s.p .* s.n .* x)")


@pytest.mark.parametrize("payload", [100, 100.0, np.float32(100), np.array(100.0)], ids=repr)
def test_it_arrives_as_its_value(program, payload):
    f = pb.from_julia("s -> (string(typeof(s.n)) == string(typeof(s.m))) ? s.n : -s.n")
    assert f({"n": ND(payload), "m": payload}) == payload
    s = Pair(2.0, ND(payload))
    np.testing.assert_allclose(program(s), ANSWER / 2, rtol=1e-12)
    np.testing.assert_allclose(jax.jit(program)(s), ANSWER / 2, rtol=1e-6)
    np.testing.assert_allclose(pb.from_julia("(x, n) -> x * n")(2.0, ND(payload)), 200.0)


@pytest.mark.parametrize(
    "backend, payload",
    [
        *((backend, 100) for backend in (*SYSTEMS, "jax", "finite")),
        ("zygote", jnp.array(100.0)),
        ("yota", np.array(100.0)),
    ],
)
def test_gradients_have_the_same_tree(program, backend, payload):
    p = jnp.array(2.0) if isinstance(payload, jax.Array) else 2.0
    s = Pair(p, ND(payload))
    value, gradient = pb.value_and_grad(program, backend=backend)(s)
    np.testing.assert_allclose(value, ANSWER / 2, rtol=1e-6)
    np.testing.assert_allclose(gradient.p, ANSWER, rtol=1e-6)
    assert isinstance(gradient.n, ND)
    assert jax.tree.structure(gradient) == jax.tree.structure(s)
    jacobian = pb.jacobian(program, backend=backend)(s)
    np.testing.assert_allclose(jacobian.p, ANSWER, rtol=1e-6)
    assert isinstance(jacobian.n, ND)


@pytest.mark.parametrize("backend", by_day(SYSTEMS, ["forwarddiff", "tracker"]))
def test_numpy_keeps_its_precision(product, backend):
    a = np.array([1.0, 2.0, 1e-3])
    gradient, other = pb.grad(product, (0, 1), backend=backend)(Pair(a, ND(a)), a)
    for found in (gradient.p, other):
        assert type(found) is np.ndarray
        assert found.dtype == np.float64
        np.testing.assert_allclose(found, a * a, rtol=1e-15)
    only = pb.grad(product, 1, backend=backend)(Pair(a, ND(a)), a)
    np.testing.assert_allclose(only, a * a, rtol=1e-15)
    assert type(only) is np.ndarray


@pytest.mark.parametrize("backend", by_day(SYSTEMS, ["zygote"]))
def test_inside_jax_programs(product, backend):
    f = product.with_ad(backend)
    a = jnp.arange(3.0) + 1
    for differentiate in (jax.grad, pb.grad):
        gradient = jax.jit(differentiate(f))(Pair(a, ND(2 * a)), a)
        np.testing.assert_allclose(gradient.p, 2 * a * a)
        assert isinstance(gradient.n, ND)
    traces = 0

    @jax.jit
    def counted(s):
        nonlocal traces
        traces += 1
        return jax.grad(f)(s, a).p

    for scale in (1.0, 3.0):
        np.testing.assert_allclose(counted(Pair(a, ND(scale * a))), scale * a * a)
    assert traces == 1
    batch = jax.vmap(jax.grad(f), in_axes=(0, None))(
        Pair(jnp.ones((2, 3)), ND(jnp.ones((2, 3)))), a
    )
    np.testing.assert_allclose(batch.p, [a, a])


def test_vjp_jvp_and_second_order(program, product):
    a = np.array([1.0, 2.0, 3.0])
    for backend in ("zygote", "yota"):
        value, pull = pb.vjp(product, Pair(a, ND(a)), a, backend=backend)
        np.testing.assert_allclose(value, 36.0)
        for _ in range(2):
            back, other = pull(2.0)
            np.testing.assert_allclose(back.p, 2 * a * a)
            np.testing.assert_allclose(other, 2 * a * a)
            assert isinstance(back.n, ND)
    s = Pair(2.0, ND(100))
    value, slope = pb.jvp(program, (s,), (Pair(1.0, s.n),), backend="forwarddiff")
    np.testing.assert_allclose([value, slope], [ANSWER / 2, ANSWER], rtol=1e-12)
    for backend in ("zygote", "forwarddiff"):
        hessian = pb.hessian(program, backend=backend)(s)
        np.testing.assert_allclose(hessian.p.p, 2 * ANSWER, rtol=1e-10)


# A value that ForwardDiff or Tracker follows has another type.
ASKED = """
begin
    const ASKED = Ref(0)
    is_followed(x) = occursin("Dual", string(typeof(x))) || occursin("Tracked", string(typeof(x)))
    function f(s)
        is_followed(s.n) && (ASKED[] += 1)
        s.p * s.n
    end
    asked(x) = ASKED[]
    (s, count) -> count ? float(asked(s)) : f(s)
end
"""


@pytest.mark.parametrize("backend", BY_VALUE)
def test_systems_that_follow_values_do_not_follow_it(backend):
    f = pb.from_julia(ASKED)
    s = {"p": 2.0, "n": ND(3.0)}
    gradient = pb.grad(f, backend=backend)(s, False)
    assert float(gradient["p"]) == 3.0
    assert f(s, True) == 0.0
    # The test sees it where it is followed.
    pb.grad(f, backend=backend)({"p": 2.0, "n": 3.0}, False)
    assert f(s, True) >= 1.0


def test_its_cotangent_is_not_asked_for():
    # A rule of the user's own answers for all leaves; what it says of n is not looked at.
    f = pb.from_julia(
        "s -> s.p * s.n",
        vjp='s -> (s.p * s.n, d -> ((p=d * s.n, n="no number"),))',
    )
    gradient = pb.grad(f)({"p": 2.0, "n": ND(3.0)})
    assert float(gradient["p"]) == 3.0
    assert isinstance(gradient["n"], ND)


@pytest.mark.parametrize("payload", ["text", jax.random.key(0)], ids=["text", "key"])
def test_what_julia_cannot_hold_is_refused(program, payload):
    with pytest.raises(pb.ArgumentTypeError, match="from_julia: expected numbers and arrays"):
        program(Pair(2.0, ND(payload)))
