"""Compare pybridge's own adapters to Julia's AD systems with DifferentiationInterface's.

    python benchmarks/adapters.py [--rounds 200]

Each row is one derivative of one Julia function by one system. All are timed inside Julia, in one
run: by our adapter; by DifferentiationInterface through our trees, as `backend="di:..."` does;
and by DifferentiationInterface itself, prepared, where it takes the function as it is. Times are
the least of the rounds; ratios are to our adapter. The errors are relative to JAX in float64.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import pybridge as pb

SYSTEMS = {
    "zygote": "di:AutoZygote()",
    "forwarddiff": "di:AutoForwardDiff()",
    "tracker": "di:AutoTracker()",
    "mooncake": "di:AutoMooncake()",
    "reversediff": "di:AutoReverseDiff()",
}


@dataclass(frozen=True)
class Program:
    """A function in both languages.

    Attributes:
        julia: its source.
        jax: the same function.
        args: the arguments to differentiate by.
        derivative: `"gradient"`, `"jacobian"` or `"hessian"`.
    """

    julia: str
    jax: Callable[..., Any]
    args: tuple[Any, ...]
    derivative: str = "gradient"


def programs() -> dict[str, Program]:
    """Return what is differentiated."""
    draw = np.random.default_rng(0).standard_normal
    layer = {"W": draw((64, 64)), "b": draw(64)}
    x, short = draw(1000), draw(16)
    return {
        "a number": Program("x -> sin(x) * x^2", lambda x: jnp.sin(x) * x**2, (1.5,)),
        "1,000 numbers": Program("x -> sum(abs2, x)", lambda x: (x**2).sum(), (x,)),
        "a layer, as a tree": Program(
            "(p, x) -> sum(abs2, tanh.(p.W * x .+ p.b))",
            lambda p, x: (jnp.tanh(p["W"] @ x + p["b"]) ** 2).sum(),
            (layer, draw(64)),
        ),
        "a cond": Program(
            "x -> PyBridge.cond(sum(x) > 1e3, x -> sum(x), x -> sum(abs2, x), x)",
            lambda x: (x**2).sum(),
            (x,),
        ),
        "16 by 16": Program(
            "x -> x .^ 2 .* sum(x)", lambda x: x**2 * x.sum(), (short,), "jacobian"
        ),
        "of 16": Program(
            "x -> sum(abs2, x) * x[1]", lambda x: (x**2).sum() * x[0], (short,), "hessian"
        ),
    }


# Times are in seconds.
OURS = """
args -> begin
    f, system = {julia}, PyBridge.find_backend("{backend}")
    which = Val(ntuple(identity, length(args)))
    work() = PyBridge.{operation}(system, f, args, which)
    minimum(_ -> @elapsed(work()), 1:{rounds})
end
"""
ITSELF = """
(x,) -> begin
    DI = DifferentiationInterface
    f, adtype = {julia}, PyBridge.find_backend("{backend}").adtype
    prepared = DI.prepare_{operation}(f, adtype, x)
    work() = DI.{with_value}(f, prepared, adtype, x)
    minimum(_ -> @elapsed(work()), 1:{rounds})
end
"""
OPERATIONS = {"gradient": "value_and_gradient", "jacobian": "jacobian", "hessian": "hessian"}
WITH_VALUE = {
    "derivative": "value_and_derivative",
    "gradient": "value_and_gradient",
    "jacobian": "value_and_jacobian",
    "hessian": "value_gradient_and_hessian",
}


def error(program: Program, backend: str) -> float:
    """Return the largest difference from JAX, relative to JAX's largest entry."""
    f, numbers = pb.from_julia(program.julia), tuple(range(len(program.args)))
    name = "grad" if program.derivative == "gradient" else program.derivative
    found = getattr(pb, name)(f, numbers, backend=backend)(*program.args)
    reference = getattr(pb, name)(program.jax, numbers)(*program.args)
    pairs = zip(jax.tree.leaves(found), jax.tree.leaves(reference), strict=True)
    return max(float(np.max(np.abs(a - b)) / np.max(np.abs(b))) for a, b in pairs)


def seconds(source: str, program: Program, backend: str, rounds: int) -> float:
    """Time a derivative inside Julia."""
    vector = program.derivative != "gradient" or isinstance(program.args[0], np.ndarray)
    own = program.derivative if vector else "derivative"
    text = source.format(
        julia=program.julia,
        backend=backend,
        rounds=rounds,
        operation=OPERATIONS[program.derivative] if source is OURS else own,
        with_value=WITH_VALUE[own],
    )
    timed = pb.from_julia(text, using=["DifferentiationInterface"])
    return float(timed(tuple(program.args) if source is OURS else program.args[0]))


def first_line(problem: Exception) -> str:
    """Say in one line why there is no number."""
    return str(problem).splitlines()[0][:60]


def main() -> None:
    """Run all comparisons."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    rounds = parser.parse_args().rounds
    jax.config.update("jax_enable_x64", True)
    print("| derivative | system | ours | error | by di: | error | itself, prepared |")
    print("| --- | --- | ---: | ---: | ---: | ---: | ---: |")
    for name, program in programs().items():
        for system, other in SYSTEMS.items():
            cells = [f"{program.derivative} {name}", system]
            ours = None
            for backend, source in ((system, OURS), (other, OURS), (other, ITSELF)):
                if source is ITSELF and len(program.args) > 1:
                    cells.append("takes one argument")
                    continue
                try:
                    wrong = f"{error(program, backend):.0e}" if source is OURS else None
                    took = seconds(source, program, backend, rounds)
                except pb.BridgeError as problem:
                    cells += [first_line(problem)] + (["-"] if source is OURS else [])
                    continue
                ratio = "" if ours is None else f"{took / ours:.2f}"
                cells.append(ratio or f"{1e6 * took:.1f} us")
                ours = ours or took
                if wrong is not None:
                    cells.append(wrong)
            print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
