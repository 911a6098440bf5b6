"""The names of AD systems, and the Julia that each of them needs."""

from __future__ import annotations

import re
import types

import pytest

import pybridge as pb
from pybridge._backends import JULIA_NAMES, NAMES, TABLE, row
from pybridge.julia import _environments, _systems


def test_each_row_is_found_by_its_name():
    assert [row(name) for name in NAMES] == list(TABLE)
    assert set(JULIA_NAMES) == {row.name for row in TABLE} - {"jax", "finite"}


@pytest.mark.parametrize(
    ("name", "package"),
    [
        ("di:AutoFiniteDiff()", "FiniteDiff"),
        ("di:AutoForwardDiff(; chunksize=4)", "ForwardDiff"),
        ("di:AutoMooncakeForward()", "Mooncake"),
        ("di:AutoMooncake(; config=nothing)", "Mooncake"),
        ("di:AutoPolyesterForwardDiff()", "PolyesterForwardDiff"),
        ("di:AutoZygote()", "Zygote"),
    ],
)
def test_an_expression_of_adtypes_names_a_system(name, package):
    found = row(name)
    assert (found.name, found.language, found.package) == (name, "julia", package)
    assert found.packages == ("DifferentiationInterface", package)
    assert row(name, argument="ad", names=JULIA_NAMES) == found
    known = [system for system in TABLE if system.package == package]
    assert found.detection == (known[0].detection if known else "none")


@pytest.mark.parametrize(
    "name", ["di:", "di:AutoFiniteDiff", "di:run(`ls`)", "di:x.AutoZygote()", "di:AutoZygote(); 1"]
)
def test_what_is_no_expression_of_adtypes_is_refused(name):
    with pytest.raises(pb.UnknownBackendError, match=r"(?s)'di:' and a constructor of ADTypes"):
        pb.grad(lambda x: x, backend=name)


def test_an_unknown_name_gets_all_names():
    with pytest.raises(pb.UnknownBackendError, match=r"(?s)'mooncake'.*di:AutoFiniteDiff\(\)"):
        pb.grad(lambda x: x, backend="moonpie")


class Untouched:
    """A Julia of some version that nothing may be asked of."""

    project, executable = "/nowhere", "/nowhere/julia"

    def __init__(self, version: str):
        self.julia_version = version

    def call(self, work):
        raise AssertionError("Julia was asked")


@pytest.mark.parametrize("version", ["1.10.7", "1.11.5", "1.12.0", "1.9.4", "1.12.0-rc1"])
def test_a_julia_that_is_too_old_is_named_before_anything_is_installed(version, monkeypatch):
    monkeypatch.setattr(_environments, "_install", None)
    with pytest.raises(pb.BackendNotLoadedError, match=re.escape(f"got Julia {version}")) as error:
        _environments.load(Untouched(version), "Mooncake")
    assert "1.10.8, 1.11.6, 1.12.1" in str(error.value)


@pytest.mark.parametrize(
    "version", ["1.10.8", "1.10.11", "1.11.6", "1.12.5", "1.13.0-beta1", "2.0.0", "1.12.5+vendor.1"]
)
def test_a_julia_that_is_new_enough_is_used(version, monkeypatch, tmp_path):
    monkeypatch.setenv("PYBRIDGE_ENVIRONMENTS", str(tmp_path))
    asked = []
    monkeypatch.setattr(_environments, "_install", lambda *parts: asked.append(parts[1]))
    running = types.SimpleNamespace(
        project="/nowhere", julia_version=version, call=lambda work: "1"
    )
    assert _environments.load(running, "Mooncake") == "1"
    assert asked == ["Mooncake"]


@pytest.fixture
def running(monkeypatch, tmp_path):
    """Stand in for the running Julia, and note what is loaded into it."""
    loaded = []
    session = types.SimpleNamespace(
        project=str(tmp_path),
        julia_version="1.12.5",
        require=lambda package: loaded.append(package) or "0.1",
        loaded=loaded,
    )
    monkeypatch.setattr(_systems, "session", lambda: session)
    return session


def test_what_no_test_has_run_is_installed_only_for_those_who_name_it(running):
    (enzyme,) = [system for system in pb.backends() if system.name == "enzyme"]
    assert not enzyme.available
    assert 'backend="enzyme"' in enzyme.reason
    assert "Enzyme" not in running.loaded
    assert set(running.loaded) > {"Mooncake", "ReverseDiff"}
    assert _systems.prepare("enzyme").available
    assert running.loaded[-1] == "Enzyme"


def test_once_installed_it_is_there_for_all(running):
    place = _environments.folder("Enzyme", running.project, running.julia_version)
    place.mkdir(parents=True)
    (place / "pybridge-installed").touch()
    assert all(system.available for system in pb.backends())
