# Zygote: reverse mode by source transformation. `within_gradient`, `cond` and `switch` need
# nothing here: Zygote reads their ChainRules rules.
module PyBridgeZygoteExt

using ChainRulesCore: ChainRulesCore, AbstractZero
using PrecompileTools: @compile_workload
using PyBridge: PyBridge, ZygoteBackend
using Zygote: Zygote

PyBridge.check_available(::ZygoteBackend) = true
PyBridge.reads_rules(::ZygoteBackend) = true

function PyBridge.pullback(
    ::ZygoteBackend, f, args::Tuple, ::Val{argnums}
) where {argnums}
    # `Zygote.pullback` computes the cotangents of all arguments; here those that nobody asked
    # for stay thunks. The first cotangent is the function's own.
    y, back = Zygote._pullback(f, args...)
    function selected(ȳ)
        x̄s = back(zygote_cotangent(ȳ))
        x̄s === nothing && return map(_ -> nothing, argnums)
        return map(i -> Zygote.unthunk_tangent(x̄s[i+1]), argnums)
    end
    return y, selected
end

# Zygote writes `nothing` where ChainRules writes an AbstractZero.
zygote_cotangent(ȳ) = ȳ
zygote_cotangent(::AbstractZero) = nothing
zygote_cotangent(ȳ::Union{Tuple,NamedTuple}) = map(zygote_cotangent, ȳ)

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

@compile_workload begin
    PyBridge.exercise(ZygoteBackend())
    PyBridge.exercise_lowered(ZygoteBackend())
end

end
