"""Measure what pybridge costs: import, start, first gradient, and each warm call.

    python benchmarks/session.py

Prints ratios and differences of things measured in one run. Start-up figures are medians over
fresh processes with everything precompiled.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

import numpy as np

import pybridge as pb

SOURCE = "x -> sum(abs2, x)"

# The same call inside Julia: the minimum over many, in seconds.
INSIDE = """
(system, n) -> begin
    b = PyBridge.BACKENDS[Symbol(system)]
    f = {source}
    x = rand(n)
    call() = PyBridge.value_and_gradient(b, f, (x,), Val((1,)))
    best = Inf
    for _ in 1:200
        best = min(best, @elapsed call())
    end
    best
end
"""


def fresh(program: str, times: int = 5) -> float:
    """Median of what `program` prints in fresh processes."""
    found = []
    for _ in range(times):
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
        found.append(float(done.stdout.split()[-1]))
    return statistics.median(found)


def best(call, times: int = 2000) -> float:
    """Minimum time of a call, in seconds."""
    call()
    found = float("inf")
    for _ in range(times):
        start = time.perf_counter()
        call()
        found = min(found, time.perf_counter() - start)
    return found


def main() -> None:
    """Run all measurements."""
    clock = "import time; s = time.perf_counter(); {}; print(time.perf_counter() - s)"
    jax_first = "import jax, jax.numpy; " + clock.format("import pybridge")
    print(f"import pybridge after jax: {1e3 * fresh(jax_first):.1f} ms")
    start = clock.format("from pybridge.julia._session import session; session()")
    print(f"start of Julia with PyBridge loaded: {fresh('import pybridge; ' + start, 3):.2f} s")
    first = clock.format(f"import pybridge as pb; pb.grad(pb.from_julia({SOURCE!r}))(2.0)")
    print(f"first gradient through Zygote in a new process: {fresh(first, 3):.2f} s")

    x = np.random.default_rng(0).random(1000)
    f = pb.from_julia(SOURCE)
    print("value_and_grad on a 1000-vector:  from Python   inside Julia   difference")
    for backend in pb.backends():
        if backend.language != "julia" or not backend.available:
            continue
        outside = best(lambda name=backend.name: pb.value_and_grad(f, backend=name)(x))
        handle = SOURCE_INSIDE[backend.name]
        inside = handle()
        print(
            f"  {backend.name:12} {1e6 * outside:21.1f} us {1e6 * inside:11.1f} us "
            f"{1e6 * (outside - inside):9.1f} us"
        )


def _inside(system: str):
    def measure() -> float:
        source = f'n -> ({INSIDE.format(source=SOURCE).strip()})("{system}", Int(n))'
        return float(pb.from_julia(source)(1000))

    return measure


SOURCE_INSIDE = {name: _inside(name) for name in ("zygote", "forwarddiff", "tracker", "yota")}

if __name__ == "__main__":
    main()
