"""Functions of jax.scipy and optax in groups: each is called on a few numbers.

A group is one program; Julia compiles it once. `GROUPS` holds for each group functions with their
arguments, the primitives that the group must contain, and the gradient is taken with respect to all
floating point arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.scipy import special, stats

Calls = list[tuple[Callable[..., Any], tuple[Any, ...]]]

X = np.array([0.3, 1.7, 2.6], np.float32)
Y = np.array([1.4, 0.6, 3.1], np.float32)
REAL = np.array([-1.3, 0.4, 2.2], np.float32)
UNIT = np.array([0.15, 0.5, 0.8], np.float32)
COUNTS = np.array([0, 2, 3], np.int32)
ONE = np.float32(1.5)


def of_real(*functions: Callable[..., Any]) -> Calls:
    return [(f, (REAL,)) for f in functions]


def scaled(density: Callable[..., Any], *shape: Any, x: np.ndarray = REAL) -> Calls:
    """A density with its shape parameters, a location and a scale."""
    return [(density, (x, *shape, np.float32(-0.2), ONE))]


GROUPS: dict[str, tuple[Calls, set[str]]] = {
    "jax.scipy.special: logistic and normal": (
        [
            *of_real(
                special.expit,
                special.ndtr,
                special.log_ndtr,
                special.erf,
                special.erfc,
                special.log_softmax,
                special.softmax,
                special.logsumexp,
            ),
            (special.logit, (UNIT,)),
            (special.erfinv, (UNIT,)),
            (special.ndtri, (UNIT,)),
            (special.entr, (X,)),
            (special.rel_entr, (X, Y)),
            (special.kl_div, (X, Y)),
            (special.xlogy, (X, Y)),
            (special.xlog1py, (X, Y)),
        ],
        {"logistic", "erf_inv", "erfc", "log1p"},
    ),
    "jax.scipy.special: gamma and its relatives": (
        [
            (special.gammaln, (X,)),
            (special.gamma, (X,)),
            (special.digamma, (X,)),
            (special.betaln, (X, Y)),
            (special.beta, (X, Y)),
            (special.factorial, (X,)),
            (special.poch, (X, Y)),
            (lambda x: special.multigammaln(x + 1, 2), (X,)),
        ],
        {"lgamma", "digamma"},
    ),
    "jax.scipy.special: integrals and series": (
        [
            (special.exp1, (X,)),
            (special.expi, (X,)),
            (special.spence, (X,)),
            (lambda x: special.expn(2, x), (X,)),
        ],
        {"log", "exp"},
    ),
    "jax.scipy.special: Bessel functions": (
        of_real(special.i0, special.i0e, special.i1, special.i1e),
        {"bessel_i0e", "bessel_i1e"},
    ),
    "jax.scipy.special: incomplete integrals": (
        [
            (special.gammainc, (X, Y)),
            (special.gammaincc, (X, Y)),
            (lambda x: special.betainc(jnp.float32(1.2), jnp.float32(0.7), x), (UNIT,)),
            (lambda x: special.polygamma(1, x), (X,)),
            (lambda q: special.zeta(jnp.float32(2.5), q), (X,)),
        ],
        {"igamma", "igammac", "regularized_incomplete_beta"},
    ),
    "jax.scipy.stats: densities on the line": (
        [
            *scaled(stats.norm.logpdf),
            *scaled(stats.norm.logcdf),
            *scaled(stats.norm.sf),
            *scaled(stats.norm.ppf, x=UNIT),
            *scaled(stats.cauchy.logpdf),
            *scaled(stats.cauchy.cdf),
            *scaled(stats.laplace.logpdf),
            *scaled(stats.laplace.cdf),
            *scaled(stats.logistic.logpdf),
            *scaled(stats.logistic.ppf, x=UNIT),
            *scaled(stats.t.logpdf, np.float32(3.5)),
            *scaled(stats.truncnorm.logpdf, np.float32(-2.0), np.float32(3.0), x=UNIT),
        ],
        {"lgamma", "log1p"},
    ),
    "jax.scipy.stats: densities on a half line or an interval": (
        [
            *scaled(stats.expon.logpdf, x=X),
            *scaled(stats.gamma.logpdf, np.float32(2.1), x=X),
            *scaled(stats.chi2.logpdf, np.float32(3.0), x=X),
            *scaled(stats.pareto.logpdf, np.float32(2.0), x=Y + 2),
            *scaled(stats.beta.logpdf, np.float32(1.4), np.float32(2.2), x=UNIT),
            *scaled(stats.uniform.logpdf, x=UNIT),
            (stats.dirichlet.logpdf, (np.array([0.2, 0.5, 0.3], np.float32), X)),
            (stats.wrapcauchy.logpdf, (X, np.float32(0.4))),
        ],
        {"lgamma", "log", "select_n"},
    ),
    "jax.scipy.stats: counts": (
        [
            (lambda mu: stats.poisson.logpmf(COUNTS, mu), (X,)),
            (lambda p: stats.bernoulli.logpmf(COUNTS % 2, p), (UNIT,)),
            (lambda p: stats.binom.logpmf(COUNTS, 5, p), (UNIT,)),
            (lambda p: stats.geom.logpmf(COUNTS + 1, p), (UNIT,)),
            (lambda p: stats.nbinom.logpmf(COUNTS, 4.0, p), (UNIT,)),
            (lambda a, b: stats.betabinom.logpmf(COUNTS, 5, a, b), (X, Y)),
            (lambda p: stats.multinomial.logpmf(COUNTS, 5, p / p.sum()), (UNIT,)),
        ],
        {"lgamma", "log"},
    ),
    "jax.scipy.stats: with Bessel and incomplete functions": (
        [
            (stats.vonmises.logpdf, (REAL, ONE)),
            *scaled(stats.gamma.cdf, np.float32(2.1), x=X),
            (lambda mu: stats.poisson.cdf(COUNTS, mu), (X,)),
            (lambda x: stats.beta.cdf(x, 1.4, 2.2), (UNIT,)),
        ],
        {"bessel_i0e", "igamma", "regularized_incomplete_beta"},
    ),
}


def optax_groups() -> dict[str, tuple[Calls, set[str]]]:
    """The losses of optax."""
    import optax

    a = np.array([[0.3, -1.2, 0.8], [1.1, 0.2, -0.4]], np.float32)
    b = np.array([[0.1, 0.4, -0.7], [-1.5, 0.9, 2.3]], np.float32)
    p = np.array([[0.2, 0.5, 0.3], [0.6, 0.1, 0.3]], np.float32)
    q = np.array([[0.3, 0.3, 0.4], [0.2, 0.7, 0.1]], np.float32)
    signs = np.array([[1, -1, 1], [-1, -1, 1]], np.float32)
    labels = np.array([2, 0], np.int32)
    long = np.linspace(-1, 1, 2 * 4 * 3, dtype=np.float32).reshape(2, 4, 3)
    return {
        "optax losses: regression": (
            [
                (optax.squared_error, (a, b)),
                (optax.l2_loss, (a, b)),
                (optax.huber_loss, (a, b)),
                (optax.log_cosh, (a, b)),
                (optax.cosine_similarity, (a, b)),
                (optax.cosine_distance, (a, b)),
            ],
            {"square", "abs", "log1p", "reduce_sum"},
        ),
        "optax losses: classification": (
            [
                (optax.sigmoid_binary_cross_entropy, (a, p)),
                (optax.softmax_cross_entropy, (a, p)),
                (lambda x: optax.softmax_cross_entropy_with_integer_labels(x, labels), (a,)),
                (lambda x: optax.hinge_loss(x, signs), (a,)),
                (lambda x: optax.losses.sigmoid_focal_loss(x, p), (a,)),
                (lambda x: optax.losses.poly_loss_cross_entropy(x, p), (a,)),
                (lambda x: optax.smooth_labels(x, 0.1), (p,)),
                (optax.kl_divergence, (np.log(p), q)),
                (lambda x: optax.losses.multiclass_hinge_loss(x, labels), (a,)),
                (lambda x: optax.losses.multiclass_perceptron_loss(x, labels), (a,)),
            ],
            {"exp", "log", "reduce_max", "gather"},
        ),
        "optax losses: sequences": (
            [
                (
                    lambda x: optax.ctc_loss(
                        x, np.zeros((2, 4)), np.array([[1, 2]] * 2), np.zeros((2, 2))
                    ),
                    (long,),
                )
            ],
            {"scan", "exp"},
        ),
    }


def as_program(calls: Calls) -> tuple[Callable[..., Any], list[Any]]:
    """One function of all arguments; it returns a number for each call."""

    def f(*args: Any) -> list[Any]:
        queue, numbers = iter(args), []
        for function, given in calls:
            out = function(*(next(queue) for _ in given))
            weights = jnp.cos(jnp.arange(1, out.size + 1, dtype=jnp.float32))
            numbers.append(jnp.sum(weights * out.ravel()))
        return numbers

    return f, [jnp.asarray(x) for _, given in calls for x in given]
