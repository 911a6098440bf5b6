"""Names of a package that are imported on first use, for those who do not need them."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping


def imported_later(
    package: str, names: Mapping[str, str]
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Make the functions `__getattr__` and `__dir__` of a package.

    Args:
        package: its name.
        names: for each name the module that has it, relative to the package; that of the module
            itself where they agree.
    """

    def get_later(name: str) -> object:
        if name not in names:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        place = names[name] if names[name].startswith(".") else f".{names[name]}"
        module = importlib.import_module(place, package)
        found = module if name == names[name] else getattr(module, name)
        return vars(sys.modules[package]).setdefault(name, found)

    def list_names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *names})

    return get_later, list_names
