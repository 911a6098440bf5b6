"""The page of findings says what NNlib does: each of its lines, run."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import pybridge as pb
from pybridge.finite import double_precision

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "findings.md"
BLOCK = re.search(r"```julia\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)[1]
USING, *LINES = [line for line in BLOCK.splitlines() if line]


@pytest.mark.parametrize("line", LINES)
def test_it_is_what_the_page_says(line):
    expression, said = line.split("#")
    with double_precision():
        got = pb.from_julia(f"{USING}\n() -> {expression}")()
    np.testing.assert_allclose(float(got), float(said), atol=1e-12)


def test_the_page_has_such_lines():
    assert len(LINES) > 5
