"""The exceptions of pybridge.

Every class derives from `BridgeError` and from the builtin that a caller who does not
know pybridge would catch. Messages follow one template, built by `explain`: what was
expected, what was got, what to do.
"""

from __future__ import annotations

from typing import Any


def explain(where: str, *, expected: str, got: str, fix: str) -> str:
    """Build an error message from the one template that pybridge uses.

    Args:
        where: the public name that was called, for example `"pb.cond"`.
        expected: what the call needed.
        got: what it was given.
        fix: what the reader can do about it.

    Returns:
        The message.
    """
    return f"{where}: expected {expected}, got {got}. {fix}"


class BridgeError(Exception):
    """The base of every exception that pybridge raises on purpose."""


class ArgumentTypeError(BridgeError, TypeError):
    """An argument has a type, dtype or tree structure that the call cannot use."""


class ArgumentValueError(BridgeError, ValueError):
    """An argument has a value or a shape that the call cannot use."""


class IndexOutOfBoundsError(BridgeError, IndexError):
    """An index is out of range where `take` or `at` was told that none is."""


class BranchMismatchError(ArgumentTypeError):
    """The branches of `cond` or `switch` return different structures or shapes."""


class ConfigError(BridgeError, ValueError):
    """A `PYBRIDGE_*` setting has a value that means nothing."""


class DetectionError(BridgeError, TypeError):
    """`within_gradient` met a value of an AD system that it cannot see into."""


class UnknownBackendError(ArgumentValueError):
    """The `backend` or `ad` argument names no AD system."""


class BackendNotLoadedError(BridgeError, ImportError):
    """The AD system exists but could not be installed or loaded here."""


class UnsupportedModeError(BridgeError, NotImplementedError):
    """The AD system cannot do what was asked, for example second order."""


class LoweringError(BridgeError, NotImplementedError):
    """A Python function cannot be lowered to Julia; the message says what and where."""


class JuliaUnavailableError(BridgeError, RuntimeError):
    """Julia, or a Julia package that pybridge needs, could not be started."""


class JuliaForkError(JuliaUnavailableError):
    """Julia was started before `os.fork`, and the child process asked for it."""


class JuliaError(BridgeError, RuntimeError):
    """An exception that was thrown inside Julia.

    Attributes:
        julia_type: the Julia exception's type, for example `"DomainError"`.
        julia_message: what `showerror` prints for it.
        julia_backtrace: the lines of the backtrace in the user's own code.
    """

    def __init__(self, julia_type: str, julia_message: str, julia_backtrace: str = ""):
        """Keep the three parts and build the message from them."""
        self.julia_type = julia_type
        self.julia_message = julia_message
        self.julia_backtrace = julia_backtrace
        text = f"Julia threw {julia_type}: {julia_message}"
        if julia_backtrace:
            text += f"\n{julia_backtrace}"
        super().__init__(text)


def first_line(error: BaseException) -> str:
    """Write type and message of an exception in one line."""
    name = error.julia_type if isinstance(error, JuliaError) else type(error).__name__
    text = error.julia_message if isinstance(error, JuliaError) else str(error)
    lines = text.strip().splitlines()
    if lines and lines[0].endswith("Traceback (most recent call last):"):
        lines = lines[-1:]  # A callback's: the message is below its traceback.
    # Julia's messages often begin with the type.
    return f"{name}: {lines[0].removeprefix(f'{name}: ')}" if lines else name


def value_and_aux(out: Any, name: str) -> tuple[Any, Any]:
    """Take apart what a function returned that is differentiated with `has_aux=True`.

    Args:
        out: what it returned.
        name: the function's.

    Raises:
        ArgumentTypeError: it is no pair.
    """
    if isinstance(out, tuple | list) and len(out) == 2:
        return out[0], out[1]
    raise ArgumentTypeError(
        explain(
            "has_aux=True",
            expected=f"{name!r} to return a pair (value, aux)",
            got=f"a {type(out).__name__}",
            fix="Return both, or leave has_aux out.",
        )
    )
