"""What the branches of `cond` close over, what they see, and what they are told."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cond_helpers import equal, total, zero
from jax import lax

import pybridge as pb


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


def test_each_branch_closes_over_arrays_of_its_own(maybe_jit):
    def f(x, row, column):
        return pb.cond(x > 0, lambda x: jnp.log(x * row), lambda x: x * column, x).sum()

    x = jnp.array([[1.0, -2.0], [0.0, 4.0]])
    row, column = jnp.array([2.0, 3.0]), jnp.array([[5.0], [6.0]])
    by_x, by_row, by_column = maybe_jit(jax.grad(f, (0, 1, 2)))(x, row, column)
    equal(by_x, [[1, 5], [6, 0.25]])
    equal(by_row, [1 / 2, 1 / 3])
    equal(by_column, [[-2], [0]])


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


def test_detection_in_a_branch_is_exact_for_each_operand(maybe_jit):
    def branch(w, x):
        flags = [jnp.where(pb.within_gradient(v), s, 1.0) for v, s in ((w, 10.0), (x, 100.0))]
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
        a, b, n = pb.cond(x > 0, lambda w, x: (w * x, x, 1), lambda w, x: (w, 2 * x, 2), w, x)
        assert n.dtype == jnp.int32
        flags = [jnp.where(pb.within_gradient(v), s, 1.0) for v, s in ((a, 10.0), (b, 100.0))]
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

    for wrap in (lambda f: f, jax.jit, jax.vmap):
        x = jnp.array([2.0]) if wrap is jax.vmap else 2.0
        calls.clear()
        assert maybe_jit(wrap(f))(x) == 2.0
        jax.effects_barrier()
        assert set(calls) == {"testing"}
        calls.clear()
        assert maybe_jit(jax.grad(lambda x, wrap=wrap: wrap(f)(x).sum()))(x) == 4.0
        jax.effects_barrier()
        assert set(calls) == {"training"}


@pytest.mark.parametrize("x", [jnp.array([2.0, 0.0, -1.0]), jnp.array([[2.0], [0.0]])])
def test_a_constant_is_broadcast_over_the_elements(x, maybe_jit):
    # `where(x > 0, log(x), 0.0)`, word for word.
    def f(x):
        return pb.cond(x > 0, jnp.log, lambda x: 0.0, x)

    safe = jnp.where(x > 0, x, 1)
    for g in (f, jax.vmap(f)):
        out = maybe_jit(g)(x)
        assert out.dtype == jnp.float32
        equal(out, jnp.log(safe))
        equal(maybe_jit(jax.grad(total(g)))(x), jnp.where(x > 0, 1 / safe, 0))


def test_constants_of_every_kind_are_broadcast(maybe_jit):
    x, row = jnp.arange(-3.0, 3.0).reshape(2, 3), jnp.array([7.0, 8.0, 9.0])

    def f(x, row, c):
        branches = [lambda x: (x, x > 0), lambda x: (row, False), lambda x: (2 * c, np.True_)]
        return pb.switch((x + 2).astype(int), branches, x)

    index = np.clip((np.asarray(x) + 2).astype(int), 0, 2)
    value, flag = maybe_jit(f)(x, row, 5.0)
    equal(value, np.choose(index, [x, np.broadcast_to(row, (2, 3)), 10.0]))
    equal(flag, np.choose(index, [x > 0, False, True]))
    by_row, by_c = maybe_jit(jax.grad(lambda *args: f(*args)[0].sum(), (1, 2)))(x, row, 5.0)
    equal(by_row, (index == 1).sum(0))
    equal(by_c, 2 * (index == 2).sum())
    equal(maybe_jit(lambda p: pb.cond(p, lambda: 1.0, lambda: 2.0))(x > 0), np.where(x > 0, 1, 2))


@pytest.mark.parametrize("pick", [lambda x: x[0], lambda x: x[:1], lambda x: x[2] * 0])
def test_an_element_of_the_operands_is_no_constant(pick):
    x = jnp.array([2.0, 0.0, -1.0])
    with pytest.raises(pb.BranchMismatchError, match=r"float32\[1?\]"):
        pb.cond(x > 0, jnp.log, pick, x)
    with pytest.raises(pb.BranchMismatchError, match=r"float32\[1?\]"):
        pb.cond(x > 0, pick, pick, x)


@pytest.mark.parametrize("shape", [(2, 1), (1, 2), (2, 1, 1)])
def test_a_lane_none_of_whose_elements_takes_the_branch(shape, maybe_jit):
    x = jnp.array([4.0, 0.0]).reshape(shape)

    def f(x, w):
        return pb.cond(x > 0, lambda x: w / x, lambda x: 0 * x, x)

    mapped = jax.vmap(f, (0, None))
    equal(maybe_jit(mapped)(x, 2.0).ravel(), [0.5, 0])
    by_x, by_w = maybe_jit(jax.grad(total(mapped), (0, 1)))(x, 2.0)
    equal(by_x.ravel(), [-0.125, 0])
    equal(by_w, 0.25)
