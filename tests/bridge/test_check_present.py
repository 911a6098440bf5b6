"""Which systems `pb.check` asks about a Python function where none are named."""

from __future__ import annotations

import jax.numpy as jnp
import pytest
from bridge_helpers import SYSTEMS

import pybridge as pb


def f(x):
    return jnp.sum(x**3)


def asked(report):
    return {(answer.system, answer.mode) for answer in report.answers}


def test_all_that_are_present_are_asked():
    report = pb.check(f, jnp.array([0.5, 2.0]))
    assert report.ok
    assert {system for system, _ in asked(report)} >= {"jax", *SYSTEMS}
    # Second order takes Julia's compiler long: it is there for systems that are named.
    assert ("zygote", "second") not in asked(report)
    assert ("zygote", "second") in asked(pb.check(f, jnp.array([0.5, 2.0]), backends=["zygote"]))


def test_a_leak_of_nan_is_found_in_each_system():
    def leak(x):
        return jnp.sum(jnp.where(x > 0, jnp.log(x), 0.0))

    report = pb.check(leak, jnp.array([0.0, 1.0]))
    systems = {system for finding in report.of_kind("non-finite") for system in finding.systems}
    assert systems >= {"jax", "zygote", "tracker", "yota"}


def test_a_setting_chooses(monkeypatch):
    monkeypatch.setenv("PYBRIDGE_CHECK_BACKENDS", "jax, zygote")
    assert {system for system, _ in asked(pb.check(f, jnp.array([0.5])))} == {
        "jax",
        "zygote",
        "finite",
    }
    monkeypatch.setenv("PYBRIDGE_CHECK_BACKENDS", "zygoat")
    with pytest.raises(pb.UnknownBackendError, match="PYBRIDGE_CHECK_BACKENDS"):
        pb.check(f, jnp.array([0.5]))
