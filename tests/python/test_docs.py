"""What the documentation shows is what happens: code blocks, docstrings, names, links.

A code block that needs Julia stands below the comment `<!-- needs: julia -->`; those run in
`tests/bridge/test_docs_julia.py`, which takes its tools from here.
"""

from __future__ import annotations

import contextlib
import doctest
import importlib
import inspect
import pkgutil
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

import jax
import pytest

import pybridge as pb

ROOT = Path(__file__).resolve().parents[2]
ROOTS = [ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")]
PAGES = [*ROOTS, *sorted((ROOT / "docs").rglob("*.md"))]
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]
OPTIONS = doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL

_NEED_JULIA = ("from_julia(", "to_julia(", "backends()", "flux(")

_FENCE = re.compile(
    r"(?P<julia><!-- needs: julia -->\n)?^```(?P<language>\w*)\n(?P<code>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Block:
    """A code block of a page."""

    code: str
    line: int
    julia: bool


def code_blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [
        Block(match["code"], text.count("\n", 0, match.start("code")), bool(match["julia"]))
        for match in _FENCE.finditer(text)
        if match["language"] == "python"
    ]


def skip_without_peers(blocks: list[Block]) -> None:
    """Skip where a package of the extra `peers` is missing that a block imports."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    peers = re.findall(r"[\w-]+", " ".join(project["optional-dependencies"]["peers"]))
    for block in blocks:
        for name in re.findall(r"^>>> (?:import|from) (\w+)", block.code, re.MULTILINE):
            if name in peers:
                pytest.importorskip(name, reason=f'needs {name}: pip install -e ".[peers]"')


def run_page(page: Path, *, julia: bool) -> int:
    """Run a page's blocks in one namespace; return how many examples ran."""
    globs: dict[str, object] = {"__name__": "__main__"}
    ran = 0
    blocks = [block for block in code_blocks(page) if julia or not block.julia]
    skip_without_peers(blocks)
    for block in blocks:
        test = doctest.DocTestParser().get_doctest(
            block.code, globs, page.name, str(page), block.line
        )
        assert test.examples, f"{page.name}:{block.line}: a block without >>> is not checked"
        test.globs = globs  # and not its copy: the next block goes on from here
        ran += len(test.examples)
        run_doctest(test)
    return ran


def run_doctest(test: doctest.DocTest) -> None:
    """Run a doctest as a user would, without the tests' strict promotion."""
    report: list[str] = []
    runner = doctest.DocTestRunner(optionflags=OPTIONS, verbose=False)
    with jax.numpy_dtype_promotion("standard"):
        outcome = runner.run(test, out=report.append, clear_globs=False)
    assert outcome.failed == 0, "".join(report)


def docstrings(*, julia: bool) -> list[doctest.DocTest]:
    """Find the docstrings with examples that need Julia, or those that do not."""
    finder, found = doctest.DocTestFinder(exclude_empty=True), []
    for info in pkgutil.walk_packages(pb.__path__, "pybridge."):
        if info.name.endswith("__main__"):
            continue
        module = importlib.import_module(info.name)
        for test in finder.find(module, info.name, globs={}):
            source = "".join(example.source for example in test.examples)
            needs = any(name in source for name in _NEED_JULIA)
            if test.examples and needs == julia:
                found.append(test)
    return found


@pytest.mark.parametrize("name", NAMES)
def test_blocks_without_julia(name):
    page = ROOT / name
    ran = run_page(page, julia=False)
    assert bool(ran) == any(not block.julia for block in code_blocks(page))


@pytest.mark.parametrize("test", docstrings(julia=False), ids=lambda test: test.name)
def test_docstring(test):
    run_doctest(test)


def public_names() -> list[str]:
    return [
        name
        for name in dir(pb)
        if not name.startswith("_") and not inspect.ismodule(getattr(pb, name))
    ]


def test_reference_has_every_public_name_and_no_other():
    text = (ROOT / "docs/reference.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| `pb\.(\w+)", text, re.MULTILINE)
    assert sorted(listed) == sorted(public_names())


@pytest.mark.parametrize(
    "name", [name for name in public_names() if inspect.isfunction(getattr(pb, name))]
)
def test_reference_has_the_signature(name):
    text = (ROOT / "docs/reference.md").read_text(encoding="utf-8")
    signature = inspect.signature(getattr(pb, name))
    bare = signature.replace(
        parameters=[
            parameter.replace(annotation=inspect.Parameter.empty)
            for parameter in signature.parameters.values()
        ],
        return_annotation=inspect.Signature.empty,
    )
    assert f"`pb.{name}{bare}`".replace("'", '"') in text


def test_reference_has_the_builtin_of_every_error():
    text = (ROOT / "docs/reference.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `pb\.(\w+)` \| `(\w+)` \|", text, re.MULTILINE))
    for name, builtin in rows.items():
        bases = [base.__name__ for base in getattr(pb, name).__mro__]
        assert builtin in bases, (name, bases)


def test_the_api_page_has_every_public_name_and_no_other():
    from pybridge import nn

    listed = re.findall(r"^::: (\S+)$", (ROOT / "docs/api.md").read_text("utf-8"), re.MULTILINE)
    public = {
        f"{module.__name__}.{name}"
        for module in (pb, nn, nn.losses)
        for name in dir(module)
        if not name.startswith("_") and callable(getattr(module, name))
    }
    assert sorted(listed) == sorted(public)


def test_configuration_has_every_setting():
    from pybridge._config import settings

    text = (ROOT / "docs/configuration.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^\| `(PYBRIDGE_\w+)`", text, re.MULTILINE))
    assert listed == {setting.name for setting in settings()}


TABLES = {
    "docs/inside-a-gradient.md": ("pybridge check --markdown", "scenarios"),
    "docs/explanation/conventions.md": (
        "pybridge check --suite conventions --markdown",
        "conventions",
    ),
}


@pytest.mark.parametrize("page", TABLES)
def test_generated_table_has_every_scenario_and_system(page):
    from pybridge._backends import NAMES as systems
    from pybridge.consistency import load_scenarios

    command, cases = TABLES[page]
    text = (ROOT / page).read_text(encoding="utf-8")
    begin, end = f"<!-- generated: {command} -->", "<!-- end -->"
    assert text.count(begin) == text.count(end) == 1
    table = text.split(begin)[1].split(end)[0]
    again = "run `python docs/update_tables.py`"
    assert f"| scenario | {' | '.join(systems)} |" in table, again
    rows = re.findall(r"^\| `([\w-]+)` \|", table, re.MULTILINE)
    assert rows == [scenario.name for scenario in load_scenarios(cases)], again


def slugs(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", h.lower()).strip().replace(" ", "-") for h in headings}


@pytest.mark.parametrize("name", NAMES)
def test_links_lead_somewhere(name):
    page = ROOT / name
    text = page.read_text(encoding="utf-8")
    text = re.sub(r"```.*?```|`[^`]+`", "", text, flags=re.DOTALL)  # code has no links
    for target in re.findall(r"\]\(([^)]+)\)", text):
        if target.startswith(("https://", "http://")):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.is_file(), f"{name}: {target}"
        if page.is_relative_to(ROOT / "docs"):
            assert file.is_relative_to(ROOT / "docs"), f"{name}: {target} is not on the site"
        assert not anchor or anchor in slugs(file), f"{name}: {target}"


def test_every_page_is_in_the_navigation():
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    listed = re.findall(r": ([\w/-]+\.md)$", text, re.MULTILINE)
    pages = [page.relative_to(ROOT / "docs").as_posix() for page in PAGES[len(ROOTS) :]]
    assert sorted(listed) == sorted(pages)


def shell_commands(page: Path) -> list[str]:
    blocks = re.findall(r"^```sh\n(.*?)^```$", page.read_text(encoding="utf-8"), re.M | re.S)
    return [line for block in blocks for line in block.splitlines() if not line.startswith("#")]


def test_readme_has_two_commands_with_extras_that_there_are():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    first, second = shell_commands(ROOT / "README.md")
    assert first.endswith(".venv/bin/pip install -e . && .venv/bin/pybridge check")
    assert second.startswith('.venv/bin/pip install -e ".[test]" && .venv/bin/python -m pytest')
    assert "test" in project["optional-dependencies"]
    assert "pybridge" in project["scripts"]


@pytest.mark.parametrize("name", ["CONTRIBUTING.md", "docs/getting-started.md"])
def test_commands_that_install_and_test_are_those_that_ci_runs(name):
    ci = (ROOT / ".ci/run").read_text(encoding="utf-8")
    workflow = (ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8")
    commands = shell_commands(ROOT / name)
    assert commands
    for command in commands:
        if command not in shell_commands(ROOT / "README.md"):
            assert command.replace(".venv/bin/", "") in ci + workflow, command


def test_a_wrong_result_fails(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("```python\n>>> 1 + 1\n3\n\n```\n", encoding="utf-8")
    with pytest.raises(AssertionError, match="Expected"):
        run_page(page, julia=False)


def test_blocks_share_a_namespace_and_julia_waits(tmp_path):
    page = tmp_path / "page.md"
    later = "<!-- needs: julia -->\n```python\n>>> 1 / 0\n\n```\n"
    page.write_text(
        f"```python\n>>> a = 1\n\n```\n{later}```python\n>>> a\n1\n\n```\n",
        encoding="utf-8",
    )
    assert run_page(page, julia=False) == 2
    with contextlib.suppress(AssertionError):
        run_page(page, julia=True)
        pytest.fail("the block that needs Julia did not run")


def test_reference_has_every_name_of_nn_and_no_other():
    from pybridge import nn

    text = (ROOT / "docs/reference.md").read_text(encoding="utf-8")
    names = [n for n in dir(nn) if callable(getattr(nn, n)) and not n.startswith("_")]
    assert sorted(set(re.findall(r"`nn\.(\w+)", text))) == sorted(names)
