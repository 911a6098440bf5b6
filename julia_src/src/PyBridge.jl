"""
    PyBridge

Differentiation-aware primitives for Julia's AD systems, and the Julia half of the Python
package `pybridge`.

Ask `within_gradient(x)` or `is_differentiating(xs...)` whether a derivative is being
taken, and act on the answer with `PyBridge.cond` and `PyBridge.switch`. The names mean the
same as in Python.
"""
module PyBridge

using ChainRulesCore: ChainRulesCore, AbstractZero, HasReverseMode, NoTangent, ProjectTo,
    RuleConfig, Tangent, ZeroTangent, rrule_via_ad, unthunk
using LinearAlgebra: BLAS, LinearAlgebra
using NNlib: NNlib
using PrecompileTools: @compile_workload, @setup_workload
using Random: AbstractRNG, Random

include("primitives/detection.jl")
include("primitives/cond.jl")
include("primitives/switch.jl")
include("primitives/standin_random.jl")
include("trees.jl")
include("backends.jl")
include("sources.jl")
include("wire.jl")
include("bridge/copyonwrite.jl")
include("bridge/rules.jl")
include("bridge/programs.jl")
include("bridge/outputs.jl")
include("bridge/ffi.jl")
include("nn/rebuild.jl")
include("boundary.jl")
include("nn/models.jl")
include("jaxfunction.jl")
include("jaxrules.jl")
include("precompile.jl")

export DetectionError, is_differentiating, within_gradient

# `cond` is no export: LinearAlgebra has one. It and the rest are public all the same.
@static if VERSION >= v"1.11"
    eval(Meta.parse("public cond, switch, primal, value_and_gradient, pullback, " *
                    "pushforward, jacobian, hessian, JaxFunction, JaxLayer, JaxError"))
end

end
