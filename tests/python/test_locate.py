"""Which Julia is used, and what is said about one that juliacall does not accept."""

from __future__ import annotations

import os

import pytest

import pybridge as pb
from pybridge.julia._locate import JuliaChoice, choose_julia, julia_version, requirements


@pytest.fixture
def openssl(monkeypatch):
    """Return a function that chooses the version of Python's OpenSSL."""
    import ssl

    def choose(*version):
        monkeypatch.setattr(ssl, "OPENSSL_VERSION_INFO", version)
        monkeypatch.setattr(ssl, "OPENSSL_VERSION", f"OpenSSL {'.'.join(map(str, version))} 2026")

    choose(3, 5, 0)
    return choose


@pytest.fixture
def julia(tmp_path, monkeypatch, no_julia_chosen, openssl):
    """Return a function that puts a `julia` of some version on PATH, in front of any other."""
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
    ("number", "who"), [("1.9.4", "pybridge"), ("1.10.2", "juliacall"), ("2.0.0", "pybridge")]
)
def test_one_that_is_not_accepted_is_passed_over_with_both_versions(julia, number, who):
    path = julia(f"julia version {number}")
    who, wanted = next(item for item in requirements().items() if item[0].startswith(who))
    origin = (
        f"{path} is Julia {number}, and {who} wants {wanted}: juliapkg finds or installs another"
    )
    assert choose_julia() == JuliaChoice(None, origin)


def test_what_is_no_julia_is_passed_over(julia):
    path = julia("nothing")
    assert choose_julia().executable is None
    assert choose_julia().origin.startswith(f"{path} does not answer to --version")


@pytest.mark.parametrize(
    ("number", "version", "used"),
    [("1.12.5", (3, 0, 19), False), ("1.11.6", (3, 0, 19), True), ("1.12.5", (3, 6, 0), True)],
)
def test_pythons_openssl_has_to_be_as_new_as_julias(julia, openssl, number, version, used):
    path = julia(f"julia version {number}")
    openssl(*version)
    choice = choose_julia()
    assert choice.executable == (path if used else None)
    if not used:
        assert f"{path} is Julia {number}, and Python's OpenSSL 3.0.19 wants 1" in choice.origin


def test_one_that_was_asked_for_is_an_error_with_both_versions(julia, monkeypatch):
    monkeypatch.setenv("PYBRIDGE_JULIA", julia("julia version 1.10.2"))
    with pytest.raises(pb.ConfigError) as raised:
        choose_julia()
    assert "is Julia 1.10.2" in str(raised.value)
    assert all(wanted in str(raised.value) for wanted in requirements().values())


def test_without_any_juliapkg_is_named(monkeypatch, no_julia_chosen, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert choose_julia().executable is None
    assert choose_julia().origin == "no julia on PATH: juliapkg finds or installs one"
