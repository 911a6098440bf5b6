"""Every setting of pybridge, read from `PYBRIDGE_*` environment variables.

A setting remembers where its value came from, so that an error or `pybridge doctor` can say
it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from ._errors import ConfigError, explain


@dataclass(frozen=True)
class Setting:
    """A setting as it stands.

    Attributes:
        name: the environment variable.
        value: its value; None where it is unset and has no default.
        origin: where the value came from: the variable as it was written, or `"default"`.
        meaning: what it is for, in a few words.
    """

    name: str
    value: str | int | bool | None
    origin: str
    meaning: str


_TEXT = {
    "PYBRIDGE_JULIA": "path of the julia executable to use",
    "PYBRIDGE_CHECK_BACKENDS": "AD systems that pb.check runs Python functions with: jax,zygote",
    "PYBRIDGE_ENVIRONMENTS": "folder for the AD systems' own Julia environments",
}
_BYTES = {
    "PYBRIDGE_PULLBACK_BYTES": "memory that forward passes may fill with pullbacks for their "
    "backward passes; 0: those run the forward pass again",
}
_SWITCH = {
    "PYBRIDGE_FFI": "let compiled programs call Julia directly; off: through Python",
    "PYBRIDGE_KEEP_MEMORY": "let malloc keep what is freed for the next arrays, from Julia's start",
    "PYBRIDGE_SYSIMAGE": "start Julia from the image that `pybridge provision --sysimage` built",
    "PYBRIDGE_OFFLINE": "make the AD systems' environments from what is downloaded already",
    "PYBRIDGE_REQUIRE_JULIA": "tests that need Julia fail instead of being skipped",
}
_ON_BY_DEFAULT = {"PYBRIDGE_FFI", "PYBRIDGE_KEEP_MEMORY", "PYBRIDGE_SYSIMAGE"}
_TRUE, _FALSE = {"1", "yes", "true", "on"}, {"0", "no", "false", "off", ""}


def setting(name: str) -> Setting:
    """Read one setting.

    Args:
        name: one of the `PYBRIDGE_*` names.

    Returns:
        The setting with its origin.

    Raises:
        ConfigError: a switch has a value that is neither yes nor no, a number of bytes one that
            is no number.
    """
    raw = os.environ.get(name)
    origin = "default" if raw is None else f"environment variable {name}={raw}"
    if name in _TEXT:
        return Setting(name, raw or None, origin, _TEXT[name])
    if name in _BYTES:
        if raw and not (raw.isascii() and raw.isdigit()):
            raise _refused(name, "a number of bytes, as digits", "a number")
        return Setting(name, int(raw) if raw else None, origin, _BYTES[name])
    word = (raw or ("on" if name in _ON_BY_DEFAULT else "")).strip().lower()
    if word not in _TRUE | _FALSE:
        raise _refused(name, "yes or no (1 or 0, true or false, on or off)", "one of those")
    return Setting(name, word in _TRUE, origin, _SWITCH[name])


def _refused(name: str, expected: str, instead: str) -> ConfigError:
    """Make the error of a variable whose value cannot be read; `instead` is what to set it to."""
    meaning = (_BYTES | _SWITCH)[name]
    return ConfigError(
        explain(
            f"environment variable {name}",
            expected=expected,
            got=repr(os.environ.get(name)),
            fix=f"It means: {meaning}. Set it to {instead}, or unset it.",
        )
    )


def settings() -> list[Setting]:
    """Read all settings, in the order in which the documentation lists them."""
    return [setting(name) for name in (*_TEXT, *_BYTES, *_SWITCH)]
