"""The page of findings says what JAX does: each of its lines, run."""

from __future__ import annotations

import re
from pathlib import Path

import jax
import numpy as np
import pytest
from quick import by_day

from pybridge.finite import double_precision

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "findings.md"
VERSION = re.search(r"findings of jax (\S+)", PAGE.read_text(encoding="utf-8"))[1]
BLOCK = re.search(r"```text\n(import jax, .*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)[1]
FIRST, *LINES = [line for line in BLOCK.splitlines() if line]


@pytest.mark.skipif(jax.__version__ != VERSION, reason=f"the page is about jax {VERSION}")
@pytest.mark.parametrize("line", by_day(LINES, LINES[::6]))  # by day, that the page is read right
def test_it_is_what_the_page_says(line):
    names = {}
    with double_precision(), jax.numpy_dtype_promotion("standard"):
        exec(FIRST.partition(";")[0], names)
        expression, said = (part.strip() for part in line.split("#"))
        if said.endswith("Error"):
            with pytest.raises(Exception, match=".") as raised:
                eval(expression, names)
            assert raised.type.__name__ == said
            return
        np.testing.assert_allclose(float(eval(expression, names)), float(said), rtol=1e-3)


def test_the_page_has_such_lines():
    assert len(LINES) >= 10
