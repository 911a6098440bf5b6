"""Programs that contain one JAX primitive each, with arguments to try them at."""

from __future__ import annotations

import jax
import jax.extend.random
import jax.numpy as jnp
import numpy as np
from jax import lax

NUMBERS = np.random.default_rng(7)


def f32(*shape, low=-2.0, high=2.0):
    """Random numbers that are far from each other and from zero."""
    n = int(np.prod(shape))
    grid = np.linspace(low, high, n + 2)[1:-1] + 0.01
    return NUMBERS.permutation(grid).reshape(shape).astype(np.float32)


def ints(*shape, low=-5, high=6, dtype=np.int32):
    return NUMBERS.integers(low, high, shape).astype(dtype)


X = f32(2, 3)
Y = f32(2, 3)
POSITIVE = f32(2, 3, low=0.2, high=3.0)
INSIDE = f32(2, 3, low=-0.9, high=0.9)
SPECIAL = np.array([0.0, -0.0, 1.0, -1.5, np.inf, -np.inf, np.nan], np.float32)
CUBE = f32(2, 3, 4)
IMAGE = f32(2, 3, 6, 5)


def _ragged_cotangent(x, c):
    sizes = np.int32([2, 3])
    return jax.vjp(lambda w: lax.ragged_dot(x, w, sizes), jnp.zeros((2, 3, 4)))[1](c)[0]


_sine_times = jax.custom_batching.custom_vmap(lambda x: jnp.sin(x) * x)
_sine_times.def_vmap(lambda size, batched, x: (jnp.sin(x) * x, batched[0]))


def _max_pool(x):
    padding = ((0, 0), (0, 0), (0, 0), (1, 0))
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 1, 2, 2), (1, 1, 2, 1), padding)


def _add_and_multiply(a, b):
    return a[0] + b[0], a[1] * b[1]


@jax.custom_vjp
def _with_a_rule(x):
    return jnp.sin(x)


_with_a_rule.defvjp(lambda x: (jnp.sin(x), x), lambda x, ct: (3 * ct * x,))


def _select_and_scatter(x, y):
    # As JAX's own rules write it; no function of `jax.lax` does.
    number = jnp.float32(0)
    greater = jax.make_jaxpr(lambda a, b: a >= b)(number, number).jaxpr
    add = jax.make_jaxpr(lambda a, b: a + b)(number, number).jaxpr
    choice = {"select_jaxpr": greater, "select_consts": ()}
    sums = {"scatter_jaxpr": add, "scatter_consts": ()}
    windows = {"window_dimensions": (1, 2), "window_strides": (1, 1), "padding": ((0, 0), (0, 0))}
    return lax.select_and_scatter_p.bind(x, y[:, :2], number, **choice, **sums, **windows)


def _polynomial(x, *coefficients):
    if hasattr(lax, "polynomial"):  # from JAX 0.12 on
        return lax.polynomial(x, coefficients)
    return sum(c * x**k for k, c in enumerate(coefficients))


def _parts(z):
    return lax.real(z), lax.imag(z)


SMOOTH = {
    "add": (lax.add, X, Y),
    "sub": (lax.sub, X, Y),
    "mul": (lax.mul, X, Y),
    "div": (lax.div, X, Y),
    "rem": (lax.rem, f32(2, 3, low=-7, high=7), np.full((2, 3), 2.3, np.float32)),
    "neg": (lax.neg, X),
    "abs": (lax.abs, X),
    "square": (lax.square, X),
    "max": (lax.max, X, Y),
    "min": (lax.min, X, Y),
    "max at a tie": (lax.max, X, X.copy()),
    "pow": (lax.pow, POSITIVE, Y),
    "pow of an integer": (lambda x: lax.pow(x, jnp.int32(3)), X),
    "integer_pow": (lambda x: lax.integer_pow(x, 3) + lax.integer_pow(x, -2), X),
    "exp": (lax.exp, X),
    "exp2": (lax.exp2, X),
    "expm1": (lax.expm1, X),
    "log": (lax.log, POSITIVE),
    "log1p": (lax.log1p, INSIDE),
    "log2": (jnp.log2, POSITIVE),
    "one_minus_square": (getattr(lax, "one_minus_square", lambda x: 1 - x * x), X),
    "polynomial": (lambda x, a, b: _polynomial(x, a, 2.0, b, *[0.1] * 8), X, POSITIVE, Y),
    "sqrt": (lax.sqrt, POSITIVE),
    "rsqrt": (lax.rsqrt, POSITIVE),
    "cbrt": (lax.cbrt, X),
    "logistic": (lax.logistic, X),
    "sin": (lax.sin, X),
    "cos": (lax.cos, X),
    "tan": (lax.tan, INSIDE),
    "asin": (lax.asin, INSIDE),
    "acos": (lax.acos, INSIDE),
    "atan": (lax.atan, X),
    "atan2": (lax.atan2, X, Y),
    "sinh": (lax.sinh, X),
    "cosh": (lax.cosh, X),
    "tanh": (lax.tanh, X),
    "asinh": (lax.asinh, X),
    "acosh": (lambda x: lax.acosh(x + 1), POSITIVE),
    "atanh": (lax.atanh, INSIDE),
    "erf": (lax.erf, X),
    "erfc": (lax.erfc, X),
    "erf_inv": (lax.erf_inv, INSIDE),
    "lgamma": (lax.lgamma, X),
    "digamma": (lax.digamma, POSITIVE),
    "igamma": (lax.igamma, POSITIVE, 3 - POSITIVE),
    "igammac": (lax.igammac, POSITIVE, 3 - POSITIVE),
    "polygamma": (lambda x: lax.polygamma(jnp.full((2, 3), 2.0), x), POSITIVE),
    "regularized_incomplete_beta": (
        lambda x: lax.betainc(jnp.asarray(POSITIVE), 3 - jnp.asarray(POSITIVE), x * x),
        INSIDE,
    ),
    "bessel_i0e": (lax.bessel_i0e, X),
    "bessel_i1e": (lax.bessel_i1e, X),
    "clamp": (lambda x: lax.clamp(-1.0, x, 1.0), X),
    "clamp by arrays": (lax.clamp, Y - 1, X, Y + 1),
    "select_n": (lambda x, y: lax.select_n(x > y, x, y * 2), X, Y),
    "select_n of three": (lambda x, y: lax.select_n(jnp.int32(2), x, y, x * y), X, Y),
    "convert_element_type": (lambda x: x.astype(jnp.complex64).real * x, X),
    "copy": (lambda x: jnp.array(x, copy=True), X),
    "complex": (lambda x, y: jnp.abs(lax.complex(x, y) ** 2 * jnp.exp(1j * x)), X, Y),
    "real and imag": (lambda x, y: lax.real(z := lax.complex(x, y) * (2 + 1j)) + lax.imag(z), X, Y),
    "max and min of complex numbers": (
        lambda x, y: _parts(
            lax.max(lax.complex(x, y), z := lax.complex(x.round(), x)) * lax.min(z, -x * y + 0j)
        ),
        X,
        Y,
    ),
    "logaddexp of complex numbers": (
        lambda x, y: _parts(jnp.logaddexp(lax.complex(x, y), lax.complex(y, x * y))),
        X,
        Y,
    ),
    "conj": (lambda x, y: lax.imag(lax.conj(lax.complex(x, y)) * (2 + 3j)), X, Y),
    "floor": (lambda x: x * lax.floor(x) + lax.ceil(x) + lax.round(x) + lax.sign(x), X),
    "nextafter": (lambda x, y: x * lax.nextafter(lax.stop_gradient(x), lax.stop_gradient(y)), X, Y),
    "stop_gradient": (lambda x: lax.stop_gradient(x) * x, X),
    # shapes
    "reshape": (lambda x: lax.reshape(x, (4, 6)) * 2, CUBE),
    "reshape to a number": (lambda x: lax.reshape(x, ()), f32(1, 1)),
    "reshape of a number": (lambda x: lax.reshape(x, (1, 1)) * 3, np.float32(1.5)),
    "squeeze": (lambda x: lax.squeeze(x, (1,)), f32(3, 1, 2)),
    "expand_dims": (lambda x: lax.expand_dims(x, (0, 2)), X),
    "broadcast_in_dim": (lambda x: lax.broadcast_in_dim(x, (4, 2, 3), (1, 2)), X),
    "broadcast_in_dim of ones": (lambda x: lax.broadcast_in_dim(x, (5, 3, 2), (0, 2)), f32(1, 2)),
    "broadcast_in_dim of a number": (lambda x: lax.broadcast(x, (2, 3)), np.float32(2.5)),
    "transpose": (lambda x: lax.transpose(x, (2, 0, 1)), CUBE),
    "rev": (lambda x: lax.rev(x, (0, 2)), CUBE),
    "concatenate": (lambda x, y: lax.concatenate([x, y, x], 1), X, Y),
    "split": (lambda x: lax.split(x, (1, 3), 2)[1] * 2 if hasattr(lax, "split") else x, CUBE),
    "slice": (lambda x: lax.slice(x, (0, 1, 0), (2, 3, 4), (1, 1, 2)), CUBE),
    "pad": (lambda x: lax.pad(x, jnp.float32(2), ((1, 0, 2), (-1, 3, 0))), X),
    "pad cutting": (
        lambda x, v: lax.pad(x, v, ((0, -2, 1), (-1, -1, 2))),
        f32(4, 5),
        np.float32(3),
    ),
    "iota": (lambda x: x * lax.broadcasted_iota(jnp.float32, (2, 3), 1), X),
    "stack": (lambda x, y: jnp.stack([x, y], 1), X, Y),
    "unstack": (lambda x: [3 * jnp.unstack(x, axis=1)[2], jnp.unstack(x)[0] ** 2], CUBE),
    "tile": (lambda x: jnp.tile(x, (2, 2)), X),
    # reductions
    "reduce_sum": (lambda x: x.sum(1), CUBE),
    "reduce_sum of all": (lambda x: x.sum(), CUBE),
    "reduce_prod": (lambda x: jnp.prod(x, 1), CUBE),
    "reduce_prod with a zero": (jnp.prod, np.array([2.0, 0.0, 3.0], np.float32)),
    "reduce_prod of nothing": (lambda x: (x.prod(), x.prod(0)), np.zeros((0, 3), np.float32)),
    "reduce_max": (lambda x: jnp.max(x, (0, 2)), CUBE),
    "reduce_max of all": (jnp.max, CUBE),
    "reduce_min": (lambda x: jnp.min(x, 1), CUBE),
    "reduce_max at a tie": (jnp.max, np.array([1.0, 3.0, 3.0, 2.0], np.float32)),
    "argmax": (lambda x: x.sum(1) * jnp.argmax(x, 1), CUBE),
    "reduce": (
        lambda x, y: lax.reduce((x, y), (0.0, 1.0), _add_and_multiply, (0, 2)),
        CUBE,
        f32(2, 3, 4),
    ),
    "cumsum": (lambda x: lax.cumsum(x, 1), CUBE),
    "cumsum backwards": (lambda x: lax.cumsum(x, 2, reverse=True), CUBE),
    "cumprod": (lambda x: lax.cumprod(x, 1), CUBE),
    "cummax": (lambda x: lax.cummax(x, 1), CUBE),
    "cummin": (lambda x: lax.cummin(x, 0), CUBE),
    "cumlogsumexp": (lambda x: lax.cumlogsumexp(x, 2), CUBE),
    # products
    "dot of vectors": (jnp.dot, f32(5), f32(5)),
    "dot matrix vector": (jnp.dot, f32(4, 5), f32(5)),
    "dot vector matrix": (jnp.dot, f32(4), f32(4, 3)),
    "dot of matrices": (jnp.dot, f32(4, 5), f32(5, 3)),
    "dot of transposes": (
        lambda a, b: lax.dot_general(a, b, (((0,), (1,)), ((), ()))),
        f32(5, 4),
        f32(3, 5),
    ),
    "batched dot": (jnp.matmul, f32(3, 4, 5), f32(3, 5, 2)),
    "einsum": (lambda a, b: jnp.einsum("bhqd,bkhd->bhqk", a, b), f32(2, 3, 4, 5), f32(2, 6, 3, 5)),
    "contraction of two": (
        lambda a, b: jnp.tensordot(a, b, ((0, 2), (1, 0))),
        f32(3, 4, 5),
        f32(5, 3, 2),
    ),
    "outer": (jnp.outer, f32(3), f32(4)),
    # indexing
    "x[i]": (lambda x: x[1], CUBE),
    "x[i, :, j]": (lambda x: x[1, :, -2], CUBE),
    "x[array]": (lambda x: x[jnp.array([1, 0, 1, -1])], CUBE),
    "x[array] out of range": (
        lambda x: x.at[jnp.array([0, 7])].get(mode="fill", fill_value=0),
        f32(3),
    ),
    "x[array] clipped": (lambda x: x.at[jnp.array([0, 7])].get(mode="clip"), f32(3)),
    "x[array, array]": (lambda x: x[jnp.array([1, 0]), :, jnp.array([3, 1])], CUBE),
    "x[:, array]": (lambda x: x[:, jnp.array([2, 0, 0])], CUBE),
    "take_along_axis": (lambda x: jnp.take_along_axis(x, jnp.array([[[0], [1], [3]]]), 2), CUBE),
    "x[::-2]": (lambda x: x[:, ::-2], CUBE),
    "set": (lambda x, v: x.at[1, jnp.array([2, 0])].set(v), CUBE, f32(2, 4)),
    "add at": (lambda x, v: x.at[jnp.array([1, 1, 0])].add(v), f32(3, 2), f32(3, 2)),
    "add at out of range": (lambda x, v: x.at[jnp.array([1, 9])].add(v), f32(3, 2), f32(2, 2)),
    "mul at": (
        lambda x, v: x.at[jnp.array([1, 0])].mul(v, unique_indices=True),
        f32(3, 2),
        f32(2, 2),
    ),
    "max at": (lambda x, v: x.at[jnp.array([1, 1])].max(v), f32(3, 2), f32(2, 2)),
    "min at": (lambda x, v: x.at[jnp.array([1, 1])].min(v), f32(3, 2), f32(2, 2)),
    "dynamic_slice": (lambda x, i: lax.dynamic_slice(x, (i, 1, 9), (1, 2, 2)), CUBE, np.int32(1)),
    "dynamic_update_slice": (
        lambda x, u: lax.dynamic_update_slice(x, u, (1, 2)),
        f32(3, 4),
        f32(2, 2),
    ),
    "sort": (lambda x: lax.sort(x, dimension=1), CUBE),
    "sort of two": (lambda x, y: lax.sort((x, y), dimension=1, num_keys=1)[1] * 2, X, Y),
    "argsort": (lambda x: x * jnp.argsort(x, 1), X),
    "top_k": (lambda x: lax.top_k(x, 2)[0], X),
    "max pool": (
        lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "SAME"),
        IMAGE,
    ),
    "sum pool": (
        lambda x: lax.reduce_window(x, 0.0, lax.add, (1, 1, 3, 2), (1, 1, 2, 1), "VALID"),
        IMAGE,
    ),
    "max pool's tangent": (
        lambda t: jax.jvp(_max_pool, (jnp.asarray(IMAGE),), (t,))[1],
        f32(2, 3, 6, 5),
    ),
    "max pool's cotangent": (
        lambda c: jax.vjp(_max_pool, jnp.asarray(IMAGE))[1](c)[0],
        f32(2, 3, 3, 5),
    ),
    "reduce_window": (
        lambda x: lax.reduce_window(
            x, 1.0, lax.mul, (2, 3), (2, 1), ((1, 0), (-1, 2)), (1, 2), (2, 1)
        ),
        f32(4, 5),
    ),
    "reduce_window of two": (
        lambda x, y: lax.reduce_window(
            (x, y), (0.0, 1.0), _add_and_multiply, (2, 2), (1, 1), "SAME"
        ),
        f32(3, 4),
        f32(3, 4),
    ),
    "approx_top_k": (
        lambda x: (lax.approx_max_k(x, 2)[0], lax.approx_min_k(x, 2, reduction_dimension=1)[0]),
        CUBE,
    ),
    "broadcast_in_dim that turns": (
        lambda x: lax.broadcast_in_dim(x, (3, 2, 2), (2, 1)) * jnp.ones((3, 2, 2)),
        f32(2, 2),
    ),
    "ragged_dot": (
        lambda x, w: lax.ragged_dot(x, w, np.int32([2, 0, 2])),
        f32(5, 3),
        f32(3, 3, 4),
    ),
    "ragged_dot of a stack": (
        lambda x, w: jax.vmap(lax.ragged_dot)(x, w, np.int32([[1, 3], [2, 3]])),
        f32(2, 5, 3),
        f32(2, 2, 3, 4),
    ),
    "ragged_dot's cotangent": (_ragged_cotangent, f32(5, 3), f32(5, 4)),
    # convolutions
    "conv": (lambda x, w: lax.conv(x, w, (1, 1), "SAME"), IMAGE, f32(4, 3, 3, 2)),
    "conv strided and dilated": (
        lambda x, w: lax.conv_general_dilated(x, w, (2, 1), ((1, 2), (-1, 3)), (1, 2), (2, 1)),
        IMAGE,
        f32(4, 3, 2, 2),
    ),
    "conv in groups": (
        lambda x, w: lax.conv_general_dilated(x, w, (1, 1), "VALID", feature_group_count=3),
        IMAGE,
        f32(6, 1, 3, 2),
    ),
    "conv NHWC": (
        lambda x, w: lax.conv_general_dilated(
            x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        ),
        f32(2, 5, 6, 3),
        f32(3, 2, 3, 4),
    ),
    "conv over one axis": (
        lambda x, w: lax.conv_general_dilated(x, w, (1,), "SAME"),
        f32(2, 3, 7),
        f32(4, 3, 3),
    ),
    "conv in batch groups": (
        lambda x, w: lax.conv_general_dilated(x, w, (1, 1), "VALID", batch_group_count=2),
        f32(4, 3, 5, 5),
        f32(4, 3, 2, 2),
    ),
    "conv over no axis": (
        lambda x, w: lax.conv_general_dilated(x, w, (), (), feature_group_count=2),
        f32(2, 4),
        f32(6, 2),
    ),
    "conv over four axes": (
        lambda x, w: lax.conv_general_dilated(
            x,
            w,
            (1, 2, 1, 1),
            ((1, 0), (0, 2), (-1, 1), (0, 0)),
            (1, 2, 1, 1),
            (2, 1, 1, 1),
            feature_group_count=2,
        ),
        f32(2, 4, 3, 3, 3, 2),
        f32(2, 2, 2, 2, 2, 1),
    ),
    "conv of an empty batch": (
        lambda x, w: lax.conv(x, w, (1,), "SAME"),
        np.zeros((0, 2, 5), np.float32),
        f32(3, 2, 2),
    ),
    "conv by a kernel that is too long": (
        lambda x, w: lax.conv(x, w, (1,), "VALID"),
        f32(1, 1, 2),
        f32(1, 1, 3),
    ),
    # Fourier transforms
    "fft": (lambda x, y: _parts(jnp.fft.fft2(lax.complex(x, y))), CUBE, f32(2, 3, 4)),
    "ifft": (lambda x, y: _parts(jnp.fft.ifft(lax.complex(x, y), axis=0)), X, Y),
    "rfft": (lambda x: _parts(jnp.fft.rfftn(x)), f32(3, 2, 5)),
    "irfft": (lambda x, y: jnp.fft.irfft2(lax.complex(x, y)), f32(2, 3), f32(2, 3)),
    "irfft of an odd length": (
        lambda x, y: jnp.fft.irfft(lax.complex(x, y), 7),
        f32(2, 4),
        f32(2, 4),
    ),
    "fft of a long prime": (lambda x: _parts(jnp.fft.fft(x)), f32(67)),
    # control flow
    "platform_index": (lambda x: lax.platform_dependent(x, cpu=jnp.sin, default=jnp.cos), X),
    "custom_vmap": (_sine_times, X),
    "composite": (lambda x: lax.composite(lambda x: jnp.sin(x) * 2, "a.b")(x), X),
    "cond": (lambda x: lax.cond(x.sum() > 100, jnp.sin, jnp.cos, x), X),
    "switch": (lambda x: lax.switch(jnp.int32(7), [jnp.sin, jnp.cos, jnp.tanh], x), X),
    "scan": (
        lambda c, xs: lax.scan(lambda c, x: (c * jnp.sin(x), c + x), c, xs),
        f32(3),
        f32(4, 3),
    ),
    "scan backwards": (
        lambda c, xs, w: lax.scan(lambda c, x: (jnp.tanh(w * c + x), c), c, xs, reverse=True)[1],
        f32(3),
        f32(4, 3),
        np.float32(0.5),
    ),
    "scan of no steps": (
        lambda x: (
            lax.map(lambda t: t * 2, x[:0]),
            lax.scan(lambda c, _: (c, (c[0], c * 2)), x, None, length=0),
            lax.scan(lambda c, k: (c, k), x, jax.random.split(jax.random.key(1), 3)[:0])[0],
        ),
        f32(3),
    ),
    "vmap of while": (
        jax.vmap(
            lambda x: lax.while_loop(lambda c: c[0] < x, lambda c: (c[0] + 1, c[1] * x), (0.0, x))[
                1
            ]
        ),
        np.float32([0.5, 2.5, -1.0, 3.5]),
    ),
    "fori_loop": (lambda x: lax.fori_loop(0, 3, lambda i, x: jnp.sin(x) * (i + 1), x), X),
    "checkpoint": (jax.checkpoint(lambda x: jnp.sin(jnp.exp(x))), X),
    "jit": (jax.jit(lambda x: jnp.sin(x) * 2), X),
    "custom_vjp": (_with_a_rule, X),
    "vmap of scan": (jax.vmap(lambda x: lax.scan(lambda c, x: (c * x, c), 1.0, x)[1]), X),
    # random numbers
    "random_gamma": (lambda a: jax.random.gamma(jax.random.key(5), a), POSITIVE),
    "random_gamma of logarithms": (
        lambda a: jax.vmap(jax.random.loggamma)(jax.random.split(jax.random.key(5), 3), a),
        f32(3, low=0.2, high=3.0),
    ),
    # rules
    "relu": (jax.nn.relu, X),
    "softplus": (jax.nn.softplus, X),
    "gelu": (jax.nn.gelu, X),
    "logsumexp": (lambda x: jax.nn.logsumexp(x, axis=1), X),
    "softmax": (lambda x: jax.nn.softmax(x, axis=1), X),
    "variance": (lambda x: jnp.var(x, axis=0), X),
    "norm": (jnp.linalg.norm, X),
}
if jax.__version_info__ < (0, 8):  # it refuses the first, and its XLA gets the second wrong (0.7.0)
    del SMOOTH["broadcast_in_dim that turns"], SMOOTH["conv over no axis"]
if jax.__version_info__ >= (0, 12):  # its own rule compares complex numbers, which it refuses
    del SMOOTH["max and min of complex numbers"]

# Those that are one function of numbers; see `test_lowered_primitives.py`.
ELEMENTWISE = list(SMOOTH)[: list(SMOOTH).index("reshape")]

# Programs that JAX itself cannot differentiate in reverse mode, and a broadcast for which its
# transpose (0.10.2) forgets the order of the axes.
VALUES_ONLY = (
    *(
        "reduce_window",
        "reduce_window of two",
        "ragged_dot's cotangent",
        "composite",
        "custom_vmap",
    ),
    *("vmap of while", "broadcast_in_dim that turns"),
)

# Values only: no derivative passes.
DISCRETE = {
    # Which JAX does not differentiate.
    "min pool dilated": (
        lambda x: lax.reduce_window(
            x, jnp.inf, lax.min, (1, 1, 2, 2), (1, 1, 1, 1), "VALID", window_dilation=(1, 1, 2, 2)
        ),
        IMAGE,
    ),
    "select_and_scatter": (_select_and_scatter, X, Y),
    # JAX 0.7 has no such function.
    "empty": (lambda x: x + 0 * getattr(lax, "empty", jnp.zeros)((2, 3), np.float32), X),
    "threefry2x32": (
        jax.extend.random.threefry_2x32,
        np.uint32([1, 2]),
        np.arange(4, dtype=np.uint32),
    ),
    "comparisons": (
        lambda x, y: (x == y, x != y, x < y, x <= y, x > y, x >= y),
        np.tile(SPECIAL, 7),
        np.repeat(SPECIAL, 7),
    ),
    "max and min of special values": (
        lambda x, y: (lax.max(x, y), lax.min(x, y)),
        np.tile(SPECIAL, 7),
        np.repeat(SPECIAL, 7),
    ),
    "rounding": (
        lambda x: (
            lax.floor(x),
            lax.ceil(x),
            lax.round(x),
            jnp.round(x),
            lax.sign(x),
            jnp.trunc(x),
        ),
        np.array([-2.5, -1.5, -0.5, -0.0, 0.0, 0.5, 1.5, 2.5, 1e9, np.inf, np.nan], np.float32),
    ),
    "is_finite": (lax.is_finite, SPECIAL),
    "rem of special values": (lax.rem, np.tile(SPECIAL, 7), np.repeat(SPECIAL, 7)),
    "pow of special values": (lax.pow, np.tile(SPECIAL, 7), np.repeat(SPECIAL, 7)),
    "div of special values": (lax.div, np.tile(SPECIAL, 7), np.repeat(SPECIAL, 7)),
    "sqrt and log outside": (
        lambda x: (lax.sqrt(x), lax.log(x), lax.log1p(x), lax.asin(x)),
        SPECIAL,
    ),
    "float to integers": (
        lambda x: (x.astype(jnp.int32), x.astype(jnp.uint8), x.astype(jnp.int8), x.astype(bool)),
        np.array(
            [0.0, -0.9, 1.9, -1.9, 300.0, -300.0, 3e9, -3e9, np.inf, -np.inf, np.nan], np.float32
        ),
    ),
    "integers to others": (
        lambda x: (x.astype(jnp.float32), x.astype(jnp.int8), x.astype(jnp.uint32), x.astype(bool)),
        np.array([0, 1, -1, 127, 128, 300, -300, 2**31 - 1, -(2**31)], np.int32),
    ),
    "integer arithmetic": (
        lambda x, y: (x + y, x - y, x * y, lax.div(x, y), lax.rem(x, y), lax.neg(x), lax.abs(x)),
        np.array([7, -7, 5, 2**31 - 1, -(2**31), -(2**31), 3, 0], np.int32),
        np.array([2, 2, 0, 2**31 - 1, -1, 2, -3, 0], np.int32),
    ),
    "unsigned arithmetic": (
        lambda x, y: (x + y, x - y, x * y, lax.div(x, y), lax.rem(x, y)),
        np.array([7, 200, 5, 255, 0], np.uint8),
        np.array([9, 100, 0, 255, 3], np.uint8),
    ),
    "integer_pow of integers": (lambda x: (lax.integer_pow(x, 3), x**2), ints(6)),
    "pow of integers": (lambda x, y: x**y, ints(6), ints(6, low=0, high=5)),
    "bits": (
        lambda x, y: (x & y, x | y, x ^ y, ~x, lax.population_count(x), lax.clz(x)),
        ints(6, low=-100, high=100),
        ints(6, low=-100, high=100),
    ),
    "shifts": (
        lambda x, y: (
            lax.shift_left(x, y),
            lax.shift_right_logical(x, y),
            lax.shift_right_arithmetic(x, y),
        ),
        np.array([5, -5, 5, -5, 5, -5, 1], np.int32),
        np.array([1, 1, 31, 31, 32, 33, 0], np.int32),
    ),
    "shifts of unsigned integers": (
        lambda x, y: (
            lax.shift_right_logical(x, y),
            lax.shift_right_arithmetic(x, y),
            lax.shift_right_arithmetic(
                x.astype(jnp.uint32) << jnp.uint32(24), y.astype(jnp.uint32)
            ),
        ),
        np.array([200, 255, 100, 200, 255, 100], np.uint8),
        np.array([1, 1, 1, 8, 9, 40], np.uint8),
    ),
    "reduced precision": (
        # Every number of half precision; below the normal ones too.
        lambda x, y: (
            *(lax.reduce_precision(x, e, m) for e, m in ((5, 3), (4, 3), (8, 7), (5, 0))),
            *(lax.reduce_precision(y, e, m) for e, m in ((8, 10), (5, 10), (8, 0))),
        ),
        np.arange(2**16, dtype=np.uint16).view(np.float16),
        np.append(SPECIAL, np.float32([1e-40, 3.4e38, 1.0009766, 65520])),
    ),
    "a running sum of the logarithm -0": (
        lambda x: 1 / lax.cumlogsumexp(x),
        np.array([-0.0], np.float32),
    ),
    "convolutions that overflow": (
        lambda *xs: [
            lax.conv_general_dilated(
                x, x[:, :2], (2, 1), ((1, 2), (-1, 3)), (1, 2), (2, 1), feature_group_count=2
            )
            for x in xs
        ],
        *(
            ints(4, 4, 5, 3, low=np.iinfo(t).min, high=np.iinfo(t).max, dtype=t)
            for t in (np.int8, np.uint16, np.int32, np.uint32)
        ),
    ),
    "a convolution of bytes in a wider type": (
        lambda x, w: lax.conv_general_dilated(
            x, w, (1,), "SAME", batch_group_count=2, preferred_element_type=jnp.int32
        ),
        ints(4, 2, 5, low=-128, high=128, dtype=np.int8),
        ints(4, 2, 3, low=-128, high=128, dtype=np.int8),
    ),
    "logic": (lambda x, y: (x & y, x | y, x ^ y, ~x), ints(6) > 0, ints(6) > 0),
    "any, all and parity": (
        lambda x: (x.any(1), x.all(0), x.any(), lax.reduce_xor(x.astype(jnp.int32), (0,))),
        ints(3, 4) > 0,
    ),
    "argmax and argmin": (
        lambda x: (jnp.argmax(x, 1), jnp.argmin(x, 0), jnp.argmax(x), lax.argmax(x, 1, jnp.uint8)),
        np.array([[1, 3, 3], [np.nan, 5, np.nan], [-0.0, 0.0, -1]], np.float32),
    ),
    "sums of integers": (
        lambda x: (
            x.sum(0),
            jnp.prod(x),
            x.max(),
            x.min(1),
            (x > 0).sum(),
            x.astype(jnp.int8).sum(),
        ),
        ints(3, 4),
    ),
    "reductions with NaN": (
        lambda x: (x.max(0), x.min(0), x.max(), x.sum()),
        np.array([[1, np.nan], [2, 0]], np.float32),
    ),
    "empty reductions": (
        lambda x: (x.sum(0), jnp.prod(x, 0), x.any(0), lax.cumsum(x, 0)),
        np.zeros((0, 3), np.float32),
    ),
    "bitcast": (
        lambda x, i: (
            lax.bitcast_convert_type(x, jnp.int32),
            lax.bitcast_convert_type(i, jnp.float32),
            lax.bitcast_convert_type(x, jnp.uint8),
            lax.bitcast_convert_type(i.reshape(3, 2).astype(jnp.uint16), jnp.uint32),
        ),
        SPECIAL,
        ints(6),
    ),
    "sort with NaN": (
        lambda x: (jnp.sort(x), jnp.argsort(x)),
        np.array([3, np.nan, -0.0, 0.0, -np.inf, 1, np.nan, np.inf], np.float32),
    ),
    "sort by two keys": (
        lambda x, y: lax.sort((x, y, x + y), num_keys=2),
        ints(8, low=0, high=3),
        ints(8, low=0, high=3),
    ),
    "dot of integers": (lambda x, y: (x @ y, jnp.dot(x[0], y)), ints(3, 4), ints(4, 2)),
    "dot in a wider type": (
        lambda x, y: lax.dot(x, y, preferred_element_type=jnp.int32),
        ints(3, 4, dtype=np.int8, low=-120, high=120),
        ints(4, 2, dtype=np.int8, low=-120, high=120),
    ),
    "take out of range": (lambda x: jnp.take(x, jnp.array([0, 5, -1])), f32(3)),
    "integers out of range": (lambda x: jnp.take(x, jnp.array([0, 5])), ints(3)),
    "while_loop": (
        lambda x: lax.while_loop(lambda c: c[0] < 20, lambda c: (c[0] * 2, c[1] + 1), (x, 0)),
        np.float32(1.5),
    ),
    "searchsorted": (
        lambda x, v: jnp.searchsorted(x, v),
        np.array([1, 2, 3, 4], np.float32),
        f32(5),
    ),
    "upper halves of products": (
        # The oldest JAX has no such function.
        lambda x, y: getattr(lax, "mulhi", lax.mul)(x, y),
        np.array([2**31 - 1, -(2**31), 123456789, -5], np.int32),
        np.array([2**31 - 1, -(2**31), 987654321, 3], np.int32),
    ),
    "the nearest of few": (
        lambda x: (lax.approx_max_k(x, 3), lax.approx_min_k(x, 3), lax.approx_max_k(x, 4)),
        np.array([[3.0, 1.0, 3.0, 2.0, 1.0], [0.0, -1.0, 5.0, -1.0, 5.0]], np.float32),
    ),
    "reduce of integers": (
        lambda x: lax.reduce(x, np.int32(7), lambda a, b: a ^ b ^ 0, (0,)),
        ints(5, 3),
    ),
    "reduce of nothing": (
        lambda x: lax.reduce(x, np.float32(7), lambda a, b: a * b + 0, (0,)),
        np.zeros((0, 3), np.float32),
    ),
    "max pool's choice among equals": (
        lambda x: jax.grad(lambda x: _max_pool(x).sum())(x),
        ints(1, 1, 6, 5, low=0, high=2).astype(np.float32),
    ),
    "clone": (lambda key: jax.random.bits(jax.random.clone(key), (2,)), jax.random.key(5)),
    "threefry": (lambda key: jax.random.bits(key, (3, 2)), jax.random.PRNGKey(3)),
    "uniform": (lambda key: jax.random.uniform(key, (5,)), jax.random.PRNGKey(3)),
    "normal": (lambda key: jax.random.normal(key, (5,)), jax.random.key(3)),
    "split": (
        lambda key: [jax.random.bits(k, (2,)) for k in jax.random.split(key)],
        jax.random.key(5),
    ),
    "fold_in": (lambda key: jax.random.bits(jax.random.fold_in(key, 3), (2,)), jax.random.key(5)),
    "keys by index": (
        lambda key: jax.random.bits(jax.random.split(key, (2, 3))[1, jnp.int32(2)], (2,)),
        jax.random.key(5),
    ),
    "keys side by side": (
        lambda key: jax.vmap(lambda k: jax.random.bits(k, (2,)))(
            jnp.stack([key, jax.random.fold_in(key, 3)])
        ),
        jax.random.key(5),
    ),
    "keys in another shape": (
        lambda key: jax.random.key_data(jax.random.split(key, 6).reshape(2, 3).T),
        jax.random.key(5),
    ),
    "keys in a scan": (
        lambda key: lax.scan(
            lambda c, k: (jax.random.split(c)[0], jax.random.uniform(k)),
            key,
            jax.random.split(key, 3),
        )[1],
        jax.random.key(5),
    ),
    "permutation": (lambda key: jax.random.permutation(key, 6), jax.random.key(5)),
    "zero arguments of a scan": (
        lambda x: lax.scan(lambda c, _: (c + 1, c), x, None, length=3),
        np.int32(4),
    ),
}


def pool(init, op, *geometry, **dilations):
    """A pooling function: window, strides and padding."""
    return lambda x: lax.reduce_window(x, x.dtype.type(init), op, *geometry, **dilations)


# Small integers: many ties, and sums without rounding. One number is NaN.
TIES = ints(2, 3, 7, 6, low=-2, high=3, dtype=np.float32)
CHANNELS_LAST = np.ascontiguousarray(TIES.transpose(0, 2, 3, 1))
HOLED = np.where(np.arange(TIES.size).reshape(TIES.shape) % 17 == 5, np.float32(np.nan), TIES)
LINE = ints(2, 40, dtype=np.float32)
INF = np.inf

# Windows of all kinds, which JAX differentiates.
POOLS = {
    "max": (pool(-INF, lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID"), TIES),
    "max NHWC, overlapping": (
        pool(-INF, lax.max, (1, 3, 2, 1), (1, 2, 1, 1), "SAME"),
        CHANNELS_LAST,
    ),
    "max of gaps": (pool(-INF, lax.max, (1, 1, 2, 1), (1, 1, 3, 2), "VALID"), TIES),
    "max padded by a window": (
        pool(-INF, lax.max, (1, 1, 2, 2), (1, 1, 2, 2), ((0, 0), (0, 0), (2, 3), (1, 2))),
        TIES,
    ),
    "min over all axes": (pool(INF, lax.min, (2, 2, 3, 3), (1, 1, 2, 3), "SAME"), TIES),
    "max of a long window": (pool(-INF, lax.max, (1, 20), (1, 3), "SAME"), LINE),
    "sum of a long window": (pool(0, lax.add, (1, 20), (1, 3), "SAME"), LINE),
    "sum NHWC": (pool(0, lax.add, (1, 3, 3, 1), (1, 1, 2, 1), "SAME"), CHANNELS_LAST),
    "sum dilated": (
        pool(0, lax.add, (1, 1, 3, 2), (1, 1, 1, 2), "VALID", window_dilation=(1, 1, 2, 3)),
        TIES,
    ),
    "sum of a dilated array": (
        pool(
            0,
            lax.add,
            (1, 2, 3, 3),
            (1, 1, 2, 2),
            ((0, 0), (1, 0), (2, 1), (0, 3)),
            base_dilation=(1, 1, 2, 3),
            window_dilation=(1, 1, 1, 2),
        ),
        TIES,
    ),
}

# And those that it does not, or that have no derivative.
OTHER_POOLS = {
    "max dilated": (
        pool(
            -INF,
            lax.max,
            (1, 1, 2, 2),
            (1, 1, 1, 2),
            "SAME",
            base_dilation=(1, 1, 1, 2),
            window_dilation=(1, 1, 2, 3),
        ),
        TIES,
    ),
    "max with NaN": (pool(-INF, lax.max, (1, 1, 2, 2), (1, 1, 1, 1), "SAME"), HOLED),
    "min with NaN": (pool(INF, lax.min, (1, 1, 3, 3), (1, 1, 3, 3), "VALID"), HOLED),
    "sum with NaN": (pool(0, lax.add, (1, 1, 2, 2), (1, 1, 2, 2), "VALID"), HOLED),
    "max of integers": (
        pool(-(2**31), lax.max, (1, 2, 2), (1, 1, 2), "SAME"),
        ints(2, 5, 6),
    ),
    "min of bytes": (pool(255, lax.min, (2, 2), (2, 2), "SAME"), ints(5, 5, low=0, dtype=np.uint8)),
    "sum of bytes": (
        pool(0, lax.add, (2, 3), (1, 1), "SAME"),
        ints(5, 5, low=-90, high=90, dtype=np.int8),
    ),
    "nothing": (pool(0, lax.add, (1, 2, 2), (1, 1, 1), "VALID"), np.zeros((0, 4, 4), np.float32)),
    "window too large": (pool(-INF, lax.max, (1, 9), (1, 1), "VALID"), np.ones((2, 4), np.float32)),
}
