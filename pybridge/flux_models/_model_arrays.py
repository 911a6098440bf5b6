"""The arrays of a Flux model: a flat tuple in Julia, a pytree in JAX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._errors import ArgumentTypeError, ArgumentValueError, explain


class ModelArrays:
    """The parameters, or the state, of a model: their tree, shapes and dtypes."""

    def __init__(self, name: str, text: Any):
        """Take the description from `model_text` in PyBridgeFluxExt.jl.

        Args:
            name: `"params"` or `"state"`.
            text: `{"arrays": [{"dtype", "shape"}, ...], "tree": numbers of arrays}`.
        """
        self._name = name
        self._dtypes = [np.dtype(array["dtype"]) for array in text["arrays"]]
        self._shapes = [tuple(array["shape"]) for array in text["arrays"]]
        # JAX sorts the keys of dicts, Julia keeps fields in order: leaf i is array order[i].
        self._order, self._treedef = jax.tree.flatten(_tuples(text["tree"]))
        leaves, _ = jax.tree_util.tree_flatten_with_path(_tuples(text["tree"]))
        self._paths = [f"{name}{jax.tree_util.keystr(path)}" for path, _ in leaves]

    def tree(self, arrays: Any, dtype: Any) -> Any:
        """Build the pytree.

        Args:
            arrays: one for each array of the model.
            dtype: what to convert to, or None.

        Raises:
            ArgumentTypeError: JAX cannot hold an array at the present x64 setting.
        """
        leaves = []
        for number, path in zip(self._order, self._paths, strict=True):
            wanted = arrays[number].dtype if dtype is None else np.dtype(dtype)
            if jax.dtypes.canonicalize_dtype(wanted) != wanted:
                raise ArgumentTypeError(
                    explain(
                        "FluxModel.init",
                        expected="arrays that JAX can hold with x64 off (32 bits at most)",
                        got=f"{wanted} for {path}",
                        fix="Pass dtype=jnp.float32, or enable x64 with "
                        'jax.config.update("jax_enable_x64", True).',
                    )
                )
            leaves.append(jnp.asarray(arrays[number], wanted))
        return jax.tree.unflatten(self._treedef, leaves)

    def arrays(self, tree: Any, convert: Callable[[Any], Any] = jnp.asarray) -> tuple[Any, ...]:
        """Return the arrays of a pytree that was checked, in Julia's order."""
        leaves = jax.tree.leaves(tree)
        found: list[Any] = [None] * len(leaves)
        for number, leaf in zip(self._order, leaves, strict=True):
            found[number] = convert(leaf)
        return tuple(found)

    def check(self, where: str, tree: Any, *, dtypes: bool = False) -> None:
        """Refuse a pytree that does not fit.

        Args:
            where: the public name that was called.
            tree: the pytree.
            dtypes: whether the dtypes have to be the model's; else any inexact one will do.

        Raises:
            ArgumentTypeError: tree or dtype differ; the message has the path.
            ArgumentValueError: a shape differs; the message has the path.
        """
        leaves, treedef = jax.tree.flatten(tree)
        if treedef != self._treedef:
            raise self._other_tree(where, tree)
        for number, path, leaf in zip(self._order, self._paths, leaves, strict=True):
            dtype = leaf.dtype if hasattr(leaf, "dtype") else None
            fits = dtype == self._dtypes[number] if dtypes else _is_inexact(dtype)
            if not fits:
                raise ArgumentTypeError(
                    explain(
                        where,
                        expected=f"{self._dtypes[number]} for {path}",
                        got=str(dtype or f"a {type(leaf).__name__}"),
                        fix="Convert it with .astype: Flux's arrays keep their element type."
                        if dtypes
                        else "Weights are floating-point arrays.",
                    )
                )
            if np.shape(leaf) != self._shapes[number]:
                raise ArgumentValueError(
                    explain(
                        where,
                        expected=f"shape {self._shapes[number]} for {path}",
                        got=f"shape {np.shape(leaf)}",
                        fix="Axes are Julia's, reversed: a Flux weight of size (out, in) has "
                        "shape (in, out).",
                    )
                )

    def _other_tree(self, where: str, tree: Any) -> ArgumentTypeError:
        found, _ = jax.tree_util.tree_flatten_with_path(tree)
        paths = [f"{self._name}{jax.tree_util.keystr(path)}" for path, _ in found]
        lacking = [path for path in self._paths if path not in paths]
        unknown = [path for path in paths if path not in self._paths]
        if lacking:
            expected, got = f"an array at {lacking[0]}", "none there"
        elif unknown:
            expected, got = f"{self._name} as `init` gives them", f"a leaf at {unknown[0]}"
        else:
            expected, got = (
                f"{self._name} of the tree {self._treedef}",
                str(jax.tree.structure(tree)),
            )
        return ArgumentTypeError(
            explain(
                where,
                expected=expected,
                got=got,
                fix="`params, state = model.init()` makes them; they are passed in this order.",
            )
        )


def _tuples(tree: Any) -> Any:
    """Make tuples of JSON's lists."""
    if isinstance(tree, list):
        return tuple(map(_tuples, tree))
    return {k: _tuples(v) for k, v in tree.items()} if isinstance(tree, dict) else tree


def _is_inexact(dtype: Any) -> bool:
    return dtype is not None and bool(jnp.issubdtype(dtype, np.inexact))
