"""Two processes that are one JAX; the truth is the same program in this process alone."""

from __future__ import annotations

import sys

import jax
import norms_in_processes
import numpy as np
import pytest
from norms_in_processes import MASK, WEIGHTS, X, results
from several_processes import run_together

from pybridge import nn


def test_batch_statistics_are_those_of_all_processes(tmp_path):
    want = jax.tree.leaves(results(nn.BatchNorm(3), (X, MASK, WEIGHTS)))
    program = [sys.executable, norms_in_processes.__file__, str(tmp_path / "{}.npz")]
    run_together(program, count=2, devices=2, limit=120)
    for number in range(2):
        with np.load(tmp_path / f"{number}.npz") as got:
            assert len(got) == 2 * len(want)
            for name in ("shard_map", "jit"):
                for i, leaf in enumerate(want):
                    np.testing.assert_allclose(got[f"{name} {i}"], leaf, rtol=2e-5, atol=2e-6)


def test_one_process_that_fails_ends_all(tmp_path):
    program = tmp_path / "program.py"
    # One fails, the other would wait.
    program.write_text("import sys, time\nsys.argv[3] == '1' or time.sleep(99)\n1 / 0")
    with pytest.raises(AssertionError, match="ZeroDivisionError"):
        run_together([sys.executable, str(program)], count=2, devices=1, limit=60)
