# What Enzyme is told, and what it is asked. All of it stands in EnzymeCore, so code that is
# differentiated by Enzyme gets its answers wherever PyBridge is loaded.
module PyBridgeEnzymeCoreExt

using EnzymeCore: Annotation, Const, EnzymeCore, EnzymeRules
using NNlib: NNlib
using PyBridge: PyBridge

# Enzyme puts `true` in its place in the programs that it differentiates.
PyBridge.within_program(::Val{:Enzyme}) = EnzymeCore.within_autodiff()

EnzymeRules.inactive(::typeof(PyBridge.within_gradient), xs...) = nothing
EnzymeRules.inactive(::typeof(PyBridge.is_differentiating), xs...) = nothing
EnzymeRules.inactive(::typeof(PyBridge.differentiation_order), xs...) = nothing

# Flux's and NNlib's layers ask this one, which knows nothing of Enzyme. Its place is in NNlib.
const Question = Const{typeof(NNlib.within_gradient)}

EnzymeRules.forward(config, ::Question, ::Type{<:Annotation}, x::Annotation) =
    EnzymeRules.needs_primal(config) ? true : nothing

EnzymeRules.augmented_primal(config, ::Question, ::Type{<:Annotation}, x::Annotation) =
    EnzymeRules.AugmentedReturn(EnzymeRules.needs_primal(config) ? true : nothing, nothing, nothing)

EnzymeRules.reverse(config, ::Question, ȳ, tape, x::Annotation) = (nothing,)

end
