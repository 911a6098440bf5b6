"""
    differentiation_order(x) -> Int

Tell how many derivatives `x` carries here: 0 outside of all, 1 within a gradient, 2 within
two that are nested, as in a Hessian. Containers and structs answer with the largest order of a
leaf.

It is [`within_gradient`](@ref), counted, and as exact: Zygote and Yota count for every
value inside a gradient, ForwardDiff and Tracker per value; under Yota only rules see the
truth; inside a user's own `rrule` the answer is 0. Through the bridge each derivative is a
call of its own, which counts its own order.

The twin in Python is `pybridge.differentiation_order`.

# Arguments
- `x`: any value.

# Returns
A number from 0. Throws [`DetectionError`](@ref) for a value that carries a derivative of an
AD system that cannot be seen into.

# Examples
```jldoctest
julia> using PyBridge

julia> PyBridge.differentiation_order([1.0, 2.0])
0
```
"""
function differentiation_order(x)
    order = maximum(answers(differentiation_order, x); init=0)
    return order > 0 ? order : plain_order(x)
end
differentiation_order(x::Union{Tuple,NamedTuple,AbstractSet}) = largest_order(x)
differentiation_order(x::AbstractDict) = largest_order(values(x))
differentiation_order(x::Number) = plain_order(x)
differentiation_order(x::Complex) = largest_order(reim(x))
function differentiation_order(x::AbstractArray{T}) where {T}
    isconcretetype(T) && T <: Number || return largest_order(x)
    # Before `zero`, which a number type that cannot be seen into need not have.
    seen(x, :differentiation_order)
    return differentiation_order(zero(T))
end

largest_order(xs) = maximum(differentiation_order, xs; init=0)

# Of a value that says no more than that it carries a derivative nobody knows how many.
function plain_order(x)
    seen(x, :differentiation_order)
    within_gradient(x) || return 0
    system = nameof(parentmodule(typeof(x)))
    throw(DetectionError(typeof(x), system, :differentiation_order))
end

# The question is asked again in here: another gradient around this one, be it by rules or
# by numbers of its own, adds its own to the count.
function ChainRulesCore.rrule(::typeof(differentiation_order), x)
    return 1 + differentiation_order(x), _ -> (NoTangent(), NoTangent())
end
