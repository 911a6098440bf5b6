"""Training or test: where the user's word and the detection meet, once for all layers."""

from __future__ import annotations

import dataclasses
import sys
import warnings
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

from .._errors import ArgumentTypeError, explain
from ..primitives import cond, is_differentiating

_LIBRARIES = ("pybridge.", "jax.", "contextlib")


class ModeWarning(UserWarning):
    """An explicit `training=` contradicts what `is_differentiating` finds."""


@dataclasses.dataclass(frozen=True, repr=False)
class Mode:
    """Whether a layer trains: a bool, or under `jit` a traced one.

    Attributes:
        training: bool scalar, concrete or traced.
        watched: the values whose derivative "auto" asks for; None where the mode is
            explicit.
    """

    training: Any
    watched: Any = None

    @property
    def is_known(self) -> bool:
        """Whether the answer is concrete, so that only one of the two ways is needed."""
        return not isinstance(self.training, Tracer)

    def choose(self, train: Callable[..., Any], test: Callable[..., Any], *operands: Any) -> Any:
        """Return `train(*operands)` in training, else `test(*operands)`.

        Both have to return the same tree of the same shapes and dtypes. A compiled
        program in "auto" mode holds only the one that is taken.
        """
        if self.is_known:
            return (train if self.training else test)(*operands)
        return cond(self.training, train, test, *operands)

    def refuse_training(self, error: Exception) -> Mode:
        """Raise `error` if this is training: at once, or when a derivative is taken.

        A program traced in "auto" mode does not know yet whether it will be
        differentiated, and may be a test program that works as it stands.

        Returns:
            The mode to go on with, the same for test programs.
        """
        if self.is_known:
            if self.training:
                raise error
            return self
        if self.watched is None:  # traced and explicit: decided when the program runs
            raise error
        watched = _when_differentiated(_raiser(error), self.watched)
        return Mode(is_differentiating(watched), watched)


def resolve_training(training: Any, *values: Any) -> tuple[Mode, tuple[Any, ...]]:
    """Settle the mode of a layer.

    Args:
        training: True, False, a traced bool scalar, or "auto".
        *values: what "auto" asks for a derivative: parameters and input.

    Returns:
        The mode, the explicit one where there is one, and the values to go on with.

    Raises:
        ArgumentTypeError: `training` is something else.

    Warns:
        ModeWarning: an explicit mode contradicts the detection, now or (a test program
            under `jit`) when it is differentiated.

    The twin in Julia is `PyBridge.resolve_training`. LuxLib's `static_training_mode` has
    the same rule.
    """
    if isinstance(training, str) and training == "auto":
        return Mode(is_differentiating(*values), values), values
    if isinstance(training, bool | np.bool_):
        return Mode(bool(training)), _contradicted(bool(training), values)
    if getattr(training, "dtype", None) == np.bool_ and np.ndim(training) == 0:
        return Mode(training), values
    raise ArgumentTypeError(
        explain(
            "Layer.apply",
            expected='True, False or "auto" as `training`',
            got=repr(training),
            fix='"auto" trains where parameters or input carry a derivative.',
        )
    )


def _contradicted(training: bool, values: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return `values`; warn if they are differentiated in test mode, or not in training."""
    detected = is_differentiating(*values)
    found = "no derivative is" if training else "a derivative is"
    text = (
        f"training={training} was given, but {found} being taken of the parameters or the "
        'input. The explicit mode wins; training="auto" would choose the other one.'
    )

    def warn() -> None:
        warnings.warn(text, ModeWarning, stacklevel=_users_frame())

    if not isinstance(detected, Tracer):
        if bool(detected) != training:
            warn()
    elif not training:
        # The program under `jit` may be differentiated as a whole, later.
        return _when_differentiated(warn, values)
    return values


def _users_frame() -> int:
    """Return the `stacklevel`, for the caller, of the nearest frame of the user's."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back and frame.f_globals.get("__name__", "").startswith(_LIBRARIES):
        level, frame = level + 1, frame.f_back
    return level


def _when_differentiated(action: Callable[[], None], values: Any) -> Any:
    """Return `values`; call `action` if a derivative of them is taken."""

    @jax.custom_jvp
    def unchanged(values: Any) -> Any:
        return values

    @unchanged.defjvp
    def _(primals: Any, tangents: Any) -> Any:
        action()
        return primals[0], tangents[0]

    leaves, tree = jax.tree.flatten(values)
    # The others have no derivative, and those of NumPy would no longer be known under `jit`.
    moving = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tracer)]
    for i, leaf in zip(moving, unchanged([leaves[i] for i in moving]), strict=True):
        leaves[i] = leaf
    return jax.tree.unflatten(tree, leaves)


def _raiser(error: Exception) -> Callable[[], None]:
    def raise_it() -> None:
        raise error

    return raise_it
