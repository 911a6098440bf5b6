"""The pytest plugin, on test files of its own that run inside these tests."""

import os
import subprocess
import sys
import tomllib
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path

import pytest

from pybridge._backends import JULIA_NAMES, NAMES, row
from pybridge.consistency import testing
from pybridge.consistency.findings import Finding, Report
from pybridge.consistency.subject import _installed
from pybridge.consistency.testing import _assert

ROOT = Path(__file__).resolve().parents[2]

ASKS = """
def test_it(ad_system):
    print("ran", ad_system)
"""

CALLS = """
def test_it(assert_consistent):
    assert_consistent(float, 1.0{})
"""

MINORITY = Finding(
    "minority",
    "error",
    "zygote has the wrong sign",
    systems=("zygote",),
    argument="args[0]",
    element=(2,),
    numbers={"zygote": -1.0, "finite": 1.0},
    advice="Look at the rrule.",
)


@pytest.fixture
def absent(monkeypatch):
    """Return the reasons why systems are absent, by name, for the test to fill."""
    reasons: dict[str, str] = {}
    monkeypatch.delenv("PYBRIDGE_REQUIRE_JULIA", raising=False)
    for module in (testing, _assert):
        monkeypatch.setattr(module, "why_absent", reasons.get)
    return reasons


@pytest.fixture
def found(monkeypatch, absent):
    """Return the findings of every check, for the test to fill; asked systems go to `.asked`."""

    class Findings(list):
        asked = None

    findings = Findings()

    def check(f, args, *, backends=None, **options):
        findings.asked = backends
        rows = tuple(
            replace(row(name), available=name not in absent, reason=absent.get(name))
            for name in backends or NAMES
        )
        return Report(f.__name__, rows, (), (), tuple(findings))

    monkeypatch.setattr(_assert, "_check", check)
    return findings


@pytest.fixture
def run(pytester, monkeypatch):
    """Run pytest with the plugin in this process, on one file, with warnings as errors."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")

    def run(source, *options):
        pytester.makepyfile(source)
        pytester.makeini("[pytest]\nfilterwarnings = error\nxfail_strict = true\n")
        given = ("-p", "pybridge_pytest", "-p", "no:cacheprovider", "--strict-markers", "-rs")
        return pytester.runpytest_inprocess(*given, *options)

    return run


def outside(pytester, *options, path="", **environment):
    """Run pytest in a process of its own; the plugin is on its path, and not loaded."""
    entries = [str(path), str(ROOT)] if path else [str(ROOT)]
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-W", "error", *options],
        cwd=pytester.path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(entries), **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )


# --- ad_system ------------------------------------------------------------------------------


def test_a_test_runs_once_for_each_system(run, absent):
    result = run(ASKS, "-v", "-s")
    result.assert_outcomes(passed=len(NAMES))
    result.stdout.fnmatch_lines([f"*test_it[[]{name}[]]*" for name in NAMES])
    result.stdout.fnmatch_lines([f"*ran {name}" for name in NAMES])


def test_the_closest_marker_names_the_systems(run, absent):
    source = """
        import pytest
        pytestmark = pytest.mark.ad_systems("finite")

        def test_module(ad_system): pass

        @pytest.mark.ad_systems("zygote", "jax", "zygote")
        class TestClass:
            def test_class(self, ad_system): pass

            @pytest.mark.ad_systems("yota")
            def test_function(self, ad_system): pass
    """
    result = run(source, "--collect-only", "-q")
    names = [line.split("::")[-1] for line in result.outlines if "::" in line]
    assert names == [
        "test_module[finite]",
        "test_class[zygote]",
        "test_class[jax]",
        "test_function[yota]",
    ]


@pytest.mark.parametrize(
    ("marker", "said"),
    [
        ('"jax", "abacus"', "*unknown AD system 'abacus'. The names are jax, finite, zygote*"),
        ("", "*expected names of AD systems, got none*"),
        ('"jax", systems=3', "*takes names alone, got systems=*"),
        ("3", "*unknown AD system 3.*"),
    ],
)
def test_a_marker_that_means_nothing_fails_its_test_alone(run, absent, marker, said):
    marked = f"@pytest.mark.ad_systems({marker})\n{ASKS}"
    result = run(f"import pytest\n{marked}\ndef test_beside(): pass\n")
    result.assert_outcomes(errors=1, passed=1)
    result.stdout.fnmatch_lines([said])
    result.stdout.no_fnmatch_line("*Traceback*")


def test_the_option_restricts_a_run(run, absent):
    result = run(ASKS, "--ad-systems=yota, jax", "-v")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["*[[]jax[]] PASSED*", "*[[]yota[]] PASSED*"])


@pytest.mark.parametrize("given", ["abacus", "jax,Jax", "", ","])
def test_an_option_with_an_unknown_name_is_a_usage_error(run, given):
    result = run(ASKS, f"--ad-systems={given}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: --ad-systems: *jax, finite, zygote, forwarddiff*"])


def test_a_test_whose_systems_are_all_left_out_is_skipped_with_the_reason(run, absent):
    source = f"import pytest\npytestmark = pytest.mark.ad_systems('zygote', 'yota')\n{ASKS}"
    strict = ("-o", "empty_parameter_set_mark=fail_at_collect")
    result = run(source, "--ad-systems=jax", *strict)
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["*--ad-systems leaves none of zygote, yota*"])


def test_an_absent_system_is_skipped_with_the_reason(run, absent):
    absent["tracker"] = "nobody installed it"
    result = run(ASKS)
    result.assert_outcomes(passed=len(NAMES) - 1, skipped=1)
    result.stdout.fnmatch_lines(["*tracker is absent: nobody installed it*"])


def test_an_absent_julia_system_fails_where_julia_is_required(run, absent, monkeypatch):
    absent["tracker"] = "nobody installed it"
    monkeypatch.setenv("PYBRIDGE_REQUIRE_JULIA", "1")
    result = run(ASKS)
    result.assert_outcomes(passed=len(NAMES) - 1, errors=1)
    result.stdout.fnmatch_lines(
        ["*PYBRIDGE_REQUIRE_JULIA is set, but tracker is absent: nobody installed it*"]
    )


def test_collecting_asks_for_no_system(run, monkeypatch):
    asked = []
    monkeypatch.setattr(testing, "why_absent", asked.append)
    run(ASKS, "--collect-only").assert_outcomes()
    assert asked == []
    run(ASKS, "--ad-systems=zygote").assert_outcomes(passed=1)
    assert asked == ["zygote"]


def test_a_projects_own_fixture_of_that_name_is_left_alone(run):
    source = """
        import pytest

        @pytest.fixture
        def ad_system():
            return "mine"

        def test_it(ad_system):
            assert ad_system == "mine"
    """
    run(source).assert_outcomes(passed=1)


def test_a_fixture_may_build_on_ad_system(run, absent):
    source = """
        import pytest

        @pytest.fixture
        def ad_system(ad_system):
            return ad_system.upper()

        @pytest.fixture(autouse=True)
        def other(ad_system):
            assert ad_system.isupper()

        def test_it():
            pass
    """
    run(source).assert_outcomes(passed=len(NAMES))


def test_a_test_may_name_the_systems_in_parametrize(run, absent):
    source = """
        import pytest

        @pytest.mark.parametrize(("n", "ad_system"), [(1, "jax"), (2, "yota")], indirect={})
        def test_it(n, ad_system):
            assert ad_system in ("jax", "yota")
    """
    absent["yota"] = "gone"
    direct = source.replace("indirect={}", "indirect=False")
    run(direct).assert_outcomes(passed=2)
    indirect = source.replace("indirect={}", "indirect=['ad_system']")
    run(indirect).assert_outcomes(passed=1, skipped=1)


@pytest.mark.parametrize(
    "source",
    [
        "def test_it(request): request.getfixturevalue('ad_system')",
        "import pytest, unittest\n@pytest.mark.usefixtures('ad_system')\n"
        "class TestIt(unittest.TestCase):\n    def test_it(self): pass",
    ],
)
def test_a_test_that_cannot_be_repeated_is_told_so(run, absent, source):
    result = run(source)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["*ad_system: the test has to name this fixture*"])


def test_no_julia_means_a_reason_and_no_download(monkeypatch, no_julia_chosen, tmp_path):
    state = pytest.importorskip("juliapkg.state")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(state.STATE, "install", str(tmp_path))
    monkeypatch.delitem(sys.modules, "juliacall", raising=False)
    monkeypatch.setattr(_installed, "prepare", lambda name: pytest.fail("started Julia"))
    _installed.why_absent.cache_clear()
    try:
        reasons = [_installed.why_absent(name) for name in JULIA_NAMES]
    finally:
        _installed.why_absent.cache_clear()
    assert all("Julia not found" in reason for reason in reasons)
    julia = tmp_path / "bin" / "julia"
    julia.parent.mkdir()
    julia.write_text("#!/bin/sh\n")
    julia.chmod(0o755)
    assert _installed.has_julia()


# --- assert_consistent ----------------------------------------------------------------------


def test_a_finding_is_the_text_of_the_failure(run, found):
    found.append(MINORITY)
    result = run(CALLS.format(""))
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            ">*assert_consistent(float, 1.0)",
            "E*ConsistencyError: float is not consistent on jax, *: 1 finding, 0 allowed",
            "E*error [[]minority:zygote[]] args[[]0[]][[]2[]]: zygote has the wrong sign",
            "E*zygote: -1",
            "E*finite: 1",
            "E*Look at the rrule.",
        ]
    )
    for hidden in ("*_assert.py*", "*pybridge_pytest.py*"):
        result.stdout.no_fnmatch_line(hidden)


def test_the_function_needs_no_fixture(run, found):
    found.append(MINORITY)
    source = """
        from pybridge.consistency import assert_consistent

        def test_it():
            assert_consistent(float, 1.0)
    """
    result = run(source)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["E*error [[]minority:zygote[]]*"])
    result.stdout.no_fnmatch_line("*_assert.py*")


def test_a_gap_lets_the_test_pass_and_fails_when_it_is_gone(run, found):
    source = CALLS.format(", allow=[('minority:zygote', 'their issue 7')]")
    found.append(MINORITY)
    run(source).assert_outcomes(passed=1)
    found.clear()
    result = run(source)
    result.assert_outcomes(failed=1)
    text = "[[]minority:zygote[]] is allowed (*their issue 7*) and no longer occurs: remove it"
    result.stdout.fnmatch_lines([f"E*{text}*"])


def test_findings_are_properties_in_the_junit_report(run, found, absent, pytester):
    absent["yota"] = "a reason"
    found.append(Finding("kink", "note", "slope <0> & \x00 1", systems=("jax",)))
    run(CALLS.format(""), "--junit-xml=out.xml").assert_outcomes(passed=1)
    tree = ElementTree.parse(pytester.path / "out.xml")
    properties = [(p.get("name"), p.get("value")) for p in tree.iter("property")]
    assert [name for name, _ in properties] == ["pybridge.finding", "pybridge.absent"]
    assert properties[0][1].startswith("note [kink:jax]: slope <0> & ")
    assert properties[1][1] == "yota: a reason"


def test_marker_and_option_say_which_systems_are_asked(run, found):
    marked = "import pytest\npytestmark = pytest.mark.ad_systems('jax', 'zygote')\n"
    run(CALLS.format(""))
    assert found.asked is None
    run(marked + CALLS.format(""))
    assert found.asked == ("jax", "zygote")
    run(marked + CALLS.format(", backends=['yota']"))
    assert found.asked == ("yota",)
    run(CALLS.format(""), "--ad-systems=zygote,finite,jax")
    assert found.asked == ("jax", "finite", "zygote")
    run(marked + CALLS.format(""), "--ad-systems=zygote,finite")
    assert found.asked == ("zygote",)


def test_a_check_with_nothing_to_compare_is_skipped_and_not_passed(run, found, absent, monkeypatch):
    absent["zygote"] = "no Julia"
    source = CALLS.format(", backends=['zygote', 'finite']")
    result = run(source)
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["*zygote is absent: no Julia*"])
    result = run(CALLS.format(", backends=['jax']"), "--ad-systems=finite")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["*--ad-systems leaves no AD system to compare*"])
    marked = "import pytest\npytestmark = pytest.mark.ad_systems('finite')\n"
    result = run(marked + CALLS.format(""))
    result.stdout.fnmatch_lines(["*the marker leaves no AD system to compare*"])
    monkeypatch.setenv("PYBRIDGE_REQUIRE_JULIA", "1")
    run(source).assert_outcomes(failed=1)
    # And where only some of the systems are there.
    run(CALLS.format(", backends=['zygote', 'jax']")).assert_outcomes(failed=1)


def test_a_restricted_run_does_not_call_a_gap_gone(run, found):
    source = CALLS.format(", allow=[('kink', 'relu'), ('kink:zygote', 'relu')]")
    run(source).assert_outcomes(failed=1)
    run(source, "--ad-systems=jax,finite").assert_outcomes(passed=1)


# --- the plugin among others ----------------------------------------------------------------


def test_those_who_do_not_use_it_get_no_jax_and_no_julia(pytester):
    pytester.makeconftest("""
        import sys

        def pytest_unconfigure():
            heavy = {"jax", "pybridge", "juliacall"} & set(sys.modules)
            print("imported:", sorted(heavy))
    """)
    pytester.makepyfile("def test_it(): pass")
    done = outside(pytester, "-p", "pybridge_pytest", "-s")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "imported: []" in done.stdout


def test_collecting_starts_no_julia(pytester):
    pytester.makeconftest("""
        import sys

        def pytest_unconfigure():
            print("started:", "juliacall" in sys.modules)
    """)
    pytester.makepyfile(ASKS)
    done = outside(pytester, "-p", "pybridge_pytest", "--collect-only", "-s", "--strict-markers")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(NAMES)} tests collected" in done.stdout
    assert "started: False" in done.stdout


def test_entry_point_option_and_conftest_load_it_once(pytester, tmp_path):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    points = project["entry-points"]["pytest11"]
    assert points == {"pybridge_pytest": "pybridge_pytest"}
    info = tmp_path / "site" / "planted-1.0.dist-info"
    info.mkdir(parents=True)
    info.joinpath("METADATA").write_text("Name: planted\nVersion: 1.0\n")
    lines = "".join(f"{name} = {module}\n" for name, module in points.items())
    info.joinpath("entry_points.txt").write_text(f"[pytest11]\n{lines}")
    pytester.makepyfile("def test_it(pytestconfig): print('plugin is', pytestconfig.getoption("
                        "'--ad-systems', 'absent'))")  # fmt: skip
    site = info.parent
    assert "plugin is None" in outside(pytester, "-s", path=site).stdout
    assert "plugin is jax" in outside(pytester, "-s", "--ad-systems=jax", path=site).stdout
    off = outside(pytester, "-s", "-p", "no:pybridge_pytest", path=site).stdout
    assert "plugin is absent" in off
    pytester.makeconftest("pytest_plugins = ['pybridge_pytest']")
    done = outside(pytester, "-s", "-p", "pybridge_pytest", path=site)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "plugin is None" in done.stdout
    done = outside(pytester, "--markers", path=site)
    assert done.stdout.count("ad_systems(*names)") == 1


def test_it_works_on_several_processes(pytester):
    pytest.importorskip("xdist")
    pytester.makepyfile(ASKS)
    options = ("-n", "1", "--ad-systems=jax,finite", "-v", "--strict-markers")
    done = outside(pytester, "-p", "pybridge_pytest", *options)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout
    assert "test_it[jax]" in done.stdout
    # The usage error comes from the first process, before it starts others.
    done = outside(pytester, "-p", "pybridge_pytest", "-n", "1", "--ad-systems=no")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "unknown AD system 'no'" in done.stderr
