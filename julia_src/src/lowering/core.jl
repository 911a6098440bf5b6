# How a primitive is called and differentiated, whatever it is.

"What a lowered program calls: a function without state, known by its type."
abstract type AbstractPrimitive <: Function end

"A primitive with methods of its own for `forward` and `pull`."
struct Primitive{name} <: AbstractPrimitive end

"A primitive without a derivative: integers and Booleans come out, or a piecewise constant."
struct Discrete{name} <: AbstractPrimitive end

# Name and function of everything that a lowered program can call, for the module `Lax`.
const NAMES = Pair{Symbol,Any}[]

function register(name::Symbol, value)
    any(pair -> first(pair) === name, NAMES) && error("the primitive $name is there twice")
    push!(NAMES, name => value)
    return value
end

"""
    @primitive name(args...) = value

Define the value of a primitive. It needs a `pull` method for each argument that can carry a
derivative.
"""
macro primitive(definition)
    return define_primitive(:Primitive, definition)
end

"""
    @discrete name(args...) = value

Define a primitive that no derivative passes; it is given values without derivatives.
"""
macro discrete(definition)
    return define_primitive(:Discrete, definition)
end

function define_primitive(kind, definition)
    signature = definition.args[1]
    parameters =
        signature isa Expr && signature.head === :where ? signature.args[2:end] : ()
    call = signature.head === :where ? signature.args[1] : signature
    name, arguments = call.args[1], call.args[2:end]
    type = :($kind{$(QuoteNode(name))})
    head = :(forward(::$type, $(arguments...)))
    isempty(parameters) || (head = Expr(:where, head, parameters...))
    method = Expr(:(=), head, Expr(:block, definition.args[2]))
    new = :(any(pair -> first(pair) === $(QuoteNode(name)), NAMES) ||
        register($(QuoteNode(name)), $type()))
    return esc(Expr(:block, :(Base.@__doc__ $method), new))
end

"""
    forward(primitive, args...)

The value of a primitive. It runs on numbers and arrays of numbers, dual numbers included.
"""
function forward end

"""
    pull(primitive, ::Val{i}, ȳ, y, args...)

The cotangent of argument number `i`, by ChainRules' convention for complex numbers.
"""
function pull end

# --- who differentiates -------------------------------------------------------------------

"Who asks about a call: nobody (`Plain`), dual numbers, or a system that overloads."
abstract type Mode end
struct Plain <: Mode end
struct Duals <: Mode end

mode(x) = Plain()
strongest(a::Mode, ::Plain) = a
strongest(::Plain, b::Mode) = b
strongest(::Plain, ::Plain) = Plain()
strongest(a::Mode, ::Mode) = a
modes(xs::Tuple) = foldl(strongest, map(mode, xs); init=Plain())

(p::AbstractPrimitive)(xs::Vararg{Any,N}) where {N} = invoke_as(modes(xs), p, xs...)

invoke_as(::Mode, p::AbstractPrimitive, xs...) = forward(p, map(settled, xs)...)
invoke_as(::Mode, p::Discrete, xs...) = forward(p, map(x -> primal(settled(x)), xs)...)

# The arrays of a compiled call copy themselves before they are written to; here nothing
# writes.
settled(x) = x
settled(x::PyBridge.CopyOnWrite) = x.data

is_inexact(x) = false
is_inexact(x::Number) = !(x isa Integer)
is_inexact(x::AbstractArray) = !(eltype(x) <: Integer)

# --- rules for Zygote and Yota ------------------------------------------------------------

function ChainRulesCore.rrule(p::AbstractPrimitive, xs::Vararg{Any,N}) where {N}
    args = map(settled, xs)
    y = forward(p, args...)
    # A cotangent is computed here at the latest: thunks of thunks would make types that
    # grow with the program.
    return y, ȳ -> (NoTangent(), pull_all(p, unthunk(ȳ), y, args)...)
end

function ChainRulesCore.rrule(p::Discrete, xs::Vararg{Any,N}) where {N}
    return p(xs...), _ -> ntuple(_ -> NoTangent(), Val(N + 1))
end

pull_all(p, ȳ::Union{AbstractZero,Nothing}, y, xs::Tuple) = map(_ -> NoTangent(), xs)
@generated function pull_all(p, ȳ, y, xs::Tuple)
    N = fieldcount(xs)
    return Expr(:tuple, (:(pull_one(p, Val($i), ȳ, y, xs)) for i in 1:N)...)
end

# A cotangent that nobody asks for, such as a constant's, is not computed.
pull_one(p, i::Val{I}, ȳ, y, xs) where {I} =
    is_inexact(xs[I]) ? Thunk(() -> pull(p, i, as_cotangent(y, ȳ), y, xs...)) : NoTangent()

as_cotangent(y, ȳ) = settled(unthunk(ȳ))

"Number the axes that are not in `dims`."
other_axes(dims, n) = Tuple(filter(d -> !(d in dims), ntuple(identity, n)))

"An array that holds the number, or the array."
as_array(x::Number) = fill(x)
as_array(x::AbstractArray) = x

"The number in an array without axes, or the array."
as_value(x::AbstractArray) = x
as_value(x::AbstractArray{<:Any,0}) = x[]
as_value(x::Number) = x

"Zeros of the size of `x` that can hold its numbers and those of the cotangent."
zeros_for(x, ȳ) = fill!(similar(x, promote_type(eltype(x), eltype(ȳ))), 0)
