"""What a `NonDifferentiable` holds: arrays that travel, and everything else, which is fixed.

Arrays are data: a transformation may trace, batch and slice them. Numbers, strings and other
objects are part of a program, as the code of a function is; two of them are the same only if
nothing that is computed with them can tell them apart.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer


class Fixed:
    """A value that is no array, compared so that a program can be cached under it."""

    __slots__ = ("value",)

    def __init__(self, value: Any):
        """Keep the value."""
        self.value = value

    def __repr__(self) -> str:
        """Show the value."""
        return repr(self.value)

    def __eq__(self, other: object) -> bool:
        """Tell whether types and values agree; 1, 1.0 and True differ, and so do 0.0 and -0.0."""
        if not isinstance(other, Fixed):
            return NotImplemented
        a, b = self.value, other.value
        if a is b:
            return True
        if type(a) is not type(b):
            return False
        bits = _bits(a)
        if bits is not None:
            return bits == _bits(b)
        try:
            return bool(a == b)
        except Exception:  # the class is the user's, and its answer may be no bool
            return False

    def __hash__(self) -> int:
        """Hash the value; what cannot be hashed shares a hash with its type."""
        bits = _bits(self.value)
        try:
            return hash((type(self.value), self.value if bits is None else bits))
        except TypeError:
            return hash(type(self.value))


def _bits(x: Any) -> Any:
    """Return what tells floats apart, nan and the sign of zero included; None for others."""
    if isinstance(x, float) and not isinstance(x, np.generic):
        return struct.pack("d", x)
    if isinstance(x, complex) and not isinstance(x, np.generic):
        return struct.pack("dd", x.real, x.imag)
    if isinstance(x, np.generic):
        return (str(x.dtype), x.tobytes())
    if isinstance(x, np.ndarray):  # of strings or objects: others travel
        return (str(x.dtype), x.shape, repr(x.tolist()))
    return None


@dataclasses.dataclass(frozen=True)
class Layout:
    """A payload without its arrays.

    Attributes:
        tree: JAX's structure of the payload; None for a single array.
        fixed: for each leaf the fixed value, or None where an array stands.
    """

    tree: Any
    fixed: tuple[Fixed | None, ...]

    def build(self, arrays: Sequence[Any]) -> Any:
        """Put arrays in their places."""
        if self.tree is None:
            return arrays[0]
        given = iter(arrays)
        leaves = [next(given) if one is None else one.value for one in self.fixed]
        return jax.tree_util.tree_unflatten(self.tree, leaves)


_ARRAY = Layout(None, (None,))


def split(value: Any) -> tuple[Layout, tuple[Any, ...]]:
    """Separate the arrays of a payload from the rest.

    Args:
        value: any object; a container that JAX knows is looked into.

    Returns:
        The rest, and the arrays in order.
    """
    if _travels(value):
        return _ARRAY, (detached(value),)
    leaves, tree = jax.tree_util.tree_flatten(value)
    arrays = tuple(detached(leaf) for leaf in leaves if _travels(leaf))
    return Layout(tree, tuple(None if _travels(x) else Fixed(x) for x in leaves)), arrays


def _travels(x: Any) -> bool:
    """Tell arrays from the rest; NumPy's scalars and its arrays of objects belong to the rest."""
    if isinstance(x, jax.Array):
        return True
    if type(x) is not np.ndarray:
        return False
    return bool(jnp.issubdtype(x.dtype, np.number) or x.dtype == np.bool_)


def detached(x: Any) -> Any:
    """Take the derivative from a value that is being differentiated."""
    if isinstance(x, Tracer):
        dtype = getattr(x, "dtype", None)
        if dtype is not None and jnp.issubdtype(dtype, np.inexact):
            return jax.lax.stop_gradient(x)
    return x


def same_arrays(some: Sequence[Any], others: Sequence[Any]) -> bool:
    """Tell whether arrays agree bit by bit. A value that is being traced equals itself only."""
    return len(some) == len(others) and all(map(_same_array, some, others))


def _same_array(a: Any, b: Any) -> bool:
    if a is b:
        return True
    if isinstance(a, Tracer) or isinstance(b, Tracer):
        return False
    if not (_travels(a) and _travels(b)) or isinstance(a, jax.Array) != isinstance(b, jax.Array):
        return Fixed(a) == Fixed(b)  # what an unflattened tree holds need not be an array
    if (a.dtype, a.shape) != (b.dtype, b.shape):
        return False
    if isinstance(a, jax.Array):
        if a.is_deleted() or b.is_deleted():
            return False
        if jnp.issubdtype(a.dtype, jax.dtypes.prng_key):
            a, b = jax.random.key_data(a), jax.random.key_data(b)
        if a.weak_type != b.weak_type:
            return False
    return np.asarray(a).tobytes() == np.asarray(b).tobytes()
