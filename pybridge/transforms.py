"""JAX's transforms with any AD system.

`grad`, `value_and_grad`, `jvp`, `vjp`, `jacobian` and `hessian`: the names, arguments and
results are JAX's; `backend` says which system differentiates.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from numbers import Integral
from typing import Any

import jax
import numpy as np

from . import _backends
from ._errors import ArgumentTypeError, ArgumentValueError, UnsupportedModeError, explain
from .interop import JuliaFunction

Argnums = int | Sequence[int]


def grad(
    f: Callable[..., Any],
    argnums: Argnums = 0,
    *,
    backend: str = "jax",
    has_aux: bool = False,
) -> Callable[..., Any]:
    """Make the function that computes the gradient of a scalar function.

    Args:
        f: a function whose value is a real number: a Python function that JAX can trace, or one
            from `pb.from_julia`.
        argnums: which argument, or arguments, to differentiate, from 0.
        backend: `"jax"`, `"finite"`, `"zygote"`, `"forwarddiff"`, `"tracker"`, `"yota"`,
            `"mooncake"`, `"reversediff"`, `"enzyme"`, or `"di:"` and an expression of ADTypes for
            any other that DifferentiationInterface reaches, such as `"di:AutoFiniteDiff()"`. For a
            function from `pb.from_julia`, `"jax"` means the system in its `ad`, asked for the
            function itself: rules in `vjp=` and `jvp=` are for `jax.grad`. A Python function on
            one of Julia's systems is lowered to Julia first, see `pb.lower`.
        has_aux: whether `f` returns `(value, aux)`; then so does the gradient function, with
            the gradient in place of the value.

    Returns:
        A function of the same arguments. Gradients are dense and have the shape, structure and
        dtype of their arguments, whatever the system returned. For a complex argument
        z = x + iy it is df/dx - i df/dy, as in JAX, on every system.

    Raises:
        UnknownBackendError: at once, for a name that there is not.
        UnsupportedModeError: the system cannot do it; the message names one that can.
        ArgumentTypeError: `f` is not scalar, or an argument to differentiate is not
            floating-point.
        LoweringError: a Python function has an operation that Julia cannot do.
        JuliaError: what the Julia function threw.

    Example:
        >>> import pybridge as pb
        >>> float(pb.grad(lambda x: x**3)(2.0))
        12.0
        >>> round(float(pb.grad(lambda x: x**3, backend="finite")(2.0)), 4)
        12.0

    The twin in Julia is `PyBridge.value_and_gradient`.
    """
    both = value_and_grad(f, argnums, backend=backend, has_aux=has_aux)

    @functools.wraps(f)
    def gradient(*args: Any, **kwargs: Any) -> Any:
        value, gradients = both(*args, **kwargs)
        return (gradients, value[1]) if has_aux else gradients

    return gradient


def value_and_grad(
    f: Callable[..., Any],
    argnums: Argnums = 0,
    *,
    backend: str = "jax",
    has_aux: bool = False,
) -> Callable[..., Any]:
    """Make the function that computes the value and the gradient of a scalar function.

    The value is the one under differentiation: inside, `within_gradient` is True.

    Args:
        f: see `grad`.
        argnums: see `grad`.
        backend: see `grad`.
        has_aux: see `grad`; the value is then `(value, aux)`.

    Returns:
        A function of the same arguments that returns `(value, gradient)`.

    Raises:
        BridgeError: see `grad`.

    Example:
        >>> import pybridge as pb
        >>> value, gradient = pb.value_and_grad(lambda x: x**3)(2.0)
        >>> float(value), float(gradient)
        (8.0, 12.0)

    The twin in Julia is `PyBridge.value_and_gradient`.
    """
    system, argnums = _system(f, backend), _as_ints(argnums)
    if system == "jax":
        return _checked(jax.value_and_grad(f, argnums=argnums, has_aux=has_aux), f, argnums)

    def compute(*args: Any, **kwargs: Any) -> Any:
        numbers = _numbers(args, argnums)
        if system == "finite":
            value, gradients = _finite().value_and_grad(f, args, kwargs, numbers, has_aux)
        elif isinstance(f, JuliaFunction):
            bound = f.with_keywords(kwargs)
            value, gradients = _julia().value_and_grad(bound, args, numbers, system, has_aux)
        else:
            value, gradients = _lowering().value_and_grad(
                f, _as_arrays(args), kwargs, numbers, system, has_aux
            )
        return value, gradients[0] if isinstance(argnums, int) else gradients

    return functools.wraps(f)(compute)


def jvp(
    f: Callable[..., Any],
    primals: Sequence[Any],
    tangents: Sequence[Any],
    *,
    backend: str = "jax",
) -> tuple[Any, Any]:
    """Push tangents forward through a function.

    Args:
        f: see `grad`; any value.
        primals: the arguments, as a tuple or list.
        tangents: one for each, of its structure and shape.
        backend: see `grad`. Zygote, Tracker, Yota and ReverseDiff have no forward mode and
            refuse.

    Returns:
        The value, and its tangent.

    Raises:
        BridgeError: see `grad`.

    Example:
        >>> import pybridge as pb
        >>> value, tangent = pb.jvp(lambda x: x**3, (2.0,), (1.0,))
        >>> float(value), float(tangent)
        (8.0, 12.0)

    The twin in Julia is `PyBridge.pushforward`.
    """
    system = _system(f, backend)
    for what, given in (("primals", primals), ("tangents", tangents)):
        if not isinstance(given, tuple | list):
            raise ArgumentTypeError(
                explain(
                    "pb.jvp",
                    expected=f"a tuple or list of {what}",
                    got=f"a {type(given).__name__}",
                    fix=f"Write ({what[:-1]},) for a single one.",
                )
            )
    primals, tangents = tuple(primals), tuple(tangents)
    if system == "jax":
        return jax.jvp(f, _as_arrays(primals), _as_arrays(tangents))
    if system == "finite":
        return _finite().jvp(f, primals, tangents)
    if isinstance(f, JuliaFunction):
        return _julia().jvp(f, primals, tangents, system)
    return _lowering().jvp(f, _as_arrays(primals), _as_arrays(tangents), system)


def vjp(
    f: Callable[..., Any], *primals: Any, backend: str = "jax"
) -> tuple[Any, Callable[[Any], tuple[Any, ...]]]:
    """Run a function so that cotangents of its value can be pulled back.

    Args:
        f: see `grad`; any value.
        *primals: the arguments.
        backend: see `grad`. ForwardDiff and finite differences have no reverse mode and refuse.

    Returns:
        The value, and a function from a cotangent of the value to a tuple of cotangents, one
        for each argument. It may be called more than once.

    Raises:
        BridgeError: see `grad`.

    Example:
        >>> import pybridge as pb
        >>> value, pull = pb.vjp(lambda x: x**3, 2.0)
        >>> float(pull(1.0)[0])
        12.0

    The twin in Julia is `PyBridge.pullback`.
    """
    system = _system(f, backend)
    if system == "jax":
        value, pull = jax.vjp(f, *_as_arrays(primals))
        return value, pull
    if system == "finite":
        raise UnsupportedModeError(
            explain(
                "pb.vjp",
                expected="an AD system with a reverse mode",
                got="'finite', which only goes forward",
                fix='Use pb.jvp, pb.grad or pb.jacobian with "finite", or backend="jax".',
            )
        )
    if isinstance(f, JuliaFunction):
        return _julia().vjp(f, primals, system)
    return _lowering().vjp(f, _as_arrays(primals), system)


def jacobian(
    f: Callable[..., Any], argnums: Argnums = 0, *, backend: str = "jax"
) -> Callable[..., Any]:
    """Make the function that computes the Jacobian.

    Args:
        f: see `grad`; any value made of real numbers.
        argnums: see `grad`.
        backend: see `grad`. Reverse-mode systems take a pullback for each output.

    Returns:
        A function of the same arguments. For each leaf of the value and each leaf of the
        arguments it returns an array of shape output shape + input shape, in the value's tree of
        the arguments' trees.

    Raises:
        BridgeError: see `grad`.

    Example:
        >>> import jax.numpy as jnp
        >>> import pybridge as pb
        >>> pb.jacobian(lambda x: 2 * x)(jnp.ones(3)).shape
        (3, 3)

    The twin in Julia is `PyBridge.jacobian`.
    """
    system, argnums = _system(f, backend), _as_ints(argnums)
    if system == "jax":
        return _checked(jax.jacrev(f, argnums=argnums), f, argnums)

    def compute(*args: Any, **kwargs: Any) -> Any:
        numbers = _numbers(args, argnums)
        if system == "finite":
            return _finite().jacobian(f, args, kwargs, argnums)
        single = isinstance(argnums, int)
        if isinstance(f, JuliaFunction):
            return _julia().jacobian(f.with_keywords(kwargs), args, numbers, system, single)
        return _lowering().jacobian(f, _as_arrays(args), kwargs, numbers, system, single)

    return functools.wraps(f)(compute)


def hessian(
    f: Callable[..., Any], argnums: Argnums = 0, *, backend: str = "jax"
) -> Callable[..., Any]:
    """Make the function that computes the Hessian of a scalar function.

    Args:
        f: see `grad`.
        argnums: see `grad`.
        backend: see `grad`. Zygote goes forward over reverse, with ForwardDiff, and Mooncake with
            itself; Tracker, Yota and ReverseDiff have no second order and refuse.

    Returns:
        A function of the same arguments. For each pair of leaves of the arguments it returns
        an array of shape first shape + second shape, in the arguments' tree of their trees.

    Raises:
        BridgeError: see `grad`.

    Example:
        >>> import jax.numpy as jnp
        >>> import pybridge as pb
        >>> pb.hessian(lambda x: (x**2).sum())(jnp.ones(2))
        Array([[2., 0.],
               [0., 2.]], dtype=float32)

    The twin in Julia is `PyBridge.hessian`.
    """
    system, argnums = _system(f, backend), _as_ints(argnums)
    if system == "jax":
        return _checked(jax.hessian(f, argnums=argnums), f, argnums)

    def compute(*args: Any, **kwargs: Any) -> Any:
        numbers = _numbers(args, argnums)
        if system == "finite":
            return _finite().hessian(f, args, kwargs, argnums)
        single = isinstance(argnums, int)
        if isinstance(f, JuliaFunction):
            return _julia().hessian(f.with_keywords(kwargs), args, numbers, system, single)
        return _lowering().hessian(f, _as_arrays(args), kwargs, numbers, system, single)

    return functools.wraps(f)(compute)


def _system(f: Any, backend: str) -> str:
    """Decide which system differentiates `f`, and refuse what cannot be."""
    _backends.row(backend)
    if not callable(f):
        raise ArgumentTypeError(
            explain(
                "pybridge's transforms",
                expected="a function",
                got=f"a {type(f).__name__}",
                fix="Pass the function itself; for Julia source, pb.from_julia(source).",
            )
        )
    if isinstance(f, JuliaFunction):
        return f.ad if backend == "jax" else backend
    return backend


# Imported when they are first needed, and remembered: the statement takes a microsecond.
@functools.cache
def _julia() -> Any:
    from .interop import julia_derivatives

    return julia_derivatives


@functools.cache
def _finite() -> Any:
    from . import _finite_transforms

    return _finite_transforms


@functools.cache
def _lowering() -> Any:
    from .lowering import derivatives

    return derivatives


def _as_ints(argnums: Any) -> Argnums:
    """Make Python's ints of NumPy's, which JAX takes for several."""
    if type(argnums) is int:
        return argnums
    return jax.tree.map(lambda n: int(n) if isinstance(n, Integral) else n, argnums)


def _numbers(args: tuple[Any, ...], argnums: Argnums) -> tuple[int, ...]:
    """Check `argnums` against the arguments; make a tuple of non-negative numbers."""
    if type(argnums) is int and 0 <= argnums < len(args):
        return (argnums,)
    numbers = (argnums,) if isinstance(argnums, int) else tuple(argnums)
    for n in numbers:
        if not isinstance(n, int) or not -len(args) <= n < len(args):
            raise ArgumentValueError(
                explain(
                    "argnums",
                    expected=f"numbers from 0 to {len(args) - 1}, since {len(args)} positional "
                    "arguments were given",
                    got=repr(argnums),
                    fix="Count the positional arguments from 0.",
                )
            )
    return tuple(n % len(args) for n in numbers)


def _checked(transformed: Callable[..., Any], f: Any, argnums: Argnums) -> Callable[..., Any]:
    """Let every system complain about `argnums` in the same words."""

    @functools.wraps(f)
    def compute(*args: Any, **kwargs: Any) -> Any:
        _numbers(args, argnums)
        return transformed(*_as_arrays(args), **kwargs)

    return compute


def _as_arrays(tree: Any) -> Any:
    """Turn Julia's arrays into NumPy's, which JAX accepts. Nothing is copied."""

    def as_numpy(leaf: Any) -> Any:
        return np.asarray(leaf) if type(leaf).__module__.startswith("juliacall") else leaf

    return jax.tree_util.tree_map(as_numpy, tree)
