"""Which Julia is used, and what is said about one that juliacall does not accept."""

from __future__ import annotations

import os

import pytest

import pybridge as pb
from pybridge.julia._locate import choose_julia, julia_version, wanted_by_juliacall


@pytest.fixture
def julia(tmp_path, monkeypatch):
    """Return a function that puts a `julia` of some version on PATH, in front of any other."""
    for name in ("PYBRIDGE_JULIA", "PYTHON_JULIAPKG_EXE", "PYTHON_JULIACALL_EXE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)

    def put(says):
        path = tmp_path / "julia"
        path.write_text(f"#!/bin/sh\necho '{says}'\n")
        path.chmod(0o755)
        return str(path)

    return put


@pytest.mark.parametrize("number", ["1.10.3", "1.11.6", "1.12.5"])
def test_a_julia_on_the_path_is_used(julia, number):
    path = julia(f"julia version {number}")
    assert choose_julia().executable == path
    assert choose_julia().origin == "julia on PATH"
    assert julia_version(path) == tuple(map(int, number.split(".")))


@pytest.mark.parametrize(
    ("says", "said"),
    [
        ("julia version 1.9.4", "is Julia 1.9.4"),
        ("julia version 1.10.2", "is Julia 1.10.2"),
        ("julia version 2.0.0", "is Julia 2.0.0"),
        ("nothing", "does not answer to --version"),
    ],
)
def test_one_that_juliacall_does_not_accept_is_passed_over_with_both_versions(julia, says, said):
    path = julia(says)
    choice = choose_julia()
    assert choice.executable is None
    assert f"{path} {said}" in choice.origin
    assert f"wants {wanted_by_juliacall()}" in choice.origin


def test_one_that_was_asked_for_is_an_error_with_both_versions(julia, monkeypatch):
    monkeypatch.setenv("PYBRIDGE_JULIA", julia("julia version 1.10.2"))
    with pytest.raises(pb.ConfigError) as raised:
        choose_julia()
    assert "is Julia 1.10.2" in str(raised.value)
    assert wanted_by_juliacall() in str(raised.value)


def test_without_any_juliapkg_is_named(monkeypatch, tmp_path):
    for name in ("PYBRIDGE_JULIA", "PYTHON_JULIAPKG_EXE", "PYTHON_JULIACALL_EXE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert choose_julia().executable is None
    assert choose_julia().origin == "no julia on PATH: juliapkg finds or installs one"
