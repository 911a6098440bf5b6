"""Sixty faulty programs as they are written elsewhere, with the kinds of finding that name each."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import export, lax
from jax.scipy import special, stats

import pybridge as pb

RNG = np.random.default_rng(1)
X4 = RNG.normal(size=4)
SQUARE = RNG.normal(size=(3, 3))
F32, F16 = np.float32, np.float16


def forward(function, tangent):
    """Give a function a rule for its tangent."""
    f = jax.custom_jvp(lambda *xs: function(*xs))
    f.defjvp(lambda p, t: (function(*p), tangent(*p, *t)))
    return f


def reverse(function, pull):
    """Give a function of one argument a rule for its cotangent."""
    f = jax.custom_vjp(lambda x: function(x))
    f.defvjp(lambda x: (function(x), x), lambda x, ct: (pull(x, ct),))
    return f


def programs():
    """Yield a name, the kinds one of which is to be found, the function and its arguments."""
    for kinds, part in (
        (("finite", "reverse-forward", "second-order"), _rules),
        (("value",), _values),
        (("precision",), _precision),
        (("non-finite",), _leaks),
        (("out-of-bounds",), _indices),
        (("special-case", "kink", "second-order", "non-finite"), _points),
        (("mode-dependent", "finite"), _modes),
        (("finite", "zero", "random"), _stopped),
    ):
        for name, f, *args in part():
            yield name, kinds, f, args


def _rules():
    softplus, sigmoid = jax.nn.softplus, jax.nn.sigmoid
    yield "softplus, slope of tanh", forward(softplus, lambda x, t: jnp.tanh(x) * t), 0.3
    yield (
        "swish without its second term",
        forward(lambda x: x * sigmoid(x), lambda x, t: sigmoid(x) * t),
        0.7,
    )
    yield (
        "gelu, 1 % off",
        forward(jax.nn.gelu, lambda x, t: 1.01 * jax.jvp(jax.nn.gelu, (x,), (t,))[1]),
        0.4,
    )
    yield "square root, factor", forward(jnp.sqrt, lambda x, t: t / jnp.sqrt(x)), 2.0
    yield "logarithm of base 2", forward(jnp.log2, lambda x, t: t / x), 2.0
    yield (
        "arctan2, sign",
        forward(
            lambda x: jnp.arctan2(x[0], x[1]), lambda x, t: (x[0] * t[1] - x[1] * t[0]) / (x @ x)
        ),
        X4[:2],
    )
    yield (
        "softmax without the mean",
        reverse(jax.nn.softmax, lambda x, ct: jax.nn.softmax(x) * ct),
        X4,
    )
    yield "logsumexp, not normalised", reverse(special.logsumexp, lambda x, ct: ct * jnp.exp(x)), X4
    yield (
        "layer norm without the variance",
        reverse(lambda x: (x - x.mean()) / x.std(), lambda x, ct: (ct - ct.mean()) / x.std()),
        X4,
    )
    yield (
        "product of matrices, transposed",
        reverse(
            lambda a: (a @ a @ jnp.asarray(SQUARE, a.dtype)).sum(),
            lambda a, ct: ct * (a @ jnp.asarray(SQUARE, a.dtype)).T,
        ),
        SQUARE,
    )
    yield (
        "determinant, not transposed",
        reverse(jnp.linalg.det, lambda a, ct: ct * jnp.linalg.det(a) * jnp.linalg.inv(a)),
        SQUARE,
    )
    yield (
        "inverse, sign",
        forward(jnp.linalg.inv, lambda a, t: jnp.linalg.inv(a) @ t @ jnp.linalg.inv(a)),
        SQUARE,
    )
    yield "norm, squared", reverse(jnp.linalg.norm, lambda x, ct: 2 * ct * x), X4
    yield "cumulative sum, not turned", reverse(jnp.cumsum, lambda x, ct: jnp.cumsum(ct)), X4
    yield (
        "sum over the wrong axis",
        reverse(lambda a: a.sum(0), lambda a, ct: jnp.broadcast_to(ct[:, None], a.shape)),
        SQUARE,
    )
    yield "clip without the clip", forward(lambda x: jnp.clip(x, -1, 1), lambda x, t: t), 1.7
    yield (
        "Huber, slope of the square",
        forward(
            lambda x: jnp.where(jnp.abs(x) < 1, x**2 / 2, jnp.abs(x) - 0.5), lambda x, t: x * t
        ),
        2.2,
    )
    yield "mean, not divided", reverse(jnp.mean, lambda x, ct: ct * jnp.ones_like(x)), X4
    yield "real part alone", forward(jnp.sin, lambda x, t: jnp.cosh(x) * t), 0.4
    yield (
        "constant second derivative",
        forward(lambda x: x**3, lambda x, t: 3 * lax.stop_gradient(x) ** 2 * t),
        1.2,
    )
    yield (
        "bilinear second derivative",
        forward(lambda x: jnp.exp(x), lambda x, t: jnp.exp(lax.stop_gradient(x)) * t),
        0.3,
    )
    yield "implicit root, sign", forward(root, lambda a, t: -t / (3 * root(a) ** 2)), 2.0


def root(a):
    return lax.fori_loop(0, 40, lambda i, y: y - (y**3 - a) / (3 * y**2), 1.0 + 0 * a)


def _values():
    yield "rule of another tolerance", forward_with(lambda x: jnp.round(x, 6), jnp.sin), 0.345
    yield (
        "rule of a smoothed maximum",
        forward_with(
            lambda y: y, lambda x: jnp.maximum(x, 0.0), lambda x: jax.nn.softplus(8 * x) / 8
        ),
        0.2,
    )
    yield (
        "rule in single precision",
        forward_with(lambda y: y, jnp.sin, lambda x: 1.001 * jnp.sin(x)),
        0.3,
    )


def forward_with(change, function, inside=None):
    """Give a function a rule that computes another value."""
    f = jax.custom_jvp(function)
    inside = inside or function
    f.defjvp(lambda p, t: (change(inside(*p)), jax.jvp(function, p, t)[1]))
    return f


def _precision():
    far = np.array([100, 90, 80], F32)
    yield "softplus", lambda x: jnp.log(1 + jnp.exp(x)), F32(100)
    yield "softmax", lambda x: jnp.exp(x) / jnp.exp(x).sum(), far
    yield "logsumexp", lambda x: jnp.log(jnp.exp(x).sum()), far
    yield "log of a sigmoid", lambda x: jnp.log(jax.nn.sigmoid(x)), F32(-100)
    yield "binary cross entropy", lambda x: -jnp.log(1 - jax.nn.sigmoid(x)), F32(20)
    yield "log of a softmax", lambda x: -jnp.log(jax.nn.softmax(x))[1], np.array([200, 0], F32)
    yield (
        "variance in one pass",
        lambda x: jnp.sqrt((x**2).mean() - x.mean() ** 2 + 1e-5),
        np.asarray(1e4 + np.arange(4), F32),
    )
    yield "norm", lambda x: jnp.sqrt((x * x).sum()), np.full(3, 3e25, F32)
    yield "norm, half precision", lambda x: jnp.sqrt((x * x).sum()), np.array([300, 200], F16)
    yield (
        "cosine of an angle",
        lambda x: x[0] * x[1] / jnp.sqrt(x[0] ** 2 * x[1] ** 2 + 1e-30),
        np.array([1e12, 2e12], F32),
    )
    yield (
        "likelihood as a product",
        lambda m: jnp.log(jnp.prod(jnp.exp(-((jnp.linspace(-6, 6, 16, dtype=m.dtype) - m) ** 2)))),
        F32(0.3),
    )
    yield "tail of the normal", lambda x: jnp.log(1 - stats.norm.cdf(x)), F32(8.0)
    yield "interest", lambda r: (jnp.exp(r) - 1) / r, F32(1e-6)
    yield "quadratic formula", lambda b: -b + jnp.sqrt(b**2 - 4), F32(1e5)


def _leaks():
    yield "square root in where", lambda x: jnp.where(x > 0, jnp.sqrt(x), 0).sum(), np.zeros(2)
    yield "logarithm in where", lambda x: jnp.where(x > 0, jnp.log(x), 0).sum(), np.array([0.0, 1])
    yield "quotient in where", lambda x: jnp.where(x == 0, 1, jnp.sin(x) / x), 0.0
    yield "norm at 0", lambda x: jnp.sqrt((x**2).sum()), np.zeros(3)
    yield "deviation of equal numbers", lambda x: jnp.std(x), np.ones(3)
    yield "distance to itself", lambda x: jnp.linalg.norm(x - x[0], axis=-1).sum(), SQUARE
    yield "angle of parallel vectors", lambda x: jnp.arccos(jnp.clip(x / x, -1, 1)), 2.0


def _indices():
    yield "index past the end", lambda x: x[jnp.array([0, 7])].sum(), X4
    yield (
        "embedding of an unknown word",
        lambda w: jnp.take(w, jnp.array([1, 9]), axis=0).sum(),
        SQUARE,
    )
    yield "write past the end", lambda x: x.at[jnp.array([0, 9])].add(x[:2]).sum(), X4


def _points():
    yield "masked power", lambda x: (x**0.5 * (x > 0)).sum(), np.array([0.0, 4.0])
    yield "early exit", lambda x: jnp.where(x == 0, 0.0, x + x**2), 0.0
    yield (
        "relu of slope 2 at 0",
        forward(
            lambda x: jnp.maximum(x, 0),
            lambda x, t: jnp.where(x > 0, 1.0, jnp.where(x == 0, 2.0, 0.0)) * t,
        ),
        0.0,
    )
    yield (
        "power of a shortcut",
        lambda x: lax.cond(x == 1.0, lambda x: 1.0 + 0 * x, lambda x: x**2, x),
        1.0,
    )


def _modes():
    asks = lambda x: jnp.where(pb.within_gradient(x), 10.0, 1.0) * x  # noqa: E731
    yield (
        "root of two modes",
        lambda a: lax.custom_root(
            lambda y: y - asks(a),
            0 * a,
            lambda f, y: y - f(y),
            lambda g, y: y / g(jnp.ones_like(y)),
        ),
        2.0,
    )
    yield (
        "exported in one mode",
        export.export(jax.jit(asks))(jax.ShapeDtypeStruct((), jnp.float32)).call,
        F32(2.0),
    )


def _stopped():
    yield "rounded on the way", lambda x: x + jnp.round(x * 1e8) / 1e8, 1.2345
    yield "stopped target", lambda x: (x * lax.stop_gradient(x)).sum(), X4
    yield "quantised", lambda x: jnp.sin(jnp.floor(x * 16) / 16), 0.37
    yield "chosen by argmax", lambda x: jnp.arange(4.0)[jnp.argmax(x)], X4
    yield "counting", lambda x: (x > 0).astype(x.dtype).mean(), X4
    counter = iter(range(100))
    yield "another value each time", lambda x: x * next(counter), 2.0


# Found by nobody who differentiates at one point, with the reason.
NOT_FOUND = {}
