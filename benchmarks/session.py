"""Measure what pybridge costs: import, start, first derivatives, and each warm call.

    python benchmarks/session.py [--markdown] [--start] [--calls]

Start-up figures are medians over fresh processes with everything precompiled; those with a system
image are there if `pybridge provision --sysimage` has built one. Call figures are the least of many
calls, from Python and inside Julia, in turn, in one run. "An empty call" is a C function that
returns at once, called on Julia's thread the way that each call takes.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np
from bridge import Row, in_a_row, least, machine, ms, show, us

import pybridge as pb
from pybridge.julia._session import session
from pybridge.julia._sysimage import find

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
    minimum(_ -> @elapsed(gradient()), 1:100)
end
"""

# Mooncake's own gradient with everything prepared, of small and of large work.
PREPARED = """
n -> begin
    f = {function}
    x = rand(Int(n))
    cache = Mooncake.prepare_gradient_cache(f, x)
    gradient() = Mooncake.value_and_gradient!!(cache, f, x)
    minimum(_ -> @elapsed(gradient()), 1:100)
end
"""
WORK = "x -> sum(v -> log1p(exp(sin(v) * v)), x)"


def fresh(program: str, times: int, sysimage: str = "off") -> float:
    """Take the median of the seconds that `program` prints last, in fresh processes."""
    environment = {**os.environ, "PYBRIDGE_SYSIMAGE": sysimage}
    found = []
    for _ in range(times):
        done = subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            check=True,
            env=environment,
        )
        found.append(float(done.stdout.split()[-1]))
    return statistics.median(found)


def timed(setup: str, work: str) -> str:
    """Write a program that prints how many seconds `work` takes after `setup`."""
    return f"import time; {setup}; s = time.perf_counter(); {work}; print(time.perf_counter() - s)"


def first(transform: str, system: str) -> str:
    """Write the call of a derivative of `FIRST` by one system."""
    return f"pb.{transform}(pb.from_julia({FIRST!r}), backend={system!r})(np.array([0.5, 0.3]))"


def x_of(size: int) -> np.ndarray:
    """Draw the numbers of a point."""
    return np.random.default_rng(0).random(size)


def in_julia_alone(times: int) -> float:
    """Take the median of the seconds of a Julia that loads Zygote, differentiates, and ends."""
    program = f"using Zygote; Zygote.gradient({FIRST}, [0.5, 0.3])"
    julia = [session().executable, f"--project={session().project}", "--startup-file=no"]
    found = []
    for _ in range(times):
        start = time.perf_counter()
        subprocess.run([*julia, "-e", program], check=True)
        found.append(time.perf_counter() - start)
    return statistics.median(found)


def starts() -> list[Row]:
    """Time the import, and all that a new process does until it has a gradient."""
    imported = fresh(timed("import jax, jax.numpy", "import pybridge"), 5)
    rows = [Row("`import pybridge` after `import jax`", ms(imported), "", "", "20 ms")]
    gradient = timed("import jax, jax.numpy", f"{BEFORE}; {first('grad', 'zygote')}")
    alone = f"Julia alone {in_julia_alone(5):.2f} s"
    ways = [("without a system image", "off", "5 s"), ("from a system image", "on", "2 s")]
    has_image = find(session().executable, session().project).path is not None
    for way, sysimage, target in ways if has_image else ways[:1]:
        taken = fresh(gradient, 5, sysimage)
        what = f"a new process's first Zygote gradient, after `import jax`, {way}"
        rows.append(Row(what, f"{taken:.2f} s", alone, "", target))
    return rows


def first_derivatives(systems: list[pb.Backend]) -> list[Row]:
    """Time the first derivatives of new processes by each system."""
    rows = []
    for backend in systems:
        gradient = fresh(timed(BEFORE, first("grad", backend.name)), 3)
        what = f"a new process's start of Julia and first gradient, {backend.name}"
        rows.append(Row(what, f"{gradient:.2f} s", "", ""))
        if backend.second_order:
            after = f"{BEFORE}; {first('grad', backend.name)}"
            second = fresh(timed(after, first("hessian", backend.name)), 3)
            what = f"its first second derivative after that, {backend.name}"
            rows.append(Row(what, f"{second:.2f} s", "", ""))
    return rows


def against_julia(what: str, outside: float, inside: float, target: str = "") -> Row:
    """Set a call from Python beside the same inside Julia."""
    more = f"{us(outside - inside)} more"
    return Row(what, us(outside), f"inside Julia {us(inside)}", more, target)


def calls(systems: list[pb.Backend]) -> list[Row]:
    """Time what every call takes, and `value_and_grad` on each system."""
    # It takes no arguments, so it ignores what it is given.
    nothing = ctypes.cast(ctypes.CDLL(None).getpid, ctypes.c_void_p).value or 0
    running, x = session(), x_of(1000)
    constant = pb.from_julia("x -> 0.0")
    work: dict[tuple[str, str], Callable[[], object]] = {
        ("", "empty"): lambda: running.run(lambda lib: lib._enter(nothing, 0, 0, 0, None)),
        ("", "constant"): lambda: constant(x),
    }
    cases = {backend.name: (backend.name, FUNCTION) for backend in systems}
    if "yota" in cases:
        # Yota traces `FUNCTION` anew each time. That takes so long, and differs so much from one
        # time to the next, that what a call adds is not seen. This one it need not trace.
        cases["yota, `sum`"] = "yota", "sum"
    for case, (system, function) in cases.items():
        gradient = pb.value_and_grad(pb.from_julia(function), backend=system)
        inside = pb.from_julia(INSIDE.format(function=function, system=system))
        work["outside", case] = lambda gradient=gradient: gradient(x)
        work["inside", case] = lambda inside=inside: float(inside(x.size))
    times = least(
        {key: call if key[0] == "inside" else in_a_row(call, 100) for key, call in work.items()},
        rounds=20,
    )
    rows = [
        Row("an empty call on Julia's thread", us(times["", "empty"]), "", ""),
        Row("`x -> 0.0` of a 1000-vector", us(times["", "constant"]), "", ""),
    ]
    for case, (system, _) in cases.items():
        what = f"`value_and_grad` of a 1000-vector, {case}"
        target = "60 us" if system == "yota" else "20 us"
        outside, inside = times["outside", case], times["inside", case]
        rows.append(against_julia(what, outside, inside, target))
    return rows


def prepared() -> list[Row]:
    """Time `value_and_grad` with Mooncake against Mooncake's own with everything prepared."""
    rows = []
    for function, size in ((FUNCTION, 1000), (WORK, 20_000)):
        gradient, x = pb.value_and_grad(pb.from_julia(function), backend="mooncake"), x_of(size)
        inside = pb.from_julia(PREPARED.format(function=function), using=["Mooncake"])
        times = least(
            {
                "outside": in_a_row(lambda gradient=gradient, x=x: gradient(x), 100),
                "inside": lambda inside=inside, size=size: float(inside(size)),
            },
            rounds=5,
        )
        what = f"`{function}` of {size:,}, Mooncake with everything prepared"
        rows.append(against_julia(what, times["outside"], times["inside"]))
    return rows


def main() -> None:
    """Run all measurements."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--markdown", action="store_true", help="print a table for the docs")
    parser.add_argument("--start", action="store_true", help="the start alone")
    parser.add_argument("--calls", action="store_true", help="warm calls alone")
    options = parser.parse_args()
    everything = not (options.start or options.calls)
    rows = starts() if options.start or everything else []
    if options.calls or everything:
        systems = [b for b in pb.backends() if b.language == "julia" and b.available]
        rows += first_derivatives(systems) if everything else []
        rows += calls(systems)
        if any(backend.name == "mooncake" for backend in systems):
            rows += prepared()
    show(rows, machine(), options.markdown)


if __name__ == "__main__":
    main()
