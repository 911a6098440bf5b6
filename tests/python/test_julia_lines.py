"""The layout of the Julia files of lowered programs."""

from __future__ import annotations

from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "julia_src" / "src" / "lowering"
WIDTH = 92


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.jl")), ids=lambda path: path.name)
def test_no_line_is_wider_than_92_columns(path):
    lines = path.read_text(encoding="utf-8").splitlines()
    assert [f"{n}: {line}" for n, line in enumerate(lines, 1) if len(line) > WIDTH] == []
