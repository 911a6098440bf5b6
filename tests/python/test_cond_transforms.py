"""`cond` inside JAX's other transformations."""

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from cond_helpers import BAD, equal, log_or_zero, sqrt_or_zero, total, zero
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import pybridge as pb


def test_scan_of_a_data_dependent_choice(maybe_jit):
    def f(x):
        def step(carry, bias):
            carry = pb.cond(carry > 1, lambda c: c / 2 + bias, lambda c: c * 3, carry)
            return carry, carry

        return lax.scan(step, x, jnp.array([0.1, 0.2, 0.3]))[1].sum()

    def python(x):
        total = 0.0
        for bias in (0.1, 0.2, 0.3):
            x = x / 2 + bias if x > 1 else x * 3
            total += x
        return total

    for x in (0.5, 2.0, 5.0):
        equal(maybe_jit(f)(x), python(x))
        slope = (python(x + 1e-6) - python(x - 1e-6)) / 2e-6
        np.testing.assert_allclose(maybe_jit(jax.grad(f))(x), slope, rtol=1e-5)
        np.testing.assert_allclose(jax.grad(jax.checkpoint(f))(x), slope, rtol=1e-5)
    xs = jnp.array([0.5, 2.0, 5.0])
    equal(maybe_jit(jax.vmap(f))(xs), [python(x) for x in (0.5, 2.0, 5.0)])
    equal(
        maybe_jit(jax.grad(total(jax.vmap(f))))(xs),
        [(python(x + 1e-6) - python(x - 1e-6)) / 2e-6 for x in (0.5, 2.0, 5.0)],
    )


def test_while_loop_and_fori_loop(maybe_jit):
    def halve(x):
        return lax.while_loop(lambda x: jnp.any(x > 1), lambda x: step(x), x)

    def step(x):
        return pb.cond(x > 1, lambda x: x / 2, lambda x: x, x)

    x = jnp.array([0.5, 3.0, 8.0])
    equal(maybe_jit(halve)(x), [0.5, 0.75, 1.0])
    equal(maybe_jit(jax.vmap(halve))(x), [0.5, 0.75, 1.0])
    equal(maybe_jit(jax.jacfwd(halve))(x), np.diag([1, 0.25, 0.125]))
    unrolled = lambda x: lax.fori_loop(0, 3, lambda i, x: step(x), x)  # noqa: E731
    equal(maybe_jit(jax.jacrev(unrolled))(x), np.diag([1, 0.25, 0.125]))


def test_forward_mode_through_a_while_loop_in_a_branch(maybe_jit):
    def double(x):
        return lax.while_loop(lambda x: x < 10, lambda x: 2 * x, x)

    def f(x):
        return pb.cond(x > 0, double, lambda x: x**2, x)

    for x, derivative in ((1.5, 8), (-1.5, -3)):
        equal(maybe_jit(jax.jacfwd(f))(x), derivative)
    x = np.array([1.5, -1.5, 3], np.float32)
    equal(maybe_jit(jax.vmap(jax.jacfwd(f)))(x), [8, -3, 4])


def test_lanes_of_a_while_loop_in_a_branch_that_all_take(maybe_jit):
    def doublings(x, n):
        return lax.while_loop(lambda s: s[0] < 10, lambda s: (2 * s[0], s[1] + 1), (x, n))

    def of_all(pred, x, n):
        return jax.vmap(lambda x: pb.cond(pred, doublings, lambda x, n: (x, n), x, n))(x)

    x = np.array([1.5, 20, 3], np.float32)
    # They end at different times, so all that the loop carries has lanes, the number as well.
    equal(maybe_jit(of_all)(True, x, 0), [[12, 20, 12], [3, 0, 2]])
    equal(maybe_jit(of_all)(False, x, 0), [x, [0, 0, 0]])


@pytest.mark.parametrize("check_vma", [True, False])
def test_shard_map(check_vma, mesh):
    def shard(f, *specs):
        return jax.jit(
            jax.shard_map(f, mesh=mesh, in_specs=specs, out_specs=P("i"), check_vma=check_vma)
        )

    x = jnp.array([1.0, 0.0, -1.0, 2.0, 4.0, -2.0, 0.0, 0.5])
    expected = np.where(x > 0, 1 / np.where(x > 0, x, 1), 0)
    equal(jax.grad(total(shard(jax.vmap(log_or_zero), P("i"))))(x), expected)
    equal(jax.grad(total(shard(log_or_zero, P("i"))))(x), expected)

    # The choice differs from device to device; one branch returns the same on all.
    def by_device(x, w):
        return pb.cond(x[0] > 0, lambda w: x * w, lambda w: jnp.zeros(2), w)

    f = shard(by_device, P("i"), P())
    by_x, by_w = jax.grad(lambda x, w: f(x, w).sum(), (0, 1))(x, 3.0)
    equal(by_x, [3, 3, 0, 0, 3, 3, 0, 0])
    equal(by_w, 3.0)


def test_shard_map_without_jit(mesh):
    f = jax.shard_map(log_or_zero, mesh=mesh, in_specs=P("i"), out_specs=P("i"))
    x = jnp.arange(-3.0, 1.0)
    assert (f(x) == 0).all()


def test_sharded_arrays_under_jit(mesh):
    x = jax.device_put(jnp.arange(-4.0, 4.0), NamedSharding(mesh, P("i")))
    expected = np.where(x > 0, 0.5 / np.sqrt(np.where(x > 0, x, 1)), 0)
    equal(jax.jit(jax.grad(total(sqrt_or_zero)))(x), expected)
    equal(jax.jit(jax.vmap(jax.grad(sqrt_or_zero)))(x), expected)

    def scalar(x):
        return pb.cond(x.sum() > 0, jnp.sin, zero, x)

    assert jax.jit(scalar).lower(x).compile().as_text().count(" conditional(") == 1
    equal(jax.jit(jax.grad(total(scalar)))(x), 0 * x)


def test_a_closure_that_would_hang_shard_map_is_refused(mesh):
    # `jax.lax.cond` waits here for ever: see `vary_with`.
    def shard(x, w):
        return pb.cond(x[0] > 0, lambda: x * w, lambda: jnp.zeros(2))

    f = jax.jit(jax.shard_map(shard, mesh=mesh, in_specs=(P("i"), P()), out_specs=P("i")))
    x = jnp.arange(-4.0, 4.0)
    equal(f(x, 2.0), [0, 0, 0, 0, 0, 0, 4, 6])
    equal(jax.grad(lambda x: f(x, 2.0).sum())(x), [0, 0, 0, 0, 0, 0, 2, 2])
    with pytest.raises(pb.ArgumentValueError, match="as an operand"):
        jax.grad(lambda w: f(x, w).sum())(2.0)


def test_eval_shape_and_make_jaxpr():
    out = jax.eval_shape(lambda x: pb.cond(x > 0, lambda: (x, 1), lambda: (0 * x, 2)), 1.0)
    assert [(o.shape, o.dtype.name) for o in out] == [((), "float32"), ((), "int32")]
    closed = jax.make_jaxpr(log_or_zero)(1.0)
    (equal_to_log,) = jax.core.eval_jaxpr(closed.jaxpr, closed.consts, 2.0)
    equal(equal_to_log, np.log(2.0))
    gradient = jax.grad(lambda x: jax.core.eval_jaxpr(closed.jaxpr, closed.consts, x)[0])
    equal(gradient(2.0), 0.5)


def test_named_axes(maybe_jit):
    def f(x, pred):
        return pb.cond(pred, lambda x: x - lax.pmean(x, "lanes"), lambda x: x, x)

    mapped = jax.vmap(f, (0, None), axis_name="lanes")
    equal(maybe_jit(mapped)(jnp.array([1.0, 3.0]), True), [-1, 1])
    equal(jax.jit(jax.jacrev(mapped))(jnp.array([1.0, 3.0]), True), [[0.5, -0.5], [-0.5, 0.5]])


def test_custom_rules_in_branches(maybe_jit):
    @jax.custom_vjp
    def clipped(x):
        return x

    clipped.defvjp(lambda x: (x, None), lambda _, ct: (jnp.clip(ct, -0.5, 0.5),))

    def f(x):
        return pb.cond(x > 0, clipped, zero, x)

    equal(maybe_jit(jax.grad(f))(1.0), 0.5)
    equal(maybe_jit(jax.vmap(jax.grad(f)))(jnp.array([1.0, -1.0])), [0.5, 0])
    equal(jax.grad(jax.jit(f))(1.0), 0.5)
    equal(maybe_jit(jax.grad(total(f)))(jnp.array([1.0, -1.0])), [0.5, 0])


def test_no_nan_arises_on_the_way_either(maybe_jit):
    # JAX's own NaN checker looks at every intermediate result.
    with jax.debug_nans(True):
        x = jnp.array([4.0, 0.0, -1.0])
        for f in (sqrt_or_zero, jax.vmap(sqrt_or_zero)):
            equal(maybe_jit(jax.grad(total(f)))(x), [0.25, 0, 0])
            equal(maybe_jit(jax.hessian(total(f)))(x)[0, 0], -1 / 32)


def test_linear_transpose(maybe_jit):
    def transposed(pred, ct):
        def f(x):
            return pb.cond(pred, lambda x: (2 * x, x), lambda x: (x, 3 * x), x)

        return jax.linear_transpose(f, ct[0])(ct)[0]

    ct = (jnp.array([1.0, 2.0]), jnp.array([10.0, 20.0]))
    equal(maybe_jit(transposed)(True, ct), [12, 24])
    equal(maybe_jit(transposed)(False, ct), [31, 62])
    equal(maybe_jit(jax.vmap(transposed))(jnp.array([True, False]), ct), [12, 62])
    equal(maybe_jit(transposed)(jnp.array([True, False]), ct), [12, 62])


def ask(x):
    return pb.cond(pb.within_gradient(x), lambda x: 10 * x, lambda x: 2 * x, x)


@pytest.mark.parametrize(
    "f",
    [
        ask,
        jax.jit(ask),
        jax.vmap(ask),
        jax.checkpoint(ask),
        lambda x: jnp.where(pb.is_differentiating(1.0, x), 10.0, 2.0) * x,
        lambda x: lax.scan(lambda x, _: (jnp.sqrt(0.5) * ask(x), None), x, length=2)[0],
        lambda x: x * jnp.float32(2 + pb.differentiation_order(x)),
    ],
)
def test_linear_transpose_of_a_function_that_asks(f, maybe_jit):
    x = jnp.array([1.0, 3.0])
    equal(maybe_jit(lambda ct: jax.linear_transpose(f, x)(ct)[0])(x), [2, 6])


def test_linear_transpose_of_layers():
    layer = pb.nn.Chain(pb.nn.Dense(3, 2, bias=False), pb.nn.Dropout(0.5))
    params, state = layer.init(jax.random.key(0))

    def f(x):
        return layer.apply(params, state, x, key=jax.random.key(1))[0]

    x, ct = jnp.ones((2, 3)), jnp.array([[1.0, 2.0], [3.0, 4.0]])
    # Nothing carries a derivative: the function is that of test mode.
    equal(jax.linear_transpose(f, x)(ct)[0], ct @ params[0]["weight"].T)


def test_inside_an_implicit_solver():
    # `cg` transposes its operator; its rule differentiates it.
    def solve(a, b):
        def operator(x):
            return pb.cond(a > 0, lambda x: a * x, lambda x: x, x)

        return jax.scipy.sparse.linalg.cg(operator, b)[0].sum()

    b = jnp.array([1.0, 2.0])
    equal(jax.jit(jax.grad(solve))(2.0, b), -0.75)
    equal(jax.jit(jax.grad(solve))(-2.0, b), 0.0)


def test_without_jit_altogether():
    with jax.disable_jit():
        equal(jax.vmap(jax.grad(log_or_zero))(BAD), [1, 0, 0])
        equal(jax.grad(total(log_or_zero))(BAD), [1, 0, 0])


def test_export():
    step = jax.jit(jax.vmap(jax.grad(log_or_zero)))
    exported = jax.export.export(step)(BAD)
    equal(exported.call(BAD), [1, 0, 0])


def test_complex_values(maybe_jit):
    def f(z):
        return pb.cond(jnp.abs(z) > 0, lambda z: 1 / z, zero, z)

    z = jnp.array([2j, 0j])
    equal(maybe_jit(f)(z), [-0.5j, 0])
    gradient = maybe_jit(jax.vmap(jax.grad(f, holomorphic=True)))(z)
    equal(gradient, [0.25, 0])


def test_residuals_are_not_recomputed(maybe_jit):
    calls = []

    def expensive(x):
        jax.debug.callback(lambda: calls.append(1))
        return jnp.sin(x)

    def f(x):
        return pb.cond(x > 0, expensive, zero, x)

    jax.grad(jax.jit(f))(1.0)
    jax.effects_barrier()
    assert len(calls) == 1


def test_no_retrace(count_traces):
    traced = count_traces(log_or_zero)
    compiled = jax.jit(jax.vmap(jax.grad(traced)))
    for _ in range(3):
        compiled(BAD)
    assert traced.traces == 1
