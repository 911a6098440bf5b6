"""Initialisers: Flux's formulas, by moments, bounds and structure."""

import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from nn_helpers import draw

import pybridge as pb

nn = pb.nn
DENSE, CONV = (400, 100), (60, 40, 5, 3)


def test_fans_are_those_of_flux():
    # Flux: nfan(20, 10) = (10, 20), nfan(3, 3, 2, 10) = (18, 90), nfan(7) = (1, 7)
    assert nn.nfan((10, 20)) == (10, 20)
    assert nn.nfan((10, 2, 3, 3)) == (18, 90)
    assert nn.nfan((7,)) == (1, 7)
    assert nn.nfan(()) == (1, 1)


@pytest.mark.parametrize("shape", [DENSE, CONV], ids=str)
@pytest.mark.parametrize("options", [{}, {"gain": 3}], ids=str)
def test_spread(shape, options, key):
    fan_in, fan_out = nn.nfan(shape)
    gain = options.get("gain", 1)
    he = options.get("gain", math.sqrt(2))
    bounds = {
        nn.glorot_uniform: gain * math.sqrt(6 / (fan_in + fan_out)),
        nn.kaiming_uniform: he * math.sqrt(3 / fan_in),
    }
    for init, bound in bounds.items():
        x = np.asarray(init(key, shape, **options))
        assert 0.99 * bound < np.abs(x).max() <= bound * (1 + 1e-6)
        np.testing.assert_allclose(x.std(), bound / math.sqrt(3), rtol=0.02)
    deviations = {
        nn.glorot_normal: gain * math.sqrt(2 / (fan_in + fan_out)),
        nn.kaiming_normal: he / math.sqrt(fan_in),
        nn.lecun_normal: gain / math.sqrt(fan_in),
    }
    for init, deviation in deviations.items():
        x = np.asarray(init(key, shape, **options))
        np.testing.assert_allclose(x.std(), deviation, rtol=0.02)
        np.testing.assert_allclose(x.mean(), 0, atol=0.03 * deviation)


def test_truncated_normal(key):
    x = np.asarray(nn.truncated_normal(key, (40000,), mean=1, std=2, lo=0, hi=2))
    assert x.min() >= 0
    assert x.max() <= 2
    np.testing.assert_allclose(x.mean(), 1, atol=0.02)
    np.testing.assert_allclose(x.std(), 0.5662, rtol=0.02)  # of N(1, 2) between 0 and 2
    far = np.asarray(nn.truncated_normal(key, (40000,), lo=-100, hi=100))
    np.testing.assert_allclose(far.std(), 1, rtol=0.02)


def test_truncated_normal_has_no_outlier_at_a_draw_of_zero(key, monkeypatch):
    """Flux's formula takes it to -inf, and so to `lo`, here 66 deviations away."""
    monkeypatch.setattr(jax.random, "uniform", lambda key, shape, dtype: jnp.zeros(shape, dtype))
    x = nn.lecun_normal(key, (1000, 2))
    assert np.abs(x).max() < 6 / math.sqrt(1000)


@pytest.mark.parametrize("shape", [(5, 7), (7, 5), (4, 2, 3, 3), (20, 2, 3)], ids=str)
def test_orthogonal(shape, key):
    x = np.asarray(nn.orthogonal(key, shape, gain=2).reshape(shape[0], -1) / 2)
    gram = x @ x.T if x.shape[0] <= x.shape[1] else x.T @ x
    np.testing.assert_allclose(gram, np.eye(len(gram)), atol=1e-5)


def test_sparse(key):
    x = np.asarray(nn.sparse_init(key, (11, 10), sparsity=0.85, std=0.1))
    assert ((x == 0).sum(1) == 9).all()
    assert len({tuple(np.flatnonzero(row)) for row in x}) > 1
    assert 0 < np.abs(x).max() < 1
    assert (np.asarray(nn.sparse_init(key, (3, 4), sparsity=2)) == 0).all()


def test_identity(key):
    x = draw(0, (2, 3, 6, 5), np.float32)
    dense = nn.Dense(5, 5, init=nn.identity_init)
    np.testing.assert_allclose(dense.apply(*dense.init(key), x)[0], x, rtol=1e-6)
    for kernel in ((3, 3), (2, 4)):
        conv = nn.Conv(kernel, 3, 3, init=nn.identity_init(gain=2), pad="same")
        np.testing.assert_allclose(conv.apply(*conv.init(key), x)[0], 2 * x, rtol=1e-6)
    assert nn.identity_init(key, (3,)).tolist() == [0, 0, 0]
    assert nn.identity_init(key, (2, 3), shift=1).tolist() == [[0, 1, 0], [0, 0, 1]]
    assert nn.identity_init(key, (2, 3), shift=(1, 0)).tolist() == [[0, 1, 0], [1, 0, 0]]
    assert nn.identity_init(key, (1, 1, 2)).tolist() == [[[1, 0]]]


def test_plain_ones(key):
    assert nn.zeros(key, (2,)).tolist() == [0, 0]
    assert nn.ones(key, (2,)).tolist() == [1, 1]
    uniform, normal = (np.asarray(init(key, (10000,))) for init in (nn.rand, nn.randn))
    assert 0 <= uniform.min() < 0.01 < 0.99 < uniform.max() < 1
    np.testing.assert_allclose([normal.mean(), normal.std()], [0, 1], atol=0.05)


ALL = [
    nn.glorot_uniform,
    nn.glorot_normal,
    nn.kaiming_uniform,
    nn.kaiming_normal,
    nn.truncated_normal,
    nn.lecun_normal,
    nn.orthogonal,
    nn.sparse_init(sparsity=0.5),
    nn.identity_init,
    nn.zeros,
    nn.ones,
    nn.rand,
    nn.randn,
]


@pytest.mark.parametrize("init", ALL, ids=lambda f: getattr(f, "__name__", "sparse_init"))
def test_every_initialiser(init, key, x64):
    dtypes = ("float16", "bfloat16", "float32", "float64")
    jitted = jax.jit(lambda key: [init(key, (4, 6), dtype) for dtype in dtypes])(key)
    for dtype, again in zip(dtypes, jitted, strict=True):
        x = init(key, (4, 6), dtype)
        assert (x.shape, x.dtype) == (again.shape, again.dtype) == ((4, 6), dtype)
        x, again = np.asarray(x, float), np.asarray(again, float)
        np.testing.assert_allclose(x, again, rtol=1e-2, atol=1e-6)
    assert init(key, (4, 6)).dtype == jnp.float32
    assert init(jax.random.key_data(key), (4, 6)).shape == (4, 6)  # keys of the old kind
    with pytest.raises(pb.ArgumentTypeError, match="a floating dtype, got int32"):
        init(key, (4, 6), jnp.int32)
    with pytest.raises(pb.ArgumentValueError, match="a sequence of natural numbers"):
        init(key, (4, -6))
    with pytest.raises(pb.ArgumentValueError, match="a sequence of natural numbers"):
        init(key, 4)


def test_options_are_kept():
    one, other = nn.glorot_uniform(gain=2), nn.glorot_uniform(gain=2)
    assert one == other
    assert hash(one) == hash(other)
    assert one != nn.glorot_normal(gain=2)
    assert repr(one) == "glorot_uniform(gain=2)"
    assert repr(nn.sparse_init(sparsity=0.5, std=1)) == "sparse_init(sparsity=0.5, std=1)"
    with pytest.raises(TypeError, match="gian"):
        nn.glorot_uniform(gian=2)


def test_wrong_shapes(key):
    cases = [
        (nn.orthogonal, (3,), "at least two axes"),
        (nn.sparse_init(sparsity=0.1), (3, 2, 1), "a shape with two axes"),
        (nn.identity_init(shift=(1, 2)), (3, 2, 1), "2 axes, as `shift` has,"),
        (nn.truncated_normal(lo=3, hi=2), (3,), "lo < hi"),
    ]
    for init, shape, message in cases:
        with pytest.raises(pb.ArgumentValueError, match=re.escape(message)):
            init(key, shape)
