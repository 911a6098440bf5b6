"""Dense and Embedding: values, gradients, dtypes, transformations, errors."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from nn_helpers import draw, fixed, forward

import pybridge as pb


def dense(dtype=np.float64, **options):
    layer = pb.nn.Dense(3, 5, init=fixed(0), **options)
    params, state = layer.init(None, dtype)
    assert state == {}
    return layer, {**params, "bias": jnp.asarray(draw(1, (5,), dtype))}


@pytest.mark.parametrize("leading", [(), (4,), (2, 4), (2, 0, 4)], ids=str)
@pytest.mark.parametrize("devices", [1, 8])
def test_dense_takes_any_leading_axes(leading, devices, x64, maybe_jit, monkeypatch):
    monkeypatch.setattr(jax, "device_count", lambda: devices)
    layer, params = dense(activation=pb.nn.tanh)
    x = draw(2, (*leading, 3))

    def reference(p, x):
        return np.tanh(x @ np.asarray(p["weight"]) + np.asarray(p["bias"]))

    # Merging axes would gather one that is sharded, as none is on one device.
    program = jax.make_jaxpr(lambda p, x: forward(layer, p, x))(params, x)
    (product,) = (eqn for eqn in program.eqns if eqn.primitive.name == "dot_general")
    assert product.invars[0].aval.ndim == (min(x.ndim, 2) if devices == 1 else x.ndim)
    y = maybe_jit(lambda p, x: forward(layer, p, x))(params, x)
    np.testing.assert_allclose(y, reference(params, x), rtol=1e-12, atol=1e-14)
    for_params, for_x = maybe_jit(jax.grad(lambda p, x: forward(layer, p, x).sum(), (0, 1)))(
        params, x
    )
    slope = 1 - reference(params, x) ** 2
    np.testing.assert_allclose(for_x, slope @ np.asarray(params["weight"]).T, rtol=1e-12)
    flat = slope.reshape(-1, 5)
    np.testing.assert_allclose(for_params["weight"], x.reshape(-1, 3).T @ flat, atol=1e-13)
    np.testing.assert_allclose(for_params["bias"], flat.sum(0), atol=1e-13)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("given", ["float16", "float64", "int32", "bool"])
def test_dense_converts_its_input(dtype, given, x64):
    layer, params = dense(jnp.dtype(dtype))
    y = forward(layer, params, jnp.array([[1, 0, 1]], given))
    assert y.dtype == dtype
    want = params["weight"][0].astype(float) + params["weight"][2].astype(float)
    np.testing.assert_allclose(
        y[0].astype(float), want + params["bias"].astype(float), rtol=4 * jnp.finfo(dtype).eps
    )


def test_dense_without_bias():
    layer = pb.nn.Dense(3, 5, bias=False)
    params, _ = layer.init(jax.random.key(0))
    assert list(params) == ["weight"]
    x = draw(0, (2, 3), np.float32)
    np.testing.assert_allclose(forward(layer, params, x), x @ params["weight"], rtol=1e-5)


def test_dense_under_transformations():
    layer, params = dense(np.float32, activation=pb.nn.softplus)
    x = draw(2, (4, 3), np.float32)
    want = forward(layer, params, x)
    np.testing.assert_allclose(jax.vmap(lambda r: forward(layer, params, r))(x), want, rtol=1e-6)
    _, ys = jax.lax.scan(lambda c, r: (c, forward(layer, params, r)), 0, x)
    np.testing.assert_allclose(ys, want, rtol=1e-6)

    def loss(p):
        return forward(layer, p, x).sum()

    plain, again = jax.grad(loss)(params), jax.grad(jax.checkpoint(loss))(params)
    np.testing.assert_allclose(plain["weight"], again["weight"], rtol=1e-6)
    hessian = jax.hessian(loss)(params)["bias"]["bias"]
    assert np.allclose(hessian, np.diag(np.diag(hessian)))


@pytest.mark.peers("optax")
def test_dense_learns_with_optax():
    import optax

    layer = pb.nn.Dense(3, 1)
    params, state = layer.init(jax.random.key(0))
    x = draw(2, (64, 3), np.float32)
    target = x @ np.float32([[1], [-2], [3]]) + 4
    optimiser = optax.adam(0.1)
    moments = optimiser.init(params)

    @jax.jit
    def step(params, moments):
        def loss(params):
            return jnp.mean((layer.apply(params, state, x)[0] - target) ** 2)

        updates, moments = optimiser.update(jax.grad(loss)(params), moments)
        return optax.apply_updates(params, updates), moments

    with jax.numpy_dtype_promotion("standard"):  # optax mixes dtypes
        for _ in range(300):
            params, moments = step(params, moments)
    np.testing.assert_allclose(params["weight"][:, 0], [1, -2, 3], atol=1e-2)
    np.testing.assert_allclose(params["bias"], [4], atol=1e-2)


def test_single_precision_is_not_rounded_to_less():
    layer, params = dense(np.float32)

    def text(dtype):
        p = jax.tree.map(lambda leaf: leaf.astype(dtype), params)
        return str(jax.make_jaxpr(lambda x: forward(layer, p, x))(jnp.ones(3)))

    assert "HIGHEST" in text(jnp.float32)
    assert "HIGHEST" not in text(jnp.bfloat16)
    with jax.default_matmul_precision("tensorfloat32"):
        assert "HIGHEST" not in text(jnp.float32)


def test_configuration():
    assert pb.nn.Dense(3, 5, pb.nn.relu) == pb.nn.Dense(3, 5, activation=pb.nn.relu)
    assert len({pb.nn.Dense(3, 5), pb.nn.Dense(3, 5), pb.nn.Dense(3, 4)}) == 2
    gain = pb.nn.kaiming_normal(gain=2)
    layer = pb.nn.Dense(3, 5, pb.nn.relu, bias=False, init=gain)
    assert layer == pb.nn.Dense(3, 5, pb.nn.relu, bias=False, init=pb.nn.kaiming_normal(gain=2))
    assert repr(layer) == "Dense(3, 5, activation=relu, bias=False, init=kaiming_normal(gain=2))"
    assert repr(pb.nn.Embedding(3, 5)) == "Embedding(3, 5)"


@pytest.mark.parametrize(
    "arguments, options, message",
    [
        ((0, 1), {}, "a positive integer as in_features, got 0"),
        ((1, 2.0), {}, "a positive integer as out_features, got 2.0"),
        ((1, 1, pb.nn.logsoftmax), {}, "an elementwise function as `activation`, got logsoftmax"),
        ((1, 1, False), {}, "a function as `activation`, got False"),
        ((1, 1), {"bias": None}, "True or False as `bias`, got None"),
        ((1, 1), {"init": "glorot"}, "a function as `init`, got 'glorot'"),
    ],
)
def test_wrong_options(arguments, options, message):
    with pytest.raises(pb.BridgeError, match=re.escape(message)):
        pb.nn.Dense(*arguments, **options)


def test_wrong_inputs():
    layer, params = dense(np.float32)
    for shape in ((4,), (3, 4), ()):
        with pytest.raises(pb.ArgumentValueError, match="an input with 3 features on axis -1"):
            forward(layer, params, jnp.ones(shape))
    with pytest.raises(pb.ArgumentTypeError, match="params as `init` gives them"):
        forward(layer, {"weight": params["weight"]}, jnp.ones(3))
    with pytest.raises(pb.ArgumentTypeError, match="convert to the weight's dtype float32"):
        forward(layer, params, jnp.ones(3, jnp.complex64))


@pytest.mark.parametrize(
    "dtype, message", [(int, "a floating dtype"), (np.float64, "a dtype of at most 32 bits")]
)
def test_wrong_dtype_of_parameters(dtype, message):
    with pytest.raises(pb.ArgumentTypeError, match=message):
        pb.nn.Dense(1, 1).init(jax.random.key(0), dtype)


def test_an_initialiser_of_the_wrong_shape():
    layer = pb.nn.Dense(3, 5, init=lambda key, shape, dtype: jnp.ones(shape[::-1], dtype))
    with pytest.raises(pb.ArgumentValueError, match=r"returns shape \(3, 5\), got shape \(5, 3\)"):
        layer.init(jax.random.key(0))


@pytest.fixture
def table():
    layer = pb.nn.Embedding(6, 4, init=fixed(0))
    return layer, layer.init(None)[0]


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32"])
@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (0,), (2, 1, 3)], ids=str)
def test_embedding_picks_rows(table, shape, dtype, maybe_jit):
    layer, params = table
    x = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)
    y = maybe_jit(lambda p, x: forward(layer, p, x))(params, x)
    assert y.tolist() == np.asarray(params["weight"])[x].tolist()


def test_embedding_of_one_hot(table):
    layer, params = table
    x = np.array([[5, 0], [3, 3]])
    np.testing.assert_array_equal(
        forward(layer, params, np.eye(6, dtype=bool)[x]), forward(layer, params, x)
    )
    with pytest.raises(pb.ArgumentValueError, match="bools, one-hot, on axis -1"):
        forward(layer, params, np.ones((2, 5), bool))


def test_embedding_gradient_adds_up(table, maybe_jit):
    layer, params = table
    x = jnp.array([1, 1, 4])
    gradient = maybe_jit(jax.grad(lambda p: forward(layer, p, x).sum()))(params)["weight"]
    np.testing.assert_array_equal(gradient[:, 0], [0, 2, 0, 0, 1, 0])


@pytest.mark.parametrize("index", [6, -1])
def test_embedding_index_out_of_range(table, index):
    layer, params = table
    x = jnp.array([index, 2])
    with pytest.raises(pb.ArgumentValueError, match="indices from 0 to 5, got indices from"):
        forward(layer, params, x)
    y = jax.jit(lambda x: forward(layer, params, x))(x)
    assert np.isnan(y[0]).all()
    assert y[1].tolist() == params["weight"][2].tolist()
    gradient = jax.jit(jax.grad(lambda p, x: jnp.nansum(forward(layer, p, x))))(params, x)
    np.testing.assert_array_equal(gradient["weight"][:, 0], [0, 0, 1, 0, 0, 0])


def test_embedding_refuses_floats(table):
    layer, params = table
    with pytest.raises(pb.ArgumentTypeError, match="indices as an integer array"):
        forward(layer, params, jnp.ones(3))


def test_embedding_under_transformations(table):
    layer, params = table
    x = jnp.array([[5, 0], [3, 3]])
    want = forward(layer, params, x)
    np.testing.assert_array_equal(jax.vmap(lambda r: forward(layer, params, r))(x), want)
    _, ys = jax.lax.scan(lambda c, r: (c, forward(layer, params, r)), 0, x)
    np.testing.assert_array_equal(ys, want)
    assert forward(layer, params, x).dtype == jnp.float32
    half, _ = pb.nn.Embedding(6, 4).init(jax.random.key(0), jnp.bfloat16)
    assert forward(layer, half, x).dtype == jnp.bfloat16
