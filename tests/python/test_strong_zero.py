"""Strong zeros: a derivative is finite where that of the part that is kept is.

The truth is the derivative of the same function written so that nothing infinite is computed
(the "double where" of JAX's FAQ, or the analytic one), and, where nothing is infinite, JAX's.
"""

import collections
import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax
from jax.sharding import PartitionSpec as P
from precision import enable_x64
from quick import examples

import pybridge as pb
from pybridge._errors import ArgumentTypeError, UnsupportedModeError
from pybridge.primitives._strong_zero import strong_zero

X = jnp.array([0.0, 1.0, 4.0, -1.0])


def guarded_root(x):
    return jnp.where(x > 0, jnp.sqrt(x), 0.0)


def safe_root(x):
    return jnp.where(x > 0, jnp.sqrt(jnp.where(x > 0, x, 1.0)), 0.0)


def masked(x):
    """The program of JAX #19089, with a `where`."""
    d = jnp.array([0.0, 1.0]) * x
    return jnp.sum(jnp.where(d > 0, d**0.5, 0.0))


def indexed(x):
    """The same as it was reported: the index is an array of bools."""
    d = jnp.array([0.0, 1.0]) * x
    return jnp.sum((d**0.5)[d > 0])


ORDERS = {
    "grad": (jax.grad, 1),
    "jacfwd": (jax.jacfwd, 1),
    "jvp": (lambda f: lambda x: jax.jvp(f, (x,), (jnp.ones_like(x),))[1], 1),
    "linearize": (lambda f: lambda x: jax.linearize(f, x)[1](jnp.ones_like(x)), 1),
    "hessian": (jax.hessian, 2),
    "grad of grad": (lambda f: jax.grad(jax.grad(f)), 2),
    "jacrev of jacfwd": (lambda f: jax.jacrev(jax.jacfwd(f)), 2),
    "jacfwd of jacfwd": (lambda f: jax.jacfwd(jax.jacfwd(f)), 2),
    "third": (lambda f: jax.grad(jax.grad(jax.grad(f))), 3),
}
TRUE = {1: 0.5, 2: -0.25, 3: 0.375}  # derivatives of the root of x at 1


@pytest.mark.parametrize("order", ORDERS)
def test_any_order_and_mode(order, maybe_jit):
    transform, n = ORDERS[order]
    assert maybe_jit(transform(strong_zero(masked)))(1.0) == pytest.approx(TRUE[n])


@pytest.mark.parametrize("order", ORDERS)
def test_a_boolean_index_works_without_jit(order):
    transform, n = ORDERS[order]
    assert transform(strong_zero(indexed))(1.0) == pytest.approx(TRUE[n])


def test_the_plain_gradient_is_lost():
    assert jnp.isnan(jax.grad(masked)(1.0))


def scan(f):
    return lambda x: lax.scan(lambda c, _: (c, f(c)), x, length=2)[1][1]


def while_loop(f):
    def loop(x):
        start = (jnp.int32(0), 0.0 * x)
        return lax.while_loop(lambda s: s[0] < 2, lambda s: (s[0] + 1, f(x)), start)[1]

    return loop


TRANSFORMS = {
    "jit": jax.jit,
    "scan": scan,
    "fori_loop": lambda f: lambda x: lax.fori_loop(0, 2, lambda i, y: f(x), 0.0 * x),
    "cond": lambda f: lambda x: lax.cond(x < 9, f, lambda x: x, x),
    "switch": lambda f: lambda x: lax.switch((x < 9).astype(int), [lambda x: x, f], x),
    "pb.cond": lambda f: lambda x: pb.cond(x < 9, f, lambda x: x, x),
    "pb.switch": lambda f: lambda x: pb.switch((x < 9).astype(int), [lambda x: x, f], x),
    "checkpoint": jax.checkpoint,
    "checkpoint with a policy": lambda f: jax.checkpoint(
        f, policy=jax.checkpoint_policies.dots_saveable
    ),
    "vmap": lambda f: lambda x: jax.vmap(f)(x[None])[0],
    "scan of jit of cond": lambda f: scan(jax.jit(TRANSFORMS["cond"](f))),
    "twice": strong_zero,
}


@pytest.mark.parametrize("name", TRANSFORMS)
@pytest.mark.parametrize("place", ["inside", "outside"])
def test_under_every_transformation(name, place, maybe_jit):
    wrap = TRANSFORMS[name]
    if place == "inside":
        f = wrap(lambda x: strong_zero(guarded_root)(x))
    else:
        f = strong_zero(wrap(guarded_root))

    def work(x):
        each = [jax.grad(f)(v) for v in (x[0], x[1], x[2])]
        return each, jax.vmap(jax.grad(f))(x), jax.vmap(jax.grad(jax.grad(f)))(x)

    each, slopes, curvatures = maybe_jit(work)(X[:3])
    np.testing.assert_allclose(each, [0.0, 0.5, 0.25])
    np.testing.assert_allclose(slopes, [0.0, 0.5, 0.25])
    np.testing.assert_allclose(curvatures, [0.0, -0.25, -1 / 32])


def test_while_loop_forward(maybe_jit):
    for f in (strong_zero(while_loop(guarded_root)), while_loop(strong_zero(guarded_root))):
        slope = maybe_jit(lambda x, f=f: jax.jvp(f, (x,), (1.0,))[1])
        assert [slope(0.0), slope(1.0)] == [0.0, 0.5]


def test_a_loop_that_carries_a_singular_derivative(maybe_jit):
    def f(x):
        def step(c, row):
            return c + jnp.where(row > 0, jnp.log(row * x), 0.0), c * 0.0

        total, zeros = lax.scan(step, 0.0, jnp.array([0.0, 1.0, 2.0]))
        return total + zeros.sum()

    assert maybe_jit(jax.grad(strong_zero(f)))(2.0) == pytest.approx(1.0)


def test_shard_map(mesh, maybe_jit):
    def rows(x):
        return guarded_root(x) + lax.psum(guarded_root(x).sum(), "i")

    kwargs = {"mesh": mesh, "in_specs": P("i"), "out_specs": P("i")}
    mapped = jax.shard_map(rows, **kwargs)
    inside = jax.shard_map(lambda x: strong_zero(rows)(x), **kwargs)
    for f in (strong_zero(mapped), inside):
        slope = maybe_jit(jax.grad(lambda x, f=f: f(x).sum()))(X)
        np.testing.assert_allclose(slope, 5 * jnp.array([0.0, 0.5, 0.25, 0.0]))


@jax.custom_jvp
def jvp_log(x):
    return jnp.log(x)


@jvp_log.defjvp
def _(primals, tangents):
    return jvp_log(*primals), 3.0 * (tangents[0] * (1 / primals[0]))


@jax.custom_vjp
def vjp_log(x):
    return jnp.log(x)


vjp_log.defvjp(lambda x: (jnp.log(x), x), lambda x, ct: (3.0 * ct / x,))


@pytest.mark.parametrize("log", [jvp_log, vjp_log], ids=["custom_jvp", "custom_vjp"])
@pytest.mark.parametrize("wrap", [lambda f: f, jax.jit, scan, jax.checkpoint])
def test_custom_rules_are_used_and_strong(log, wrap, maybe_jit):
    # The rules are wrong by a factor of 3, to see that they are the ones that are used.
    f = strong_zero(wrap(lambda x: jnp.where(x > 0, log(x), 0.0).sum()))
    second = jax.grad(lambda x: jax.grad(f)(x).sum())
    work = maybe_jit(lambda x: (jax.grad(f)(x), jax.vmap(jax.grad(f))(x), second(x)))
    slopes, of_lanes, curvatures = work(X)
    np.testing.assert_allclose(slopes, [0.0, 3.0, 0.75, 0.0])
    np.testing.assert_allclose(of_lanes, [0.0, 3.0, 0.75, 0.0])
    np.testing.assert_allclose(curvatures, [0.0, -3.0, -3 / 16, 0.0])


def test_a_rule_that_is_not_linear_in_its_cotangent():
    @jax.custom_vjp
    def clipped(x):
        return x

    clipped.defvjp(lambda x: (x, None), lambda _, ct: (jnp.clip(ct, -0.1, 0.1),))
    f = strong_zero(lambda x: jnp.where(x > 0, clipped(jnp.log(x)), 0.0).sum())
    np.testing.assert_allclose(jax.grad(f)(X), [0.0, 0.1, 0.025, 0.0])


def test_an_inner_jit_of_a_custom_rule(maybe_jit):
    @jax.custom_jvp
    def log(x):
        return jnp.log(x)

    product = jax.jit(lambda t, c: lax.scan(lambda s, _: (s * c, None), t, length=1)[0])
    log.defjvp(lambda p, t: (jnp.log(*p), product(t[0], 1 / p[0])))
    f = strong_zero(lambda x: jnp.where(x > 0, log(x), 0.0).sum())
    np.testing.assert_allclose(maybe_jit(jax.grad(f))(X), [0.0, 1.0, 0.25, 0.0])


def test_matrix_product(maybe_jit):
    a = jnp.array([[1.0, 2.0], [0.0, 3.0]])
    b = jnp.array([[1.0, jnp.inf], [2.0, jnp.nan]])
    f = strong_zero(lambda a, b: jnp.where(jnp.array([True, False]), a @ b, 0.0).sum())
    slope_a, slope_b = maybe_jit(jax.grad(f, (0, 1)))(a, b)
    np.testing.assert_array_equal(slope_a, [[1.0, 2.0], [1.0, 2.0]])
    np.testing.assert_array_equal(slope_b, [[1.0, 0.0], [5.0, 0.0]])
    many = maybe_jit(jax.vmap(jax.grad(f), (None, 0)))(a, jnp.stack([b, 0 * a + 1]))
    np.testing.assert_array_equal(many, [[[1.0, 2.0], [1.0, 2.0]], [[1.0, 1.0], [1.0, 1.0]]])


# JAX 0.12 has these as one operation each until the program is compiled.
HIGH = {
    "einsum": lambda x: jnp.einsum("i,i->", jnp.log(x) * jnp.ones(2), jnp.array([1.0, 2.0]) * x),
    "interp": lambda x: jnp.interp(x, jnp.array([0.0, 1, 2]), jnp.array([0.0, 3, 5])) * jnp.log(x),
    "ldexp": lambda x: jnp.ldexp(jnp.sqrt(x), 3),
    "custom_root": lambda x: lax.custom_root(
        lambda y: y * y - x, 1.0, lambda f, y: jnp.sqrt(x), lambda g, y: y / g(1.0)
    ),
}


@pytest.mark.parametrize("name", HIGH)
def test_operations_that_are_functions_until_compiled(name, maybe_jit):
    f, g = HIGH[name], jax.grad
    strong = strong_zero(lambda x: jnp.where(x > 0, f(x), 0.0))

    def derivatives(f):
        each = g(f), g(g(f)), g(jax.checkpoint(f)), jax.jacfwd(f)
        return lambda x: [derivative(x) for derivative in each]

    found = maybe_jit(jax.vmap(derivatives(strong)))(jnp.array([0.0, 0.7, 1.5]))
    low, high = jax.jit(lambda: (derivatives(f)(0.7), derivatives(f)(1.5)))()
    np.testing.assert_allclose(found, np.stack([np.zeros(4), low, high], 1), rtol=1e-5)


def test_what_a_matrix_product_keeps_of_infinity(maybe_jit):
    tangent = jnp.array([[1.0, 0.0], [-1.0, 1.0], [1.0, 1.0], [0.0, 0.0]])
    b = jnp.array([[jnp.inf, jnp.inf, 1.0], [2.0, jnp.nan, -jnp.inf]])
    f = strong_zero(lambda a: a @ b)
    _, out = maybe_jit(lambda a: jax.jvp(f, (a,), (tangent,)))(tangent)
    inf, nan = np.inf, np.nan
    truth = [[inf, inf, 1.0], [-inf, nan, -inf], [inf, nan, -inf], [0.0, 0.0, 0.0]]
    np.testing.assert_array_equal(out, truth)


def test_convolution(maybe_jit):
    image = jnp.linspace(0.0, 1.0, 32).reshape(1, 2, 4, 4)
    kernel = jnp.linspace(-1.0, 1.0, 36).reshape(2, 2, 3, 3)
    wild = kernel.at[1, 0, 0, 0].set(jnp.inf).at[1, 1, 1, 1].set(jnp.nan)

    def first_channel(image, kernel):
        return jnp.sin(lax.conv(image, kernel, (1, 1), "SAME"))[:, 0].sum()

    truth = jax.jit(jax.grad(first_channel, (0, 1)))(image, kernel)
    found = maybe_jit(jax.grad(strong_zero(first_channel), (0, 1)))(image, wild)
    for a, b in zip(truth, found, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_solve_with_a_singular_matrix_that_is_dropped(maybe_jit):
    m = jnp.array([[[2.0, 1.0], [0.0, 4.0]], [[1.0, 0.0], [0.0, 0.0]]])

    def f(b):
        x = jax.vmap(lambda m, b: jax.scipy.linalg.solve_triangular(m, b))(m, b)
        return jnp.where(jnp.array([[True], [False]]), x, 0.0).sum()

    found = maybe_jit(jax.grad(strong_zero(f)))(jnp.ones((2, 2)))
    np.testing.assert_allclose(found, [[0.5, 0.125], [0.0, 0.0]])


CURES = {
    # function, derivative at 0
    "log": (lambda x: jnp.where(x > 0, jnp.log(x), 0.0), 0.0),
    "norm": (lambda x: jnp.linalg.norm(jnp.stack([x, 2.0 * x])), 0.0),
    "root of squares": (lambda x: jnp.sqrt(x**2 + (3.0 * x) ** 2), 0.0),
    "sinc": (lambda x: jnp.where(x == 0, 1.0, jnp.sin(x) / x), 0.0),
    "mask": (lambda x: jnp.sqrt(x) * (x > 0).astype(x.dtype), 0.0),
    "power": (lambda x: jnp.where(x > 0, x ** (-1.5), x), 1.0),
    "arccos": (lambda x: jnp.where(x < 0, jnp.arccos(x + 1), 2.0 * x), 2.0),
    "arctan2": (lambda x: jnp.where(x > 0, jnp.arctan2(x, x), x), 1.0),
    "overwritten": (lambda x: jnp.sqrt(jnp.stack([x, x + 1])).at[0].set(x).sum(), 1.5),
    "maximum": (lambda x: jnp.maximum(jnp.sqrt(x), 1.0), 0.0),
}


@pytest.mark.parametrize("name", CURES)
def test_known_cures(name, maybe_jit):
    f, slope = CURES[name]
    f = strong_zero(f)
    reverse, forward = maybe_jit(lambda x: (jax.grad(f)(x), jax.jvp(f, (x,), (1.0,))[1]))(0.0)
    assert reverse == pytest.approx(slope)
    assert forward == pytest.approx(slope)


def test_a_real_infinity_stays():
    assert jax.grad(strong_zero(jnp.sqrt))(0.0) == np.inf


def test_closed_over_values_are_differentiated(maybe_jit):
    f = lambda w: strong_zero(lambda x: w * x)(2.0)  # noqa: E731
    assert maybe_jit(jax.grad(f))(3.0) == 2.0
    g = lambda w: strong_zero(lambda x: jnp.where(w > 0, jnp.sqrt(w) * x, 0.0))(2.0)  # noqa: E731
    assert [maybe_jit(jax.grad(g))(w) for w in (0.0, 4.0)] == [0.0, 0.5]


def test_within_gradient_inside(maybe_jit):
    def f(x):
        return pb.cond(pb.within_gradient(x), lambda x: 10.0 * x, lambda x: x, x)

    assert maybe_jit(strong_zero(f))(1.0) == 1.0
    assert maybe_jit(jax.value_and_grad(strong_zero(f)))(1.0) == (10.0, 10.0)
    assert maybe_jit(jax.value_and_grad(strong_zero(jax.jit(f))))(1.0) == (10.0, 10.0)
    assert strong_zero(lambda x: 2 * x if pb.within_gradient(x) else x)(1.0) == 1.0


def test_trees_keywords_keys_integers_and_statics(maybe_jit):
    @strong_zero
    def f(params, n, *, key, name, scale):
        noise = jax.random.normal(key, params["w"].shape)
        assert name == "loss"
        return {name: (guarded_root(params["w"]) * n.astype(noise.dtype) * scale).sum()}, noise

    key, n = jax.random.key(0), jnp.array([1, 2, 3, 4])

    def loss(params, n):
        out, noise = f(params, n, key=key, name="loss", scale=2.0)
        return out["loss"], noise

    gradient = jax.grad(loss, argnums=(0, 1), has_aux=True, allow_int=True)
    (slope, of_integers), noise = maybe_jit(gradient)({"w": X}, n)
    np.testing.assert_allclose(slope["w"], [0.0, 2.0, 1.5, 0.0])
    assert of_integers.dtype == jax.dtypes.float0
    np.testing.assert_array_equal(noise, jax.random.normal(key, (4,)))


def test_complex(maybe_jit):
    z = jnp.array([0j, 3 + 4j])

    def f(z):
        return jnp.abs(jnp.where(z != 0, jnp.sqrt(z), 0)).sum()

    slope = maybe_jit(jax.grad(strong_zero(f)))(z)
    plain = jax.grad(f)(z)
    assert jnp.isnan(plain[0])
    assert slope[0] == 0
    np.testing.assert_allclose(slope[1], plain[1], rtol=1e-6)


def test_linear_transpose():
    f = strong_zero(lambda x: jnp.array([2.0, 3.0]) @ (5.0 * x) + jnp.array(2.0) * x[0])
    (found,) = jax.linear_transpose(f, jnp.ones(2))(1.0)
    np.testing.assert_array_equal(found, [12.0, 15.0])


def test_linear_call(maybe_jit):
    def f(x):
        infinite = jnp.array(jnp.inf)
        times = jax.custom_derivatives.linear_call(
            lambda r, x: r * x, lambda r, ct: r * ct, infinite, x
        )
        return jnp.where(x > 0, times, 0.0)

    assert maybe_jit(jax.grad(strong_zero(f)))(0.0) == 0.0


def test_derivatives_inside_of_the_function_are_values(maybe_jit):
    # The inner gradient is part of the value: NaN as before, and strong if it is asked for.
    inner = jax.grad(guarded_root)
    assert jnp.isnan(maybe_jit(strong_zero(inner))(0.0))
    f = strong_zero(lambda x: jnp.where(x > 0, inner(x), 0.0))
    assert [maybe_jit(jax.grad(f))(x) for x in (0.0, 1.0)] == [0.0, -0.25]


def test_a_pallas_kernel_is_refused_by_name_and_line():
    pallas = pytest.importorskip("jax.experimental.pallas")

    def kernel(x_ref, o_ref):
        o_ref[...] = jnp.sqrt(x_ref[...])

    def f(x):
        shape = jax.ShapeDtypeStruct((4,), jnp.float32)
        return pallas.pallas_call(kernel, out_shape=shape, interpret=True)(x)

    np.testing.assert_array_equal(strong_zero(f)(abs(X)), jnp.sqrt(abs(X)))
    with pytest.raises(UnsupportedModeError, match=r"pallas_call.*test_strong_zero.py:\d+"):
        jax.jvp(strong_zero(f), (abs(X),), (X,))


@pytest.mark.parametrize("not_callable", [1.0, None, "f"])
def test_only_functions(not_callable):
    with pytest.raises(ArgumentTypeError, match="expected a function"):
        strong_zero(not_callable)


def test_the_name_and_docstring_stay():
    assert strong_zero(masked).__name__ == "masked"
    assert strong_zero(masked).__doc__ == masked.__doc__


@pytest.mark.parametrize("wrap", [lambda f: f, jax.vmap, lambda f: jax.checkpoint(f)])
def test_without_a_derivative_the_compiled_program_is_the_same(wrap):
    def f(x):
        y = lax.scan(lambda c, _: (jnp.tanh(c @ jnp.swapaxes(c, -1, -2)) @ c, None), x, length=2)[0]
        return jnp.where(y > 0, jnp.sqrt(y) / (1 + y), jax.nn.gelu(y))

    def optimised(f):
        text = jax.jit(wrap(f)).lower(jnp.ones((2, 3, 3))).compile().as_text()
        return collections.Counter(re.findall(r"[\])}] ([a-z][a-z0-9-]*)\(", text))

    assert optimised(strong_zero(f)) == optimised(f)
    assert optimised(f)["dot"] > 0


def test_one_compilation_for_many_eager_gradients(count_traces):
    counted = count_traces(guarded_root)
    f = jax.grad(strong_zero(jax.jit(counted)))
    for x in (0.0, 1.0, 2.0):
        f(x)
    assert counted.traces == 1


# Random programs: steps on a matrix, each with a safe twin that never sees a bad value.
def _guard(condition, f, otherwise):
    """Return a `where` on `f`, and its twin whose operand is replaced first."""

    def plain(x):
        return jnp.where(condition(x), f(x), otherwise(x))

    def safe(x):
        inside = condition(x)
        return jnp.where(inside, f(jnp.where(inside, x, 0.5)), otherwise(x))

    return plain, safe


def _same(f):
    return f, f


STEPS = {
    "root": _guard(lambda x: x > 0, jnp.sqrt, lambda x: 0.1 * x),
    "log": _guard(lambda x: x > 0, jnp.log, jnp.zeros_like),
    "inverse": _guard(lambda x: x != 0, lambda x: 1 / x, lambda x: x),
    "power": _guard(lambda x: x > 0, lambda x: x**-0.7, jnp.sin),
    "arcsin": _guard(lambda x: abs(x) < 1, jnp.arcsin, lambda x: 0.3 * x),
    "tanh": _same(jnp.tanh),
    "relu": _same(jax.nn.relu),
    "steps": _same(lambda x: jnp.where(x > 0.2, x - 0.2, 0.0)),
    "matmul": _same(lambda x: x @ jnp.array([[0.5, -1.0, 0.0], [0.0, 0.2, 1.0], [1.0, 0.0, 0.3]])),
    "gram": _same(lambda x: 0.3 * (x @ x.T)),
    "softmax": _same(jax.nn.softmax),
    "cumsum": _same(lambda x: jnp.cumsum(x, axis=1)),
    "scan": _same(lambda x: lax.scan(lambda c, r: (0.5 * c * r, c + r), x[0], x)[1]),
}
VALUES = st.sampled_from([0.0, 0.0, -0.5, 0.25, 0.7, 1.5, -2.0, 1.0])


def _composed(steps, which):
    return lambda x: functools.reduce(lambda x, name: STEPS[name][which](x), steps, x).sum()


@settings(max_examples=examples(10), deadline=None)
@given(st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=4),
       st.lists(VALUES, min_size=9, max_size=9))  # fmt: skip
def test_random_programs_have_the_gradient_of_their_safe_twins(steps, numbers):
    with enable_x64(True):
        x = jnp.array(numbers, jnp.float64).reshape(3, 3)
        plain, safe = _composed(steps, 0), _composed(steps, 1)
        tangent = np.cos(np.arange(9.0)).reshape(3, 3)

        def derivatives(x):
            _, forward = jax.jvp(strong_zero(plain), (x,), (tangent,))
            return jax.grad(safe)(x), jax.grad(strong_zero(plain))(x), forward

        truth, found, forward = map(np.asarray, jax.jit(derivatives)(x))
        if not np.isfinite(truth).all() or np.abs(truth).max() > 1e6:
            return  # singular where it is kept
        np.testing.assert_allclose(found, truth, rtol=1e-11, atol=1e-11)
        np.testing.assert_allclose(forward, (truth * tangent).sum(), rtol=1e-9, atol=1e-9)
        assert (jax.jit(strong_zero(plain))(x) == jax.jit(plain)(x)).all()


@settings(max_examples=6, deadline=None)
@given(st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=3),
       st.integers(0, 2**31 - 1))  # fmt: skip
def test_away_from_singularities_gradients_are_those_of_jax(steps, seed):
    with enable_x64(True):
        x = np.random.default_rng(seed).uniform(0.1, 0.9, (3, 3))

        def derivatives(f):
            return jax.grad(f)(x), jax.grad(lambda x: (jax.grad(f)(x) ** 2).sum())(x)

        f = _composed(steps, 0)
        pairs = jax.jit(lambda: (derivatives(f), derivatives(strong_zero(f))))()
        for truth, found in zip(*jax.device_get(pairs), strict=True):
            if np.isfinite(truth).all():
                scale = max(1.0, np.abs(truth).max())
                np.testing.assert_allclose(found, truth, rtol=1e-11, atol=1e-12 * scale)
