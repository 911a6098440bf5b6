# ForwardDiff: forward mode by dual numbers. NNlib's own extension answers
# `within_gradient` for duals; `cond` runs the branch on the duals themselves.
module PyBridgeForwardDiffExt

using ForwardDiff: ForwardDiff, Dual, Tag
using LinearAlgebra: LinearAlgebra
using NNlib: NNlib
using PrecompileTools: @compile_workload
using PyBridge: PyBridge, ForwardDiffBackend

PyBridge.check_available(::ForwardDiffBackend) = true

function PyBridge.pushforward(b::ForwardDiffBackend, f, args::Tuple, tangents::Tuple)
    check_real(b, args)
    return pushforward(direction_tag(f, (args, tangents)), f, args, tangents)
end
function pushforward(::Type{T}, f, args, tangents) where {T}
    y = f(PyBridge.maptree((x, ẋ) -> dual(T, x, ẋ), args, tangents)...)
    return PyBridge.maptree(y -> primal(T, y), y), PyBridge.maptree(y -> tangent(T, y), y)
end

PyBridge.primal(x::Dual) = PyBridge.primal(ForwardDiff.value(x))
PyBridge.primal(x::Complex{<:Dual}) = complex(map(PyBridge.primal, reim(x))...)
PyBridge.primal(x::AbstractArray{<:Union{Dual,Complex{<:Dual}}}) = map(PyBridge.primal, x)
PyBridge.primal_type(::Type{<:Dual{T,V}}) where {T,V} = PyBridge.primal_type(V)

PyBridge.differentiation_order(x::Dual) =
    1 + PyBridge.differentiation_order(ForwardDiff.value(x))

# --- one direction -------------------------------------------------------------------------

struct Along{F} end

# One tag for all arguments of a call, whatever their dtypes. It tells of everything that may
# hold the duals of a derivative around this one: the arguments' numbers, and what the function
# has captured. So no derivative is taken for another.
function direction_tag(::F, tree) where {F}
    T = Tag{Along{F},number_type(tree)}
    ForwardDiff.tagcount(T)
    return T
end

# ForwardDiff orders tags by when they were first compiled, which need not be the order in which
# they are nested: the same tag may be within another one here and around it there, and
# precompiled code keeps the number of another session. A tag that tells of another one is
# within that, always.
const TypeOfTag{F,V} = Type{Tag{F,V}}
ForwardDiff.:≺(a::TypeOfTag{Along{F},V}, b::TypeOfTag{Along{G},W}) where {F,V,G,W} = is_around(a, b)
ForwardDiff.:≺(a::TypeOfTag{Along{F},V}, b::TypeOfTag{G,W}) where {F,V,G,W} = is_around(a, b)
ForwardDiff.:≺(a::TypeOfTag{F,V}, b::TypeOfTag{Along{G},W}) where {F,V,G,W} = is_around(a, b)

@generated function is_around(::Type{A}, ::Type{B}) where {A,B}
    mentions(B, A) && return true
    mentions(A, B) && return false
    return :(ForwardDiff.tagcount(A) < ForwardDiff.tagcount(B))
end

"Tell whether the type `part` occurs within the parameters of a type."
mentions(type, part, seen=Base.IdSet{Any}()) = false
mentions(type::UnionAll, part, seen=Base.IdSet{Any}()) = mentions(type.body, part, seen)
mentions(type::Union, part, seen=Base.IdSet{Any}()) =
    mentions(type.a, part, seen) || mentions(type.b, part, seen)
function mentions(type::DataType, part, seen=Base.IdSet{Any}())
    type in seen && return false
    push!(seen, type)
    return any(p -> p === part || mentions(p, part, seen), type.parameters)
end

number_type(x::Union{Number,AbstractArray}) = real(eltype(x))
number_type(::Nothing) = Bool
number_type(tree) = promote_type(Bool, map(number_type, Tuple(tree))...)

dual(::Type, x::Union{Integer,AbstractArray{<:Integer}}, ẋ) = x
dual(::Type{T}, x::Union{Complex,AbstractArray{<:Complex}}, ẋ) where {T} =
    complex.(Dual{T}.(real.(x), real.(ẋ)), Dual{T}.(imag.(x), imag.(ẋ)))
dual(::Type{T}, x, ẋ) where {T} = Dual{T}.(x, ẋ)

primal(::Type, y::Real) = y
primal(::Type{T}, y::Dual{T}) where {T} = ForwardDiff.value(y)
primal(::Type{T}, y::Complex) where {T} = complex(primal(T, real(y)), primal(T, imag(y)))
primal(::Type{T}, y::AbstractArray) where {T} = map(y -> primal(T, y), y)
tangent(::Type, y::Real) = zero(y)
tangent(::Type{T}, y::Dual{T}) where {T} = ForwardDiff.partials(y, 1)
tangent(::Type{T}, y::Complex) where {T} = complex(tangent(T, real(y)), tangent(T, imag(y)))
tangent(::Type{T}, y::AbstractArray) where {T} = map(y -> tangent(T, y), y)

function with_duals(::Type{T}, leaves, ẋ::PyBridge.Direction{wrt}) where {T,wrt}
    duals = map((i, ẋ) -> dual(T, leaves[i], ẋ), wrt, ẋ.tangents)
    return PyBridge.replace_leaves(leaves, Val(wrt), duals)
end

function PyBridge.directional(g, leaves, direction::PyBridge.Direction)
    T = direction_tag(g, (leaves, direction.tangents))
    return directional(T, g, leaves, direction)
end
function directional(::Type{T}, g, leaves, direction) where {T}
    return PyBridge.maptree(y -> tangent(T, y), g(with_duals(T, leaves, direction)))
end

# The value within a gradient: the arguments are duals, whose tangents are zero.
function value_within(::Type{T}, g, leaves, direction) where {T}
    return PyBridge.maptree(y -> primal(T, y), g(with_duals(T, leaves, direction)))
end

PyBridge.linear_gradient(f, xs) = last(native_gradient((xs...) -> f(xs), xs))

function PyBridge.reverse_by_system(
    b::ForwardDiffBackend, f, spec, leaves, ::Val{wrt}
) where {wrt}
    selected = map(i -> leaves[i], wrt)
    check_real(b, selected)
    plainly(xs) = PyBridge.plain(PyBridge.call_with(f, spec, xs))
    g(xs) = plainly(PyBridge.replace_leaves(leaves, Val(wrt), xs))
    zeros = PyBridge.Direction{wrt}(map(zero, selected))
    y = value_within(direction_tag(plainly, leaves), plainly, leaves, zeros)
    back(ȳ) = PyBridge.linear_gradient(xs -> PyBridge.pairing(ȳ, g(xs)), selected)
    return y, back
end

function PyBridge.value_and_gradient(b::ForwardDiffBackend, f, args::Tuple, argnums::Val)
    g, selected = PyBridge.with_arguments(f, args, argnums)
    check_real(b, selected)
    y, gradients = native_gradient(g, selected)
    return y, map(PyBridge.dense, selected, gradients)
end

# One number and one array are what ForwardDiff differentiates itself; the rest goes through
# one vector.
function native_gradient(g, (x,)::Tuple{Real})
    y, ẏ = PyBridge.pushforward(ForwardDiffBackend(), g, (x,), (one(x),))
    PyBridge.check_scalar(y)
    return y, (ẏ,)
end

function native_gradient(g, (x,)::Tuple{AbstractArray{<:Real}})
    isempty(x) && return PyBridge.check_scalar(g(x)), (zero(x),)
    value = Ref{Any}()
    T = direction_tag(g, x)
    config = ForwardDiff.GradientConfig(g, x, ForwardDiff.Chunk(x), T())
    gradient = ForwardDiff.gradient(duals -> value[] = PyBridge.check_scalar(g(duals)), x, config,
        Val(false))
    return primal(T, value[]), (gradient,)
end

function native_gradient(g, selected::Tuple)
    v = PyBridge.ravel(selected)
    y, (gradient,) = native_gradient(v -> g(PyBridge.unravel(selected, v)...), (v,))
    return y, PyBridge.unravel(selected, gradient)
end

plain(y::Number) = y
plain(y::Dual) = ForwardDiff.value(y)
plain(y::AbstractArray) = map(plain, y)

function PyBridge.value_aux_and_gradient(
    b::ForwardDiffBackend, f, args::Tuple, argnums::Val
)
    aux = Ref{Any}()
    function first_value(xs...)
        y, aux[] = PyBridge.split_aux(f(xs...))
        return y
    end
    y, gradients = PyBridge.value_and_gradient(b, first_value, args, argnums)
    return (y, PyBridge.maptree(plain, aux[])), gradients
end

function PyBridge.jacobian(b::ForwardDiffBackend, f, args::Tuple, argnums::Val)
    g, selected = PyBridge.with_arguments(f, args, argnums)
    check_real(b, selected)
    y = PyBridge.plain(f(args...))
    J = ForwardDiff.jacobian(PyBridge.ravel(selected)) do v
        PyBridge.ravel(PyBridge.plain(g(PyBridge.unravel(selected, v)...)))
    end
    return y, J
end

function PyBridge.hessian(b::ForwardDiffBackend, f, args::Tuple, argnums::Val)
    g, selected = PyBridge.with_arguments(f, args, argnums)
    check_real(b, selected)
    return ForwardDiff.hessian(PyBridge.ravel(selected)) do v
        PyBridge.check_scalar(g(PyBridge.unravel(selected, v)...))
    end
end

function check_real(b, args)
    any(x -> eltype(x) <: Complex, PyBridge.leaves(args)) && PyBridge.refuse(
        b, "derivatives with respect to complex numbers", PyBridge.COMPLEX_ADVICE)
    return nothing
end

include("forwarddiff_jaxfunction.jl")
include("forwarddiff_lowering.jl")
include("forwarddiff_observation.jl")

@compile_workload PyBridge.exercise(ForwardDiffBackend())

end
