"""Every primitive that JAX exports is lowered or refused with a reason, and the page says so."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import jax
import jax.lax.linalg
import pytest

import pybridge.lowering  # noqa: F401  (emitters are registered)
from pybridge.lowering._registry import EMITTERS, REFUSED

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "explanation" / "lowering-coverage.md"


def exported():
    """Names of the primitives in jax.lax and jax.lax.linalg."""
    found = set()
    for module in (jax.lax, jax.lax.linalg):
        for attribute in dir(module):
            if attribute.endswith("_p"):
                found.add(getattr(module, attribute).name)
    return found


def rows(section):
    text = PAGE.read_text(encoding="utf-8").split(f"## {section}\n")[1].split("\n## ")[0]
    return dict(re.findall(r"^\| `([^`]+)` \| (.*) \|$", text, re.MULTILINE))


def test_jax_exports_primitives():
    assert len(exported()) > 150


@pytest.mark.parametrize("name", sorted(exported()))
def test_it_is_lowered_or_refused_with_a_reason(name):
    assert (name in EMITTERS) != (name in REFUSED)
    assert name in EMITTERS or len(REFUSED[name]) > 10


def test_the_page_lists_what_is_lowered():
    assert sorted(rows("Lowered")) == sorted(EMITTERS), (
        "python docs/update_tables.py lowering-coverage"
    )


def test_the_page_lists_what_is_refused_with_the_reason():
    assert rows("Refused") == REFUSED, "python docs/update_tables.py lowering-coverage"


@pytest.fixture
def table(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    import lowering_table

    yield lowering_table
    sys.modules.pop("lowering_table")


def record(column, programs, passed=True, gap="", table="cases", derivable=True):
    made = {
        n: {"primitives": p, "differentiated": d, "derivable": derivable}
        for n, (p, d) in programs.items()
    }
    why = "" if passed else "Error: no"
    return {
        "table": table,
        "column": column,
        "programs": made,
        "passed": passed,
        "gap": gap,
        "why": why,
    }


def test_a_table_of_what_the_tests_saw(table):
    sin, scan = (["sin", "eq"], ["sin"]), (["scan", "sin"], ["scan", "sin"])
    seen = [
        record("value", {"sin": sin, "a scan": scan}),
        record("value", {"a schur": (["schur", "sin"], ["schur", "sin"])}, derivable=False),
        record("zygote", {"sin": sin}),
        record("zygote", {"a scan": scan}, passed=False),
        record("yota", {"a scan": scan}, gap="it has no loops"),
        record("tracker", {"a program": scan}, table="programs"),
    ]
    header, _, *rows = (row.strip("| ").split(" | ") for row in table.primitives_table(seen))
    found = {name.strip("`"): dict(zip(header[1:], cells, strict=True)) for name, *cells in rows}
    systems = header[2:]
    assert systems == ["zygote", "forwarddiff", "tracker", "yota", "mooncake", "reversediff"]
    right = {**dict.fromkeys(systems, "not tested"), "value": "right"}
    assert found["sin"] == right | {"zygote": "right", "tracker": "right"}
    assert found["eq"] == dict.fromkeys(systems, "none") | {"value": "right"}
    assert found["scan"] == right | {
        "zygote": "gap in `a scan`: the test fails: Error: no",
        "tracker": "right",
        "yota": "gap in `a scan`: it has no loops",
    }
    assert found["schur"] == dict.fromkeys(systems, "JAX has none") | {"value": "right"}
    assert set(found["cos"].values()) == {"—"}
    header, _, *_, last = (row.strip("| ").split(" | ") for row in table.programs_table(seen))
    untested = dict.fromkeys(["value", *systems], "not tested")
    assert dict(zip(header, last, strict=True)) == untested | {
        "program": "a program",
        "tracker": "right",
        "primitives": "`scan`, `sin`",
    }
