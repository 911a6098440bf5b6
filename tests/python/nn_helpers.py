"""What the tests of layers share: plain NumPy formulas in double precision."""

from __future__ import annotations

import itertools

import jax
import numpy as np
from jax.test_util import check_jvp, check_vjp


def forward(layer, params, x, **options):
    """Return the output alone of a layer without state."""
    return layer.apply(params, {}, x, **options)[0]


def draw(seed, shape, dtype=np.float64):
    """Return normal numbers from NumPy, whose generator compiles nothing per shape."""
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def fixed(seed):
    """Return an initialiser that needs no key, for the same reason."""
    return lambda key, shape, dtype: draw(seed, shape, dtype)


def check_derivatives(f, args, order=2, **tolerances):
    """Do what `jax.test_util.check_grads` does, with half of its programs.

    Each derivative is one compiled program, and one that several checks need is compiled once.
    """
    _check_compiled(jax.jit(f), args, order, **tolerances)


def _check_compiled(f, args, order, **tolerances):
    forwards = jax.jit(lambda primals, tangents: jax.jvp(f, primals, tangents))

    @jax.jit
    def backwards(primals, cotangent):
        y, pull = jax.vjp(f, *primals)
        return y, pull(cotangent)

    def vjp(*primals):
        any_cotangent = jax.tree.map(
            lambda y: np.zeros(y.shape, y.dtype), jax.eval_shape(f, *primals)
        )
        y, _ = backwards(primals, any_cotangent)
        return y, lambda cotangent: backwards(primals, cotangent)[1]

    check_jvp(f, forwards, args, **tolerances)
    check_vjp(f, vjp, args, **tolerances)
    if order > 1:
        _check_compiled(forwards, (args, args), order - 1, **tolerances)
        pulled_back = lambda *primals: backwards(primals, f(*primals))[1]  # noqa: E731
        _check_compiled(pulled_back, args, order - 1, **tolerances)


def pairs(pad, rank):
    """Return (before, after) of every axis for an int, one per axis, or two per axis."""
    flat = (pad,) * rank if isinstance(pad, int) else tuple(pad)
    flat = tuple(n for n in flat for _ in range(2)) if len(flat) == rank else flat
    return list(zip(flat[::2], flat[1::2], strict=True))


def each(value, rank):
    return (value,) * rank if isinstance(value, int) else tuple(value)


def conv_reference(x, weight, *, stride=1, pad=0, dilation=1, groups=1):
    """Sum over kernel elements, last one first: the convolution of mathematics."""
    x, weight = np.asarray(x, np.float64), np.asarray(weight, np.float64)
    rank = x.ndim - 2
    stride, dilation, kernel = each(stride, rank), each(dilation, rank), weight.shape[2:]
    x = np.pad(x, [(0, 0), (0, 0), *pairs(pad, rank)])
    size = [
        (n - (k - 1) * d - 1) // s + 1
        for n, k, d, s in zip(x.shape[2:], kernel, dilation, stride, strict=True)
    ]
    y = np.zeros((x.shape[0], weight.shape[0], *size))
    inputs, outputs = weight.shape[1], weight.shape[0] // groups
    for at in itertools.product(*map(range, kernel)):
        steps = zip(at, size, stride, dilation, strict=True)
        part = x[:, :, *(slice(a * d, a * d + (n - 1) * s + 1, s) for a, n, s, d in steps)]
        tap = weight[:, :, *(k - 1 - a for k, a in zip(kernel, at, strict=True))]
        for g in range(groups):
            rows = slice(g * outputs, (g + 1) * outputs)
            columns = slice(g * inputs, (g + 1) * inputs)
            y[:, rows] += np.einsum("oi,ni...->no...", tap[rows], part[:, columns])
    return y


def conv_transpose_reference(x, weight, *, stride=1, pad=0, outpad=0, dilation=1, groups=1):
    """Add each input, times the kernel, to the output where `Conv` would have read it."""
    x, weight = np.asarray(x, np.float64), np.asarray(weight, np.float64)
    rank = x.ndim - 2
    stride, dilation, outpad = each(stride, rank), each(dilation, rank), each(outpad, rank)
    kernel, pad = weight.shape[2:], pairs(pad, rank)
    full = [
        (n - 1) * s + (k - 1) * d + 1 + more
        for n, s, k, d, more in zip(x.shape[2:], stride, kernel, dilation, outpad, strict=True)
    ]
    inputs, outputs = x.shape[1] // groups, weight.shape[1]
    y = np.zeros((x.shape[0], outputs * groups, *full))
    for at in itertools.product(*map(range, kernel)):
        steps = zip(at, x.shape[2:], stride, dilation, strict=True)
        place = tuple(slice(a * d, a * d + (n - 1) * s + 1, s) for a, n, s, d in steps)
        tap = weight[:, :, *(k - 1 - a for k, a in zip(kernel, at, strict=True))]
        for g in range(groups):
            rows = slice(g * inputs, (g + 1) * inputs)
            columns = slice(g * outputs, (g + 1) * outputs)
            y[:, columns, *place] += np.einsum("io,ni...->no...", tap[rows], x[:, rows])
    return y[:, :, *(slice(a, n - b) for n, (a, b) in zip(full, pad, strict=True))]


def pool_reference(x, window, *, stride=None, pad=0, reduce, fill):
    """Apply `reduce` to each window."""
    rank = x.ndim - 2
    stride = window if stride is None else each(stride, rank)
    x = np.pad(x, [(0, 0), (0, 0), *pairs(pad, rank)], constant_values=fill)
    size = [(n - k) // s + 1 for n, k, s in zip(x.shape[2:], window, stride, strict=True)]
    y = np.zeros((*x.shape[:2], *size))
    for at in itertools.product(*map(range, size)):
        steps = zip(at, window, stride, strict=True)
        part = x[:, :, *(slice(a * s, a * s + k) for a, k, s in steps)]
        y[:, :, *at] = reduce(part, tuple(range(2, x.ndim)))
    return y
