"""What the constructors of layers check, and how they keep it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .._errors import ArgumentTypeError, ArgumentValueError, explain
from ._activations import rrelu
from ._layer import Layer
from ._softmax import glu, logsoftmax, logsumexp, softmax

_NOT_ELEMENTWISE = (glu, logsoftmax, logsumexp, rrelu, softmax)


def settle(layer: Layer, **fields: Any) -> None:
    """Set the fields of a frozen layer, in its constructor."""
    for name, value in fields.items():
        object.__setattr__(layer, name, value)


def function(where: str, name: str, value: Any) -> Callable[..., Any]:
    """Return an option that is a function.

    Raises:
        ArgumentTypeError: it is none.
    """
    if not callable(value):
        raise ArgumentTypeError(
            explain(
                where,
                expected=f"a function as `{name}`",
                got=repr(value),
                fix="Options other than the activation are given by name.",
            )
        )
    return value


def elementwise(where: str, activation: Any) -> Callable[..., Any]:
    """Return an activation.

    Raises:
        ArgumentTypeError: it is no function.
        ArgumentValueError: it is one of ours that needs more than an element.
    """
    if activation in _NOT_ELEMENTWISE:
        raise ArgumentValueError(
            explain(
                where,
                expected="an elementwise function as `activation`",
                got=activation.__name__,
                fix="Put it behind the layer, as a member of a Chain of its own.",
            )
        )
    return function(where, "activation", activation)


def switch(where: str, name: str, value: Any) -> bool:
    """Return an option that is on or off.

    Raises:
        ArgumentTypeError: it is no bool.
    """
    if not isinstance(value, bool):
        raise ArgumentTypeError(
            explain(
                where,
                expected=f"True or False as `{name}`",
                got=repr(value),
                fix="Arrays belong to the parameters, which `init` makes.",
            )
        )
    return value
