"""Python functions under Julia's AD systems: whole programs and every transform."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from bridge_helpers import REVERSE, SYSTEMS
from jax import lax
from jax.experimental.ode import odeint
from quick import by_day

import pybridge as pb
from pybridge.lowering import lower

RANDOM = np.random.default_rng(3)


def normal(*shape):
    return jnp.asarray(RANDOM.normal(size=shape), jnp.float32)


def compare(got, want, tolerance=2e-5):
    assert jax.tree.structure(got) == jax.tree.structure(want)
    for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
        np.testing.assert_allclose(
            np.asarray(one), np.asarray(other), rtol=tolerance, atol=tolerance
        )


def mlp(params, x, y):
    for layer in params[:-1]:
        x = jax.nn.relu(x @ layer["w"] + layer["b"])
    out = jax.nn.softmax(x @ params[-1]["w"] + params[-1]["b"])
    return -jnp.mean(jnp.sum(y * jnp.log(out), axis=1))


def test_a_network_and_its_gradient(system):
    params = [{"w": normal(4, 5), "b": normal(5)}, {"w": normal(5, 3), "b": normal(3)}]
    x, y = normal(6, 4), jax.nn.one_hot(jnp.arange(6) % 3, 3)
    got = pb.value_and_grad(mlp, backend=system)(params, x, y)
    compare(got, jax.value_and_grad(mlp)(params, x, y))


def by_itself(x):
    return pb.cond(pb.within_gradient(x), lambda x: x**2, lambda x: x, x)


def test_within_gradient_is_true_inside(system):
    compare(lower(by_itself, 2.0)(2.0), jnp.float32(2))
    compare(pb.value_and_grad(by_itself, backend=system)(2.0), (jnp.float32(4), jnp.float32(4)))


def each_by_itself(w, x):
    a = pb.cond(pb.within_gradient(w), lambda: 10.0, lambda: 1.0)
    b = pb.cond(pb.within_gradient(x), lambda: 100.0, lambda: 1.0)
    return a * b * w * x


def test_within_gradient_is_true_of_each_value(system):
    value, slope = pb.value_and_grad(each_by_itself, backend=system)(2.0, 3.0)
    assert (float(value), float(slope)) == (60.0, 30.0)
    value, slopes = pb.value_and_grad(each_by_itself, (0, 1), backend=system)(2.0, 3.0)
    assert (float(value), *map(float, slopes)) == (6000.0, 3000.0, 2000.0)


def test_derivatives_are_counted(system):
    def f(w, x):
        of_w, of_x = (jnp.float32(pb.differentiation_order(v)) for v in (w, x))
        return w**2 * 10.0**of_w * (x + of_x)

    compare(lower(f, 2.0, 3.0)(2.0, 3.0), jnp.float32(12))
    compare(pb.value_and_grad(f, backend=system)(2.0, 3.0), (jnp.float32(120), jnp.float32(120)))
    if system in ("zygote", "forwarddiff"):  # the others have no second derivatives
        compare(pb.hessian(f, backend=system)(2.0, 3.0), jnp.float32(600))


def test_no_derivative_comes_out_of_the_other_branch(system):
    x = jnp.array([4.0, 0.0, -1.0])

    def f(x):
        return jnp.sum(pb.cond(x > 0, jnp.sqrt, jnp.zeros_like, x))

    compare(pb.grad(f, backend=system)(x), jnp.array([0.25, 0.0, 0.0]))


@jax.custom_jvp
def with_jvp(x):
    return jnp.sin(x)


with_jvp.defjvp(lambda xs, dots: (with_jvp(*xs) + 1, 7 * dots[0]))


@jax.custom_vjp
def with_vjp(x, n):
    return jnp.sin(x) * n


with_vjp.defvjp(lambda x, n: (jnp.sin(x) * n, x), lambda x, ct: (5 * ct * x, None))


def test_a_custom_jvp_is_used_by_all(system):
    # Within a gradient the value is the rule's, too.
    got = pb.value_and_grad(lambda x: 2 * with_jvp(x), backend=system)(0.0)
    compare(got, (jnp.float32(2), jnp.float32(14)))


@pytest.mark.parametrize("backend", REVERSE)
def test_a_custom_vjp_is_used_by_reverse_mode(backend):
    def f(x):
        return with_vjp(x, 3)

    compare(pb.grad(f, backend=backend)(2.0), jnp.float32(10))


def test_a_custom_vjp_is_refused_in_forward_mode():
    with pytest.raises(pb.JuliaError, match="custom_vjp"):
        pb.grad(lambda x: with_vjp(x, 3), backend="forwarddiff")(2.0)


TABLE = jnp.array([[1.0, 2.0, -1.0], [0.5, 0.0, 3.0]])
PLACES = jnp.array([1, 0])


@jax.custom_jvp
def jvp_with_constants(x):
    return jnp.sum(jnp.sin(TABLE[PLACES] @ x))


jvp_with_constants.defjvp(
    lambda xs, dots: (jvp_with_constants(*xs), 7 * jnp.sum(TABLE[PLACES] @ dots[0]))
)


@jax.custom_vjp
def vjp_with_constants(x):
    return jnp.sin(TABLE[PLACES] @ x)


vjp_with_constants.defvjp(
    lambda x: (vjp_with_constants(x), x), lambda x, ct: (5 * ct @ TABLE[PLACES] * x,)
)


# Under jit the constants become operands of JAX's custom_jvp_call and custom_vjp_call.
@pytest.mark.parametrize("wrapped", [lambda f: f, jax.jit])
def test_a_custom_jvp_with_constants(compiling_system, wrapped):
    def f(x):
        return wrapped(jvp_with_constants)(x**2)

    x = normal(3)
    got = pb.value_and_grad(f, backend=compiling_system)(x)
    compare(got, jax.value_and_grad(f)(x))


@pytest.mark.parametrize("wrapped", [lambda f: f, jax.jit])
@pytest.mark.parametrize(
    "backend",
    ["zygote", *(pytest.param(b, marks=pytest.mark.nightly) for b in ("tracker", "yota"))],
)
def test_a_custom_vjp_with_constants(backend, wrapped):
    def f(x):
        return jnp.sum(wrapped(vjp_with_constants)(x**2) ** 2)

    x = normal(3)
    got = pb.value_and_grad(f, backend=backend)(x)
    compare(got, jax.value_and_grad(f)(x))


def test_a_custom_rule_has_no_derivative_by_what_its_function_closes_over(compiling_system):
    def f(x, c):
        @jax.custom_vjp
        def inner(y):
            return y * c

        inner.defvjp(lambda y: (y * 2, None), lambda _, ct: (ct * 3,))
        return inner(x)

    f = jax.jit(f)
    compare(lower(f, 2.0, 5.0)(2.0, 5.0), jnp.float32(10))
    if compiling_system != "forwarddiff":  # a custom_vjp has no forward mode
        compare(pb.grad(f, backend=compiling_system)(2.0, 5.0), jnp.float32(3))
    with pytest.raises(pb.JuliaError, match="closes over"):
        pb.grad(f, (0, 1), backend=compiling_system)(2.0, 5.0)


def test_an_ode_solver_with_its_adjoint():
    x, times = jnp.array([0.3, 0.4]), jnp.array([0.0, 1.0])

    def f(x, rate):
        return jnp.sum(odeint(lambda y, t, rate: -rate * y * t, x, times, rate)[-1])

    got = pb.value_and_grad(f, (0, 1), backend="zygote")(x, 1.5)
    compare(got, jax.value_and_grad(f, (0, 1))(x, 1.5))


def test_has_aux_and_keywords(system):
    def f(x, *, scale):
        return scale * jnp.sum(x**2), {"first": x[0], "shape": jnp.array(x.shape)}

    x = normal(3)
    got = pb.value_and_grad(f, backend=system, has_aux=True)(x, scale=3.0)
    compare(got, jax.value_and_grad(f, has_aux=True)(x, scale=3.0))


def several(tree, y):
    return {"a": jnp.sin(tree["x"]) * y, "b": (y * jnp.sum(tree["x"]), jnp.int32(3))}


def test_vjp_keeps_structures():
    tree, y = {"x": normal(2, 3)}, normal(3)
    want, jax_pull = jax.vjp(several, tree, y)
    ct = jax.tree.map(
        lambda v: np.zeros(v.shape, jax.dtypes.float0) if v.dtype == np.int32 else v + 1, want
    )
    for backend in REVERSE:
        got, pull = pb.vjp(several, tree, y, backend=backend)
        compare(got, want)
        compare(pull(ct), jax_pull(ct))


def test_jvp_keeps_structures():
    tree, y = {"x": normal(2, 3)}, normal(3)
    dots = ({"x": normal(2, 3)}, normal(3))
    got, dot = pb.jvp(several, (tree, y), dots, backend="forwarddiff")
    want, jax_dot = jax.jvp(several, (tree, y), dots)
    compare(got, want)
    compare({**dot, "b": dot["b"][0]}, {**jax_dot, "b": jax_dot["b"][0]})
    assert dot["b"][1].dtype == jax.dtypes.float0


def curved(params, x):
    return jnp.sum(jnp.tanh(params["w"] @ x) * params["b"]) + jnp.sum(x**3)


def test_jacobian_and_hessian_have_jaxs_structure():
    params, x = {"w": normal(2, 3), "b": normal(2)}, normal(3)

    def f(params, x):
        return jnp.tanh(params["w"] @ x), jnp.sum(params["b"] * 2)

    want = jax.jacrev(f, argnums=(0, 1))(params, x)
    for backend in ("zygote", "forwarddiff"):
        compare(pb.jacobian(f, argnums=(0, 1), backend=backend)(params, x), want)
    want = jax.hessian(curved)(params, x)
    for backend in ("zygote", "forwarddiff"):
        compare(pb.hessian(curved, backend=backend)(params, x), want, tolerance=1e-4)


def test_a_lowered_gradient_inside_of_jit_and_of_jaxs_own_transforms():
    params, x = {"w": normal(2, 3), "b": normal(2)}, normal(3)
    want = jax.grad(curved)(params, x)
    compare(jax.jit(pb.grad(curved, backend="zygote"))(params, x), want)
    lowered = lower(curved, params, x)
    compare(jax.jit(jax.grad(lowered))(params, x), want)


def loop(w, x):
    def step(h, x):
        h = jnp.tanh(w @ h + x)
        return h, jnp.sum(h**2)

    h, losses = lax.scan(step, jnp.zeros(3), x)
    return jnp.sum(losses) + jnp.sum(h)


def test_a_recurrent_network(system):
    w, x = normal(3, 3), normal(5, 3)
    got = pb.value_and_grad(loop, (0, 1), backend=system)(w, x)
    compare(got, jax.value_and_grad(loop, (0, 1))(w, x))


def attention(p, x):
    q, k, v = (x @ p[n] for n in "qkv")
    scores = jnp.einsum("bqd,bkd->bqk", q, k) / jnp.sqrt(q.shape[-1])
    mask = jnp.tril(jnp.ones(scores.shape[1:], bool))
    weights = jax.nn.softmax(jnp.where(mask, scores, -jnp.inf), axis=-1)
    y = weights @ v
    mean = y.mean(-1, keepdims=True)
    return jnp.sum(jax.nn.gelu((y - mean) / jnp.sqrt(y.var(-1, keepdims=True) + 1e-5)) ** 2)


@pytest.mark.parametrize("backend", by_day(SYSTEMS, ["zygote"]))
def test_attention(backend):
    p, x = {n: normal(4, 4) for n in "qkv"}, normal(2, 3, 4)
    got = pb.value_and_grad(attention, backend=backend)(p, x)
    compare(got, jax.value_and_grad(attention)(p, x), tolerance=1e-4)


def test_dropout_draws_jaxs_bits():
    def f(x, key):
        keep = jax.random.bernoulli(key, 0.5, x.shape)
        return jnp.sum(jnp.where(keep, x * 2, 0.0) ** 2)

    x, key = normal(8), jax.random.key(1)
    compare(pb.grad(f, backend="zygote")(x, key), jax.grad(f)(x, key))


def test_a_while_loop_is_differentiated_in_reverse(system):
    # Which JAX refuses: its slope is that of the turns that were taken.
    def f(x):
        return lax.while_loop(lambda y: y < 100, lambda y: y * y, x)

    value, slope = pb.value_and_grad(f, backend=system)(3.0)
    assert float(value) == 6561.0
    np.testing.assert_allclose(float(slope), 8 * 3.0**7)
