"""The transforms by finite differences: in float64, given back in the arguments' dtypes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from ._errors import value_and_aux
from .finite import (
    as_given,
    as_jax,
    finite_gradient,
    finite_hessian,
    finite_jacobian,
    finite_jvp,
    is_inexact,
)
from .interop import JuliaFunction, julia_derivatives


def value_and_grad(
    f: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    numbers: tuple[int, ...],
    has_aux: bool,
) -> tuple[Any, tuple[Any, ...]]:
    """Value (with `has_aux`, value and aux) and one gradient for each argument in `numbers`."""
    function, convert = functools.partial(f, **kwargs), _convert(f)
    name = getattr(f, "__name__", type(f).__name__)
    aux = _aux(function, args, convert, name) if has_aux else None
    scalar = (lambda *xs: function(*xs)[0]) if has_aux else function
    found = finite_gradient(scalar, args, numbers, convert=convert)
    gradients = tuple(
        jax.tree_util.tree_map(_as_argument, found.derivative[i], args[n])
        for i, n in enumerate(numbers)
    )
    value = _narrow(found.value, args)
    return ((value, aux) if has_aux else value), gradients


def _aux(f: Callable[..., Any], args: tuple[Any, ...], convert: Any, name: str) -> Any:
    """Call once, in the caller's own precision, for what is beside the value."""
    out = f(*jax.tree.map(lambda x: convert(np.asarray(x), x) if is_inexact(x) else x, args))
    return value_and_aux(out, name)[1]


def jvp(
    f: Callable[..., Any], primals: tuple[Any, ...], tangents: tuple[Any, ...]
) -> tuple[Any, Any]:
    """Value and tangent of the value."""
    likened = julia_derivatives.tangents_like(primals, tangents)
    found = finite_jvp(f, primals, likened, convert=_convert(f))
    value = _narrow(found.value, primals)
    return value, jax.tree.map(_as_tangent, value, _narrow(found.derivative, primals))


def jacobian(
    f: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    argnums: int | Sequence[int],
) -> Any:
    """The value's tree of the arguments' trees; of tuples of those for several `argnums`."""
    function = functools.partial(f, **kwargs)
    found = finite_jacobian(function, args, argnums, convert=_convert(f))
    return _narrow(found.derivative, args)


def hessian(
    f: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    argnums: int | Sequence[int],
) -> Any:
    """The arguments' trees of the arguments' trees; of tuples for several `argnums`."""
    found = finite_hessian(functools.partial(f, **kwargs), args, argnums, convert=_convert(f))
    return _narrow(found, args)


def _as_argument(derivative: np.ndarray, x: Any) -> Any:
    """Give a derivative the argument's dtype and kind of array."""
    dtype = x.dtype if hasattr(x, "dtype") else jax.dtypes.canonicalize_dtype(np.result_type(x))
    narrow = np.asarray(derivative).astype(dtype)
    return jax.numpy.asarray(narrow) if not isinstance(x, np.ndarray) else narrow


def _as_tangent(value: Any, tangent: Any) -> Any:
    """Give the tangent of an integer JAX's dtype for it."""
    return tangent if is_inexact(value) else np.zeros(np.shape(value), jax.dtypes.float0)


def _narrow(tree: Any, args: Any) -> Any:
    """Bring results from float64 to the precision of the arguments."""
    leaves = [x for x in jax.tree_util.tree_leaves(args)]
    wants_numpy = all(isinstance(x, np.ndarray | np.generic) for x in leaves)
    dtypes = [
        x.dtype if hasattr(x, "dtype") else jax.dtypes.canonicalize_dtype(np.result_type(x))
        for x in leaves
    ]
    inexact = [d for d in dtypes if jax.numpy.issubdtype(d, np.inexact)]

    def narrowed(x: Any) -> Any:
        x = np.asarray(x)
        if np.issubdtype(x.dtype, np.inexact) and inexact:
            real = np.result_type(*inexact)
            x = x.astype(np.result_type(real, np.complex64) if x.dtype.kind == "c" else real)
        return x if wants_numpy else jax.numpy.asarray(x)

    return jax.tree_util.tree_map(narrowed, tree)


def _convert(f: Any) -> Any:
    return as_given if isinstance(f, JuliaFunction) else as_jax
