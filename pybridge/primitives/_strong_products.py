"""Products in which zero times anything is zero, infinity and NaN included.

One function for each primitive of JAX that multiplies a tangent by a coefficient. Where all
is finite the results are those of JAX, bit for bit up to the sign of zero.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

_SOLVES = ("triangular_solve", "tridiagonal_solve")
# The operands in which each is linear, any of them at a time.
FACTORS = {
    "mul": (0, 1),
    "div": (0,),
    "dot_general": (0, 1),
    "conv_general_dilated": (0, 1),
    "ragged_dot_general": (0, 1),
    "scatter-mul": (0,),
    "triangular_solve": (1,),
    "tridiagonal_solve": (3,),
}


def product_value(*operands: Any, of: Any, settings: Any) -> Any:
    """Compute a product with strong zeros.

    Args:
        *operands: those of the primitive.
        of: the primitive, a key of `FACTORS` by its name.
        settings: its parameters, as pairs.

    Returns:
        The array that the primitive returns, with no NaN from a zero factor.
    """
    params = dict(settings)

    def plain(*operands: Any) -> Any:
        return of.bind(*operands, **params)

    if of.name in _SOLVES:
        # A right-hand side is a row only where the unknown stands left of the matrix.
        axis = -2 if params.get("left_side", True) else -1
        return _solve(plain, axis, *operands)
    return _VALUES.get(of.name, _bilinear)(plain, *operands)


def _mul(plain: Callable[..., Any], a: Any, b: Any) -> Any:
    return _zero_where(_is_zero(a) | _is_zero(b), plain(a, b))


def _div(plain: Callable[..., Any], a: Any, b: Any) -> Any:
    return _zero_where(_is_zero(a) | _is_infinite(b), plain(a, b))


def _scatter_mul(plain: Callable[..., Any], a: Any, indices: Any, b: Any) -> Any:
    factor = plain(jnp.ones_like(a), indices, b)
    return _zero_where(_is_zero(a) | _is_zero(factor), plain(a, indices, b))


def _solve(plain: Callable[..., Any], axis: int, *operands: Any) -> Any:
    """Solve; a right-hand side of zeros has the solution zero whatever the matrix."""
    no_rhs = jnp.all(_is_zero(operands[-1]), axis=axis, keepdims=True)
    return _zero_where(jnp.broadcast_to(no_rhs, operands[-1].shape), plain(*operands))


def _bilinear(plain: Callable[..., Any], a: Any, *others: Any) -> Any:
    """Sum products, the terms with a zero factor left out.

    A sum without NaN is right as it is: a zero times an infinity would have made one. Only
    if there is a NaN are the terms sorted into finite ones, infinities and NaNs.
    """
    out = plain(a, *others)

    def sorted_terms(a: Any, *others: Any) -> Any:
        return _sorted_terms(plain, a, *others)

    def as_it_is(*_: Any) -> Any:
        return out

    return lax.cond(jnp.any(jnp.isnan(out)), sorted_terms, as_it_is, a, *others)


def _sorted_terms(plain: Callable[..., Any], a: Any, b: Any, *rest: Any) -> Any:
    def count(p: Any, q: Any) -> Any:
        return plain(p.astype(a.dtype), q.astype(b.dtype), *rest)

    finite = plain(_finite(a), _finite(b), *rest)
    nan = (count(jnp.isnan(a), ~_is_zero(b)) + count(~_is_zero(a), jnp.isnan(b))) != 0
    if jnp.issubdtype(a.dtype, np.complexfloating):
        wild = count(_is_infinite(a), ~_is_zero(b)) + count(~_is_zero(a), _is_infinite(b))
        nan, signed, total = nan | (wild != 0), None, None
    else:
        sign_a, sign_b = _sign(a), _sign(b)
        wild_a, wild_b = _zero_where(~jnp.isinf(a), sign_a), _zero_where(~jnp.isinf(b), sign_b)
        signed = count(wild_a, sign_b) + count(sign_a, wild_b)
        total = count(abs(wild_a), abs(sign_b)) + count(abs(sign_a), abs(wild_b))
    inf = jnp.asarray(np.inf, finite.dtype)
    if signed is not None and total is not None:
        finite = jnp.where(total > 0, jnp.sign(signed) * inf, finite)
        nan = nan | ((total > 0) & (abs(signed) != total))
    return jnp.where(nan, jnp.asarray(np.nan, finite.dtype), finite)


_VALUES: dict[str, Callable[..., Any]] = {
    "mul": _mul,
    "div": _div,
    "scatter-mul": _scatter_mul,
}


def _is_zero(x: Any) -> Any:
    return lax.eq(x, jnp.zeros_like(x))


def _is_infinite(x: Any) -> Any:
    return jnp.isinf(x)


def _zero_where(mask: Any, x: Any) -> Any:
    return lax.select(mask, jnp.zeros_like(x), x)


def _finite(x: Any) -> Any:
    return _zero_where(~jnp.isfinite(x), x)


def _sign(x: Any) -> Any:
    """Return -1, 0 or 1, and 0 for NaN."""
    return _zero_where(jnp.isnan(x), jnp.sign(x))
