"""The pytest plugin of pybridge: `ad_system`, `assert_consistent`, `--ad-systems`.

pytest loads this module in every run of every project of the environment. So it stands beside
the package and not in it, and imports nothing but pytest: `import pybridge` brings JAX along,
before a project's `conftest.py` can say which platform and which precision JAX shall have.
pybridge is imported when a test asks for one of the fixtures, Julia starts when such a test runs.

The name of the entry point is the name of the module: then `-p pybridge_pytest`,
`pytest_plugins = ["pybridge_pytest"]` and the installed entry point are one plugin, not two.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

_MARKER = "ad_systems"
_OPTION = "--ad-systems"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option."""
    parser.getgroup("pybridge", "AD systems").addoption(
        _OPTION,
        metavar="NAMES",
        default=None,
        help="run tests of AD systems on these only, e.g. --ad-systems=jax,finite",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker, and refuse unknown names before anything is collected."""
    config.addinivalue_line(
        "markers",
        f"{_MARKER}(*names): the AD systems that the fixture ad_system runs the test on "
        "(pybridge); all of them without this marker",
    )
    if _is_restricted(config):
        if wrong := _what_is_wrong_with(_listed(config.getoption(_OPTION) or "")):
            raise pytest.UsageError(f"{_OPTION}: {wrong}")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that asks for `ad_system` once for each AD system."""
    if "ad_system" not in metafunc.fixturenames or not _is_ours(metafunc):
        return
    marks = metafunc.definition.iter_markers("parametrize")
    if any("ad_system" in _argument_names(mark) for mark in marks):
        return  # The test names its systems itself; the fixture still skips the absent ones.
    if wrong := _what_is_wrong_with_marker(metafunc.definition):
        # The other tests of the file are collected; this one fails.
        metafunc.parametrize(
            "ad_system", [pytest.param(_Misspelt(wrong), id="none")], indirect=True
        )
        return
    names = _marked(metafunc.definition) or _all_names()
    chosen: list[Any] = [name for name in names if _is_chosen(name, metafunc.config)]
    if not chosen:
        # Not an empty list: what that means is a setting of the project's.
        reason = f"{_OPTION} leaves none of {', '.join(names)}"
        chosen = [pytest.param(None, id="none", marks=pytest.mark.skip(reason=reason))]
    metafunc.parametrize("ad_system", chosen, indirect=True)


@pytest.fixture
def ad_system(request: pytest.FixtureRequest) -> str:
    """Run the test once for each AD system of pybridge, and return the system's name.

    The marker `ad_systems("jax", "zygote")` on the function, the class or the module restricts
    it to some. A system that is absent is skipped with the reason, or fails where
    PYBRIDGE_REQUIRE_JULIA=1 and it is one of Julia's.
    """
    name = getattr(request, "param", None)
    if isinstance(name, _Misspelt):
        pytest.fail(name.reason, pytrace=False)
    if name is None:
        pytest.fail(
            "ad_system: the test has to name this fixture as an argument, or in "
            "pytest.mark.usefixtures; request.getfixturevalue comes too late, and methods of "
            "unittest.TestCase cannot be repeated.",
            pytrace=False,
        )
    if wrong := _what_is_wrong_with([name]):
        pytest.fail(f"ad_system: {wrong}", pytrace=False)
    from pybridge._backends import row
    from pybridge.consistency.testing import why_absent

    reason = why_absent(name)
    if reason is not None:
        _skip_or_fail(f"{name} is absent: {reason}", row(name).language == "julia")
    return name


@pytest.fixture
def assert_consistent(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Return `pybridge.consistency.assert_consistent` for this test.

    It asks the AD systems of the marker `ad_systems` where the call names none, and none that the
    option `--ad-systems` leaves out. Findings go to the report of `--junit-xml` as properties.
    Where no system is left to compare, the test is skipped.
    """
    from pybridge.consistency.testing import assert_in_test

    option = tuple(name for name in _all_names() if _is_chosen(name, request.config))
    settings = {
        "marked": _marked(request.node),
        "option": option if _is_restricted(request.config) else None,
        # As the fixture record_property does, which warns under pytest's default junit_family.
        "record": lambda name, value: request.node.user_properties.append((name, value)),
        "absent": _skip_or_fail,
    }

    def assert_consistent(f: Any, *args: Any, **options: Any) -> Any:
        __tracebackhide__ = True
        return assert_in_test(f, args, **options, **settings)

    return assert_consistent


def _skip_or_fail(reason: str, is_julia: bool) -> None:
    """Skip the test for want of a system; fail where it is Julia's and Julia is required."""
    __tracebackhide__ = True
    from pybridge._config import setting

    if is_julia and setting("PYBRIDGE_REQUIRE_JULIA").value:
        pytest.fail(f"PYBRIDGE_REQUIRE_JULIA is set, but {reason}", pytrace=False)
    pytest.skip(reason)


def _all_names() -> tuple[str, ...]:
    """Import the table of systems; late, since it brings JAX."""
    from pybridge._backends import NAMES

    return NAMES


def _what_is_wrong_with(names: list[Any] | tuple[Any, ...]) -> str | None:
    """Say what is wrong with names of systems; None where nothing is."""
    known = _all_names()
    listed = ", ".join(known)
    if not names:
        return f"expected names of AD systems, got none. The names are {listed}."
    unknown = ", ".join(repr(name) for name in names if name not in known)
    return f"unknown AD system {unknown}. The names are {listed}." if unknown else None


def _marked(node: Any) -> tuple[str, ...]:
    """Read the closest marker; empty without one."""
    __tracebackhide__ = True
    if wrong := _what_is_wrong_with_marker(node):
        pytest.fail(wrong, pytrace=False)
    mark = node.get_closest_marker(_MARKER)
    return tuple(dict.fromkeys(mark.args)) if mark is not None else ()


def _what_is_wrong_with_marker(node: Any) -> str | None:
    """Say what is wrong with the closest marker; None where nothing is, or there is none."""
    mark = node.get_closest_marker(_MARKER)
    if mark is None:
        return None
    wrong = _what_is_wrong_with(mark.args)
    if mark.kwargs:
        wrong = f"takes names alone, got {', '.join(mark.kwargs)}=."
    return f"{node.nodeid}: marker {_MARKER}: {wrong}" if wrong else None


@dataclass(frozen=True)
class _Misspelt:
    """What stands for the systems of a test whose marker is wrong."""

    reason: str


def _is_restricted(config: pytest.Config) -> bool:
    return config.getoption(_OPTION, default=None) is not None


def _is_chosen(name: str, config: pytest.Config) -> bool:
    """Tell whether the option lets a system run."""
    return not _is_restricted(config) or name in _listed(config.getoption(_OPTION) or "")


def _listed(text: str) -> list[str]:
    """Read names with commas between them."""
    return [part.strip() for part in text.split(",") if part.strip()]


def _argument_names(mark: pytest.Mark) -> list[str]:
    """List what a `parametrize` mark parametrises."""
    names = mark.args[0] if mark.args else mark.kwargs.get("argnames", ())
    return _listed(names) if isinstance(names, str) else list(names)


def _is_ours(metafunc: pytest.Metafunc) -> bool:
    """Tell whether the test gets this plugin's fixture, and not a project's of the same name."""
    definitions = getattr(metafunc, "_arg2fixturedefs", {}).get("ad_system", ())
    for definition in reversed(definitions):
        if getattr(definition.func, "__module__", None) == __name__:
            return True
        if "ad_system" not in definition.argnames:
            return False  # An override that does not build on ours.
    return True
