"""
    DetectionError(type, system, question=:within_gradient)

Thrown when `within_gradient`, or another question, meets a value of an AD system that it
cannot see into. An answer of `false` there would be wrong without a word.
"""
struct DetectionError <: Exception
    type::Type
    system::Symbol
    question::Symbol
end
DetectionError(type, system) = DetectionError(type, system, :within_gradient)

function Base.showerror(io::IO, e::DetectionError)
    print(io, e.question, ": expected a plain value or one of ", join(SEEN, ", ", " or "),
        ", got a ", e.type, " of ", e.system, ", which PyBridge cannot see into. ",
        "Differentiate with one of those, or define PyBridge.", e.question, "(::",
        nameof(e.type), ").")
end

const SEEN = ("Zygote", "ForwardDiff", "Tracker", "Yota", "Mooncake", "ReverseDiff", "Enzyme")

# Number and array types of these packages carry derivatives, and no method here knows them.
const UNSEEN_SYSTEMS = (:AutoGrad, :Nabla, :DualNumbers,
    :HyperDualNumbers, :HyperDualNumbersX, :TaylorDiff, :TaylorSeries, :Diffractor, :ADOLC,
    :AutoDiff, :TaylorIntegration, :MultiFloatsAD)

"""
    within_gradient(x) -> Bool

Tell whether `x` carries a derivative here: whether the calling code is being
differentiated, as far as the AD system lets `x` show it. Containers (tuples, named tuples,
dictionaries, sets, arrays of arrays) and structs answer for their leaves.

Zygote, Yota, Mooncake and Enzyme see every value inside a gradient as differentiated; ForwardDiff,
Tracker and ReverseDiff answer per value. Under Yota only rules see the truth, so act on the
answer with `PyBridge.cond`. Inside a user's own `rrule` values are plain and the answer is
`false`.

The twin in Python is `pybridge.within_gradient`. `NNlib.within_gradient`, which Flux's
layers ask, gives the same answers wherever it gives one.

# Arguments
- `x`: any value.

# Returns
`true` or `false`; throws [`DetectionError`](@ref) for a value of an AD system that cannot
be seen.

# Examples
```jldoctest
julia> using PyBridge

julia> within_gradient(2.0)
false
```
"""
within_gradient(x) = plainly_within(x) || any(answers(within_gradient, x))
within_gradient(x::Union{Tuple,NamedTuple,AbstractSet}) = any(within_gradient, x)
within_gradient(x::AbstractDict) = any(within_gradient, values(x))
within_gradient(x::AbstractArray{<:AbstractArray}) = any(within_gradient, x)
within_gradient(x::Number) = seen(x) && plainly_within(x)
within_gradient(x::Complex) = any(within_gradient, reim(x))
function within_gradient(x::AbstractArray{T}) where {T}
    isconcretetype(T) && T <: Complex && return within_gradient(similar(x, real(T), 0))
    # The type of elements that are no numbers, or of several, does not tell.
    isconcretetype(T) && T <: Number || return any(within_gradient, x)
    return seen(x) && plainly_within(x)
end

"What Julia makes programs of: structs whose fields lead to all of them, and to no number."
const NoData = Union{Type,Module,Method,Core.MethodInstance,Core.CodeInstance,Core.TypeName,Task}

"Ask the fields of a struct. One that can be changed may hold itself, and is asked once."
answers(question, x) = ismutable(x) ? once(() -> ask_fields(question, x), x) : ask_fields(question, x)
answers(question, ::NoData) = ()

function ask_fields(question, x::T) where {T}
    fieldcount(T) == 0 && return ()
    return [question(getfield(x, i)) for i in 1:fieldcount(T) if isdefined(x, i)]
end

# All questions share what has been asked, as `differentiation_order` goes on to `within_gradient`.
function once(ask, x)
    asked = get!(Base.IdSet{Any}, task_local_storage(), :PyBridge_asked)
    x in asked && return ()
    is_first = isempty(asked)
    push!(asked, x)
    try
        return ask()
    finally
        is_first && empty!(asked)
    end
end

plainly_within(x) = NNlib.within_gradient(x) || within_program(Val(:Enzyme))

"""
    within_program(::Val{system}) -> Bool

Tell whether an AD system is differentiating the code that asks, where the system knows that of
the program and not of a value. Extensions add methods.
"""
within_program(::Val) = false

function seen(x, question=:within_gradient)
    for type in (typeof(x), x isa AbstractArray ? eltype(x) : typeof(x))
        system = unseen_system(parentmodule(type))
        system === nothing || throw(DetectionError(type, system, question))
    end
    return true
end

function unseen_system(m::Module)
    nameof(m) in UNSEEN_SYSTEMS && return nameof(m)
    parent = parentmodule(m)
    return parent === m ? nothing : unseen_system(parent)
end

"""
    is_differentiating(xs...) -> Bool

Tell whether any of `xs` carries a derivative here: `within_gradient` for several values.
Use it in place of `any(within_gradient, xs)`, which Zygote cannot see: there the answer is
read inside `any`, where no rule applies.

The twin in Python is `pybridge.is_differentiating`.

# Examples
```jldoctest
julia> using PyBridge

julia> is_differentiating(1.0, [2.0, 3.0])
false
```
"""
is_differentiating(xs...) = any(within_gradient, xs)

# Reverse-mode systems that work by rules (Zygote, Yota) meet these in place of the methods.
function ChainRulesCore.rrule(::typeof(within_gradient), x)
    return true, _ -> (NoTangent(), NoTangent())
end
function ChainRulesCore.rrule(::typeof(is_differentiating), xs...)
    return !isempty(xs), _ -> (NoTangent(), map(_ -> NoTangent(), xs)...)
end

"""
    primal(x)

Take the value of `x` without its derivative, for predicates:

    PyBridge.cond(PyBridge.primal(x) > 0, log, zero, x)

ForwardDiff 1 compares dual numbers by their derivatives, too, where the values are equal:
while it differentiates, `x == 0` is false at 0, and `x > 0` may be true. A guard that is meant for
the value has to ask for the value. Containers become containers of values.

The twin in Python is `jax.lax.stop_gradient`; JAX compares values anyway.

# Examples
```jldoctest
julia> using PyBridge

julia> PyBridge.primal((1.0, [2.0]))
(1.0, [2.0])
```
"""
primal(x) = x
primal(x::Union{Tuple,NamedTuple}) = map(primal, x)

function ChainRulesCore.rrule(::typeof(primal), x)
    return x, _ -> (NoTangent(), NoTangent())
end

"""
    primal_type(T) -> Type

The type of the values of numbers of type `T`, without their derivatives.
"""
primal_type(T::Type) = T
