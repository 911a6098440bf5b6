"""Names of a package that are imported on first use, for those who do not need them."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence


def imported_later(
    package: str, names: Mapping[str, Sequence[str]]
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Make the functions `__getattr__` and `__dir__` of a package.

    Args:
        package: its name.
        names: for each module, relative to the package as in `from .module import name`, the names
            that it has; for `"."` the modules of the package themselves.
    """
    modules = {name: module for module, those in names.items() for name in those}

    def get_later(name: str) -> object:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if modules[name] == ".":
            return importlib.import_module(f".{name}", package)
        value = getattr(importlib.import_module(modules[name], package), name)
        setattr(sys.modules[package], name, value)  # where it is found the next time
        return value

    def list_names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *modules})

    return get_later, list_names
