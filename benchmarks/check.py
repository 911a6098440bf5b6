"""What `pb.check` costs: its time over that of one jitted gradient of JAX.

    python benchmarks/check.py [--repeat N]          functions of 1,000 inputs
    python benchmarks/check.py --programs 100        the right programs of finite_faults.py

JAX alone, in double precision. Of the functions of 1,000 inputs the second of two reports with the
same compiled programs is measured; what the first took longer is tracing and compiling. Of the
programs, which are small, all is measured: tracing, compiling and running the check, over the same
for `jax.jit(jax.value_and_grad(f))`, which comes first.
"""

from __future__ import annotations

import argparse
import time

import finite_faults
import jax
import jax.numpy as jnp
import numpy as np

from pybridge.consistency import check
from pybridge.consistency._check import backends_for
from pybridge.consistency._check_run import CheckRun
from pybridge.consistency.subject import Allowed, Subject
from pybridge.finite import double_precision

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
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--programs", type=int, metavar="COUNT", help="programs of each set")
    options = parser.parse_args()
    if options.programs is None:
        large_functions(options.repeat)
    else:
        small_programs(options.programs)


def large_functions(repeat: int) -> None:
    """Print what a check of functions of 1,000 inputs costs once all is compiled."""
    jax.config.update("jax_enable_x64", True)
    x = jnp.asarray(np.random.default_rng(1).normal(size=INPUTS))
    print(f"{'function':12} {'gradient':>12} {'check':>12} {'compiling':>12} {'ratio':>7}")
    for name, f in functions().items():
        gradient = jax.jit(jax.grad(f))
        jax.block_until_ready(gradient(x))
        one = float(np.median([seconds(lambda: gradient(x)) for _ in range(50)]))  # noqa: B023
        rows = backends_for(f, ("jax",))
        checker = CheckRun(Subject(f, (x,)), rows, 0, lambda text: None, True, Allowed())
        first = seconds(lambda: checker.report(("given",)))  # noqa: B023
        again = []
        for _ in range(repeat):
            again.append(seconds(lambda: checker.report(("given",))))  # noqa: B023
            assert not checker.findings, checker.findings
        best = min(again)
        print(
            f"{name:12} {one * 1e3:9.3f} ms {best * 1e3:9.1f} ms {(first - best) * 1e3:9.1f} ms "
            f"{best / one:7.1f}"
        )


def small_programs(count: int) -> None:
    """Print what a check of small programs costs with all that is compiled for it."""
    print(f"{'programs':10} {'gradient':>12} {'check':>12} {'ratio':>7} {'nine in ten':>12}")
    ratios = []
    for which in sorted(finite_faults.RIGHT):
        times = np.array([program_times(which, number) for number in range(count)])
        ratios.append(times[:, 1] / times[:, 0])
        print_row(which, *np.median(times, axis=0), ratios[-1])
    print(f"{'all':36} {np.median(ratios):7.1f} {np.percentile(ratios, 90):12.1f}")


def print_row(name: str, gradient: float, check: float, ratios: np.ndarray) -> None:
    """Print the medians of a set of programs."""
    print(
        f"{name:10} {gradient * 1e3:9.1f} ms {check * 1e3:9.1f} ms "
        f"{np.median(ratios):7.1f} {np.percentile(ratios, 90):12.1f}"
    )


def program_times(which: str, number: int) -> tuple[float, float]:
    """Time JAX's gradient of a program's summed value, and the check, both new to JAX."""
    finite_faults.clear()
    with double_precision():
        program = getattr(finite_faults.module_of(which), which)(0, number)

        def total(*args):
            return sum(jnp.sum(leaf.real) for leaf in jax.tree.leaves(program(*args)))

        gradient = jax.jit(jax.value_and_grad(total, argnums=tuple(range(len(program.args)))))
        rows = ("jax", "finite")
        return (
            seconds(lambda: gradient(*program.args)),
            seconds(lambda: check(program, *program.args, backends=rows, seed=number)),
        )


def seconds(call) -> float:
    """Time one call."""
    start = time.perf_counter()
    jax.block_until_ready(call())
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
