"""What malloc does with the memory that a thread frees: told by the pages that come back."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

from pybridge.julia import doctor

pytestmark = pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc", reason="mallopt is told to glibc's malloc alone"
)

# 200 arrays of 1 MB, taken, written to and freed by a thread, as a step of Julia's on XLA's thread.
# The first round is what any process pays; malloc adjusts its thresholds in the second.
SCRIPT = """
import ctypes, resource, threading
from pybridge.julia._malloc import keep_freed_memory, why_not_kept

libc = ctypes.CDLL(None)
libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]

def faults():
    return resource.getrusage(resource.RUSAGE_THREAD).ru_minflt

def step():
    blocks = [libc.malloc(1 << 20) for _ in range(200)]
    before = faults()
    for block in blocks:
        ctypes.memset(block, 1, 1 << 20)
    for block in blocks:
        libc.free(block)
    print(faults() - before, end=" ")

def work():
    for _ in range(4):
        step()

keep_freed_memory()
thread = threading.Thread(target=work)
thread.start()
thread.join()
print(why_not_kept(), sep="", end="")
"""
PAGES = (200 << 20) // os.sysconf("SC_PAGESIZE")
TUNED = {"MALLOC_TRIM_THRESHOLD_", "MALLOC_TOP_PAD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES"}


def run(**environment: str) -> tuple[int, str]:
    """Count the pages that the last round had to get; tell why malloc was told nothing, if so."""
    clean = {name: value for name, value in os.environ.items() if name not in TUNED}
    command = [sys.executable, "-c", SCRIPT]
    env = clean | environment
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    *_, faults, reason = done.stdout.split(" ", 4)
    return int(faults), reason


def test_freed_memory_is_kept():
    faults, reason = run()
    assert reason == "None"
    assert faults < PAGES / 100


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("PYBRIDGE_KEEP_MEMORY", "off", "PYBRIDGE_KEEP_MEMORY is off"),
        ("MALLOC_TRIM_THRESHOLD_", "131072", "MALLOC_TRIM_THRESHOLD_=131072"),
        ("GLIBC_TUNABLES", "glibc.malloc.trim_threshold=131072", "GLIBC_TUNABLES=glibc.malloc"),
    ],
)
def test_what_somebody_chose_stands(name, value, says):
    faults, reason = run(**{name: value})
    assert says in reason
    assert faults > PAGES / 100


def test_a_tunable_of_something_else_is_no_choice():
    assert run(GLIBC_TUNABLES="glibc.rtld.optional_static_tls=512")[1] == "None"


def test_doctor_says_which_it_is(monkeypatch):
    for name in TUNED:
        monkeypatch.delenv(name, raising=False)
    assert doctor._freed_memory() == ("freed memory", "kept", "")
    monkeypatch.setenv("PYBRIDGE_KEEP_MEMORY", "off")
    assert doctor._freed_memory()[1:] == ("left to malloc", "PYBRIDGE_KEEP_MEMORY is off")
