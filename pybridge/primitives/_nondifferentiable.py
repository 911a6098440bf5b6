"""Values that take part in a computation and never in its gradient: `NonDifferentiable`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

import jax

from ._flattening import Asker, asker
from ._nondifferentiable_operators import ValueLike, value_of
from ._payload import Layout, detached, same_arrays, split


class NonDifferentiable(ValueLike):
    """Mark a value that takes part in the computation and never in the gradient.

    It behaves as the value: in arithmetic and comparisons (the result is a plain value), when it
    is indexed, as an argument of functions of `jnp` and NumPy, in `len`, `float`, `range`, and
    for attributes such as `.shape`. `.value` is the value itself, without any derivative, for
    what takes arrays alone: functions of `jax.lax`, and `x[n.value]` for an array `x` of JAX.

    Arrays, `jax.random` keys among them, are data: `jit` traces them and does not trace again for
    other contents, `vmap` maps them, `scan` slices and carries them. Everything else (numbers,
    strings, functions, objects) is part of the program: `jit` traces again when it changes, and
    `pb.NonDifferentiable(3)` may be used as a shape. Of a container, such as a dict, each leaf is
    treated in its own way. Objects are compared by `==`, and should not be changed afterwards.

    For everything that differentiates, and for `jax.tree.map` and the other functions of trees,
    it has no leaves. So its gradient is a `NonDifferentiable` in the same place of the same tree
    (the value itself, which is no gradient to be used), and optimisers have nothing to update: a
    step with `optax` leaves it bitwise as it is.

    Args:
        value: any object: an array of any shape and dtype, a key, a number, a string, a pytree.

    Attributes:
        value: the same object; a tracer that is being differentiated without its derivative.

    Raises:
        ArgumentTypeError: raised by functions of `jnp` for a value that is no array.

    Example:
        >>> from typing import NamedTuple
        >>> import jax
        >>> import jax.numpy as jnp
        >>> import pybridge as pb
        >>> class S(NamedTuple):
        ...     p: object
        ...     n: object
        >>> s = S(2.0, pb.NonDifferentiable(100))
        >>> gradient = jax.grad(lambda s: jnp.exp(s.p) ** 2 / s.n)(s)
        >>> round(float(gradient.p), 5)
        1.09196
        >>> gradient.n
        NonDifferentiable(100)

    In Julia the value arrives as it is, and no pullback is asked for it; what ChainRules calls
    `NoTangent` is its derivative there. The idea is from JAX's issue 2588.
    """

    __slots__ = ("_arrays", "_layout")
    _arrays: tuple[Any, ...]
    _layout: Layout

    def __init__(self, value: Any):
        """Keep the value; of another `NonDifferentiable`, its value."""
        layout, arrays = split(plain(value))
        object.__setattr__(self, "_layout", layout)
        object.__setattr__(self, "_arrays", arrays)

    @property
    def value(self) -> Any:
        """The payload."""
        return self._layout.build(self._arrays)

    def __setattr__(self, name: str, new: Any) -> None:
        """Refuse: it may be part of compiled programs."""
        raise AttributeError("a NonDifferentiable cannot be changed: make a new one")

    def __delattr__(self, name: str) -> None:
        """Refuse, as for setting."""
        raise AttributeError("a NonDifferentiable cannot be changed: make a new one")

    def __repr__(self) -> str:
        """Show the value."""
        return f"NonDifferentiable({self.value!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle the value alone."""
        return NonDifferentiable, (self.value,)


class _Hidden:
    """A node seen by those who must not see its arrays: all of it is structure.

    Attributes:
        node: the node.
        lenient: whether any other node is the same structure. JAX keeps no program under such a
            structure; an optimiser's state may well hold an older value than the parameters.
    """

    __slots__ = ("lenient", "node")

    def __init__(self, node: NonDifferentiable, lenient: bool):
        """Keep the two."""
        self.node = node
        self.lenient = lenient

    def __repr__(self) -> str:
        """Show the value, as JAX prints structures."""
        return repr(self.node.value)

    def __eq__(self, other: object) -> bool:
        """Compare the values, unless one of the two is lenient."""
        if not isinstance(other, _Hidden):
            return NotImplemented
        if self.lenient or other.lenient or self.node is other.node:
            return True
        one, two = self.node, other.node
        return one._layout == two._layout and same_arrays(one._arrays, two._arrays)

    def __hash__(self) -> int:
        """Hash what is known without looking at arrays."""
        return hash(self.node._layout)


_shown: ContextVar[bool] = ContextVar("shown", default=False)


@contextlib.contextmanager
def arrays_shown() -> Iterator[None]:
    """Inside the block every function of trees finds the arrays in a `NonDifferentiable`."""
    token = _shown.set(True)
    try:
        yield
    finally:
        _shown.reset(token)


def _flatten(node: NonDifferentiable, depth: int = 1) -> tuple[tuple[Any, ...], Any]:
    who = Asker.MOVES if _shown.get() else asker(depth)
    if (who is Asker.MOVES and node._arrays) or any(map(_is_shape, node._arrays)):
        return node._arrays, node._layout
    return (), _Hidden(node, who is Asker.DERIVES)


def _flatten_with_keys(node: NonDifferentiable) -> tuple[Any, Any]:
    children, structure = _flatten(node, 2)
    return [(jax.tree_util.GetAttrKey("value"), child) for child in children], structure


def _is_shape(x: Any) -> bool:
    """Tell what `jax.eval_shape` returns: functions of trees make arrays of it."""
    return isinstance(x, jax.ShapeDtypeStruct)


def _unflatten(structure: Any, children: Any) -> NonDifferentiable:
    if isinstance(structure, _Hidden):
        return structure.node
    # Not by __init__: JAX also builds trees of things that are no arrays.
    node = object.__new__(NonDifferentiable)
    object.__setattr__(node, "_layout", structure)
    object.__setattr__(node, "_arrays", tuple(map(detached, children)))
    return node


jax.tree_util.register_pytree_with_keys(NonDifferentiable, _flatten_with_keys, _unflatten, _flatten)


def holds_nondifferentiable(tree: Any) -> bool:
    """Tell whether there is a `NonDifferentiable` in a tree."""
    leaves, treedef = jax.tree_util.tree_flatten(tree)
    # A tuple of arrays, which has to be quick, has no other node.
    if treedef.num_nodes <= len(leaves) + 1:
        return _is_own(tree)
    return any(map(_is_own, jax.tree_util.tree_leaves(tree, is_leaf=_is_own)))


def plain(tree: Any) -> Any:
    """Put values in the place of each `NonDifferentiable` in a tree."""
    return jax.tree_util.tree_map(value_of, tree, is_leaf=_is_own)


def _is_own(x: Any) -> bool:
    return isinstance(x, NonDifferentiable)
