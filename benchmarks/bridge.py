"""Measure what a Julia function costs inside compiled JAX programs, against Julia by itself.

    python benchmarks/bridge.py [--markdown] [--threads 1]

Everything that is compared runs in turn, in one run, and each figure is the least of many. Julia's
own times are taken inside Julia, in the same process. XLA and BLAS get the same number of
threads. The rows called "callback" are what a bridge without this one looks like,
`jax.pure_callback` to juliacall with NumPy arrays: `bridge_callback.py`, in a process of its own,
since there juliacall has to start Julia its own way.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent

MLP = """
function (p, x, y)
    a = NNlib.relu.(p.W1 * x .+ p.b1)
    a = NNlib.relu.(p.W2 * a .+ p.b2)
    -sum(y .* NNlib.logsoftmax(p.W3 * a .+ p.b3)) / size(x, 2)
end
"""
LAYERS = """
function (p, x)
    a = NNlib.relu.(p.W1 * x .+ p.b1)
    a = NNlib.relu.(p.W2 * a .+ p.b2)
    p.W3 * a .+ p.b3
end
"""
PARAMETERS = """
(W1=randn(Float32, 256, 784) ./ 28, b1=zeros(Float32, 256),
 W2=randn(Float32, 256, 256) ./ 16, b2=zeros(Float32, 256),
 W3=randn(Float32, 10, 256) ./ 16, b3=zeros(Float32, 10))
"""
# The values are kept, so that Julia cannot leave the work out.
LEAST = """
let f = {f}, work = {work}, sink = Ref{{Any}}(nothing)
    n -> minimum(_ -> (@elapsed sink[] = work(f)), 1:Int(n))
end
"""


@dataclass(frozen=True)
class Row:
    """A line of the table."""

    what: str
    measured: str
    against: str
    result: str
    target: str = ""


def limit_threads(threads: int) -> None:
    """Give XLA and Julia's BLAS this many threads. Before either starts."""
    os.environ["OPENBLAS_NUM_THREADS"] = os.environ["NPROC"] = str(threads)
    eigen = str(threads > 1).lower()
    flags = f"--xla_cpu_multi_thread_eigen={eigen} intra_op_parallelism_threads={threads}"
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {flags}".strip()


def least(calls: dict[str, Callable[[], Any]], rounds: int, repeat: int = 1) -> dict[str, float]:
    """Take the least seconds of each call, in turn.

    Args:
        calls: what to call, by name. What returns a float has timed itself.
        rounds: how often.
        repeat: how many calls make one measurement.
    """
    found = dict.fromkeys(calls, float("inf"))
    for call in calls.values():
        call()
    for _ in range(rounds):
        for name, call in calls.items():
            start = time.perf_counter()
            for _ in range(repeat):
                own = call()
            seconds = own if isinstance(own, float) else (time.perf_counter() - start) / repeat
            found[name] = min(found[name], seconds)
    return found


def us(seconds: float) -> str:
    return f"{1e6 * seconds:.1f} us"


def ms(seconds: float) -> str:
    return f"{1e3 * seconds:.2f} ms"


def inside(f: str, work: str, repeat: int) -> Callable[[], float]:
    """Make a call that asks Julia for the least time of `work(f)`."""
    import pybridge as pb

    timer = pb.from_julia(LEAST.format(f=f, work=work), using="Zygote")
    return lambda: float(timer(repeat))


def mlp_in_julia() -> dict[str, str]:
    """Write what `LEAST` needs to time the gradient of the layers."""
    arguments = "x = rand(Float32, 784, 128), y = Float32.(rand(10, 128) .< 0.1)"
    return {
        "f": f"let f = {MLP.strip()}, p = {PARAMETERS.strip()}, {arguments}; (f, p, x, y) end",
        "work": "((f, p, x, y),) -> Zygote.withgradient(p -> f(p, x, y), p)",
    }


def mlp_transposed_in_julia() -> dict[str, str]:
    """Write what `LEAST` needs to time the copies of the layers' arguments and gradients."""
    arrays = "[p.W1, p.W2, p.W3, p.W1, p.W2, p.W3, rand(Float32, 784, 128), rand(Float32, 10, 128)]"
    pairs = f"[(PyBridge.reverse_axes(x), x) for x in {arrays}]"
    return {
        "f": f"let p = {PARAMETERS.strip()}; {pairs} end",
        "work": "pairs -> foreach(pair -> PyBridge.reverse_axes!(pair...), pairs)",
    }


def blocked(f: Any, *args: Any) -> Callable[[], Any]:
    import jax

    return lambda: jax.block_until_ready(f(*args))


def small_calls(callback: dict[str, float]) -> list[Row]:
    import jax
    import jax.numpy as jnp
    import numpy as np

    import pybridge as pb

    x = jnp.ones(4, jnp.float32)
    ours = jax.jit(pb.from_julia("x -> sum(abs2, x)"))
    native = jax.jit(lambda x: jnp.sum(x * x))
    scalar = jax.ShapeDtypeStruct((), np.float32)
    numpy = jax.jit(lambda x: jax.pure_callback(lambda x: np.float32(1), scalar, x))
    times = least(
        {"ours": blocked(ours, x), "native": blocked(native, x), "numpy": blocked(numpy, x)},
        rounds=50,
        repeat=100,
    )
    more = times["ours"] - times["native"]
    return [
        Row(
            "call of a small function, jitted",
            us(times["ours"]),
            f"native JAX {us(times['native'])}",
            f"{us(more)} more",
            "3 us",
        ),
        Row(
            "the same through a callback to Python that returns a constant",
            us(times["numpy"]),
            f"ours {us(times['ours'])}",
            f"{times['numpy'] / times['ours']:.1f} times",
        ),
        Row(
            "the same through a callback to juliacall",
            us(callback["small"]),
            f"ours {us(times['ours'])}",
            f"{callback['small'] / times['ours']:.1f} times",
            "at least 10 times",
        ),
    ]


def errors() -> list[Row]:
    """Compare an exception in Julia, caught in Python, with one in a callback to Python."""
    import logging

    import jax
    import jax.numpy as jnp
    import numpy as np

    import pybridge as pb

    scalar = jax.ShapeDtypeStruct((), np.float32)
    logging.getLogger("jax").setLevel(logging.CRITICAL)  # callbacks that fail are logged

    def fails(x: Any) -> Any:
        raise ValueError("planted")

    def caught(f: Any) -> Callable[[], None]:
        run = blocked(f, jnp.float32(1))

        def call() -> None:
            try:
                run()
            except (jax.errors.JaxRuntimeError, ValueError):
                return
            raise AssertionError("no exception")

        return call

    ours = jax.jit(pb.from_julia('x -> error("planted")', out=scalar))
    python = jax.jit(lambda x: jax.pure_callback(fails, scalar, x))
    times = least({"ours": caught(ours), "python": caught(python)}, rounds=20, repeat=5)
    return [
        Row(
            "an exception in a jitted call, caught in Python",
            us(times["ours"]),
            f"the same in a callback to Python {us(times['python'])}",
            f"{times['ours'] / times['python']:.2f} times",
        )
    ]


def large_arrays() -> list[Row]:
    import jax
    import jax.numpy as jnp
    import numpy as np

    import pybridge as pb

    # Not a power of two, where strided access meets few cache lines.
    x = jnp.asarray(np.random.default_rng(0).random((4000, 4000), np.float32))
    rows = []
    for source, rounds in (("x -> sum(abs2, x)", 30), ("x -> sum(sin.(x))", 6)):
        data = f"let f = {source}, x = rand(Float32, 4000, 4000); () -> f(x) end"
        times = least(
            {
                "ours": blocked(jax.jit(pb.from_julia(source, layout="reversed")), x),
                "julia": inside(data, "f -> f()", repeat=1),
            },
            rounds,
        )
        rows.append(
            Row(
                f"`{source}` of 64 MB, reversed",
                ms(times["ours"]),
                f"inside Julia {ms(times['julia'])}",
                f"{times['ours'] / times['julia']:.2f} times",
                "1.1 times",
            )
        )
    source = "x -> sum(abs2, x)"
    times = least(
        {
            "logical": blocked(jax.jit(pb.from_julia(source)), x),
            "reversed": blocked(jax.jit(pb.from_julia(source, layout="reversed")), x),
            "transpose": blocked(jax.jit(lambda x: x.T), x),
        },
        40,
    )
    more = times["logical"] - times["reversed"]
    rows.append(
        Row(
            f"`{source}` of 64 MB, logical: extra time",
            ms(more),
            f"transposing copy in JAX {ms(times['transpose'])}",
            f"{more / times['transpose']:.2f} times",
            "1.1 times",
        )
    )
    return rows


def in_a_row(call: Callable[[], Any], repeat: int) -> Callable[[], float]:
    """Time a call as `inside` times one in Julia: the least of several that follow each other."""

    def timed() -> float:
        seconds = []
        for _ in range(repeat):
            start = time.perf_counter()
            call()
            seconds.append(time.perf_counter() - start)
        return min(seconds)

    return timed


def mlp_arguments(layout: str) -> tuple[Any, ...]:
    """Make parameters, inputs and targets of the three layers; sizes as Julia has them."""
    import jax.numpy as jnp
    import numpy as np

    rng = np.random.default_rng(0)

    def array(*size: int, scale: float = 1.0) -> Any:
        values = (scale * rng.standard_normal(size)).astype(np.float32)
        return jnp.asarray(values if layout == "logical" else values.T.copy())

    p = {"W1": array(256, 784, scale=1 / 28), "W2": array(256, 256, scale=1 / 16)}
    p |= {"W3": array(10, 256, scale=1 / 16)}
    p |= {f"b{i}": jnp.zeros(n, jnp.float32) for i, n in ((1, 256), (2, 256), (3, 10))}
    classes = np.eye(10, dtype=np.float32)[:, rng.integers(0, 10, 128)]
    return p, array(784, 128), jnp.asarray(classes if layout == "logical" else classes.T.copy())


def mlp_gradient(callback: dict[str, float]) -> list[Row]:
    import jax

    import pybridge as pb

    calls: dict[str, Any] = {
        "julia": inside(**mlp_in_julia(), repeat=3),
        "transposed": inside(**mlp_transposed_in_julia(), repeat=3),
    }
    for layout in ("reversed", "logical"):
        step = jax.jit(jax.value_and_grad(pb.from_julia(MLP, layout=layout)))
        calls[layout] = in_a_row(blocked(step, *mlp_arguments(layout)), 3)
    times = least(calls, 100)
    rows = [
        Row(
            f"loss and gradient of three dense layers, {layout}",
            ms(times[layout]),
            f"Zygote inside Julia {ms(times['julia'])}",
            f"{times[layout] / times['julia']:.2f} times",
            "1.15 times",
        )
        for layout in ("reversed", "logical")
    ]
    return [
        *rows,
        Row(
            "its arguments and gradients alone, transposed by Julia",
            ms(times["transposed"]),
            f"Zygote inside Julia {ms(times['julia'])}",
            f"{times['transposed'] / times['julia']:.2f} of it",
        ),
        Row(
            "the same through callbacks to juliacall",
            ms(callback["mlp"]),
            f"Zygote inside that Julia {ms(callback['mlp_julia'])}",
            f"{callback['mlp'] / callback['mlp_julia']:.2f} times",
        ),
    ]


def pullbacks() -> list[Row]:
    """Time a forward and a backward pass of functions whose loss is JAX's."""
    import jax
    import jax.numpy as jnp

    import pybridge as pb
    from pybridge.julia._session import session

    def limited(size: int, call: Callable[[], float]) -> Callable[[], float]:
        def timed() -> float:
            session().call(lambda library: library.request("limit_pullbacks", size))
            return call()

        return timed

    rows = []
    layers = f"let f = {LAYERS.strip()}, p = {PARAMETERS.strip()}, x = rand(Float32, 784, 128)"
    cheap = "let f = (p, x) -> p .* tanh.(x), p = rand(Float32, 10^5), x = rand(Float32, 10^5)"
    p, x, _ = mlp_arguments("reversed")
    row = jnp.linspace(0, 1, 10**5, dtype=jnp.float32)
    for name, data, source, args in (
        ("three dense layers", layers, LAYERS, (p, x)),
        ("`p .* tanh.(x)` of 100,000", cheap, "(p, x) -> p .* tanh.(x)", (row, row)),
    ):
        f = pb.from_julia(source, layout="reversed")
        step = jax.jit(lambda args, ct, f=f: jax.vjp(f, *args)[1](ct))
        call = in_a_row(blocked(step, args, jnp.ones_like(f(*args))), 5)
        both = "((f, p, x, y),) -> Zygote.pullback(f, p, x)[2](y)"
        times = least(
            {
                "julia": inside(f"{data}; (f, p, x, f(p, x)) end", both, repeat=5),
                "left": limited(2**30, call),
                "again": limited(0, call),
            },
            40,
        )
        for passes, key in (("pullbacks left", "left"), ("no memory for them", "again")):
            rows.append(
                Row(
                    f"{name}, both passes from JAX, {passes}",
                    ms(times[key]),
                    f"Zygote inside Julia {ms(times['julia'])}",
                    f"{times[key] / times['julia']:.2f} times",
                )
            )
    return rows


def memory_growth(calls: int) -> Row:
    import jax
    import jax.numpy as jnp

    import pybridge as pb

    def resident() -> float:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmRSS"):
                return int(line.split()[1]) / 1024
        raise OSError("no VmRSS")

    if not Path("/proc/self/status").exists():
        return Row("memory after calls", "not measured here", "", "")
    f = jax.jit(jax.value_and_grad(pb.from_julia("x -> sum(abs2, x)")))
    x = jnp.ones(1000, jnp.float32)
    start = 0.0
    for i in range(calls + calls // 5):
        jax.block_until_ready(f(x))
        if i == calls // 5:  # Julia's heap has its size by then
            start = resident()
    more = resident() - start
    return Row(f"memory after {calls:,} more calls", f"{start + more:.0f} MB",
               f"{start:.0f} MB", f"{more:+.1f} MB", "5 MB")  # fmt: skip


def machine(threads: int | None = None) -> str:
    """Describe what was measured on, and with how many threads, if they were limited."""
    import jax
    import numpy as np

    from pybridge.julia._session import session

    model = platform.processor() or platform.machine()
    if Path("/proc/cpuinfo").exists():
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next((x.split(":")[1].strip() for x in lines if x.startswith("model name")), model)
    zygote = session().require("Zygote")
    text = (
        f"{model}, {os.cpu_count()} cores, {platform.system()}; "
        f"Python {platform.python_version()}, jax {jax.__version__}, NumPy {np.__version__}, "
        f"Julia {session().julia_version}, Zygote {zygote}"
    )
    if threads is None:
        return f"{text}."
    return f"{text}; XLA and BLAS with {threads} thread{'s'[: threads > 1]} each."


def callbacks() -> dict[str, float]:
    """Time the bridge of callbacks, in a process of its own, with the same Julia."""
    from pybridge.julia._session import session

    same = {
        "PYTHON_JULIACALL_EXE": session().executable,
        "PYTHON_JULIACALL_PROJECT": session().project,
    }
    command = [sys.executable, str(HERE / "bridge_callback.py")]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **same})
    if done.returncode:
        sys.exit("bridge.py: bridge_callback.py failed; see above")
    return json.loads(done.stdout.splitlines()[-1])


def show(rows: list[Row], note: str, markdown: bool) -> None:
    titles = ("", "measured", "against", "result", "target")
    cells = [(row.what, row.measured, row.against, row.result, row.target) for row in rows]
    if markdown:
        print(note, "", f"| {' | '.join(titles)} |", "| --- " * len(titles) + "|", sep="\n")
        for cell in cells:
            print(f"| {' | '.join(cell)} |")
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(*titles)
    for cell in cells:
        table.add_row(*cell)
    console = Console(width=None if sys.stdout.isatty() else 150)
    console.print(table)
    console.print(note)


def main() -> None:
    """Run all measurements."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--markdown", action="store_true", help="print a table for the docs")
    parser.add_argument("--threads", type=int, default=1, help="threads of XLA and of BLAS")
    parser.add_argument("--calls", type=int, default=100_000, help="calls for the memory row")
    options = parser.parse_args()
    limit_threads(options.threads)
    callback = callbacks()
    rows = [
        *small_calls(callback),
        *errors(),
        *large_arrays(),
        *mlp_gradient(callback),
        *pullbacks(),
        memory_growth(options.calls),
    ]
    show(rows, machine(options.threads), options.markdown)


if __name__ == "__main__":
    main()
