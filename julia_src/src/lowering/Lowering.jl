"""
    Lowering

JAX's primitives for lowered programs: what `pybridge.lower` writes calls of. The functions
are in the module `Lax`, under JAX's names; the axes of arrays are reversed, so an array of
JAX's shape (A, B, C) has the size (C, B, A) here and is never copied. Arrays without axes
are numbers.

Nothing here writes to its arguments. Each primitive has a value (`forward`), which also
runs on dual numbers, and one cotangent for each argument (`pull`); Zygote and Yota find
them as an `rrule`, Tracker through its extension. The conventions at kinks and ties are
JAX's.

To add a primitive: a `forward` and a `pull` method in the file of its family, or one line
with `@elementwise`; and an emitter in the file of the same name in `pybridge/lowering`.
"""
module Lowering

using ChainRulesCore: ChainRulesCore, AbstractZero, HasReverseMode, NoTangent, RuleConfig,
    Tangent, Thunk, ZeroTangent, unthunk
using LinearAlgebra: LinearAlgebra
using NNlib: NNlib
using ..PyBridge: PyBridge, inner_rrule, primal

include("core.jl")
include("elementwise.jl")
include("convert.jl")
include("special.jl")
include("incomplete.jl")
include("zeta.jl")
include("shapes.jl")
include("reductions.jl")
include("cumulative.jl")
include("dots.jl")
include("indexing.jl")
include("sorting.jl")
include("windows.jl")
include("selections.jl")
include("conv.jl")
include("control.jl")
include("rules.jl")
include("linalg.jl")
include("linalg_rules.jl")
include("linear_solve.jl")
include("random.jl")
include("fft.jl")
include("detection.jl")
include("sandbox.jl")

# The namespace of lowered programs: `Lax.add` and so on.
Core.eval(Lowering, Expr(:toplevel, Expr(:module, false, :Lax,
    Expr(:block, [:(const $name = $value) for (name, value) in NAMES]...))))

end
