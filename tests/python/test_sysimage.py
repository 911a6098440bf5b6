"""When Julia starts from a system image, and when not."""

from __future__ import annotations

import json

import pytest

from pybridge.julia import _sysimage


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Make a main environment and something that answers as a julia."""
    for setting in ("PYBRIDGE_ENVIRONMENTS", "PYBRIDGE_SYSIMAGE"):
        monkeypatch.delenv(setting, raising=False)
    monkeypatch.setattr(_sysimage, "julia_version", lambda executable: (1, 12, 5))
    project = tmp_path / "julia_env"
    project.mkdir()
    (project / "Manifest.toml").write_text('julia_version = "1.12.5"\n')
    return project


@pytest.fixture
def image(place):
    """Pretend that an image was built for what is there."""
    folder = place / "pybridge" / "sysimage"
    folder.mkdir(parents=True)
    made_of = _sysimage._ingredients("julia", str(place))
    (folder / "made-of.json").write_text(json.dumps(made_of))
    return folder / _sysimage._IMAGE


def test_without_an_image_there_is_advice(place):
    found = _sysimage.find("julia", str(place))
    assert found.path is None
    assert "pybridge provision --sysimage" in found.note


def test_an_image_that_fits_is_used(place, image):
    assert _sysimage.find("julia", str(place)).path == image


def test_another_julia(place, image, monkeypatch):
    monkeypatch.setattr(_sysimage, "julia_version", lambda executable: (1, 12, 6))
    found = _sysimage.find("julia", str(place))
    assert found.path is None
    assert "made for another Julia;" in found.note


def test_other_packages_and_another_processor(place, image, monkeypatch):
    (place / "Manifest.toml").write_text("# resolved again\n")
    monkeypatch.setattr(_sysimage, "_processor", lambda: "another")
    found = _sysimage.find("julia", str(place))
    assert found.path is None
    assert "made for another set of packages and processor;" in found.note


def test_other_sources_of_pybridge(place, image, monkeypatch, tmp_path):
    (tmp_path / "PyBridge.jl").write_text("module PyBridge end")
    monkeypatch.setattr(_sysimage, "julia_source", lambda: tmp_path)
    assert _sysimage.find("julia", str(place)).path is None


def test_what_is_half_written_is_not_used(place, image):
    image.with_name("made-of.json").write_text('{"Julia": "1.1')
    assert _sysimage.find("julia", str(place)).path is None


def test_it_can_be_turned_off(place, image, monkeypatch):
    monkeypatch.setenv("PYBRIDGE_SYSIMAGE", "off")
    found = _sysimage.find("julia", str(place))
    assert found == (None, "turned off by PYBRIDGE_SYSIMAGE")


def test_the_image_of_juliacalls_own_variable_goes_first(place, image):
    own = {"PYTHON_JULIACALL_EXE": "julia", "PYTHON_JULIACALL_PROJECT": str(place)}
    assert _sysimage.chosen(own).path == image
    assert _sysimage.chosen({**own, "PYTHON_JULIACALL_SYSIMAGE": "other.so"}).path is None
