"""Run PyBridge's own tests, which are Julia's."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import julia_state
import pytest
import quick

from pybridge.julia._environments import folder, is_installed
from pybridge.julia._session import session


@pytest.mark.timeout(7200)
@pytest.mark.parametrize(
    "part", ["runtests.jl", pytest.param("runsystems.jl", marks=pytest.mark.nightly)]
)
def test_pybridge_jl(part, record_property):
    started = session()
    packages = julia_state.packages()
    for package in packages:
        if not is_installed(started, package):
            started.require(package)
    folders = [folder(p, started.project, started.julia_version) for p in packages]
    folders.append(julia_state.tools())
    command = [
        started.executable,
        f"-O{os.environ.get(quick.JULIA_OPTIMIZE, 2)}",
        f"--project={started.project}",
        "--startup-file=no",
        "--threads=2",  # as many as a session has
        "--color=no",
        str(Path(__file__).with_name(part)),
        *map(str, folders),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    report = done.stdout[-8000:] + done.stderr[-8000:]
    counts = re.search(r"^PyBridge +\| +(\d+)", done.stdout, re.MULTILINE)
    assert done.returncode == 0, report
    assert counts is not None, report
    # The count is what tells a run of everything from a run of nothing.
    record_property("note", f"PyBridge.jl, {part}: {counts[1]} tests passed in Julia")
    assert int(counts[1]) > 200, report
