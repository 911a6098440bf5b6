"""A Julia function as a JAX function."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .._backends import JULIA_NAMES, row
from .._errors import ArgumentTypeError, ArgumentValueError, explain
from ._declared_outputs import check_declared
from ._julia_function import JuliaFunction
from ._layout import check_layout


def from_julia(
    f: Any,
    ad: str = "zygote",
    *,
    layout: str = "logical",
    batched: bool = False,
    out: Any = None,
    jvp: Any = None,
    vjp: Any = None,
    using: str | Sequence[str] = (),
) -> JuliaFunction:
    """Make a JAX function of a Julia function.

    The result works inside `jax.jit`, `vmap`, `grad`, `jvp`, `hessian`, `scan`, `checkpoint`,
    `shard_map` and every nesting of them, to any order of derivatives. On CPUs, and with CUDA.jl on
    NVIDIA's GPUs, compiled programs call Julia directly: no Python and no interpreter lock in
    between. On other devices, arrays are copied to the host and back, which is said once.

    Source is evaluated at once, in a Julia module of its own where PyBridge, NNlib and
    ChainRulesCore are imported. Arguments are numbers and arrays of bool, int8 to int64, uint8 to
    uint64, float16 to float64, complex64 and complex128, and tuples, lists, named tuples and
    dicts of them (a list is a Julia tuple, a dict a NamedTuple), registered dataclasses, Equinox
    modules and other pytrees (a NamedTuple of their children where those have names, else a tuple;
    static fields stay behind). Keyword arguments are static and become Julia's: `f(x, dims=2)` is
    `f(x; dims=2)`. Results may also be structs and Dicts with names for keys, which become named
    tuples (a name that Python cannot spell is replaced by its place, `_0`), and vectors of arrays,
    which become tuples. Numbers and arrays without axes are Julia numbers. JAX's bfloat16 is
    passed as Float32, and results go back to bfloat16 if there was no other floating-point
    argument. A function that mutates its argument changes nothing here: it gets a copy, or, for
    large arrays, an array that copies itself before the first write. (On a GPU it gets a CuArray
    of JAX's own memory, and must not write to it.) The function should be pure, as every function
    in JAX: compiled programs may call it more than once, or not at all.

    Outside of JAX's transformations, NumPy and Python arguments give NumPy results in Julia's
    own dtypes; a JAX array among the arguments gives JAX arrays, and one on a GPU makes the call a
    compiled program.

    Args:
        f: Julia source whose value is callable, or a callable juliacall value.
        ad: the AD system for reverse mode: `"zygote"`, `"forwarddiff"`, `"tracker"`, `"yota"`,
            `"mooncake"`, `"reversediff"`, `"enzyme"`, or an expression of ADTypes such as
            `"di:AutoFiniteDiff()"`. Forward mode, and forward over reverse, is ForwardDiff's. A
            ChainRules `rrule` or `frule` of the function itself is used with all of them.
            (`pb.grad` asks the system alone: there only Zygote and Yota read ChainRules.)
        layout: `"logical"`: `A[i, j]` is the same element on both sides (from 0 here, from 1
            there); what has two axes or more is transposed, once. `"reversed"`: the axes are
            reversed, and nothing is transposed: an array of shape (N, C, H, W) is a Julia array
            of size (W, H, C, N), which is Flux's convention.
        batched: whether the function accepts a batch as the last dimension of each argument
            (and returns one). `jax.vmap` then makes one call; otherwise a loop inside Julia,
            which is spread over Julia's threads where `PYTHON_JULIACALL_THREADS` is above 2.
        out: shapes and dtypes of the value: a tree of `jax.ShapeDtypeStruct`, or a function
            from the arguments' to one. Results are checked, and converted to the dtypes, under
            `jit` and outside of it. Without it, they are
            found when JAX traces a call with new argument types: by Julia's type inference if the
            value is made of numbers, else from one call with arguments of ones (square
            matrices: ones plus the identity).
        jvp: a rule of one's own for forward mode, Julia source or value:
            `(args, tangents) -> (y, tangent of y)`, both tuples. JAX's transforms use it, and
            `pb.jvp` does not; so with `vjp`.
        vjp: a rule of one's own for reverse mode: `(args...) -> (y, back)`, where
            `back(cotangent of y)` returns a tuple with one cotangent for each argument, `nothing`
            where there is none. Anything else is an ArgumentTypeError.
        using: Julia packages that the source names, such as `"Flux"` or `("Flux", "Optimisers")`:
            loaded, and imported by name (`Flux.relu`, not `relu`). Flux is installed on first
            use; others have to be in the main Julia environment.

    Returns:
        A callable.

    Raises:
        UnknownBackendError: `ad` names no Julia AD system.
        ArgumentValueError: `layout` is neither of the two, or a size in `out` is negative.
        ArgumentTypeError: the value of the source is not callable, or `out` has a leaf without
            shape and dtype, or a dtype that does not cross.
        JuliaError: the source does not parse, or throws; with Julia's message. What the
            function throws in a compiled program is a `jax.errors.JaxRuntimeError` with the same
            text (a ValueError where JAX notices it before the call returns).
        JuliaUnavailableError: Julia cannot be started.
        BackendNotLoadedError: a package in `using` cannot be installed or loaded.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> import pybridge as pb
        >>> f = pb.from_julia("x -> sum(abs2, x)")
        >>> float(f(jnp.array([3.0, 4.0])))
        25.0
        >>> print(jax.jit(jax.grad(f))(jnp.array([3.0, 4.0])))
        [6. 8.]

    The twin for the other direction is `pybridge.to_julia`.
    """
    row(ad, argument="ad", names=JULIA_NAMES)
    check_layout("from_julia", layout)
    # Not needed by those who only import pybridge.
    from ..julia import JuliaHandle

    if not callable(out):
        check_declared(out)
    packages = (using,) if isinstance(using, str) else tuple(using)
    check_packages("from_julia", packages)
    options: dict[str, Any] = {
        "ad": ad,
        "layout": layout,
        "batched": batched,
        "out": out,
        "jvp": None if jvp is None else JuliaHandle(jvp, packages),
        "vjp": None if vjp is None else JuliaHandle(vjp, packages),
    }
    if isinstance(f, JuliaFunction):
        return JuliaFunction(f.handle, source=f.source, **options)
    if not isinstance(f, str) and not type(f).__module__.startswith("juliacall"):
        raise ArgumentTypeError(
            explain(
                "from_julia",
                expected="Julia source or a callable juliacall value",
                got=f"a {type(f).__name__}",
                fix="A Python function needs no bridge: pass it to pb.grad itself.",
            )
        )
    source = f if isinstance(f, str) else None
    return JuliaFunction(JuliaHandle(f, packages), source=source, **options)


def check_packages(where: str, packages: Sequence[Any]) -> None:
    """Refuse what cannot be the name of a Julia package.

    Raises:
        ArgumentValueError: one of them is none.
    """
    for name in packages:
        if not isinstance(name, str) or not name.isidentifier():
            raise ArgumentValueError(
                explain(
                    where,
                    expected='names of Julia packages in using=, such as "Flux"',
                    got=repr(name),
                    fix="Parts of a package are reached through its name: Flux.Losses.mse.",
                )
            )
