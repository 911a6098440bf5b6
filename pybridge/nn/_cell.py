"""What every recurrent cell is: one step, with the hidden state handed in and out."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from .._errors import ArgumentTypeError, ArgumentValueError, explain
from ._dtypes import input_array, match_dtype
from ._layer import Layer
from ._mode import Mode


class Cell(Layer):
    """The base of recurrent cells: what `Recurrence` carries along a sequence.

    To write a cell, derive a frozen dataclass and define `init`, `initial_hidden` and `step`.

    Example:
        >>> import dataclasses
        >>> import jax.numpy as jnp
        >>> import pybridge as pb
        >>> @dataclasses.dataclass(frozen=True)
        ... class Sum(pb.nn.Cell):
        ...     size: int
        ...     def initial_hidden(self, params, batch):
        ...         return jnp.zeros((*batch, self.size))
        ...     def step(self, params, x, hidden):
        ...         return hidden + x, hidden + x
        >>> pb.nn.Recurrence(Sum(1)).apply({}, {}, jnp.ones((3, 1)))[0].tolist()
        [[1.0], [2.0], [3.0]]
    """

    def initial_hidden(self, params: Any, batch: tuple[int, ...]) -> Any:
        """Return the hidden state to start from, a pytree of arrays (*batch, ...).

        The twin in Julia is `PyBridge.initial_hidden(cell, params, batch...)`, Flux's is
        `initialstates`.
        """
        raise NotImplementedError(f"{type(self).__name__} has to define `initial_hidden`")

    def prepare(self, params: Any, x: Any) -> Any:
        """Return what of `step` does not depend on the hidden state, for all steps at once.

        Args:
            params: as `apply` has checked them.
            x: one input or a sequence of them, features last.
        """
        return jnp.asarray(x)

    def step(self, params: Any, x: Any, hidden: Any) -> tuple[Any, Any]:
        """Return the output and the next hidden state; `x` is what `prepare` made of one input."""
        raise NotImplementedError(f"{type(self).__name__} has to define `step`")

    def forward(
        self, params: Any, state: Any, x: Any, *, key: Any, mode: Mode, hidden: Any = None
    ) -> tuple[Any, Any]:
        """Take one step: return `((y, hidden), state)`; see `Layer.forward`."""
        where = type(self).__name__
        x = input_array(where, x)
        batch = jnp.shape(x)[:-1]
        prepared = self.prepare(params, x)
        return self.step(params, prepared, starting(where, self, params, batch, hidden)), state


def starting(where: str, cell: Cell, params: Any, batch: tuple[int, ...], hidden: Any) -> Any:
    """Return the hidden state to start from, one for each sequence of the batch.

    Raises:
        ArgumentTypeError: the one given has another tree, or holds no numbers.
        ArgumentValueError: it has neither one state for all nor one for each of the batch.
    """
    zeros = cell.initial_hidden(params, batch)
    if hidden is None:
        return zeros
    single = jax.eval_shape(lambda params: cell.initial_hidden(params, ()), params)
    fix = "Leave `hidden` out to start from zeros, or pass what the last call returned."
    if jax.tree.structure(hidden) != jax.tree.structure(single):
        pair = isinstance(single, tuple)
        raise ArgumentTypeError(
            explain(
                f"{where}.apply",
                expected=f"`hidden` as {'a tuple (h, c)' if pair else 'the cell makes it'}, "
                f"{_shapes(zeros)}",
                got=f"{_shapes(hidden)}",
                fix=fix,
            )
        )

    def widened(given: Any, one: Any, zero: jax.Array) -> jax.Array:
        shape = jnp.shape(input_array(f"{where}.apply", given))
        if shape not in (one.shape, zero.shape):
            raise ArgumentValueError(
                explain(
                    f"{where}.apply",
                    expected=f"`hidden` of shape {zero.shape}, or {one.shape} for the whole batch",
                    got=f"shape {shape}",
                    fix=fix,
                )
            )
        return jnp.broadcast_to(match_dtype(where, given, zero), zero.shape)

    return jax.tree.map(widened, hidden, single, zeros)


def _shapes(tree: Any) -> str:
    return str(jax.tree.map(jnp.shape, tree))
