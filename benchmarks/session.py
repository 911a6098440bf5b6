"""Measure what pybridge costs: import, start, first derivatives, and each warm call.

    python benchmarks/session.py

Start-up figures are medians over fresh processes with everything precompiled. Call figures are
the least of many calls, from Python and inside Julia, in one run.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np

import pybridge as pb

FUNCTION = "x -> sum(abs2, x)"

# What a new process differentiates. PyBridge's image has derivatives of `FUNCTION`'s kind.
FIRST = "x -> sum(tanh.(x))"
BEFORE = "import numpy as np, pybridge as pb"

# The same gradient, timed by Julia itself: the least of many, in seconds.
INSIDE = """
n -> begin
    f = {function}
    x = rand(Int(n))
    gradient() = PyBridge.value_and_gradient(PyBridge.BACKENDS.{system}, f, (x,), Val((1,)))
    minimum(_ -> @elapsed(gradient()), 1:2000)
end
"""

# Mooncake's own gradient with everything prepared, of small and of large work.
PREPARED = """
n -> begin
    f = {function}
    x = rand(Int(n))
    cache = Mooncake.prepare_gradient_cache(f, x)
    gradient() = Mooncake.value_and_gradient!!(cache, f, x)
    minimum(_ -> @elapsed(gradient()), 1:500)
end
"""
WORK = "x -> sum(v -> log1p(exp(sin(v) * v)), x)"


def fresh(program: str, times: int) -> float:
    """Take the median of the seconds that `program` prints last, in fresh processes."""
    found = []
    for _ in range(times):
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True
        )
        found.append(float(done.stdout.split()[-1]))
    return statistics.median(found)


def timed(setup: str, work: str) -> str:
    """Write a program that prints how many seconds `work` takes after `setup`."""
    return f"import time; {setup}; s = time.perf_counter(); {work}; print(time.perf_counter() - s)"


def first(transform: str, system: str) -> str:
    """Write the call of a derivative of `FIRST` by one system."""
    return f"pb.{transform}(pb.from_julia({FIRST!r}), backend={system!r})(np.array([0.5, 0.3]))"


def least(call: Callable[[], object], times: int = 2000) -> float:
    """Take the least time of a call, in seconds."""
    call()
    found = float("inf")
    for _ in range(times):
        start = time.perf_counter()
        call()
        found = min(found, time.perf_counter() - start)
    return found


def x_of(size: int) -> np.ndarray:
    """Draw the numbers of a point."""
    return np.random.default_rng(0).random(size)


def main() -> None:
    """Run all measurements."""
    imported = fresh(timed("import jax, jax.numpy", "import pybridge"), 5)
    print(f"import pybridge after import jax: {1e3 * imported:.0f} ms more")
    session = "from pybridge.julia._session import session"
    started = fresh(timed(f"import jax; {session}", "session()"), 3)
    print(f"start of Julia with PyBridge: {started:.2f} s")
    systems = [b for b in pb.backends() if b.language == "julia" and b.available]
    print("in a new process   start and first gradient   first second derivative after it")
    for backend in systems:
        gradient = fresh(timed(BEFORE, first("grad", backend.name)), 3)
        after = f"{BEFORE}; {first('grad', backend.name)}"
        second = (
            f"{fresh(timed(after, first('hessian', backend.name)), 3):.2f} s"
            if backend.second_order
            else "has none"
        )
        print(f"  {backend.name:16} {gradient:12.2f} s {second:>24}")

    x = x_of(1000)
    f = pb.from_julia(FUNCTION)
    print("value_and_grad of a 1000-vector   from Python   inside Julia   more   ratio")
    for backend in systems:
        gradient = pb.value_and_grad(f, backend=backend.name)
        outside = 1e6 * least(lambda gradient=gradient: gradient(x))
        source = INSIDE.format(function=FUNCTION, system=backend.name)
        inside = 1e6 * float(pb.from_julia(source)(x.size))
        print(
            f"  {backend.name:30} {outside:8.1f} us {inside:11.1f} us {outside - inside:5.1f} us"
            f" {outside / inside:5.2f}"
        )
    if any(backend.name == "mooncake" for backend in systems):
        print("pb.value_and_grad with Mooncake   from Python   its own, prepared   more   ratio")
        for function, size in ((FUNCTION, 1000), (WORK, 20_000)):
            gradient, x = pb.value_and_grad(pb.from_julia(function), backend="mooncake"), x_of(size)
            outside = 1e6 * least(lambda gradient=gradient, x=x: gradient(x), 500)
            source = PREPARED.format(function=function)
            inside = 1e6 * float(pb.from_julia(source, using=["Mooncake"])(size))
            print(
                f"  {function:45} {outside:9.1f} us {inside:9.1f} us {outside - inside:6.1f} us"
                f" {outside / inside:5.2f}"
            )


if __name__ == "__main__":
    main()
