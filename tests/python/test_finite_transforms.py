"""`pb.grad` and its relatives with `backend="finite"`: what they take, and in which dtypes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import pybridge as pb


@pytest.mark.parametrize(
    "primals, tangents, error, message",
    [
        ((3.0,), (1.0, 5.0), pb.ArgumentTypeError, "tangents of the primals' structure"),
        ((3.0, 2.0), (1.0,), pb.ArgumentTypeError, "tangents of the primals' structure"),
        (({"a": 3.0},), ({"b": 1.0},), pb.ArgumentTypeError, "tangents of the primals' structure"),
        ((np.ones(3),), (1.0,), pb.ArgumentValueError, r"shape \(3,\)"),
        ((3.0,), (1j,), pb.ArgumentTypeError, "expected real numbers"),
    ],
)
def test_tangents_are_those_of_the_primals(primals, tangents, error, message):
    with pytest.raises(error, match=message):
        pb.jvp(
            lambda *xs: sum(map(jnp.sum, jax.tree.leaves(xs))), primals, tangents, backend="finite"
        )


def test_integer_results_have_jaxs_tangent():
    def f(x):
        return x**2, jnp.argmax(x)

    x = jnp.array([1.0, 3.0])
    want, got = (pb.jvp(f, (x,), (x,), backend=name)[1] for name in ("jax", "finite"))
    np.testing.assert_allclose(got[0], want[0], rtol=1e-6)
    assert got[1].dtype == want[1].dtype == jax.dtypes.float0


def test_what_is_beside_the_value_has_the_dtypes_that_it_has_in_jax():
    def f(x):
        return x @ x, {"x": x / 3, "n": jnp.arange(3), "text": None}

    want, got = (pb.grad(f, has_aux=True, backend=name)(jnp.ones(2)) for name in ("jax", "finite"))
    assert jax.tree.map(lambda a: a.dtype, got) == jax.tree.map(lambda a: a.dtype, want)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), got, want)


def test_has_aux_wants_a_pair():
    with pytest.raises(
        pb.ArgumentTypeError, match=r"'sin' to return a pair \(value, aux\), got a "
    ):
        pb.grad(jnp.sin, has_aux=True, backend="finite")(1.0)
    assert pb.grad(lambda x: [x**2, 1], has_aux=True, backend="finite")(1.0) == (2.0, 1)


def test_a_function_for_single_precision_alone_is_refused_with_the_reason():
    def single(x):
        return lax.scan(lambda c, t: (c * 0.5 + t, c), jnp.zeros((), jnp.float32), x)[0]

    with pytest.raises(pb.ArgumentTypeError, match="runs in float64.*jnp.zeros"):
        pb.grad(single, backend="finite")(jnp.ones(3, jnp.float32))
    with pytest.raises(TypeError, match="unsupported operand"):
        pb.grad(lambda x: x + "a", backend="finite")(1.0)


@pytest.mark.parametrize("around", [jax.jit, jax.vmap, jax.grad])
def test_traced_values_are_refused(around):
    x = jnp.ones(2) if around is jax.vmap else 1.0
    with pytest.raises(pb.UnsupportedModeError, match="outside of jit, vmap and grad"):
        around(pb.grad(jnp.sin, backend="finite"))(x)


@pytest.mark.parametrize("backend", ["jax", "finite"])
@pytest.mark.parametrize("make", [pb.grad, pb.jacobian, pb.hessian])
def test_numpys_integers_are_argnums(make, backend):
    f = lambda x, y: x**2 * y**3  # noqa: E731
    found = [
        make(f, argnums, backend=backend)(2.0, 3.0)
        for argnums in (1, np.int64(1), (0, 1), (np.int32(0), np.int8(1)))
    ]
    assert jax.tree.structure(found[0]) == jax.tree.structure(found[1])
    assert jax.tree.structure(found[2]) == jax.tree.structure(found[3])
    np.testing.assert_allclose(found[1], found[0])
