"""Forty correct programs as they are written elsewhere; `pb.check` finds no error in any."""

import importlib

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental.ode import odeint
from jax.scipy import special, stats
from jax.scipy.linalg import cho_solve, expm
from jax.scipy.sparse.linalg import cg, gmres

RNG = np.random.default_rng(0)
X4, X6 = RNG.normal(size=4), RNG.normal(size=6)
BATCH = RNG.normal(size=(5, 3))
LABELS = np.array([0, 2, 1, 1, 0])
POSITIVE = np.abs(X4) + 0.3
SYMMETRIC = BATCH.T @ BATCH + np.eye(3)
F32 = np.float32


def programs():
    """Yield a name, the package that it needs or None, and a maker of function and arguments."""
    for name, f, *args in _plain():
        yield name, None, lambda f=f, args=args: (f, args)
    for name, package, make in _of_peers():
        yield name, package, make


def _plain():
    yield "rosenbrock", lambda x: ((1 - x[:-1]) ** 2 + 100 * (x[1:] - x[:-1] ** 2) ** 2).sum(), X4
    yield "logistic regression", logistic, X4[:3], BATCH
    yield "two layers", two_layers, {"w": RNG.normal(size=(3, 4)), "v": X4}, BATCH
    yield "attention", attention, *RNG.normal(size=(3, 4, 2))
    yield "recurrent network", recurrent, RNG.normal(size=(3, 3)), BATCH
    yield "convolution", convolution, RNG.normal(size=(1, 1, 4, 4)), RNG.normal(size=(1, 1, 2, 2))
    yield "layer norm", layer_norm, BATCH
    yield "gelu", lambda x: jax.nn.gelu(x).sum(), X6
    yield "softmax far apart", lambda x: jax.nn.softmax(x)[0], np.array([100, 90, -50], F32)
    yield "log_softmax", lambda x: -jax.nn.log_softmax(x)[1], np.array([30, 0, 2], F32)
    yield "logsumexp", special.logsumexp, np.array([1000.0, 990.0, 3.0])
    yield "normal likelihood", lambda m, s: stats.norm.logpdf(X6, m, s).sum(), 0.3, 1.2
    yield "Student's t", lambda nu: stats.t.logpdf(X4, nu).sum(), 3.5
    yield "beta", lambda a, b: stats.beta.logpdf(0.3, a, b), 1.3, 2.1
    yield (
        "multivariate normal",
        lambda m: stats.multivariate_normal.logpdf(X4[:3], m, SYMMETRIC),
        X6[:3],
    )
    yield "Gaussian process", gaussian_process, np.array([0.5, 1.0])
    yield "gamma functions", lambda x: (special.gammaln(x) + special.digamma(x)).sum(), POSITIVE
    yield "error functions", lambda x: (special.erf(x) - special.erfc(2 * x)).sum(), X4
    yield "Bessel", lambda x: special.i0e(x) + special.i1e(x), 1.7
    yield "quantile of the normal", lambda p: special.ndtri(p), 0.2
    yield "Black-Scholes", black_scholes, 100.0, 0.2, 0.03
    yield "Kalman filter", kalman, 0.3, 0.2
    yield "linear solve", lambda a, b: jnp.linalg.solve(a, b).sum(), SYMMETRIC, X4[:3]
    yield "Cholesky", lambda a: jnp.log(jnp.diag(jnp.linalg.cholesky(a))).sum(), SYMMETRIC
    yield "log determinant", lambda a: jnp.linalg.slogdet(a)[1], SYMMETRIC
    yield "eigenvalues", lambda a: (jnp.linalg.eigvalsh(a) ** 2).sum(), SYMMETRIC
    yield "singular values", lambda a: jnp.log(jnp.linalg.svd(a, compute_uv=False)).sum(), BATCH
    yield "matrix exponential", lambda a: expm(0.3 * a).sum(), SYMMETRIC
    yield "Fourier transform", lambda x: (jnp.abs(jnp.fft.rfft(x)) ** 2 * jnp.arange(4)).sum(), X6
    yield "interpolation", lambda y: jnp.interp(0.37, jnp.linspace(0, 1, 6), y), X6
    yield "sorted", lambda x: (jnp.sort(x) * jnp.arange(6.0)).sum(), X6
    yield "median", lambda x: jnp.median(x) ** 2, X6
    yield "cumulative", lambda x: (jnp.cumsum(x) * jnp.cumprod(x)).sum(), X6
    yield "two passes", lambda x: jnp.sqrt(jnp.var(x) + 1e-5), np.asarray(1e4 + np.arange(4), F32)
    yield "conjugate gradients", lambda b: (cg(lambda x: SYMMETRIC @ x, b)[0] ** 2).sum(), X4[:3]
    yield "gmres", lambda b: gmres(lambda x: SYMMETRIC @ x, b, tol=1e-8)[0].sum(), X4[:3]
    yield "decay", decay, 0.7
    yield "fixed point", fixed_point, 0.9
    yield "Newton's root", newton_root, 2.3


def logistic(w, x):
    return jnp.mean(jax.nn.softplus(x @ w) - jnp.asarray(LABELS > 0, x.dtype) * (x @ w))


def two_layers(p, x):
    return jnp.mean((jnp.tanh(x @ p["w"]) @ p["v"] - 1) ** 2)


def attention(q, k, v):
    return (jax.nn.softmax(q @ k.T / jnp.sqrt(q.shape[-1]).astype(q.dtype)) @ v).sum()


def recurrent(w, xs):
    step = lambda h, x: (jnp.tanh(w @ h + x),) * 2  # noqa: E731
    return lax.scan(step, jnp.zeros(3, xs.dtype), xs)[1].sum()


def convolution(x, k):
    return (lax.conv(x, k, (1, 1), "SAME") ** 2).sum()


def layer_norm(x):
    centred = x - x.mean(-1, keepdims=True)
    return (centred / jnp.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) ** 0.9).sum()


def gaussian_process(p):
    t = jnp.linspace(0.0, 1.0, 4)
    k = jnp.exp(-(((t[:, None] - t) / p[0]) ** 2)) * p[1] + 0.1 * jnp.eye(4)
    factor = jnp.linalg.cholesky(k)
    return X4 @ cho_solve((factor, True), jnp.asarray(X4)) + jnp.log(jnp.diag(factor)).sum()


def black_scholes(spot, volatility, rate):
    d = (jnp.log(spot / 95) + (rate + volatility**2 / 2)) / volatility
    return spot * stats.norm.cdf(d) - 95 * jnp.exp(-rate) * stats.norm.cdf(d - volatility)


def kalman(q, r):
    def step(carry, y):
        mean, variance = carry
        variance = variance + q**2
        gain = variance / (variance + r**2)
        error = y - mean
        loss = jnp.log(variance + r**2) + error**2 / (variance + r**2)
        return (mean + gain * error, (1 - gain) * variance), loss

    return lax.scan(step, (0.0 * q, 1.0 + 0.0 * q), jnp.asarray(X6))[1].sum()


def decay(k):
    return odeint(lambda y, t, k: -k * y, jnp.array(1.0), jnp.linspace(0.0, 1.0, 3), k)[-1]


def fixed_point(a):
    @jax.custom_jvp
    def solve(a):
        far = lambda c: jnp.abs(c[1] - c[0]) > 1e-5  # noqa: E731
        return lax.while_loop(far, lambda c: (c[1], jnp.cos(a * c[1])), (0 * a, 0.5 + 0 * a))[1]

    @solve.defjvp
    def _(primals, tangents):
        y = solve(*primals)
        slope = -jnp.sin(primals[0] * y)
        return y, tangents[0] * slope * y / (1 - slope * primals[0])

    return solve(a)


def newton_root(a):
    f = lambda y: y**3 - a  # noqa: E731
    step = lambda i, y: y - f(y) / (3 * y**2)  # noqa: E731
    solve = lambda f, y: lax.fori_loop(0, 20, step, y)  # noqa: E731
    return lax.custom_root(f, 1.0 + 0 * a, solve, lambda g, y: y / g(jnp.ones_like(y)))


# --- of other packages --------------------------------------------------------------------------


def _of_peers():
    for name in ("softmax_cross_entropy_with_integer_labels", "huber_loss", "sigmoid_binary"):
        yield f"optax {name}", "optax", lambda name=name: _optax(name)
    yield "optax step", "optax", _optax_step
    yield "flax dense", "flax", lambda: _flax("dense")
    yield "flax layer norm", "flax", lambda: _flax("norm")
    yield "equinox MLP", "equinox", lambda: _equinox("mlp")
    yield "equinox GRU", "equinox", lambda: _equinox("gru")


def _optax(name):
    losses = importlib.import_module("optax.losses")
    if name == "huber_loss":
        return lambda x: losses.huber_loss(x, jnp.zeros_like(x)).sum(), [X4]
    if name == "sigmoid_binary":
        targets = np.array([0.0, 1.0, 1.0, 0.0])
        return lambda x: losses.sigmoid_binary_cross_entropy(x, targets).sum(), [X4]
    return lambda x: getattr(losses, name)(x, LABELS).mean(), [BATCH]


def _optax_step():
    optax = importlib.import_module("optax")
    rule = optax.adam(0.1)

    def f(w):
        loss = lambda w: (jnp.tanh(w) ** 2).sum()  # noqa: E731
        updates, _ = rule.update(jax.grad(loss)(w), rule.init(w))
        return loss(optax.apply_updates(w, updates))

    return f, [X4]


def _flax(which):
    linen = importlib.import_module("flax.linen")
    layer = linen.Dense(2) if which == "dense" else linen.LayerNorm()
    params = jax.tree.map(np.asarray, layer.init(jax.random.key(0), jnp.asarray(BATCH, F32)))
    return lambda p, x: (layer.apply(p, x) ** 3).sum(), [params, np.asarray(BATCH, F32)]


def _equinox(which):
    eqx = importlib.import_module("equinox")
    key = jax.random.key(0)
    if which == "mlp":
        model = eqx.nn.MLP(3, 1, 4, 1, activation=jnp.tanh, key=key)
        call = lambda m, x: jax.vmap(m)(x).sum()  # noqa: E731
    else:
        model = eqx.nn.GRUCell(3, 3, key=key)
        call = lambda m, x: lax.scan(lambda h, x: (m(x, h),) * 2, jnp.zeros(3), x)[0].sum()  # noqa: E731
    arrays, rest = eqx.partition(model, eqx.is_array)
    arrays = jax.tree.map(np.asarray, arrays)
    return lambda p, x: call(eqx.combine(p, rest), x), [arrays, np.asarray(BATCH, F32)]
