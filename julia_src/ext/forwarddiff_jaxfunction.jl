# JAX functions of dual numbers. An array of duals is sent as the numbers it consists of,
# with one axis more for each level: the value and then its partials. JAX pushes all
# partials forward at once.

struct Duals <: PyBridge.AbstractCarrier end
const AnyDual = Union{Dual,Complex{<:Dual}}
PyBridge.depth(::Duals) = 1
PyBridge.carrier(::AnyDual) = Duals()
PyBridge.carrier(::AbstractArray{<:AnyDual}) = Duals()

"""
The dual type that holds all duals among `leaves`, tags in ForwardDiff's order. JAX has derivatives
of floating numbers alone, and `ForwardDiff.gradient(f, [1, 2])` makes duals of integers.
"""
function dual_type(leaves)
    D = mapreduce(dual_type_of, promote_type, leaves; init=Union{})
    return D === Union{} ? D : with_base(D, float(base_type(D)))
end
dual_type_of(x) = PyBridge.carrier(x) isa Duals ? real(eltype(settled(x))) : Union{}

# An array whose element type is abstract, as in Real[1, dual], gets one that is not.
settled(x) = x
settled(x::AbstractArray{T}) where {T} =
    isconcretetype(T) ? x : convert(Array{mapreduce(typeof, promote_type, x)}, x)

"How many partials there are at each level, from the outside in."
levels(::Type) = ()
levels(::Type{Dual{T,V,N}}) where {T,V,N} = (N, levels(V)...)

base_type(::Type{V}) where {V} = V
base_type(::Type{Dual{T,V,N}}) where {T,V,N} = base_type(V)

"The dual type with other numbers in it."
with_base(::Type, ::Type{R}) where {R} = R
with_base(::Type{Dual{T,V,N}}, ::Type{R}) where {T,V,N,R} = Dual{T,with_base(V, R),N}

"Take an array of duals apart into an array of numbers."
spread(D, x::Number) = spread(D, fill(x))
spread(D, x::AbstractArray{<:Complex}) = complex.(spread(D, real.(x)), spread(D, imag.(x)))
function spread(D, x::AbstractArray)
    R = base_type(D)
    R <: PyBridge.Wired || throw(PyBridge.UnsupportedValueError(D))
    duals = convert(Array{D}, x)
    out = Array{R}(undef, (reverse(levels(D)) .+ 1)..., size(x)...)
    GC.@preserve duals out unsafe_copyto!(
        pointer(out), Ptr{R}(pointer(duals)), length(out))
    return out
end

"Put an array of numbers together to an array of duals; integers have no partials."
lifted(D, y) = y
lifted(D, y::Array{<:Integer}) = y
lifted(D, y::Array{<:Complex}) = complex.(lifted(D, real(y)), lifted(D, imag(y)))
function lifted(D, y::Array{R}) where {R}
    shape = size(y)[length(levels(D))+1:end]
    out = Array{with_base(D, R)}(undef, shape)
    GC.@preserve y out unsafe_copyto!(Ptr{R}(pointer(out)), pointer(y), length(y))
    return isempty(shape) ? out[] : out
end

is_dual(x) = PyBridge.carrier(x) isa Duals

function push(f, base, args, cotangents)
    given = PyBridge.leaves((args, cotangents))
    D = dual_type(given)
    sent = PyBridge.maptree((args, cotangents)) do x
        is_dual(x) ? spread(D, settled(x)) : PyBridge.sendable(x)
    end
    request = PyBridge.request("call", base, sent...;
        mask=join(Int.(map(is_dual, given))), counts=join(levels(D), ','))
    value, _ = PyBridge.ask(f.reference, request, PyBridge.leaves(sent))
    return PyBridge.maptree(y -> lifted(D, y), value)
end

PyBridge.jax_call(::Duals, f, args) = push(f, "value", args, ())

function PyBridge.jax_vjp(::Duals, f, args)
    y = PyBridge.jax_call(Duals(), f, args)
    return y, ȳ -> PyBridge.jax_transpose(Duals(), f, args, y, ȳ)
end

function PyBridge.jax_transpose(::Duals, f, args, y, ȳ)
    D = dual_type((PyBridge.leaves(y)..., PyBridge.leaves(bare(ȳ))...))
    template = PyBridge.maptree(y -> in_duals(D, y), y)
    return collect(Any, push(f, "transpose", args, PyBridge.dense_leaves(template, ȳ)))
end

bare(ȳ) = ȳ
bare(ȳ::PyBridge.Tangent) = PyBridge.ChainRulesCore.backing(ȳ)

# A value that the cotangent can be shaped after without losing its partials.
in_duals(D, y) = PyBridge.is_inexact(y) ? in_duals.(Ref(D), y) : y
in_duals(D, y::Real) = convert(with_base(D, base_type(typeof(y))), y)
in_duals(D, y::Complex) = complex(in_duals(D, real(y)), in_duals(D, imag(y)))
in_duals(D, y::Integer) = y
