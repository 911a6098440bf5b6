"""The bridge that `jax.pure_callback` and `jax.custom_vjp` make, for comparison.

`bridge.py` runs this in a process of its own and reads the JSON that it prints last. It is what
torch2jax does for PyTorch: the backward rule runs the function again, under the AD system, and
values cross as NumPy arrays.
"""

from __future__ import annotations

import json
from typing import Any

import jax
import juliacall
import numpy as np
from bridge import LEAST, MLP, blocked, least, mlp_arguments, mlp_in_julia

jl: Any = juliacall.newmodule("Callback")
jl.seval("import NNlib, Zygote")


def to_jax(source: str, out: Any) -> Any:
    """Make a JAX function of a Julia function with a scalar value."""
    f = jl.seval(f"""
    let f = {source.strip()}
        (xs...) -> f(map(copy_in, xs)...)
    end
    """)
    gradient = jl.seval(f"""
    let f = {source.strip()}
        (xs...) -> flat(Zygote.gradient(f, map(copy_in, xs)...))
    end
    """)

    def pass_on(args: Any) -> Any:
        return [
            jl.named(list(arg), list(map(np.asarray, arg.values())))
            if isinstance(arg, dict)
            else np.asarray(arg)
            for arg in args
        ]

    def value(*args: Any) -> Any:
        return np.float32(f(*pass_on(args)))

    def pulled(ct: Any, *args: Any) -> Any:
        # Each array is copied into NumPy's own memory.
        found = iter(np.array(x, np.float32) for x in gradient(*pass_on(args)))
        return jax.tree_util.tree_map(lambda _: np.float32(ct) * next(found), args)

    @jax.custom_vjp
    def call(*args: Any) -> Any:
        return jax.pure_callback(value, out, *args)

    def forward(*args: Any) -> Any:
        return call(*args), args

    def backward(args: Any, ct: Any) -> Any:
        shapes = jax.tree_util.tree_map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), args)
        return jax.pure_callback(pulled, shapes, ct, *args)

    call.defvjp(forward, backward)
    return call


def main() -> None:
    """Print the seconds of each."""
    # BLAS needs arrays of Julia's own: NumPy's are row by row.
    jl.seval("""
    copy_in(x::AbstractArray) = Array(x)
    copy_in(x::NamedTuple) = map(copy_in, x)
    named(names, values) = NamedTuple{Tuple(Symbol.(names))}(Tuple(values))
    flat(x::Union{Tuple,NamedTuple}) = mapreduce(flat, vcat, values(x); init=Any[])
    flat(x) = Any[x]
    """)
    scalar = jax.ShapeDtypeStruct((), np.float32)
    arguments = mlp_arguments("logical")
    small = jax.jit(to_jax("x -> sum(abs2, x)", scalar))
    step = jax.jit(jax.value_and_grad(to_jax(MLP, scalar)))
    julia = jl.seval(LEAST.format(**mlp_in_julia()))
    times = least({"small": blocked(small, jax.numpy.ones(4, np.float32))}, 30, repeat=20)
    times |= least({"mlp": blocked(step, *arguments), "mlp_julia": lambda: float(julia(3))}, 60)
    print(json.dumps(times))


if __name__ == "__main__":
    main()
