# Flux: how a model is walked, to find its arrays, to plan how it is rebuilt around other arrays,
# and to describe it for Python.
module PyBridgeFluxExt

using ChainRulesCore: ChainRulesCore, Tangent
using Flux: AlphaDropout, BatchNorm, Dropout, Flux, GroupNorm, InstanceNorm, Maxout,
    PairwiseFusion, Parallel, WeightNorm
using Flux.Functors: Functors
using LinearAlgebra: Adjoint, Transpose
using PyBridge: Keep, MaskSource, Node, Parameter, PyBridge, StateArray, Wrapped, running

include("flux_plan.jl")
include("flux_text.jl")

function PyBridge.import_flux!(sandbox)
    Core.eval(sandbox, quote
        const Flux = $Flux
        using .Flux
    end)
    return sandbox
end

end
