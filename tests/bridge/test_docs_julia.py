"""The code blocks and docstrings that need Julia; see `tests/python/test_docs.py`."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from quick import by_day

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))

from test_docs import (  # pyright: ignore[reportMissingImports]
    NAMES,
    ROOT,
    code_blocks,
    docstrings,
    run_doctest,
    run_page,
)

# What a newcomer reads first. What the other pages show has tests of its own by day.
BY_DAY = ["README.md", "docs/getting-started.md", "docs/how-to/call-julia-from-jax.md"]
WITH_JULIA = [name for name in NAMES if any(block.julia for block in code_blocks(ROOT / name))]


@pytest.mark.parametrize("name", by_day(WITH_JULIA, BY_DAY))
def test_blocks_with_julia(name):
    assert run_page(ROOT / name, julia=True) > 0


@pytest.mark.parametrize("test", docstrings(julia=True), ids=lambda test: test.name)
def test_docstring(test):
    run_doctest(test)
