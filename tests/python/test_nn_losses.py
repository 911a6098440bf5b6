"""The losses: values by Flux's formulas in double precision, gradients, kinks, dtypes, errors."""

import functools
import inspect
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from nn_helpers import check_derivatives, draw

import pybridge as pb
from pybridge.nn import losses

EPS = np.finfo(np.float64).eps
SHAPE = (4, 3)
RNG = np.random.default_rng(0)
X = draw(0, SHAPE)
P = np.exp(X) / np.exp(X).sum(-1, keepdims=True)
HOT = np.eye(3)[[0, 2, 1, 2]]
YES = RNG.integers(0, 2, SHAPE).astype(float)
SIGN = 2 * YES - 1
POSITIVE = np.abs(draw(2, SHAPE)) + 0.1
LOG_P = X - np.log(np.exp(X).sum(-1, keepdims=True))


def at(p, y):
    return y * (p + EPS) + (1 - y) * (1 - p - EPS)


def huber(e, delta):
    return np.where(e < delta, e**2 / 2, delta * (e - delta / 2)).mean()


# Name, prediction, target, options, value.
CASES = [
    ("mae", X, SIGN, {}, np.abs(X - SIGN).mean()),
    ("mse", X, SIGN, {}, ((X - SIGN) ** 2).mean()),
    ("mse", X, SIGN, {"agg": jnp.sum}, ((X - SIGN) ** 2).sum()),
    ("msle", POSITIVE, P, {}, (np.log((POSITIVE + EPS) / (P + EPS)) ** 2).mean()),
    ("msle", POSITIVE, P, {"eps": 0.5}, (np.log((POSITIVE + 0.5) / (P + 0.5)) ** 2).mean()),
    ("huber_loss", X, SIGN, {}, huber(np.abs(X - SIGN), 1)),
    ("huber_loss", X, SIGN, {"delta": 0.3}, huber(np.abs(X - SIGN), 0.3)),
    ("poisson_loss", POSITIVE, YES, {}, (POSITIVE - YES * np.log(POSITIVE)).mean()),
    ("crossentropy", P, HOT, {}, -(HOT * np.log(P + EPS)).sum(-1).mean()),
    ("crossentropy", P, HOT, {"axis": 0, "eps": 0.1}, -(HOT * np.log(P + 0.1)).sum(0).mean()),
    ("logitcrossentropy", X, HOT, {}, -(HOT * LOG_P).sum(-1).mean()),
    ("binarycrossentropy", P, YES, {}, -np.log(at(P, YES)).mean()),
    (
        "logitbinarycrossentropy",
        X,
        YES,
        {"agg": jnp.sum},
        (np.log1p(np.exp(-X)) + (1 - YES) * X).sum(),
    ),
    ("kldivergence", P, HOT, {}, -(HOT * np.log(P + EPS)).sum(-1).mean()),
    ("kldivergence", P, P[::-1], {"eps": 0}, (P[::-1] * np.log(P[::-1] / P)).sum(-1).mean()),
    ("binary_focal_loss", P, YES, {}, ((1 - at(P, YES)) ** 2 * -np.log(at(P, YES))).mean()),
    ("focal_loss", P, HOT, {}, (-HOT * (1 - P) ** 2 * np.log(P)).sum(-1).mean()),
    ("focal_loss", P, HOT, {"gamma": 1.5}, (-HOT * (1 - P) ** 1.5 * np.log(P)).sum(-1).mean()),
    ("hinge_loss", X, SIGN, {}, np.maximum(0, 1 - X * SIGN).mean()),
    ("squared_hinge_loss", X, SIGN, {}, (np.maximum(0, 1 - X * SIGN) ** 2).mean()),
    (
        "siamese_contrastive_loss",
        POSITIVE,
        YES,
        {"margin": 2},
        ((1 - YES) * POSITIVE**2 + YES * np.maximum(0, 2 - POSITIVE) ** 2).mean(),
    ),
    (
        "dice_coeff_loss",
        P,
        YES,
        {"smooth": 0.5},
        1 - (2 * (P * YES).sum() + 0.5) / ((P**2).sum() + (YES**2).sum() + 0.5),
    ),
    (
        "tversky_loss",
        P,
        YES,
        {"beta": 0.6},
        1
        - ((P * YES).sum() + 1) / ((P * YES + 0.6 * (1 - YES) * P + 0.4 * YES * (1 - P)).sum() + 1),
    ),
]


@pytest.mark.parametrize(
    "name, x, y, options, want",
    CASES,
    ids=[f"{name} {list(options)}" for name, _, _, options, _ in CASES],
)
def test_values_and_derivatives(name, x, y, options, want, x64, maybe_jit):
    loss = getattr(losses, name)
    got = maybe_jit(lambda x, y: loss(x, y, **options))(x, y)
    np.testing.assert_allclose(got, want, rtol=1e-12)
    check_derivatives(lambda x: loss(x, y, **options), (x,), eps=1e-6, rtol=1e-4, atol=1e-5)


def test_every_loss_has_a_case():
    names = {n for n, f in vars(losses).items() if inspect.isfunction(f)}
    assert names == {case[0] for case in CASES} | {"label_smoothing"}


def test_label_smoothing(x64):
    np.testing.assert_allclose(losses.label_smoothing(HOT, 0.3), 0.7 * HOT + 0.1)
    np.testing.assert_allclose(losses.label_smoothing(HOT, 0.2, axis=0), 0.8 * HOT + 0.05)
    np.testing.assert_allclose(losses.label_smoothing(YES, 0.3, axis=None), 0.7 * YES + 0.15)
    np.testing.assert_allclose(losses.label_smoothing(np.array([True, False]), 0.5), [0.75, 0.25])
    for alpha in (0, 1, 2):
        with pytest.raises(pb.ArgumentValueError, match="a number between 0 and 1 as alpha"):
            losses.label_smoothing(HOT, alpha)


def test_the_axis_of_classes_stays_for_agg():
    for loss in (losses.crossentropy, losses.logitcrossentropy, losses.focal_loss):
        each = jax.jit(lambda p, y, loss=loss: loss(p, y, agg=lambda x: x))(P, HOT)
        assert each.shape == (4, 1)
    assert losses.mae(X, SIGN, agg=lambda x: x).shape == SHAPE


def test_slopes_at_kinks_are_zygotes():
    @jax.jit
    def slopes(zero, one, p):
        at = [(losses.hinge_loss, one, 1.0), (losses.mae, zero, 0.0), (losses.huber_loss, one, 0.0)]
        return [jax.grad(loss)(x, y) for loss, x, y in at], jax.grad(losses.crossentropy)(p, p)

    kinks, zero = slopes(0.0, 1.0, np.array([0.0, 1.0]))
    assert kinks == [-1, 0, 1]
    assert np.isfinite(zero).all() and zero[0] == 0


def test_large_logits_keep_their_digits():
    x, y = jnp.array([[1e4, 0.0]]), jnp.array([[0, 1]])
    assert losses.logitcrossentropy(x, y) == 1e4
    assert losses.logitbinarycrossentropy(jnp.array([1e4, -1e4]), jnp.array([0, 0])) == 5e3
    assert jnp.isfinite(losses.crossentropy(jnp.array([[0.0, 1.0]]), jnp.array([[1, 0]])))


@pytest.mark.parametrize("name", sorted({case[0] for case in CASES}))
def test_dtypes_and_shapes(name):
    loss = getattr(losses, name)
    x, y = np.full((1, 3), 0.25), np.array([[True, False, False]])
    for dtype in ("float16", "bfloat16", "float32"):
        prediction = jnp.asarray(x, dtype)
        for target in (y, y.astype(int), y.astype(np.float32)):
            assert jax.eval_shape(loss, prediction, target).dtype == dtype
    assert jax.eval_shape(loss, np.ones((1, 3), np.int32), y).dtype == jnp.float32
    np.testing.assert_allclose(loss(prediction, y[0]), loss(prediction, y), rtol=1e-6)
    with pytest.raises(pb.ArgumentValueError, match=rf"losses.{name}: .*a target of the predict"):
        loss(prediction, y[:, :2])
    with pytest.raises(pb.ArgumentTypeError, match=rf"losses.{name}: .*got a list"):
        loss(prediction, [0, 1, 0])
    with pytest.raises(pb.ArgumentTypeError, match="real numbers, got dtype complex"):
        loss(x * 1j, y)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("gamma", [0, 1.5, 2])
def test_focal_losses_are_finite_where_a_prediction_is_0_or_1(dtype, gamma):
    dtype = jnp.dtype(dtype)
    worst = -np.log(float(jnp.finfo(dtype).eps))

    @jax.jit
    def both(p, y):
        classes, hot = jnp.stack([p, 1 - p]), jnp.stack([y, 1 - y])
        return (
            jax.value_and_grad(losses.binary_focal_loss)(p, y, gamma=gamma),
            jax.value_and_grad(losses.focal_loss)(classes, hot, gamma=gamma),
        )

    for p, y, want in ((1, 1, 0), (0, 0, 0), (1, 0, worst), (0, 1, worst)):
        p, y = np.asarray(p, dtype), np.asarray(y, dtype)
        (value, slope), (of_classes, slopes) = both(p, y)
        np.testing.assert_allclose(value, want, atol=0.01, rtol=0.02)
        assert np.isfinite(slope) and (want == 0 or float(slope) * (float(y) - 0.5) < 0)
        np.testing.assert_allclose(of_classes, want, atol=0.01, rtol=0.02)
        assert np.isfinite(slopes).all()
    z = np.asarray([18.0, 5.5], dtype)
    saturated = jax.value_and_grad(lambda z: losses.binary_focal_loss(jax.nn.sigmoid(z), z * 0))
    assert all(np.isfinite(x).all() for x in jax.jit(saturated)(z))


def test_a_probability_of_0_that_does_not_count_has_no_derivative():
    hot = p = np.array([1.0, 0.0], np.float32)
    z = np.array([200.0, 0.0], np.float32)
    for loss in (losses.crossentropy, losses.kldivergence):

        @jax.jit
        def slopes(p, z, loss=loss):
            saturated = jax.grad(lambda z: loss(jax.nn.softmax(z), hot, eps=0))
            return jax.grad(loss)(p, hot, eps=0), saturated(z)

        slope, saturated = slopes(p, z)
        np.testing.assert_array_equal(slope, [-1, 0])
        np.testing.assert_array_equal(saturated, 0)
    slope = jax.jit(jax.grad(lambda p: losses.binarycrossentropy(p, hot, eps=0)))
    np.testing.assert_array_equal(slope(p), [-0.5, 0.5])
    assert jax.jit(jax.grad(losses.poisson_loss))(0.0, 0.0) == 1
    curved = jax.jit(jax.grad(jax.grad(losses.poisson_loss)))
    assert curved(0.5, 2.0) == 2 / 0.5**2


@pytest.mark.parametrize(
    "loss",
    [losses.crossentropy, losses.kldivergence, losses.binarycrossentropy, losses.poisson_loss],
)
def test_mixed_derivatives_by_prediction_and_target_are_differences_where_targets_are_0_or_1(
    loss, x64
):
    p, hot = np.array([0.25, 0.75]), np.array([1.0, 0.0])
    slope = jax.jit(jax.grad(loss))
    there = jax.jit(jax.jacobian(slope, 1))(p, hot)
    back = jax.jit(jax.jacobian(jax.grad(loss, 1)))(p, hot)
    h = 1e-6 * np.eye(2)
    want = np.stack([(slope(p, hot + e) - slope(p, hot - e)) / 2e-6 for e in h], axis=1)
    np.testing.assert_allclose(there, want, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(there, back.T, rtol=1e-12)


def test_sure_logits_keep_their_digits_on_both_sides(x64):
    x = np.array([-30.0, -17, -10, 0, 10, 17, 30])

    @functools.partial(jax.jit, static_argnums=1)
    def both(x, y):
        loss = losses.logitbinarycrossentropy
        return loss(x, jnp.full(7, y), agg=lambda each: each), jax.grad(loss)(x, y, agg=jnp.sum)

    for y, sign in ((0, 1), (1, -1)):
        want, slope = np.logaddexp(0, sign * x), sign / (1 + np.exp(-sign * x))
        for dtype, rtol in (("float32", 1e-5), ("bfloat16", 0.02)):
            each, got = both(np.asarray(x, jnp.dtype(dtype)), y)
            np.testing.assert_allclose(np.asarray(each, float), want, rtol=rtol)
            np.testing.assert_allclose(np.asarray(got, float), slope, rtol=rtol)


@pytest.mark.parametrize("name", sorted({case[0] for case in CASES}))
def test_a_target_counts_for_each_prediction_whatever_its_leading_ones(name):
    # By independent entries, as the axis of classes is given by the prediction.
    loss = getattr(losses, name)
    p = np.array([[0.2, 0.3, 0.5], [0.1, 0.8, 0.1]], np.float32)
    y = np.array([[1, 0, 0], [0, 1, 0]])
    along = [{"axis": 0}, {"axis": 1}] if "axis" in inspect.signature(loss).parameters else [{}]

    @jax.jit
    def pairs(p, y):
        values = [(loss(p, 0.5), loss(p, np.full(p.shape, 0.5)))]
        for options in along:
            values.append((loss(p, y[None], **options), loss(p, y, **options)))
            values.append((loss(p[None], y, **options), loss(p[None], y[None], **options)))
        return values

    for got, want in pairs(p, y):
        np.testing.assert_allclose(got, want, rtol=1e-6)


OPTIONS = [
    ("crossentropy", {"axis": 2}, "an axis of an array of shape .4, 3."),
    ("focal_loss", {"axis": "x"}, "a whole number as axis"),
    ("kldivergence", {"axis": 1.0}, "a whole number as axis"),
    ("label_smoothing", {"alpha": 0.1, "axis": 2}, "an axis of an array"),
    ("label_smoothing", {"alpha": "a"}, "a real number as alpha"),
    ("mse", {"agg": "mean"}, "a function as agg"),
    ("msle", {"eps": 1j}, "a real number as eps"),
    ("crossentropy", {"eps": np.ones((5, 1, 1))}, "a real number as eps"),
    ("huber_loss", {"delta": None}, "a real number as delta"),
    ("binary_focal_loss", {"gamma": "a"}, "a real number as gamma"),
    ("siamese_contrastive_loss", {"margin": float("nan")}, "a margin of 0 or more"),
    ("dice_coeff_loss", {"smooth": "a"}, "a real number as smooth"),
    ("tversky_loss", {"beta": 10**400}, "a real number as beta"),
]


@pytest.mark.parametrize(("name", "options", "text"), OPTIONS)
def test_options_that_make_no_sense_are_errors(name, options, text):
    arrays = (P,) if name == "label_smoothing" else (P, HOT)
    with pytest.raises(pb.BridgeError) as info:
        getattr(losses, name)(*arrays, **options)
    assert re.search(rf"losses.{name}: .*{text}", str(info.value), re.DOTALL)


def test_class_numbers_are_told_from_one_hot():
    with pytest.raises(pb.ArgumentValueError, match=re.escape("`jax.nn.one_hot(labels, classes)`")):
        losses.logitcrossentropy(X, np.array([0, 2, 1, 2]))
    with pytest.raises(pb.ArgumentValueError, match="a margin of 0 or more"):
        losses.siamese_contrastive_loss(X, YES, margin=-1)
    assert losses.mse(X, 1.0) == losses.mse(X, np.ones(SHAPE))


@pytest.mark.parametrize("name", sorted({case[0] for case in CASES}))
def test_large_batches_in_half_precision(name, x64):
    # 65,520 is infinite in float16: so many pixels are a small image.
    rng = np.random.default_rng(0)
    p = rng.dirichlet([2.0, 2.0], 2**16).astype(np.float16)
    y = np.eye(2, dtype=np.float16)[rng.integers(0, 2, 2**16)]
    if name == "siamese_contrastive_loss":
        p, y = p[:, 0], y[:, 0]
    loss = getattr(losses, name)
    has_eps = "eps" in inspect.signature(loss).parameters
    options = {"eps": 2.0**-10} if has_eps else {}
    want = jax.jit(lambda p, y: loss(p, y, **options))(p.astype(float), y.astype(float))
    got, slope = jax.jit(lambda p, y: (loss(p, y), jax.grad(loss)(p, y)))(p, y)
    np.testing.assert_allclose(float(got), float(want), rtol=5e-3)
    assert np.isfinite(slope).all()
