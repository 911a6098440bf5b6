"""JAX's transforms on Python functions with a Julia back end: lower, flatten, differentiate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from .._errors import ArgumentTypeError, explain
from ..interop import julia_derivatives
from ._arguments import canonical_leaves
from ._lower import Lowered, as_jax, lowered

Numbers = tuple[int, ...]


class _Flat:
    """A function lowered for its arguments, with the numbers of the leaves to differentiate."""

    def __init__(
        self,
        f: Callable[..., Any],
        args: tuple[Any, ...],
        numbers: Numbers,
        kwargs: dict[str, Any] | None = None,
        *,
        has_aux: bool = False,
        where: str = "",
    ):
        if where:
            julia_derivatives.check_inexact(args, numbers, where)
        leaves, in_tree = jax.tree.flatten(args)
        self.numbers, self.trees = numbers, in_tree.children()
        groups: list[range] = []
        for tree in self.trees:
            start = groups[-1].stop if groups else 0
            groups.append(range(start, start + tree.num_leaves))
        self.leaves = tuple(canonical_leaves(leaves))
        self.leaf_numbers = tuple(i for n in numbers for i in groups[n])
        self.lowered: Lowered = lowered(
            f,
            args,
            kwargs=kwargs,
            has_aux=has_aux,
            wrt=self.leaf_numbers,
            flattened=(leaves, self.leaves, in_tree),
        )

    def value(self, tree: Any) -> Any:
        """Give the value the Python function's structure."""
        leaves = [as_jax(leaf) for leaf in jax.tree.leaves(tree)]
        return jax.tree.unflatten(self.lowered.out_tree, leaves)

    def like_arguments(self, blocks: Sequence[Any], single: bool) -> Any:
        """Put one result for each differentiated leaf in the arguments' structures."""
        queue, trees = iter(blocks), []
        for n in self.numbers:
            tree = self.trees[n]
            found = [as_jax(next(queue)) for _ in range(tree.num_leaves)]
            trees.append(jax.tree.unflatten(tree, found))
        return trees[0] if single else tuple(trees)


def value_and_grad(
    f: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    numbers: Numbers,
    backend: str,
    has_aux: bool,
) -> tuple[Any, tuple[Any, ...]]:
    """Value (with `has_aux`, value and aux) and one gradient for each argument in `numbers`."""
    flat = _Flat(f, args, numbers, kwargs, has_aux=has_aux, where="grad")
    _check_scalar(flat.lowered, has_aux)
    value, gradients = julia_derivatives.value_and_grad(
        flat.lowered.function, flat.leaves, flat.leaf_numbers, backend, has_aux
    )
    return flat.value(value), flat.like_arguments(gradients, False)


def jvp(
    f: Callable[..., Any], primals: tuple[Any, ...], tangents: tuple[Any, ...], backend: str
) -> tuple[Any, Any]:
    """Value and tangent of the value."""
    flat = _Flat(f, primals, tuple(range(len(primals))))
    if jax.tree.structure(primals) != jax.tree.structure(tangents):
        julia_derivatives.tangents_like(primals, tangents)  # which complains
    directions = tuple(jax.tree.leaves(tangents))
    value, tangent = julia_derivatives.jvp(flat.lowered.function, flat.leaves, directions, backend)
    moved = [
        t if np.issubdtype(y.dtype, np.inexact) else np.zeros(np.shape(y), jax.dtypes.float0)
        for y, t in zip(jax.tree.leaves(value), jax.tree.leaves(tangent), strict=True)
    ]
    return flat.value(value), flat.value(moved)


def vjp(
    f: Callable[..., Any], primals: tuple[Any, ...], backend: str
) -> tuple[Any, Callable[[Any], tuple[Any, ...]]]:
    """Value, and the function that pulls a cotangent of it back to all arguments."""
    numbers = tuple(range(len(primals)))
    flat = _Flat(f, primals, numbers)
    value, pull = julia_derivatives.vjp(flat.lowered.function, flat.leaves, backend)
    flat_tree = jax.tree.structure(value)

    def pull_back(cotangent: Any) -> tuple[Any, ...]:
        leaves, tree = jax.tree.flatten(cotangent)
        if tree != flat.lowered.out_tree:
            raise ArgumentTypeError(
                explain(
                    "the function that pb.vjp returns",
                    expected=f"a cotangent of the value's structure {flat.lowered.out_tree}",
                    got=f"{tree}",
                    fix="Pass a tree like the value.",
                )
            )
        found = pull(jax.tree.unflatten(flat_tree, leaves))
        return flat.like_arguments(found, False)

    return flat.value(value), pull_back


def jacobian(
    f: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    numbers: Numbers,
    backend: str,
    single: bool,
) -> Any:
    """The value's tree of the arguments' trees; a tuple of those unless `single`."""
    flat = _Flat(f, args, numbers, kwargs, where="jacobian")
    found = julia_derivatives.jacobian(
        flat.lowered.function, flat.leaves, flat.leaf_numbers, backend, False
    )
    outs = flat.lowered.out_tree.num_leaves
    rows = [found] if outs == 1 else list(found)
    return jax.tree.unflatten(
        flat.lowered.out_tree, [flat.like_arguments(row, single) for row in rows]
    )


def hessian(
    f: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    numbers: Numbers,
    backend: str,
    single: bool,
) -> Any:
    """The arguments' trees of the arguments' trees; tuples of those unless `single`."""
    flat = _Flat(f, args, numbers, kwargs, where="hessian")
    _check_scalar(flat.lowered, False)
    rows = julia_derivatives.hessian(
        flat.lowered.function, flat.leaves, flat.leaf_numbers, backend, False
    )
    queue, trees = iter(rows), []
    for n in numbers:
        leaves, tree = jax.tree.flatten(args[n])
        trees.append(
            jax.tree.unflatten(tree, [flat.like_arguments(next(queue), single) for _ in leaves])
        )
    return trees[0] if single else tuple(trees)


def _check_scalar(lowered: Lowered, has_aux: bool) -> None:
    avals = lowered.jaxpr.out_avals
    first = avals[0] if avals and (has_aux or len(avals) == 1) else None
    if first is None or first.shape != () or not np.issubdtype(first.dtype, np.floating):
        shown = ", ".join(aval.str_short() for aval in avals[: 1 if has_aux else None]) or "nothing"
        raise ArgumentTypeError(
            explain(
                "pb.grad",
                expected="a function whose value is one real number",
                got=f"{lowered.name!r}, which returns {shown}",
                fix="Reduce the value, for example with jnp.sum, or use pb.jacobian or pb.vjp.",
            )
        )
