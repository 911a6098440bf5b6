"""What `pb.check` costs: its time on 1,000 inputs over that of one jitted gradient.

    python benchmarks/check.py [--repeat N]

JAX alone, in double precision. The second of two reports with the same compiled programs is
measured; what the first took longer is tracing and compiling.
"""

from __future__ import annotations

import argparse
import time

import jax
import jax.numpy as jnp
import numpy as np

from pybridge.consistency._check import backends_for
from pybridge.consistency._check_run import CheckRun
from pybridge.consistency.subject import Allowed, Subject

INPUTS = 1000


def functions():
    rng = np.random.default_rng(0)
    weights = jnp.asarray(rng.normal(size=(INPUTS, INPUTS)) / INPUTS**0.5)
    gram = jnp.asarray(rng.normal(size=(4, INPUTS, INPUTS)) / INPUTS**0.5)
    return {
        "one layer": lambda x: jnp.sum(jnp.tanh(weights @ x) ** 2),
        "four layers": lambda x: jnp.sum(
            jax.lax.scan(lambda h, w: (jnp.tanh(w @ h), None), x, gram)[0] ** 2
        ),
        "elementwise": lambda x: jnp.sum(jnp.sin(x) * jnp.exp(-(x**2))),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=3)
    repeat = parser.parse_args().repeat
    jax.config.update("jax_enable_x64", True)
    x = jnp.asarray(np.random.default_rng(1).normal(size=INPUTS))
    print(f"{'function':12} {'gradient':>12} {'check':>12} {'compiling':>12} {'ratio':>7}")
    for name, f in functions().items():
        gradient = jax.jit(jax.grad(f))
        jax.block_until_ready(gradient(x))
        calls = []
        for _ in range(50):
            start = time.perf_counter()
            jax.block_until_ready(gradient(x))
            calls.append(time.perf_counter() - start)
        one = float(np.median(calls))
        start = time.perf_counter()
        rows = backends_for(f, ("jax",))
        checker = CheckRun(Subject(f, (x,)), rows, 0, lambda text: None, True, Allowed())
        checker.report(("given",))
        first = time.perf_counter() - start
        again = []
        for _ in range(repeat):
            start = time.perf_counter()
            report = checker.report(("given",))
            again.append(time.perf_counter() - start)
            assert not report.findings, report.findings
        best = min(again)
        print(
            f"{name:12} {one * 1e3:9.3f} ms {best * 1e3:9.1f} ms {(first - best) * 1e3:9.1f} ms "
            f"{best / one:7.1f}"
        )


if __name__ == "__main__":
    main()
