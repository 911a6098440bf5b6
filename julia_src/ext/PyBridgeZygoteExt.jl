# Zygote: reverse mode by source transformation. `within_gradient`, `cond` and `switch` need
# nothing here: Zygote reads their ChainRules rules.
module PyBridgeZygoteExt

using ChainRulesCore: ChainRulesCore, AbstractZero, NoTangent
using PyBridge: PyBridge, ZygoteBackend
using Zygote: Zygote

PyBridge.check_available(::ZygoteBackend) = true
PyBridge.reads_rules(::ZygoteBackend) = true

function PyBridge.pullback(
    ::ZygoteBackend, f, args::Tuple, ::Val{argnums}
) where {argnums}
    # `Zygote.pullback` computes the cotangents of all arguments; here those that nobody asked
    # for stay thunks. The first cotangent is the function's own.
    context = Zygote.Context()
    y, back = Zygote._pullback(context, f, args...)
    function selected(ȳ)
        x̄s = back(seed!(context, y, ȳ))
        x̄s === nothing && return map(_ -> nothing, argnums)
        return map(i -> Zygote.unthunk_tangent(x̄s[i+1]), argnums)
    end
    return y, selected
end

# The cotangent of a value as Zygote writes it: `nothing` for an AbstractZero. For what can
# be mutated, dictionaries too, Zygote reads what its context has of it, where the pullbacks of
# `d[key]` and `x.field` leave it, and ignores the cotangent that it is given.
seed!(context, y, ȳ) = ȳ
seed!(context, y, ::AbstractZero) = nothing
seed!(context, y::Tuple, ȳ::Tuple) = map((y, ȳ) -> seed!(context, y, ȳ), y, ȳ)
seed!(context, y::AbstractVector, ȳ::Tuple) =
    collect(Any, map((y, ȳ) -> seed!(context, y, ȳ), Tuple(y), ȳ))
function seed!(context, y::T, ȳ::NamedTuple{names}) where {T,names}
    parts = map(name -> seed!(context, getfield(y, name), ȳ[name]), names)
    fields = NamedTuple{names}(parts)
    ismutabletype(T) || return fields
    kept = Zygote.grad_mut(context, y)
    kept[] = Zygote.accum(kept[], fields)
    return kept
end
function seed!(context, y::AbstractDict, ȳ::NamedTuple)
    kept = Zygote.grad_mut(context, y)
    for (key, value) in y
        part = seed!(context, value, ȳ[Symbol(key)])
        kept[key] = Zygote.accum(get(kept, key, nothing), part)
    end
    return kept
end

# Every call with keywords has Julia compare their names. Zygote can differentiate what it
# makes of that once, and not twice, as for `Zygote.hessian_reverse`: names have no derivative.
@static if isdefined(Base, :diff_names)
    function ChainRulesCore.rrule(
        ::Zygote.ZygoteRuleConfig, ::typeof(Base.diff_names), given, known
    )
        return Base.diff_names(given, known), _ -> ntuple(_ -> NoTangent(), 3)
    end
end

# Forward over reverse, as Zygote.hessian does it, with the ForwardDiff that Zygote brings.
function PyBridge.hessian(b::ZygoteBackend, f, args::Tuple, argnums::Val)
    g, selected = PyBridge.with_arguments(f, args, argnums)
    every = Val(ntuple(identity, length(selected)))
    function gradient(v)
        xs = PyBridge.unravel(selected, v)
        y, back = PyBridge.pullback(b, g, xs, every)
        PyBridge.check_scalar(y)
        return PyBridge.ravel(PyBridge.gradients(xs, every, back(one(y))))
    end
    return Zygote.ForwardDiff.jacobian(gradient, PyBridge.ravel(selected))
end

include("zygote_observation.jl")

end
