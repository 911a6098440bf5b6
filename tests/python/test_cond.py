"""`cond`: the branch that is taken, all of it, and nothing of the other."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax
from jax.sharding import PartitionSpec as P

import pybridge as pb

BAD = jnp.array([1.0, 0.0, -1.0])


def zero(x):
    return 0 * x


def log_or_zero(x):
    return pb.cond(x > 0, jnp.log, zero, x)


def sqrt_or_zero(x):
    return pb.cond(x > 0, jnp.sqrt, zero, x)


def total(f):
    return lambda x: f(x).sum()


def equal(result, expected):
    np.testing.assert_allclose(result, expected, rtol=2e-6, atol=1e-6)


# --- cases.md -------------------------------------------------------------------------


def test_jax_19089(maybe_jit):
    def f(x):
        d = jnp.array([0.0, 1.0]) * x
        return pb.cond(d > 0, lambda d: d**0.5, zero, d).sum()

    equal(maybe_jit(f)(1.0), 1.0)
    equal(maybe_jit(jax.grad(f))(1.0), 0.5)
    equal(maybe_jit(jax.jacfwd(f))(1.0), 0.5)


@pytest.mark.parametrize("derivative", [jax.grad, jax.jacfwd, jax.jacrev, jax.hessian])
def test_jax_347_log_at_zero(derivative, maybe_jit):
    assert maybe_jit(log_or_zero)(0.0) == 0.0
    assert maybe_jit(derivative(log_or_zero))(0.0) == 0.0


@pytest.mark.parametrize(
    "derivative, expected",
    [
        (jax.vmap(jax.grad(log_or_zero)), [1, 0, 0]),
        (jax.grad(total(jax.vmap(log_or_zero))), [1, 0, 0]),
        (jax.vmap(jax.grad(jax.grad(log_or_zero))), [-1, 0, 0]),
        (jax.grad(total(jax.vmap(jax.grad(log_or_zero)))), [-1, 0, 0]),
        (jax.grad(total(jax.grad(total(jax.vmap(log_or_zero))))), [-1, 0, 0]),
        (jax.vmap(jax.jacfwd(jax.jacrev(log_or_zero))), [-1, 0, 0]),
        (jax.vmap(jax.jacrev(jax.jacfwd(log_or_zero))), [-1, 0, 0]),
        (jax.vmap(jax.grad(jax.grad(jax.grad(log_or_zero)))), [2, 0, 0]),
        (jax.vmap(jax.grad(jax.jit(log_or_zero))), [1, 0, 0]),
        (jax.grad(total(jax.vmap(jax.checkpoint(log_or_zero)))), [1, 0, 0]),
        (jax.grad(total(jax.jit(jax.vmap(log_or_zero)))), [1, 0, 0]),
    ],
)
def test_jax_5658(derivative, expected, maybe_jit):
    equal(maybe_jit(derivative)(BAD), expected)


def test_array_predicate(maybe_jit):
    x = jnp.array([4.0, 0.0, -1.0])
    equal(maybe_jit(sqrt_or_zero)(x), [2, 0, 0])
    equal(maybe_jit(jax.grad(total(sqrt_or_zero)))(x), [0.25, 0, 0])
    equal(maybe_jit(jax.jacfwd(sqrt_or_zero))(x), np.diag([0.25, 0, 0]))
    equal(maybe_jit(jax.hessian(total(sqrt_or_zero)))(x), np.diag([-0.03125, 0, 0]))
    assert (jax.jvp(sqrt_or_zero, (x,), (x,))[1] == jnp.array([1.0, 0.0, 0.0])).all()


@pytest.mark.parametrize("derivative", [jax.grad, jax.jacfwd])
def test_zygote_1153_sinc(derivative, maybe_jit):
    def sinc(x):
        return pb.cond(x == 0, lambda x: 1 + 0 * x, lambda x: jnp.sin(x) / x, x)

    assert maybe_jit(sinc)(0.0) == 1.0
    assert maybe_jit(derivative(sinc))(0.0) == 0.0
    x = jnp.array([0.0, 1.0])
    slope = np.cos(1.0) - np.sin(1.0)
    equal(maybe_jit(derivative(total(sinc)))(x), [0, slope])
    equal(maybe_jit(jax.vmap(derivative(sinc)))(x), [0, slope])


# --- dtypes, trees, shapes ------------------------------------------------------------


@pytest.mark.parametrize(
    "one, other, expected",
    [
        (jnp.float32, jnp.float16, jnp.float32),
        (jnp.int32, jnp.float32, jnp.float32),
        (jnp.bool_, jnp.int32, jnp.int32),
        (jnp.float32, jnp.complex64, jnp.complex64),
        (jnp.int8, jnp.uint8, jnp.int16),
        (jnp.bfloat16, jnp.float16, jnp.float32),
    ],
)
@pytest.mark.parametrize("pred", [True, False, np.array([True, False])])
def test_dtypes_are_promoted(one, other, expected, pred, maybe_jit):
    def f(pred, x):
        return pb.cond(pred, lambda x: x.astype(one), lambda x: x.astype(other), x)

    for first, second in ((True, pred), (pred, pred)):
        del first
        out = maybe_jit(f)(second, jnp.ones(jnp.shape(second), jnp.int32))
        assert out.dtype == expected
        assert (out == jnp.ones((), expected)).all()


def test_a_python_number_does_not_widen(maybe_jit, both_precisions):
    def f(x):
        return pb.cond(x > 0, lambda x: x, lambda x: 0.0, x)

    for dtype in (jnp.float16, jnp.float32):
        assert maybe_jit(f)(jnp.ones((), dtype)).dtype == dtype
    assert maybe_jit(f)(jnp.ones((), jnp.int32)).dtype == jnp.asarray(0.0).dtype


def test_weak_types_stay_weak():
    out = jax.jit(lambda p: pb.cond(p, lambda: 1.0, lambda: 2.0))(True)
    assert out.weak_type
    out = jax.jit(lambda p, x: pb.cond(p, lambda: 1.0, lambda: x))(True, jnp.ones(()))
    assert not out.weak_type


def test_double_precision(maybe_jit, x64):
    x = jnp.array([2.0, -3.0])
    out = maybe_jit(jax.grad(total(log_or_zero)))(x)
    assert out.dtype == jnp.float64
    np.testing.assert_allclose(out, [0.5, 0.0], rtol=1e-15)


def test_pytrees_in_and_out(key, maybe_jit):
    def f(pred, tree, n):
        return pb.cond(
            pred,
            lambda t, n: {"y": (t["x"] ** 2, n), "key": t["key"], "none": None},
            lambda t, n: {
                "y": (t["x"], n + 1),
                "key": jax.random.fold_in(t["key"], n),
                "none": None,
            },
            tree,
            n,
        )

    tree = {"x": jnp.arange(3.0), "key": key}
    yes, no = (maybe_jit(f)(pred, tree, 5) for pred in (True, False))
    equal(yes["y"][0], [0, 1, 4])
    assert (yes["y"][1], no["y"][1]) == (5, 6)
    assert (jax.random.key_data(yes["key"]) == jax.random.key_data(key)).all()
    folded = jax.random.key_data(jax.random.fold_in(key, 5))
    assert (jax.random.key_data(no["key"]) == folded).all()

    def loss(tree, pred):
        return f(pred, tree, 5)["y"][0].sum()

    gradient = maybe_jit(jax.grad(loss, allow_int=True))(tree, True)
    equal(gradient["x"], [0, 2, 4])
    assert gradient["key"].dtype == jax.dtypes.float0


def test_keys_under_vmap_and_array_predicates(key, maybe_jit):
    keys = jax.random.split(key, 3)
    pred = jnp.array([True, False, True])

    def f(pred, key):
        return pb.cond(pred, lambda k: k, lambda k: jax.random.fold_in(k, 1), key)

    expected = [
        k if p else jax.random.fold_in(k, 1) for p, k in zip(pred, keys, strict=True)
    ]
    out = maybe_jit(jax.vmap(f))(pred, keys)
    assert (
        jax.random.key_data(out) == jnp.stack([jax.random.key_data(k) for k in expected])
    ).all()
    out = maybe_jit(lambda p, k: pb.cond(p, lambda k: k, lambda k: k, k))(pred, keys)
    assert (jax.random.key_data(out) == jax.random.key_data(keys)).all()

    def noise(pred, key, x):
        return pb.cond(pred, lambda k, x: jax.random.normal(k) * x, lambda k, x: x, key, x)

    gradient = maybe_jit(jax.vmap(jax.grad(noise, 2)))(pred, keys, jnp.ones(3))
    equal(gradient, [jax.random.normal(keys[0]), 1.0, jax.random.normal(keys[2])])


def test_integer_operands_and_outputs_have_no_gradient(maybe_jit):
    def f(x, n):
        y, m = pb.cond(x > 0, lambda x, n: (x * 2, n + 1), lambda x, n: (x, n), x, n)
        return y.sum(), m

    x, n = jnp.array([1.0, -1.0]), jnp.array([5, 6])
    gradient, m = maybe_jit(jax.grad(f, has_aux=True))(x, n)
    equal(gradient, [2, 1])
    assert m.tolist() == [6, 6]
    step = maybe_jit(jax.vmap(jax.grad(f, has_aux=True)))
    gradient, m = step(x, n)
    equal(gradient, [2, 1])
    assert m.tolist() == [6, 6]


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0)])
def test_zero_size(shape, maybe_jit):
    x = jnp.ones(shape)
    assert maybe_jit(log_or_zero)(x).shape == shape
    assert maybe_jit(jax.grad(total(log_or_zero)))(x).shape == shape
    flat = jnp.ones((0,))
    assert maybe_jit(jax.vmap(log_or_zero))(flat).shape == (0,)
    assert maybe_jit(jax.vmap(jax.grad(log_or_zero)))(flat).shape == (0,)


def test_no_operands_and_no_outputs(maybe_jit):
    assert maybe_jit(lambda p: pb.cond(p, lambda: 1.0, lambda: 2.0))(True) == 1.0
    assert maybe_jit(lambda p: pb.cond(p, lambda: None, lambda: None))(True) is None
    assert (
        maybe_jit(lambda p, x: pb.cond(p, lambda x: (), lambda x: (), x))(True, 1.0) == ()
    )


@pytest.mark.parametrize("pred", [True, np.True_, np.array(True), jnp.array(True)])
def test_scalar_predicates_of_every_kind(pred, maybe_jit):
    assert pb.cond(pred, lambda x: x, zero, 2.0) == 2.0
    assert maybe_jit(lambda x: pb.cond(pred, lambda x: x, zero, x))(2.0) == 2.0
    assert maybe_jit(lambda p: pb.cond(p, lambda: 2.0, lambda: 0.0))(pred) == 2.0


def test_operands_broadcast_against_an_array_predicate(maybe_jit):
    pred = jnp.array([[True], [False]])

    def f(pred, w, x):
        return pb.cond(pred, lambda w, x: w * x, lambda w, x: x / w, w, x)

    x = jnp.array([1.0, 2.0, 3.0])
    equal(maybe_jit(f)(pred, 2.0, x), [[2, 4, 6], [0.5, 1, 1.5]])
    by_w, by_x = maybe_jit(jax.grad(total(lambda wx: f(pred, *wx))))((2.0, x))
    equal(by_w, 6.0 - 6.0 / 4)
    equal(by_x, [2.5, 2.5, 2.5])


# --- closures -------------------------------------------------------------------------


def test_differentiated_values_in_closures(maybe_jit):
    def f(w, x):
        return pb.cond(x > 0, lambda: jnp.log(x) * w, lambda: 0 * x)

    def elementwise(w, x):
        return f(w, x).sum()

    def lanes(w, x):
        return jax.vmap(f, (None, 0))(w, x).sum()

    for function in (elementwise, lanes):
        by_w, by_x = maybe_jit(jax.grad(function, (0, 1)))(3.0, jnp.array([2.0, 0.0, -1.0]))
        equal(by_w, np.log(2.0))
        equal(by_x, [1.5, 0, 0])
        (w_w, w_x), (_, x_x) = maybe_jit(jax.hessian(function, (0, 1)))(
            3.0, jnp.array([2.0, 0.0, -1.0])
        )
        equal(w_w, 0.0)
        equal(w_x, [0.5, 0, 0])
        equal(x_x, np.diag([-0.75, 0, 0]))


def test_a_closed_over_row_goes_with_its_columns(maybe_jit):
    # Column 1 takes the branch nowhere: filling it from column 0 alone would compare 4
    # with 9 there. Column 2 takes it in one row.
    x = jnp.array([[4.0, 1.0, 2.0], [3.0, 2.0, 12.0]])
    low = jnp.array([1.0, 9.0, 10.0])

    def f(x, low):
        return pb.cond(x > low, lambda x: jnp.log(x - low), zero, x).sum()

    by_x, by_low = maybe_jit(jax.grad(f, (0, 1)))(x, low)
    equal(by_x, [[1 / 3, 0, 0], [1 / 2, 0, 1 / 2]])
    equal(by_low, [-5 / 6, 0, -1 / 2])


def test_a_closed_over_table_is_used_whole(maybe_jit):
    # As long as the operand, but not elementwise: filling it would change the polynomial.
    x = jnp.array([2.0, -1.0, 3.0])

    def f(x, c):
        return pb.cond(x > 0, lambda x: jnp.polyval(c, x), zero, x)

    c = jnp.array([1.0, 10.0, 100.0])
    equal(maybe_jit(f)(x, c), [124, 0, 139])
    equal(maybe_jit(jax.grad(lambda c: f(x, c).sum()))(c), [13, 5, 2])

    def lookup(x, table):
        return pb.cond(x > 0, lambda x: table[x.astype(int) - 1] * x, zero, x)

    equal(maybe_jit(lookup)(x, c), [20, 0, 300])


def test_closed_over_rows_and_columns_at_once_are_refused():
    x, row, column = jnp.ones((2, 3)), jnp.ones((3,)), jnp.ones((2, 1))
    with pytest.raises(pb.ArgumentValueError, match="as operands"):
        pb.cond(x > 0, lambda x: x * row * column, zero, x)
    y = pb.cond(x > 0, lambda x, r, c: x * r * c, lambda x, r, c: x, x, row, column)
    assert y.shape == (2, 3)


def test_closures_in_functions_that_jax_wraps(maybe_jit):
    def f(x):
        @jax.jit
        def inner(v):
            return jax.nn.relu(v) * jnp.log(x)

        return pb.cond(x > 0, jax.checkpoint(inner), zero, x).sum()

    equal(maybe_jit(jax.grad(f))(jnp.array([2.0, 0.0, -3.0])), [np.log(2) + 1, 0, 0])


# --- what a branch sees ---------------------------------------------------------------


def recording(seen, name):
    def record(x):
        seen.append((name, np.asarray(x).tolist()))

    def branch(x):
        jax.debug.callback(record, x)
        return x * 2 if name == "true" else x * 3

    return branch


def run_and_record(f, *args):
    seen = []
    jax.block_until_ready(f(recording(seen, "true"), recording(seen, "false"))(*args))
    jax.effects_barrier()
    return seen


@pytest.mark.parametrize("x, expected", [(1.0, ("true", 1.0)), (-1.0, ("false", -1.0))])
def test_effects_of_the_taken_branch_alone(x, expected, maybe_jit):
    def f(yes, no):
        return maybe_jit(lambda x: pb.cond(x > 0, yes, no, x))

    assert run_and_record(f, jnp.asarray(x)) == [expected]
    assert run_and_record(lambda y, n: jax.grad(f(y, n)), jnp.asarray(x)) == [expected]


@pytest.mark.parametrize("mapped", [True, False], ids=["vmap", "array"])
def test_a_branch_sees_its_own_lanes_alone(mapped, maybe_jit):
    def f(yes, no):
        def chosen(x):
            return pb.cond(x > 0, yes, no, x)

        return maybe_jit(jax.vmap(chosen) if mapped else chosen)

    def values(seen, name):
        found = [np.ravel(x).tolist() for n, x in seen if n == name]
        return {value for x in found for value in x}

    seen = run_and_record(f, jnp.array([-1.0, 2.0, 3.0, -4.0]))
    assert values(seen, "true") == {2.0, 3.0}
    assert values(seen, "false") == {-1.0, -4.0}
    seen = run_and_record(f, jnp.array([1.0, 2.0]))
    assert values(seen, "true") == {1.0, 2.0}
    assert values(seen, "false") == set()


def test_nested_vmaps_fill_with_operands_that_occur_together(maybe_jit):
    # `a` is batched along the outer axis alone, `b` along the inner one alone.
    seen = []

    def branch(a, b):
        jax.debug.callback(lambda a, b: seen.append((float(a), float(b))), a, b)
        return jnp.log(a - b)

    def f(a, b):
        return pb.cond(a > b, branch, lambda a, b: 0 * a, a, b)

    a, b = jnp.array([1.0, 5.0, 3.0]), jnp.array([4.0, 2.0])
    nested = jax.vmap(jax.vmap(f, (None, 0)), (0, None))
    out = maybe_jit(nested)(a, b)
    jax.effects_barrier()
    equal(out, [[0, 0], [0, np.log(3)], [0, 0]])
    assert set(seen) <= {(5.0, 4.0), (5.0, 2.0), (3.0, 2.0)}
    by_a, by_b = maybe_jit(jax.grad(lambda a, b: nested(a, b).sum(), (0, 1)))(a, b)
    equal(by_a, [0, 1 + 1 / 3, 1])
    equal(by_b, [-1, -1 / 3 - 1])


def test_pure_callback_in_a_branch(maybe_jit):
    calls = []

    def host_log(x):
        calls.append(np.asarray(x).tolist())
        assert (np.asarray(x) > 0).all()
        return np.log(x, dtype=np.float32)

    def log(x):
        out = jax.ShapeDtypeStruct(x.shape, x.dtype)
        return jax.pure_callback(host_log, out, x, vmap_method="expand_dims")

    def f(x):
        return pb.cond(x > 0, log, zero, x)

    equal(maybe_jit(jax.vmap(f))(jnp.array([2.0, -1.0])), [np.log(2), 0])
    equal(maybe_jit(f)(jnp.array([2.0, -1.0])), [np.log(2), 0])
    assert len(calls) == 2
    equal(maybe_jit(jax.vmap(f))(jnp.array([-2.0, -1.0])), [0, 0])
    assert len(calls) == 2


# --- detection in and around branches -------------------------------------------------


def test_detection_in_a_branch_is_exact_for_each_operand(maybe_jit):
    def branch(w, x):
        flags = [
            jnp.where(pb.within_gradient(v), s, 1.0) for v, s in ((w, 10.0), (x, 100.0))
        ]
        return flags[0] * flags[1] * w * x

    def f(w, x):
        return pb.cond(w > 0, branch, lambda w, x: w, w, x)

    assert maybe_jit(jax.value_and_grad(f, 0))(2.0, 3.0) == (60.0, 30.0)
    assert maybe_jit(jax.value_and_grad(f, 1))(2.0, 3.0) == (600.0, 200.0)
    assert jax.value_and_grad(jax.jit(f), 0)(2.0, 3.0) == (60.0, 30.0)
    mapped = jax.vmap(jax.value_and_grad(f), (0, None))
    assert maybe_jit(mapped)(jnp.array([2.0]), 3.0)[0] == 60.0


@pytest.mark.parametrize("wrap", [lambda f: f, jax.jit, jax.checkpoint])
def test_an_output_without_derivative_carries_none(wrap):
    def f(w, x):
        a, b, n = pb.cond(
            x > 0, lambda w, x: (w * x, x, 1), lambda w, x: (w, 2 * x, 2), w, x
        )
        assert n.dtype == jnp.int32
        flags = [
            jnp.where(pb.within_gradient(v), s, 1.0) for v, s in ((a, 10.0), (b, 100.0))
        ]
        return flags[0] * flags[1] * a * b

    assert jax.value_and_grad(wrap(f), 0)(2.0, 3.0) == (180.0, 90.0)
    assert jax.value_and_grad(wrap(jax.jit(f)), 1)(2.0, 3.0)[0] == 18000.0
    in_scan = lambda w, x: lax.scan(lambda c, _: (c, f(c, x)), w, length=1)[1][0]  # noqa: E731
    assert jax.value_and_grad(wrap(in_scan), 0)(2.0, 3.0) == (180.0, 90.0)


def test_detection_chooses_while_tracing(maybe_jit):
    calls = []

    def training(x):
        jax.debug.callback(lambda: calls.append("training"))
        return x**2

    def testing(x):
        jax.debug.callback(lambda: calls.append("testing"))
        return x

    def f(x):
        return pb.cond(pb.within_gradient(x), training, testing, x)

    for wrap in (lambda f: f, jax.jit, jax.checkpoint):
        assert maybe_jit(wrap(f))(2.0) == 2.0
        assert maybe_jit(jax.value_and_grad(wrap(f)))(2.0) == (4.0, 4.0)
        jax.effects_barrier()
    assert set(calls[0::2]) == {"testing"}
    assert set(calls[1::2]) == {"training"}


# --- other transformations ------------------------------------------------------------


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


@pytest.mark.parametrize("check_vma", [True, False])
def test_shard_map(check_vma, mesh, maybe_jit):
    def shard(f, *specs):
        return jax.shard_map(
            f, mesh=mesh, in_specs=specs, out_specs=P("i"), check_vma=check_vma
        )

    x = jnp.array([1.0, 0.0, -1.0, 2.0, 4.0, -2.0, 0.0, 0.5])
    expected = np.where(x > 0, 1 / np.where(x > 0, x, 1), 0)
    by_lane = shard(jax.vmap(log_or_zero), P("i"))
    by_element = shard(log_or_zero, P("i"))
    # The choice differs from device to device; one branch returns the same on all.
    by_device = shard(
        lambda x, w: pb.cond(x[0] > 0, lambda: x * w, lambda: jnp.zeros(2)), P("i"), P()
    )
    equal(maybe_jit(jax.grad(total(by_lane)))(x), expected)
    equal(maybe_jit(jax.grad(total(by_element)))(x), expected)
    by_x, by_w = maybe_jit(jax.grad(lambda x, w: by_device(x, w).sum(), (0, 1)))(x, 3.0)
    equal(by_x, [3, 3, 0, 0, 3, 3, 0, 0])
    equal(by_w, 3.0)


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
    equal(
        jax.jit(jax.jacrev(mapped))(jnp.array([1.0, 3.0]), True), [[0.5, -0.5], [-0.5, 0.5]]
    )


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


# --- errors ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "pred, got",
    [
        (1, "int32 of shape"),
        (0.5, "float32 of shape"),
        (jnp.ones(3), r"float32 of shape \(3,\)"),
        (np.arange(2), "int"),
        ([True, False], "a builtins.list"),
        (None, "a builtins.NoneType"),
        ("yes", "a builtins.str"),
    ],
)
def test_a_predicate_that_is_not_bool(pred, got):
    with pytest.raises(pb.ArgumentTypeError, match=rf"pb\.cond: expected a bool.*{got}"):
        pb.cond(pred, zero, zero, 1.0)


@pytest.mark.parametrize("pred", [True, np.array(False), np.array([True, False])])
@pytest.mark.parametrize(
    "one, other, message",
    [
        (lambda x: {"a": x, "b": x}, lambda x: {"a": x}, r"\['b'\]"),
        (lambda x: (x, x), lambda x: [x, x], "PyTreeDef"),
        (lambda x: (x, None), lambda x: (x, x), r"\[1\]"),
        (
            lambda x: {"a": [x, x]},
            lambda x: {"a": [x, x[None]]},
            r"\['a'\]\[1\].*true_fun: float32\[\d?\].*false_fun: float32\[1,?\d?\]",
        ),
        (
            lambda x: (x,),
            lambda x: (jax.random.split(jax.random.key(0), x.shape),),
            r"\[0\].*common one.*key<fry>",
        ),
    ],
)
def test_branches_that_do_not_match(pred, one, other, message, maybe_jit):
    with pytest.raises(pb.BranchMismatchError, match=message):
        maybe_jit(lambda x: pb.cond(pred, one, other, x))(jnp.ones(jnp.shape(pred)))
    with pytest.raises(TypeError):
        pb.cond(pred, other, one, jnp.ones(jnp.shape(pred)))


def test_an_elementwise_branch_of_another_shape():
    x = jnp.ones(3)
    with pytest.raises(
        pb.BranchMismatchError, match=r"shape \(3,\).*float32\[\] at \['y'\]"
    ):
        pb.cond(x > 0, lambda x: {"y": x.sum()}, lambda x: {"y": x[0]}, x)


@pytest.mark.parametrize(
    "branch, operation",
    [
        (jax.nn.softmax, "reduce_"),
        (jnp.cumsum, "cumsum"),
        (jnp.sort, "sort"),
        (lambda x: x @ jnp.eye(3), "dot_general"),
        (jax.jit(lambda x: x - x.mean()), "reduce_sum"),
        (lambda x: x[::-1], "rev"),
    ],
)
def test_a_branch_that_mixes_elements(branch, operation):
    x = jnp.ones(3)
    with pytest.raises(pb.ArgumentValueError, match=f"true_fun.*elementwise.*{operation}"):
        pb.cond(x > 0, branch, zero, x)


def test_operands_that_do_not_broadcast():
    with pytest.raises(
        pb.ArgumentValueError, match=r"operands\[1\]\['w'\] of shape \(2,\)"
    ):
        pb.cond(jnp.ones(3) > 0, lambda x, t: x, lambda x, t: x, 1.0, {"w": jnp.ones(2)})


@pytest.mark.parametrize("operand", ["text", object(), lambda x: x])
def test_leaves_that_are_not_arrays(operand):
    with pytest.raises(pb.ArgumentTypeError, match=r"operands\[0\]\[1\]"):
        pb.cond(True, lambda x: 1.0, lambda x: 1.0, (1.0, operand))
    with pytest.raises(pb.ArgumentTypeError, match=r"output of false_fun at \['a'\]"):
        pb.cond(True, lambda: {"a": 1.0}, lambda: {"a": operand})


def test_branches_that_are_not_functions():
    with pytest.raises(pb.ArgumentTypeError, match="true_fun"):
        pb.cond(True, 1.0, zero, 1.0)
    with pytest.raises(pb.ArgumentTypeError, match="false_fun"):
        pb.cond(True, zero, jnp.ones(2))


def test_an_exception_in_a_branch_is_the_users_own():
    def fails(x):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        pb.cond(True, zero, fails, 1.0)


# --- properties -----------------------------------------------------------------------

# Functions with poles or edges, and where each of them is smooth.
POLES = {
    "log": (jnp.log, lambda x: x > 0),
    "sqrt": (jnp.sqrt, lambda x: x > 0),
    "reciprocal": (lambda x: 1 / x, lambda x: x != 0),
    "power": (lambda x: jnp.abs(x) ** -1.5, lambda x: x < 0),
    "arcsin": (jnp.arcsin, lambda x: abs(x) < 1),
    "arccosh": (jnp.arccosh, lambda x: x > 1),
    "log of log": (lambda x: jnp.log(jnp.log(x)), lambda x: x > 1),
    "sinc": (lambda x: jnp.sin(x) / x, lambda x: x != 0),
    "norm": (lambda x: jnp.sqrt(x * x), lambda x: x != 0),
}
ELSE = {
    "zero": lambda x: 0 * x,
    "cube": lambda x: x**3,
    "exp": lambda x: jnp.exp(-x),
}
NUMBERS = st.sampled_from([-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 3.0])


@functools.cache
def chosen(name, other, mapped):
    branch, smooth = POLES[name]

    def f(x):
        return pb.cond(smooth(x), branch, ELSE[other], x)

    return jax.vmap(f) if mapped else f


def directional(f):
    return lambda x: jax.jvp(f, (x,), (jnp.ones_like(x),))[1]


# How to get the first or second derivative of each element.
DERIVATIVES = {
    "value": (0, lambda f: f),
    "grad": (1, lambda f: jax.grad(total(f))),
    "jvp": (1, directional),
    "grad of grad": (2, lambda f: jax.grad(total(jax.grad(total(f))))),
    "jvp of grad": (2, lambda f: directional(jax.grad(total(f)))),
    "grad of jvp": (2, lambda f: jax.grad(total(directional(f)))),
    "hessian": (2, lambda f: lambda x: jax.hessian(total(f))(x).diagonal()),
    "jacfwd of jacrev": (
        2,
        lambda f: lambda x: jnp.einsum("iii->i", jax.jacfwd(jax.jacrev(f))(x)),
    ),
}


@functools.cache
def compiled(name, other, mapped, derivative):
    return jax.jit(DERIVATIVES[derivative][1](chosen(name, other, mapped)))


@functools.cache
def alone(function, order):
    for _ in range(order):
        function = jax.grad(function)
    return jax.jit(function)


@pytest.mark.parametrize("derivative", DERIVATIVES)
@pytest.mark.parametrize("mapped", [True, False], ids=["vmap", "array"])
@settings(max_examples=12, deadline=None, derandomize=True)
@given(
    name=st.sampled_from(sorted(POLES)),
    other=st.sampled_from(sorted(ELSE)),
    numbers=st.lists(NUMBERS, min_size=4, max_size=4),
)
def test_equals_a_python_loop_over_elements(derivative, mapped, name, other, numbers):
    order, _ = DERIVATIVES[derivative]
    branch, smooth = POLES[name]
    expected = [
        float(alone(branch if smooth(x) else ELSE[other], order)(x)) for x in numbers
    ]
    assert np.isfinite(expected).all()
    result = compiled(name, other, mapped, derivative)(jnp.array(numbers))
    np.testing.assert_allclose(result, expected, rtol=2e-5, atol=1e-5)
