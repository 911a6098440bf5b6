"""Flux's activation functions, with NNlib's formulas, names and derivatives at kinks.

All are elementwise: any shape; floating dtypes keep theirs. Integers stay integers where
the formula needs no division, else they become floating. NaN gives NaN. They are plain JAX
functions, so every transformation and every order of derivative works. The twins in Julia
are NNlib's functions of the same names (`src/activations.jl`).

Where a function of the same name in `jax.nn` differs, the docstring says how.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from ._dtypes import floating


def identity(x: Any) -> Any:
    """Return x: the default activation of all layers."""
    return x


def sigmoid(x: Any) -> jax.Array:
    """Return 1 / (1 + exp(-x))."""
    return jax.nn.sigmoid(floating(x))


def hardsigmoid(x: Any) -> jax.Array:
    """Return (x + 3) / 6, clamped to [0, 1]. The derivative at -3 and 3 is 0."""
    return _clamped((floating(x) + 3) / 6, 0, 1)


def logsigmoid(x: Any) -> jax.Array:
    """Return log(sigmoid(x)) = -softplus(-x)."""
    return -softplus(-floating(x))


def hardtanh(x: Any) -> jax.Array:
    """Return x, clamped to [-1, 1].

    The derivative at -1 and 1 is 0; that of `jax.nn.hard_tanh` is 1.
    """
    return _clamped(x, -1, 1)


def relu(x: Any) -> jax.Array:
    """Return max(0, x). The derivative at 0 is 0.

    Example:
        >>> import jax, jax.numpy as jnp, pybridge as pb
        >>> pb.nn.relu(jnp.array([-1.0, 0.0, 2.0])).tolist()
        [0.0, 0.0, 2.0]
        >>> float(jax.grad(pb.nn.relu)(0.0))
        0.0
    """
    return jax.nn.relu(x)


def leakyrelu(x: Any, a: Any = 0.01) -> jax.Array:
    """Return x where x > 0, else a x.

    The derivative at 0 is a; that of `jax.nn.leaky_relu` is 1.
    """
    x = floating(x)
    return jnp.where(x > 0, x, a * x)


def relu6(x: Any) -> jax.Array:
    """Return x, clamped to [0, 6]. The derivative at 0 and 6 is 0."""
    return _clamped(x, 0, 6)


def rrelu(x: Any, key: Any, lo: float = 1 / 8, hi: float = 1 / 3) -> jax.Array:
    """Return x where x > 0, else a x with a drawn from [lo, hi) for each element.

    NNlib draws from a generator that is shared by the whole program; here the draw needs
    a key, so this is no activation for a layer.
    """
    x = floating(x)
    return leakyrelu(x, jax.random.uniform(key, x.shape, x.dtype, lo, hi))


def elu(x: Any, alpha: Any = 1) -> jax.Array:
    """Return x where x >= 0, else alpha (exp(x) - 1).

    The derivative at 0 is 1; that of `jax.nn.elu` is alpha.
    """
    x = floating(x)
    return jnp.where(x >= 0, x, alpha * jnp.expm1(jnp.where(x >= 0, 0, x)))


def gelu_tanh(x: Any) -> jax.Array:
    """Return x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))."""
    x = floating(x)
    return x * (0.5 * (1 + jnp.tanh(math.sqrt(2 / math.pi) * _cubic(x))))


def gelu_sigmoid(x: Any) -> jax.Array:
    """Return x sigmoid(sqrt(8/pi) (x + 0.044715 x^3)): `gelu_tanh`, computed differently."""
    x = floating(x)
    return x * sigmoid(math.sqrt(8 / math.pi) * _cubic(x))


def _cubic(x: jax.Array) -> jax.Array:
    """Return x + 0.044715 x^3 of up to 30, where all that it is used for is 0 or 1 in every dtype.

    In half precision the cube of 41 is infinite, and a derivative of 0 times infinity NaN.
    """
    x = jnp.clip(x, -30, 30)
    return x + 0.044715 * x**3


def gelu_erf(x: Any) -> jax.Array:
    """Return x/2 (1 + erf(x / sqrt(2))), which PyTorch and Keras call gelu."""
    return jax.nn.gelu(floating(x), approximate=False)


def swish(x: Any) -> jax.Array:
    """Return x sigmoid(x), `jax.nn.silu`."""
    return jax.nn.silu(floating(x))


def hardswish(x: Any) -> jax.Array:
    """Return x hardsigmoid(x).

    The derivative at -3 and 3 is that from inside, -1/2 and 3/2; that of `jax.nn.hard_swish`
    is that from outside, 0 and 1.
    """
    x = floating(x)
    # The clamp's own derivative at its bounds is zero, which would be the derivative from outside.
    inside = jnp.abs(x) <= 3
    return jnp.where(inside, x * ((jnp.where(inside, x, 0) + 3) / 6), x * hardsigmoid(x))


def lisht(x: Any) -> jax.Array:
    """Return x tanh(x)."""
    x = floating(x)
    return x * jnp.tanh(x)


def selu(x: Any) -> jax.Array:
    """Return lambda x where x > 0, else lambda alpha (exp(x) - 1).

    lambda = 1.0507..., alpha = 1.67326..., so that normalised input stays normalised.
    """
    return jax.nn.selu(floating(x))


def celu(x: Any, alpha: Any = 1) -> jax.Array:
    """Return x where x >= 0, else alpha (exp(x / alpha) - 1)."""
    x = floating(x)
    return jnp.where(x >= 0, x, alpha * jnp.expm1(jnp.where(x >= 0, 0, x) / alpha))


def trelu(x: Any, theta: Any = 1) -> jax.Array:
    """Return x where x > theta, else 0.

    NNlib takes the derivative to be 0 wherever the value is not positive, also between a
    negative theta and 0; here it is 1.
    """
    return jnp.where(x <= theta, jnp.zeros_like(x), x)


def softsign(x: Any) -> jax.Array:
    """Return x / (1 + |x|)."""
    return jax.nn.soft_sign(floating(x))


def softplus(x: Any) -> jax.Array:
    """Return log(1 + exp(x)), without overflow."""
    return jax.nn.softplus(floating(x))


def logcosh(x: Any) -> jax.Array:
    """Return log(cosh(x)) = x + softplus(-2x) - log(2)."""
    x = floating(x)
    return x + softplus(-2 * x) - math.log(2)


def mish(x: Any) -> jax.Array:
    """Return x tanh(softplus(x))."""
    return jax.nn.mish(floating(x))


def tanhshrink(x: Any) -> jax.Array:
    """Return x - tanh(x)."""
    x = floating(x)
    return x - jnp.tanh(x)


def softshrink(x: Any, lambd: Any = 0.5) -> jax.Array:
    """Return x, moved towards 0 by lambd, and 0 where |x| <= lambd."""
    x = floating(x)
    return jnp.where(jnp.abs(x) <= lambd, 0, x - jnp.sign(x) * lambd)


def tanh(x: Any) -> jax.Array:
    """Return the hyperbolic tangent.

    Flux's layers replace `tanh` and `sigmoid` by NNlib's `tanh_fast` and `sigmoid_fast`,
    which may be off by 5 units in the last place. XLA has one of each, for both names.
    """
    return jnp.tanh(floating(x))


def _clamped(x: Any, lo: float, hi: float) -> jax.Array:
    """Return x clamped, with derivative 0 at the bounds as well; JAX's clip has 1 there."""
    return jnp.where((x > lo) & (x < hi), x, lax.stop_gradient(jnp.clip(x, lo, hi)))


# The other names that NNlib has for them.
σ = sigmoid
hardσ = hardsigmoid
logσ = logsigmoid
sigmoid_fast = sigmoid
tanh_fast = tanh
gelu = gelu_tanh
thresholdrelu = trelu
