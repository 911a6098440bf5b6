"""Every JAX transformation, and every nesting of two, around detection and `cond`.

A transformation takes a function of one number and returns another. Those that
differentiate act on polynomials as NumPy's `Polynomial.deriv` does; the others change
nothing. So the expected number follows from the pair alone, without JAX.
"""

import functools

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jax.sharding import PartitionSpec as P
from numpy.polynomial import Polynomial

import pybridge as pb

X = 1.5
POLYNOMIAL = Polynomial([0.0, 1.0, 0.0, 0.5, 0.0, 0.25])


def value(x):
    return x + 0.5 * x**3 + 0.25 * x**5


def asks(x):
    """Ten times the polynomial where `x` is differentiated."""
    return jnp.where(pb.within_gradient(x), 10.0, 1.0) * value(x)


def chooses(x):
    """The same through `cond`, inside a `cond` whose predicate depends on `x`."""
    return pb.cond(
        x > 0,
        lambda x: pb.cond(pb.within_gradient(x), lambda x: 10.0 * value(x), lambda x: value(x), x),
        lambda x: jnp.log(x),
        x,
    )


def both(x):
    return asks(x) + chooses(x)


def zero(x):
    """Return 0 with the type of `x`, mesh axes along which it varies included."""
    return 0.0 * x


def one(x):
    return 0.0 * x + 1.0


def value_and_grad(f):
    return lambda x: sum(jax.value_and_grad(f)(x))


def jvp(f):
    return lambda x: jax.jvp(f, (x,), (one(x),))[1]


def vjp(f):
    def result(x):
        y, pullback = jax.vjp(f, x)
        return pullback(one(y))[0]

    return result


def linearize(f):
    return lambda x: jax.linearize(f, x)[1](one(x))


def vmap(f):
    # The second lane takes the other branch of `chooses`, and a NaN with it.
    return lambda x: jax.vmap(f)(jnp.stack([x, -x]))[0]


def scan(f):
    def result(x):
        return lax.scan(lambda carry, _: (carry, f(carry)), x, length=2)[1][1]

    return result


def while_loop(f):
    def result(x):
        start = (jnp.int32(0), zero(x))
        return lax.while_loop(lambda s: s[0] < 2, lambda s: (s[0] + 1, f(x)), start)[1]

    return result


def while_loop_that_asks(f):
    """Ask in the loop, compute outside: JAX has no reverse mode for `while_loop`."""

    def result(x):
        start = (jnp.int32(0), jnp.bool_(False))
        _, inside = lax.while_loop(
            lambda s: s[0] < 2, lambda s: (s[0] + 1, pb.within_gradient(x)), start
        )
        return jnp.where(inside == pb.within_gradient(x), 1.0, jnp.nan) * f(x)

    return result


def fori_loop(f):
    return lambda x: lax.fori_loop(0, 2, lambda i, y: f(x), zero(x))


def cond(f):
    return lambda x: lax.cond(x > 0, f, zero, x)


def shard_map(f):
    @jax.jit  # Without it JAX dispatches each operation to the devices on its own: slow.
    def result(x):
        free = [name for name in ("i", "j") if name not in _manual_axes()]
        mesh = None if _manual_axes() else _mesh()
        mapped = jax.shard_map(
            lambda x: f(x[0])[None],
            mesh=mesh,
            in_specs=P(free[0]),
            out_specs=P(free[0]),
            axis_names={free[0]},
        )
        return mapped(jnp.stack([x, x]))[0]

    return result


@functools.cache
def _mesh():
    auto = jax.sharding.AxisType.Auto
    return jax.make_mesh((2, 2), ("i", "j"), axis_types=(auto, auto))


def _manual_axes():
    mesh = jax.sharding.get_abstract_mesh()
    return () if mesh.empty else mesh.manual_axes


def derivative(p):
    return p.deriv()


DERIVATIVES = {
    "grad": (jax.grad, derivative),
    "value_and_grad": (value_and_grad, lambda p: p + p.deriv()),
    "jvp": (jvp, derivative),
    "vjp": (vjp, derivative),
    "linearize": (linearize, derivative),
    "jacfwd": (jax.jacfwd, derivative),
    "jacrev": (jax.jacrev, derivative),
    "hessian": (jax.hessian, lambda p: p.deriv(2)),
}
OTHERS = {
    "jit": jax.jit,
    "vmap": vmap,
    "scan": scan,
    "while_loop": while_loop,
    "fori_loop": fori_loop,
    "cond": cond,
    "checkpoint": jax.checkpoint,
    "shard_map": shard_map,
}
FORWARD = {"jvp", "jacfwd"}
TRANSFORMATIONS = {
    **DERIVATIVES,
    **{name: (transform, lambda p: p) for name, transform in OTHERS.items()},
}


def _check(names, function, maybe_jit):
    """Apply transformations, the first one outermost, and compare with the polynomial."""
    composed, polynomial = function, POLYNOMIAL * (2.0 if function is both else 1.0)
    if any(name in DERIVATIVES for name in names):
        polynomial = 10.0 * polynomial
    reverse = False
    transforms = []
    for name in names:
        transform, _ = TRANSFORMATIONS[name]
        if name == "while_loop" and reverse:
            transform = while_loop_that_asks
        reverse = reverse or (name in DERIVATIVES and name not in FORWARD)
        transforms.append(transform)
    for name, transform in zip(reversed(names), reversed(transforms), strict=True):
        composed = transform(composed)
        polynomial = TRANSFORMATIONS[name][1](polynomial)
    result = maybe_jit(composed)(jnp.asarray(X))
    assert result == pytest.approx(polynomial(X), rel=1e-5)


@pytest.mark.parametrize("function", [asks, chooses])
@pytest.mark.parametrize("name", TRANSFORMATIONS)
def test_one(name, function, maybe_jit):
    _check([name], function, maybe_jit)


@pytest.mark.parametrize("inner", TRANSFORMATIONS)
@pytest.mark.parametrize("outer", TRANSFORMATIONS)
def test_two(outer, inner):
    _check([outer, inner], both, lambda f: f)
