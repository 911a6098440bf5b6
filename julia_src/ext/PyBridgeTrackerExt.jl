# Tracker: reverse mode by operator overloading. `cond` runs the branch on the tracked values
# themselves, so it needs a method only where an array of tracked numbers has to become a
# tracked array.
module PyBridgeTrackerExt

using ChainRulesCore: ChainRulesCore, NoTangent
using LinearAlgebra: Bidiagonal, SymTridiagonal, Tridiagonal
using PrecompileTools: @compile_workload
using PyBridge: PyBridge, ForwardDiffBackend, TrackerBackend
using Tracker: Tracker, TrackedArray, TrackedReal

PyBridge.check_available(::TrackerBackend) = true
# Tracker has no method for the product of a dual number and a tracked one.
PyBridge.for_duals(::TrackerBackend) = ForwardDiffBackend()

const Tracked = Union{TrackedReal,TrackedArray,AbstractArray{<:TrackedReal}}

PyBridge.within_gradient(::TrackedReal) = true
PyBridge.within_gradient(::TrackedArray) = true
PyBridge.within_gradient(::AbstractArray{<:TrackedReal}) = true
# The number type of a `Diagonal` of a tracked array is that of a plain one.
PyBridge.within_gradient(x::AbstractArray{<:AbstractFloat}) =
    PyBridge.seen(x) && (any(PyBridge.within_gradient, parts(x)) || PyBridge.plainly_within(x))

"The arrays that an array is a view of, or made of."
parts(x::AbstractArray) = parent(x) === x ? () : (parent(x),)
parts(x::Bidiagonal) = (x.dv, x.ev)
parts(x::SymTridiagonal) = (x.dv, x.ev)
parts(x::Tridiagonal) = (x.dl, x.d, x.du)

PyBridge.differentiation_order(x::AbstractArray{<:AbstractFloat}) =
    max(PyBridge.largest_order(parts(x)), PyBridge.differentiation_order(zero(eltype(x))))
PyBridge.differentiation_order(x::Union{TrackedReal,TrackedArray}) =
    derivatives_on(Tracker.tracker(x)) + PyBridge.differentiation_order(Tracker.data(x))
PyBridge.differentiation_order(x::AbstractArray{<:TrackedReal}) = PyBridge.largest_order(x)

# A gradient within another one tracks its arguments again, with `param`: the identity, with
# which nothing else is tracked.
const IsParam = typeof(last(Tracker._forward(identity, 0.0)))

derivatives_on(::Nothing, known=IdDict{Any,Int}()) = 0
function derivatives_on(x::Tracker.Tracked, known=IdDict{Any,Int}())
    Tracker.isleaf(x) && return 1
    return get!(known, x) do
        of_arguments = maximum(arg -> derivatives_on(arg, known), x.f.args; init=0)
        of_arguments + (x.f.func isa IsParam)
    end
end

PyBridge.primal(x::Union{TrackedReal,TrackedArray}) = Tracker.data(x)
PyBridge.primal(x::AbstractArray{<:TrackedReal}) = map(Tracker.data, x)
PyBridge.primal_type(::Type{TrackedReal{T}}) where {T} = PyBridge.primal_type(T)

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
        b, "derivatives with respect to complex numbers", PyBridge.COMPLEX_ADVICE)
    params = map(i -> PyBridge.maptree(param, args[i]), argnums)
    places = ntuple(i -> something(findfirst(==(i), argnums), 0), length(args))
    y = f(ntuple(i -> places[i] == 0 ? args[i] : params[places[i]], length(args))...)
    y = PyBridge.maptree(tracked, PyBridge.plain(y))
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
# Complex numbers are not tracked: the derivative would be zero, without a word.
backpropagate(::Union{Complex,AbstractArray{<:Complex}}, ȳ) = PyBridge.refuse(
    TrackerBackend(), "derivatives of complex results", PyBridge.COMPLEX_ADVICE)
backpropagate(y, ::PyBridge.NoGradient) = nothing
backpropagate(::Union{Complex,AbstractArray{<:Complex}}, ::PyBridge.NoGradient) = nothing
backpropagate(y::PyBridge.Branch, ::PyBridge.NoGradient) = nothing
backpropagate(::Nothing, ȳ) = nothing
# Not the first call may destroy the graph: a Jacobian walks it once for each row.
backpropagate(y, ȳ) = Tracker.back!(y, ȳ; once=false)

# Tracker does not see what a loop writes into an array.
(k::PyBridge.Keeping)(x::Tracked) = Tracker.track(k, tracked(x))
function Tracker._forward(k::PyBridge.Keeping, x)
    return k(Tracker.data(x)), Δ -> (PyBridge.linear_part(k)(Δ),)
end

# --- JAX functions ----------------------------------------------------------------------

struct Tracking <: PyBridge.AbstractCarrier end
PyBridge.carrier(::Tracked) = Tracking()
PyBridge.depth(::Tracking) = 2

# Tracker tracks flat argument lists and flat results; the trees are taken apart and put
# together around it.
struct FlatCall{F,A}
    f::F
    args::A
    value::Base.RefValue{Any}
end

function PyBridge.jax_call(::Tracking, f, args)
    flat = FlatCall(f, args, Ref{Any}())
    y = Tracker.track(flat, map(tracked, PyBridge.leaves(args))...)
    position = Ref(0)
    return PyBridge.maptree(flat.value[]) do leaf
        PyBridge.is_inexact(leaf) ? pick(y, position[] += 1) : leaf
    end
end

function Tracker._forward(call::FlatCall, leaves...)
    args = refilled(call.args, map(Tracker.data, leaves))
    y, pull = PyBridge.jax_vjp(PyBridge.carrier(args), call.f, args)
    call.value[] = y
    flat = Tuple(filter(PyBridge.is_inexact, PyBridge.leaves(y)))
    function back(ȳs)
        given = Tracker.istracked(ȳs) ? ntuple(i -> pick(ȳs, i), length(flat)) : Tuple(ȳs)
        x̄s = Tracker.track(FlatPull(call.f, call.args, y, pull), leaves..., given...)
        position = Ref(0)
        return map(leaves) do x
            PyBridge.is_inexact(x) ? pick(x̄s, position[] += 1) : nothing
        end
    end
    return flat, back
end

# Tracker's own `getindex` of a tuple gives a 0 to the other elements, which cannot be added
# to an array when the gradients are gradients' own.
struct Pick
    i::Int
end
pick(xs, i) = Tracker.track(Pick(i), xs)
function Tracker._forward(p::Pick, xs)
    data = Tracker.data(xs)
    return data[p.i], Δ -> (ntuple(j -> j == p.i ? Δ : zero(data[j]), length(data)),)
end

# The pullback is tracked, too: with `nest=true` Tracker differentiates it.
struct FlatPull{F,A,Y,P}
    f::F
    args::A
    y::Y
    pull::P
end

function Tracker._forward(call::FlatPull, inputs...)
    data = map(Tracker.data, inputs)
    n = length(PyBridge.leaves(call.args))
    args, ȳ = refilled(call.args, data[1:n]), refilled(call.y, data[n+1:end]; inexact=true)
    function back(x̿s)
        given = map(Tracker.data, Tracker.data(x̿s))
        seeds = refilled(args, given; inexact=true)
        of_args, of_ȳ = PyBridge.pull_twice(call.f, args, call.y, ȳ, seeds)
        of_inputs = map(data[1:n]) do x
            PyBridge.is_inexact(x) ? popfirst!(of_args) : nothing
        end
        return map(once_more, (of_inputs..., of_ȳ...))
    end
    return Tuple(call.pull(ȳ)), back
end

# What is tracked here was given out without its way back: a third derivative is an error.
once_more(::Nothing) = nothing
once_more(x) = Tracker.nobacksies(
    "a JAX function in Julia: derivatives beyond the second are ForwardDiff's alone", x)

"Put values in place of a tree's leaves; with `inexact`, of those that are no integers."
function refilled(tree, values; inexact=false)
    queue = collect(Any, values)
    return PyBridge.maptree(tree) do x
        inexact && !PyBridge.is_inexact(x) ? nothing : popfirst!(queue)
    end
end

# --- functions with a rule -------------------------------------------------------------------

# What a function returns beside its first value is no function of the tracked arguments.
struct RuledCall{F}
    f::F
    others::Base.RefValue{Tuple}
end

function PyBridge.ruled(::Tracking, f, args...)
    call = RuledCall(f, Ref{Tuple}(()))
    y = Tracker.track(call, map(tracked, args)...)
    return isempty(call.others[]) ? y : (y, call.others[]...)
end

function Tracker._forward(call::RuledCall, args...)
    data = map(Tracker.data, args)
    y, pull = ChainRulesCore.rrule(call.f, data...)
    call.others[] = y isa Tuple ? Base.tail(y) : ()
    function back(ȳ)
        seed = Tracker.data(ȳ)
        _, x̄s... = pull(y isa Tuple ? (seed, map(_ -> NoTangent(), Base.tail(y))...) : seed)
        cotangents = map(args, data, x̄s) do arg, x, x̄
            Tracker.istracked(arg) ? PyBridge.dense(x, x̄) : nothing
        end
        return Tracker.nobacksies(nameof(call.f), cotangents)
    end
    return y isa Tuple ? first(y) : y, back
end

include("tracker_lowering.jl")

@compile_workload PyBridge.exercise(TrackerBackend())

end
