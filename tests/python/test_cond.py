"""`cond`: the branch that is taken, all of it, and nothing of the other."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cond_helpers import BAD, equal, log_or_zero, sqrt_or_zero, total, zero

import pybridge as pb


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

    expected = [k if p else jax.random.fold_in(k, 1) for p, k in zip(pred, keys, strict=True)]
    out = maybe_jit(jax.vmap(f))(pred, keys)
    assert (jax.random.key_data(out) == jnp.stack([jax.random.key_data(k) for k in expected])).all()
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
    assert maybe_jit(lambda p, x: pb.cond(p, lambda x: (), lambda x: (), x))(True, 1.0) == ()


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
