"""`NonDifferentiable` in optax, Equinox and Flax: an optimiser finds nothing to update."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from nondifferentiable_helpers import ND, bits

import pybridge as pb

optax = pytest.importorskip("optax")

pytestmark = pytest.mark.peers

STEPS = 20


@pytest.fixture(autouse=True)
def strict_promotion():
    """Let optax promote as it does for everybody."""
    with jax.numpy_dtype_promotion("standard"):
        yield


def parameters():
    return {
        "w": jnp.ones(3),
        "floats": ND(jnp.array([1.0, -2.5, 1e-30])),
        "ints": ND(jnp.arange(3)),
        "numpy": ND(np.arange(3.0, dtype=np.float32)),
        "key": ND(jax.random.key(1)),
        "text": ND("abc"),
        "number": ND(100),
    }


def loss(p):
    assert p["text"] == "abc"
    noise = jax.random.normal(p["key"].value, (3,))
    return jnp.sum((p["w"] * p["floats"] * p["numpy"] + p["ints"] + noise) ** 2) / p["number"]


OPTIMISERS = {
    "sgd with momentum": lambda: optax.sgd(0.1, momentum=0.9),
    "adam": lambda: optax.adam(0.1),
    "adamw": lambda: optax.adamw(0.1, weight_decay=0.3),
    "clipping": lambda: optax.chain(
        optax.clip_by_global_norm(0.1), optax.clip(0.01), optax.adamw(0.1, weight_decay=0.3)
    ),
    "lion": lambda: optax.lion(0.1, weight_decay=0.3),
    "multi_transform": lambda: optax.multi_transform(
        {"a": optax.adamw(0.1, weight_decay=0.3), "b": optax.sgd(0.1)},
        lambda p: jax.tree.map(lambda _: "a", p),
    ),
    "masked": lambda: optax.masked(optax.adamw(0.1), {name: True for name in parameters()}),
    "MultiSteps": lambda: optax.MultiSteps(optax.adamw(0.1, weight_decay=0.3), 2),
    "apply_if_finite": lambda: optax.apply_if_finite(optax.adamw(0.1), 3),
    "schedule": lambda: optax.inject_hyperparams(optax.adamw)(optax.constant_schedule(0.1)),
    "adafactor": lambda: optax.adafactor(0.1, weight_decay_rate=0.3),
}
GRADS = {"jax.grad": jax.grad, "pb.grad": pb.grad}


def assert_untouched(after, before):
    for name, value in before.items():
        if name != "w":
            assert bits(after[name].value) == bits(value.value), name


@pytest.mark.parametrize("name", OPTIMISERS)
def test_the_parameters_stay_bitwise_the_same(name, maybe_jit):
    optimiser = OPTIMISERS[name]()
    traces = 0

    def step(p, state):
        nonlocal traces
        traces += 1
        updates, state = optimiser.update(jax.grad(loss)(p), state, p)
        return optax.apply_updates(p, updates), state

    step = maybe_jit(step)
    before = parameters()
    after, state = before, optimiser.init(before)
    for _ in range(STEPS if maybe_jit is jax.jit else 4):
        after, state = step(after, state)
    assert_untouched(after, before)
    assert not np.allclose(after["w"], before["w"])
    assert maybe_jit is not jax.jit or traces <= 2  # arrays of NumPy become JAX's


@pytest.mark.parametrize("name", GRADS)
def test_jitted_gradients_and_steps_outside_of_jit(name):
    optimiser = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(0.1, weight_decay=0.3))
    gradient = jax.jit(GRADS[name](loss))
    before = parameters()
    after, state = before, optimiser.init(before)
    for _ in range(STEPS):
        updates, state = optimiser.update(gradient(after), state, after)
        after = optax.apply_updates(after, updates)
    assert_untouched(after, before)


def test_an_array_may_change_between_the_steps():
    optimiser = optax.adamw(0.1)
    traces = 0

    @jax.jit
    def step(p, state):
        nonlocal traces
        traces += 1
        updates, state = optimiser.update(jax.grad(loss)(p), state, p)
        return optax.apply_updates(p, updates), state

    p = {**parameters(), "numpy": ND(jnp.ones(3))}
    state = optimiser.init(p)
    for i in range(5):
        p = {**p, "floats": ND(jnp.full(3, float(i + 1)) * jnp.ones(3))}
        p = {**p, "key": ND(jax.random.key(i))}
        p, state = step(p, state)
        assert p["floats"].tolist() == [i + 1.0] * 3
    assert traces == 1


def test_the_buffers_may_be_donated():
    optimiser = optax.sgd(0.1, momentum=0.9)

    @functools.partial(jax.jit, donate_argnums=(0, 1))
    def step(p, state):
        updates, state = optimiser.update(jax.grad(loss)(p), state, p)
        return optax.apply_updates(p, updates), state

    before = {k: v for k, v in parameters().items()}
    wanted = {k: bits(v.value) for k, v in before.items() if k != "w"}
    p, state = before, optimiser.init(before)
    for _ in range(3):
        p, state = step(p, state)
    assert {k: bits(v.value) for k, v in p.items() if k != "w"} == wanted


@pytest.mark.parametrize("payload", [3.0, jnp.arange(3.0)], ids=["static", "array"])
def test_equinox_modules(payload):
    eqx = pytest.importorskip("equinox")

    class Model(eqx.Module):
        w: jax.Array
        n: Any

        def __call__(self, x):
            return jnp.sum(jnp.tanh(self.w * x) * self.n)

    model, x = Model(jnp.ones(3), ND(payload)), jnp.ones(3)
    want = Model(jnp.ones(3), payload)(x)
    np.testing.assert_allclose(eqx.filter_jit(lambda m, x: m(x))(model, x), want, rtol=1e-6)
    shared = jax.vmap(lambda m, x: m(x), in_axes=(None, 0))
    np.testing.assert_allclose(shared(model, jnp.ones((2, 3))), [want, want], rtol=1e-6)
    slope = (1 - np.tanh(1.0) ** 2) * np.broadcast_to(payload, 3)
    for differentiate in (jax.grad, pb.grad, eqx.filter_grad):
        gradient = differentiate(lambda m: m(x))(model)
        assert jax.tree.structure(gradient) == jax.tree.structure(model)
        np.testing.assert_allclose(gradient.w, slope, rtol=1e-5)
        assert isinstance(gradient.n, ND)
    twice = eqx.filter_jit(lambda m: Model(m.w + 1, ND(m.n * 2)))(model)
    np.testing.assert_array_equal(twice.n, 2 * payload)

    optimiser = optax.adamw(0.1, weight_decay=0.3)
    state = optimiser.init(eqx.filter(model, eqx.is_inexact_array))
    traces = 0

    @eqx.filter_jit
    def step(model, state):
        nonlocal traces
        traces += 1
        gradient = eqx.filter_grad(lambda m: m(x) ** 2)(model)
        arrays = eqx.filter(model, eqx.is_inexact_array)
        updates, state = optimiser.update(gradient, state, arrays)
        return eqx.apply_updates(model, updates), state

    after = model
    for _ in range(STEPS):
        after, state = step(after, state)
    assert traces == 1
    assert bits(after.n.value) == bits(model.n.value)
    # For Equinox's own jit an array is a constant; another one is another program.
    other = eqx.filter_jit(lambda m, x: m(x))
    assert float(other(model, x)) != float(other(Model(model.w, ND(model.n * 2)), x))


def test_flax_linen_parameters():
    nn = pytest.importorskip("flax.linen")

    class Scaled(nn.Module):
        power: Any

        @nn.compact
        def __call__(self, x):
            w = self.param("w", nn.initializers.ones, (3,))
            n = self.param("n", lambda key: ND(jnp.arange(3.0)))
            return jnp.sum((w * x) ** self.power * n)

    model = Scaled(ND(2))
    x = jnp.array([1.0, 2.0, 3.0])
    variables = model.init(jax.random.key(0), x)
    gradient = jax.jit(jax.grad(lambda v: model.apply(v, x)))(variables)
    np.testing.assert_allclose(gradient["params"]["w"], [0.0, 8.0, 36.0])
    optimiser = optax.adamw(0.1, weight_decay=0.3)
    updates, _ = optimiser.update(gradient, optimiser.init(variables), variables)
    after = optax.apply_updates(variables, updates)
    assert bits(after["params"]["n"].value) == bits(variables["params"]["n"].value)


def test_flax_nnx_modules():
    nnx = pytest.importorskip("flax.nnx")

    class Scaled(nnx.Module):
        def __init__(self):
            self.w = nnx.Param(jnp.ones(3))
            self.n = ND(2)

        def __call__(self, x):
            return jnp.sum((self.w[...] * x) ** self.n)

    model, x = Scaled(), jnp.array([1.0, 2.0, 3.0])
    gradient = nnx.grad(lambda m: m(x))(model)
    np.testing.assert_allclose(gradient["w"][...], [2.0, 8.0, 18.0])
    np.testing.assert_allclose(nnx.jit(lambda m, x: m(x))(model, x), 14.0)
