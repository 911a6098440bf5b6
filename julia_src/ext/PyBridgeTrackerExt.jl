# Tracker: reverse mode by operator overloading. `cond` runs the branch on the tracked values
# themselves, so it needs a method only where an array of tracked numbers has to become a
# tracked array.
module PyBridgeTrackerExt

using PrecompileTools: @compile_workload, @setup_workload
using PyBridge: PyBridge, ForwardDiffBackend, TrackerBackend
using Tracker: Tracker, TrackedArray, TrackedReal

PyBridge.check_available(::TrackerBackend) = true
# Tracker has no method for the product of a dual number and a tracked one.
PyBridge.for_duals(::TrackerBackend) = ForwardDiffBackend()

const Tracked = Union{TrackedReal,TrackedArray,AbstractArray{<:TrackedReal}}

PyBridge.within_gradient(::TrackedReal) = true
PyBridge.within_gradient(::TrackedArray) = true
PyBridge.within_gradient(::AbstractArray{<:TrackedReal}) = true

PyBridge.primal(x::Union{TrackedReal,TrackedArray}) = Tracker.data(x)
PyBridge.primal(x::AbstractArray{<:TrackedReal}) = map(Tracker.data, x)

function PyBridge.cond(pred::AbstractArray{Bool}, f, g, x::Tracked, xs...)
    PyBridge.check_elementwise(pred, (x, xs...))
    operands = map(x -> PyBridge.elements(x, pred), (x, xs...))
    # A comprehension and not `map`, which Tracker replaces by a version without branches.
    return tracked([(pred[i] ? f : g)(map(x -> x[i], operands)...)
                    for i in CartesianIndices(pred)])
end

tracked(y) = y
tracked(y::AbstractArray) = any(Tracker.istracked, y) ? Tracker.collect(y) : y
tracked(y::TrackedArray) = y

function PyBridge.pullback(
    b::TrackerBackend, f, args::Tuple, ::Val{argnums}
) where {argnums}
    any(i -> any(is_complex, PyBridge.leaves(args[i])), argnums) && PyBridge.refuse(
        b, "derivatives with respect to complex numbers", "Use backend=\"zygote\" or \"jax\".")
    params = map(i -> PyBridge.maptree(param, args[i]), argnums)
    places = ntuple(i -> something(findfirst(==(i), argnums), 0), length(args))
    y = f(ntuple(i -> places[i] == 0 ? args[i] : params[places[i]], length(args))...)
    y = PyBridge.maptree(tracked, y)
    function back(ȳ)
        foreach(reset!, PyBridge.leaves(params))
        backpropagate(y, ȳ)
        return PyBridge.maptree(x -> Tracker.istracked(x) ? copy(Tracker.grad(x)) : nothing,
            params)
    end
    return PyBridge.maptree(Tracker.data, y), back
end

is_complex(x) = eltype(x) <: Complex

# A dual number that was left out would have a derivative of zero, without a word.
param(x::Union{Real,AbstractArray{<:Real}}) = Tracker.param(x)
param(x::Union{Integer,AbstractArray{<:Integer}}) = x

function reset!(x)
    Tracker.istracked(x) || return nothing
    Tracker.tracker(x).grad = zero(Tracker.grad(x))
    return nothing
end

backpropagate(y::PyBridge.Branch, ȳ) = foreach(i -> backpropagate(y[i], ȳ[i]), keys(y))
backpropagate(y, ::PyBridge.NoGradient) = nothing
backpropagate(::Nothing, ȳ) = nothing
# Not the first call may destroy the graph: a Jacobian walks it once for each row.
backpropagate(y, ȳ) = Tracker.back!(y, ȳ; once=false)

@setup_workload begin
    f(x) = sum(abs2, x)
    @compile_workload begin
        for x in (1.0, [1.0, 2.0], Float32[1, 2])
            PyBridge.value_and_gradient(TrackerBackend(), f, (x,), Val((1,)))
        end
    end
end

end
