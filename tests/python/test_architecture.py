"""How the package is built: imports go down a list of layers, and nobody reaches into another.

The order is that of docs/explanation/how-it-is-built.md.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import pybridge as pb

PACKAGE = Path(__file__).resolve().parents[2] / "pybridge"

# From the top down. Modules of one layer belong together.
LAYERS = (
    ("__main__",),
    ("cli",),
    ("consistency",),
    ("transforms", "_finite_transforms"),
    ("lowering",),
    ("flux_models",),
    ("interop",),
    ("nn",),
    ("julia",),
    ("primitives",),
    ("finite", "_array_constants"),
    ("jaxprs",),
    ("_backends",),
    ("_errors", "_config", "_version", "_later"),
)
# The same inside of `consistency`.
CONSISTENCY = (
    ("testing",),
    ("report",),
    ("suites",),
    ("_check", "_check_run"),
    ("nan",),
    ("detectors",),
    ("subject",),
    ("findings",),
    ("_rendering", "_wording"),
)
# `nn` shows the names `from_flux` and `to_flux`, which are made above it.
SHOWN_BELOW = {("nn", "flux_models")}
MOST_LINES = 400


@dataclass(frozen=True)
class Import:
    """An import of a name of the package, wherever it stands in a module."""

    module: tuple[str, ...]
    target: tuple[str, ...]
    line: int

    def __str__(self) -> str:
        return f"{'/'.join(self.module)}.py:{self.line} imports {'.'.join(self.target)}"


# Parsed by the worker that has these tests, and not by each that collects them.
@functools.cache
def _modules() -> dict[tuple[str, ...], ast.Module]:
    """Parse all modules; a package is its `__init__`."""
    found = {}
    for file in sorted(PACKAGE.rglob("*.py")):
        parts = file.relative_to(PACKAGE).with_suffix("").parts
        found[parts] = ast.parse(file.read_text(encoding="utf-8"))
    return found


def _imports(module: tuple[str, ...]) -> Iterator[Import]:
    for node in ast.walk(_modules()[module]):
        if isinstance(node, ast.ImportFrom):
            if node.level:
                # `.` is the package that a module, or an `__init__`, belongs to.
                base = module[: len(module) - node.level]
            elif (node.module or "").split(".")[0] == "pybridge":
                base = ()
            else:
                continue
            named = tuple((node.module or "").split(".")) if node.module else ()
            named = named[1:] if not node.level else named
            for alias in node.names:
                yield Import(module, _resolved((*base, *named, alias.name)), node.lineno)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "pybridge":
                    yield Import(module, tuple(alias.name.split(".")[1:]), node.lineno)


def _resolved(names: tuple[str, ...]) -> tuple[str, ...]:
    """Cut a name off that is no module."""
    is_module = names in _modules() or (*names, "__init__") in _modules()
    return names if is_module else names[:-1]


@functools.cache
def _all_imports() -> list[Import]:
    return [found for module in _modules() for found in _imports(module)]


def _rank(layers: tuple[tuple[str, ...], ...], name: str) -> int:
    return next(i for i, layer in enumerate(layers) if name in layer)


def test_every_module_has_a_layer():
    known = {name for layer in LAYERS for name in layer}
    assert {module[0] for module in _modules()} - known == {"__init__"}


def test_imports_go_down_the_layers():
    wrong = [
        str(each)
        for each in _all_imports()
        if each.module[0] != "__init__"
        and each.target
        and (each.module[0], each.target[0]) not in SHOWN_BELOW
        and _rank(LAYERS, each.module[0]) > _rank(LAYERS, each.target[0])
    ]
    assert not wrong, "\n".join(wrong)


def test_nobody_imports_the_package_itself():
    wrong = [
        str(each) for each in _all_imports() if not each.target and each.module[0] != "__init__"
    ]
    assert not wrong, "\n".join(wrong)


def test_imports_go_down_the_parts_of_consistency():
    parts = {name for layer in CONSISTENCY for name in layer}
    wrong = []
    for each in _all_imports():
        if each.module[0] != "consistency" or each.target[:1] != ("consistency",):
            continue
        importer, imported = each.module[1], each.target[1:2]
        if importer in parts and imported and imported[0] in parts:
            if _rank(CONSISTENCY, importer) > _rank(CONSISTENCY, imported[0]):
                wrong.append(str(each))
    assert not wrong, "\n".join(wrong)


def _graph() -> dict[tuple[str, ...], set[tuple[str, ...]]]:
    """Say which module imports which; a package stands for its `__init__`."""
    graph: dict[tuple[str, ...], set[tuple[str, ...]]] = {module: set() for module in _modules()}
    for each in _all_imports():
        target = each.target if each.target in _modules() else (*each.target, "__init__")
        # A module may import its package's neighbours; what `__init__` shows is no circle.
        if target != ("__init__",) and each.module[-1] != "__init__":
            graph[each.module].add(target)
    return graph


def test_no_module_imports_itself_in_a_circle():
    graph, done, path = _graph(), set(), []
    circles = []

    def visit(module: tuple[str, ...]) -> None:
        if module in path:
            circle = path[path.index(module) :]
            circles.append(" > ".join("/".join(part) for part in [*circle, module]))
            return
        if module not in done:
            path.append(module)
            for other in sorted(graph[module]):
                visit(other)
            path.pop()
            done.add(module)

    for module in graph:
        visit(module)
    assert not circles, "\n".join(circles)


def test_packages_show_their_neighbours_what_they_have_in_init():
    """Only a package itself, and what is inside of it, knows its private modules."""
    wrong = []
    for each in _all_imports():
        private = [i for i, name in enumerate(each.target) if name.startswith("_")]
        if not private:
            continue
        owner = each.target[: private[0]]
        if each.module[: len(owner)] != owner:
            wrong.append(str(each))
    assert not wrong, "\n".join(wrong)


def _is_reexport(node: ast.stmt) -> bool:
    if isinstance(node, ast.ImportFrom):
        return all(a.asname in (a.name, f"_{a.name}") for a in node.names)
    if isinstance(node, ast.If):
        return getattr(node.test, "id", "") == "_TYPE_CHECKING" and all(
            map(_is_reexport, node.body)
        )
    if isinstance(node, ast.Assign):  # names that are imported on first use
        call = node.value
        return isinstance(call, ast.Call) and getattr(call.func, "id", "") == "_imported_later"
    return False


def _names_imported_later(module: tuple[str, ...]) -> list[tuple[str, str]]:
    """Read which module has which name, as `_imported_later` is told."""
    for node in _modules()[module].body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            groups = ast.literal_eval(node.value.args[1])
            return [(place, name) for place, names in groups.items() for name in names]
    return []


def _names_for_type_checkers(module: tuple[str, ...]) -> list[tuple[str, str]]:
    blocks = [node for node in _modules()[module].body if isinstance(node, ast.If)]
    return [
        ("." * node.level + (node.module or ""), alias.name)
        for block in blocks
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    ]


INITS = sorted(
    (*file.relative_to(PACKAGE).parent.parts, "__init__") for file in PACKAGE.rglob("__init__.py")
)


@pytest.mark.parametrize("module", INITS, ids=["/".join(module) for module in INITS])
def test_init_files_hold_reexports_alone(module):
    body = _modules()[module].body
    assert ast.get_docstring(_modules()[module])
    other = [node.lineno for node in body[1:] if not _is_reexport(node)]
    assert not other, f"lines {other}"


@pytest.mark.parametrize("module", INITS, ids=["/".join(module) for module in INITS])
def test_type_checkers_see_the_names_that_are_imported_later(module):
    assert sorted(_names_imported_later(module)) == sorted(_names_for_type_checkers(module))


def test_every_public_name_can_be_imported():
    for name in dir(pb):
        assert getattr(pb, name) is not None


def test_files_are_short():
    sizes = {
        file.relative_to(PACKAGE): len(file.read_text(encoding="utf-8").splitlines())
        for file in PACKAGE.rglob("*.py")
    }
    assert not {str(file): n for file, n in sizes.items() if n > MOST_LINES}
