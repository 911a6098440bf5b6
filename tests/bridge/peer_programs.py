"""Programs from other people's libraries, small, with arguments and the primitives to expect.

A program is `(f, arguments, primitives)`: `f` returns a number, its gradient is taken with respect
to the first argument, and a part of the primitives that it must contain is named, so that a library
that changes is noticed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

Program = tuple[Callable[..., Any], tuple[Any, ...], set[str]]

PROGRAMS: dict[str, Callable[[], Program]] = {}


def program(title: str) -> Callable[[Callable[[], Program]], Callable[[], Program]]:
    def register(make: Callable[[], Program]) -> Callable[[], Program]:
        PROGRAMS[title] = make
        return make

    return register


def normal(seed: int, *shape: int) -> jax.Array:
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


def squares(y: jax.Array) -> jax.Array:
    return jnp.mean((y - 0.3) ** 2)


# --- Flax ------------------------------------------------------------------------------------


def linen(model: Any, x: jax.Array, primitives: set[str], **options: Any) -> Program:
    params = model.init(jax.random.key(0), x, **options)
    return lambda p, x: squares(model.apply(p, x, **options)), (params, x), primitives


@program("Flax linen: MLP")
def linen_mlp() -> Program:
    from flax import linen as nn

    model = nn.Sequential([nn.Dense(4), nn.gelu, nn.LayerNorm(), nn.Dense(2)])
    return linen(model, normal(1, 2, 3), {"dot_general", "tanh", "rsqrt", "reduce_sum"})


@program("Flax linen: CNN")
def linen_cnn() -> Program:
    from flax import linen as nn

    layers = [
        nn.Conv(2, (3, 3)),
        nn.relu,
        lambda x: nn.max_pool(x, (2, 2), strides=(2, 2)),
        nn.Conv(3, (2, 2), strides=(2, 2), padding="VALID"),
        nn.silu,
        lambda x: nn.avg_pool(x, (1, 1)),
        lambda x: x.reshape(x.shape[0], -1),
        nn.Dense(2),
    ]
    expected = {"conv_general_dilated", "reduce_window_max", "reduce_window_sum", "dot_general"}
    return linen(nn.Sequential(layers), normal(2, 2, 6, 6, 1), expected)


@program("Flax linen: transformer block with dropout")
def linen_transformer() -> Program:
    from flax import linen as nn

    class Block(nn.Module):
        @nn.compact
        def __call__(self, x):
            mask = nn.make_causal_mask(x[..., 0])
            attention = nn.MultiHeadDotProductAttention(
                2, dropout_rate=0.2, broadcast_dropout=False, deterministic=False
            )
            x = x + attention(nn.LayerNorm()(x), mask=mask)
            y = nn.Dense(4)(nn.gelu(nn.Dense(6)(nn.LayerNorm()(x))))
            return x + nn.Dropout(0.3, deterministic=False)(y)

    model, x, key = Block(), normal(3, 2, 3, 4), jax.random.key(7)
    params = model.init({"params": jax.random.key(0), "dropout": key}, x)

    def loss(params, x, key):
        return squares(model.apply(params, x, rngs={"dropout": key}))

    return loss, (params, x, key), {"dot_general", "random_bits", "exp", "reduce_max", "select_n"}


@program("Flax nnx: MLP")
def nnx_mlp() -> Program:
    from flax import nnx

    rngs = nnx.Rngs(0)
    model = nnx.Sequential(nnx.Linear(3, 4, rngs=rngs), nnx.relu, nnx.Linear(4, 2, rngs=rngs))
    graph, state = nnx.split(model)

    def loss(state, x):
        return squares(nnx.merge(graph, state)(x))

    return loss, (state, normal(1, 2, 3)), {"dot_general", "add"}


@program("Flax nnx: CNN with batch normalisation")
def nnx_cnn() -> Program:
    from flax import nnx

    rngs = nnx.Rngs(0)
    model = nnx.Sequential(
        nnx.Conv(1, 2, (3, 3), rngs=rngs),
        nnx.BatchNorm(2, use_running_average=True, rngs=rngs),
        nnx.relu,
        lambda x: nnx.max_pool(x, (2, 2), strides=(2, 2)),
        lambda x: x.reshape(x.shape[0], -1),
        nnx.Linear(8, 2, rngs=rngs),
    )
    graph, params, rest = nnx.split(model, nnx.Param, ...)

    def loss(params, rest, x):
        return squares(nnx.merge(graph, params, rest)(x))

    args = (params, rest, normal(2, 2, 4, 4, 1))
    return loss, args, {"conv_general_dilated", "reduce_window_max", "rsqrt"}


@program("Flax nnx: self-attention")
def nnx_attention() -> Program:
    from flax import nnx

    model = nnx.MultiHeadAttention(
        num_heads=2, in_features=4, decode=False, deterministic=True, rngs=nnx.Rngs(0)
    )
    graph, params, rest = nnx.split(model, nnx.Param, ...)

    def loss(params, rest, x):
        return squares(nnx.merge(graph, params, rest)(x))

    return loss, (params, rest, normal(3, 2, 3, 4)), {"dot_general", "exp", "reduce_max", "div"}


# --- Equinox ---------------------------------------------------------------------------------


def equinox(make: Callable[[Any, jax.Array], Any], x: jax.Array, primitives: set[str]) -> Program:
    import equinox as eqx

    params, static = eqx.partition(make(eqx, jax.random.key(0)), eqx.is_array)

    def loss(params, x):
        return squares(jax.vmap(eqx.combine(params, static))(x))

    return loss, (params, x), primitives


@program("Equinox: MLP")
def equinox_mlp() -> Program:
    def make(eqx, key):
        return eqx.nn.MLP(3, 2, 4, depth=2, activation=jax.nn.softplus, key=key)

    return equinox(make, normal(1, 2, 3), {"dot_general", "add", "custom_jvp_call"})


@program("Equinox: CNN")
def equinox_cnn() -> Program:
    def make(eqx, key):
        one, two = jax.random.split(key)
        layers = [
            eqx.nn.Conv2d(1, 2, 3, key=one),
            eqx.nn.Lambda(jax.nn.relu),
            eqx.nn.MaxPool2d(2, 2),
            eqx.nn.Lambda(jnp.ravel),
            eqx.nn.Linear(8, 2, key=two),
        ]
        return eqx.nn.Sequential(layers)

    return equinox(make, normal(2, 2, 1, 6, 6), {"conv_general_dilated", "dot_general"})


@program("Equinox: transformer block")
def equinox_transformer() -> Program:
    import equinox as eqx

    class Block(eqx.Module):
        attention: Any
        norms: list[Any]
        mlp: Any

        def __init__(self, key):
            one, two = jax.random.split(key)
            self.attention = eqx.nn.MultiheadAttention(2, 4, key=one)
            self.norms = [eqx.nn.LayerNorm(4), eqx.nn.RMSNorm(4)]
            self.mlp = eqx.nn.MLP(4, 4, 6, depth=1, activation=jax.nn.gelu, key=two)

        def __call__(self, x):
            y = jax.vmap(self.norms[0])(x)
            x = x + self.attention(y, y, y, mask=jnp.tril(jnp.ones((3, 3), bool)))
            return x + jax.vmap(self.mlp)(jax.vmap(self.norms[1])(x))

    expected = {"dot_general", "exp", "rsqrt", "tanh", "reduce_max"}
    return equinox(lambda _, key: Block(key), normal(3, 2, 3, 4), expected)


@program("Equinox: GRU cell in a scan")
def equinox_gru() -> Program:
    import equinox as eqx

    cell = eqx.nn.GRUCell(2, 3, key=jax.random.key(0))
    params, static = eqx.partition(cell, eqx.is_array)

    def loss(params, xs):
        cell = eqx.combine(params, static)
        return squares(lax.scan(lambda h, x: (cell(x, h), h), jnp.zeros(3), xs)[0])

    return loss, (params, normal(4, 4, 2)), {"scan", "logistic", "tanh"}


# --- science ---------------------------------------------------------------------------------


@program("Runge-Kutta steps of a pendulum in a scan")
def runge_kutta() -> Program:
    def field(state, theta):
        angle, speed = state
        return jnp.stack([speed, -theta[0] * jnp.sin(angle) - theta[1] * speed])

    def loss(theta, start):
        def step(state, _):
            h = 0.1
            k1 = field(state, theta)
            k2 = field(state + h / 2 * k1, theta)
            k3 = field(state + h / 2 * k2, theta)
            k4 = field(state + h * k3, theta)
            state = state + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
            return state, state

        _, path = lax.scan(step, start, length=12)
        return squares(path)

    args = (jnp.array([9.8, 0.2]), jnp.array([1.0, 0.0]))
    return loss, args, {"scan", "sin"}


@program("Gaussian process: marginal likelihood")
def gaussian_process() -> Program:
    def loss(theta, x, y):
        scale, width, noise = jnp.exp(theta)
        apart = (x[:, None] - x[None, :]) / width
        cov = scale * jnp.exp(-0.5 * apart**2) + (noise + 1e-3) * jnp.eye(x.size)
        factor = jax.scipy.linalg.cho_factor(cov, lower=True)
        fit = y @ jax.scipy.linalg.cho_solve(factor, y)
        return 0.5 * fit + jnp.sum(jnp.log(jnp.diag(factor[0])))

    x = jnp.linspace(0.0, 2.0, 5)
    args = (jnp.array([0.1, -0.3, -1.0]), x, jnp.sin(3 * x))
    return loss, args, {"cholesky", "triangular_solve"}


@program("Gaussian process: multivariate normal density")
def multivariate_normal() -> Program:
    def loss(theta, x):
        cov = jnp.eye(3) * jnp.exp(theta[0]) + theta[1] * jnp.ones((3, 3))
        return -jax.scipy.stats.multivariate_normal.logpdf(x, theta[2:], cov).sum()

    args = (jnp.array([0.2, 0.3, 1.0, 0.0, -1.0]), normal(5, 4, 3))
    return loss, args, {"cholesky", "triangular_solve"}
