"""The version of the installed package."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def package_version() -> str:
    """Read pybridge's version; a checkout that is not installed has none."""
    try:
        return version("pybridge")
    except PackageNotFoundError:
        return "not installed"
