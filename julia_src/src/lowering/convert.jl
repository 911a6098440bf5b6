# Numbers of other types. Floats become integers as XLA's CPU backend does it: towards zero,
# the nearest integer that there is for those out of range, 0 for NaN.

@primitive convert_element_type(x, ::Val{T}) where {T} = broadcast(v -> as_type(T, v), x)
pull(::Primitive{:convert_element_type}, ::Val{1}, ȳ, y, x, ::Val{T}) where {T} =
    T <: Integer ? NoTangent() :
    broadcast(v -> as_cotangent_type(eltype(x), v), ȳ)

# Cotangents can be dual numbers, which keep their type.
as_cotangent_type(
    ::Type{T}, v::Union{AbstractFloat,Complex{<:AbstractFloat}}
) where {T<:Real} =
    convert(T, real(v))
as_cotangent_type(
    ::Type{T}, v::Union{AbstractFloat,Complex{<:AbstractFloat}}
) where {T<:Complex} =
    convert(T, v)
as_cotangent_type(::Type{T}, v) where {T} = T <: Real ? real(v) : v

@inline function as_type(::Type{T}, v) where {T}
    v isa T && return v
    T === Bool && return !iszero(primal(v))
    T <: Real && v isa Complex && return as_type(T, Base.real(v))
    T <: Integer && return v isa Integer ? v % T : whole(T, primal(v))
    return float_like(T, v)
end

@inline function whole(::Type{T}, v) where {T<:Integer}
    isnan(v) && return zero(T)
    v >= widest(typeof(v), T) && return typemax(T)
    v <= typemin(T) && return typemin(T)
    return unsafe_trunc(T, v)
end
@inline widest(::Type{F}, ::Type{T}) where {F,T} = F(2.0^(8 * sizeof(T) - (T <: Signed)))

# A dual number keeps its derivative, in the type that it has; `Lowering.float_like` has a
# method for them in the extension.
@inline float_like(::Type{T}, v) where {T} = convert(T, v)

@discrete bitcast_convert_type(x, ::Val{T}) where {T} = bits_as(T, x)

bits_as(::Type{T}, x::Number) where {T} =
    sizeof(T) == sizeof(x) ? reinterpret(T, x) : collect(reinterpret(T, [x]))
function bits_as(::Type{T}, x::AbstractArray{S}) where {T,S}
    sizeof(T) == sizeof(S) && return collect(reinterpret(T, x))
    # The narrower type has one more axis, the fastest.
    sizeof(T) < sizeof(S) && return collect(reinterpret(T, reshape(x, 1, size(x)...)))
    return as_value(collect(reinterpret(reshape, T, x)))
end

@primitive reduce_precision(x, ::Val{exponent}, ::Val{mantissa}) where {exponent,mantissa} =
    broadcast(v -> rounded(v, exponent, mantissa), x)
pull(::Primitive{:reduce_precision}, ::Val{1}, ȳ, y, x, ::Val{e}, ::Val{m}) where {e,m} =
    forward(Primitive{:reduce_precision}(), ȳ, Val(e), Val(m))

rounded(v, exponent, mantissa) = v
function rounded(v::T, exponent, mantissa) where {T<:Union{Float32,Float64}}
    (isfinite(v) && !iszero(v)) || return v
    significant = mantissa >= Base.significand_bits(T) ? v :
        round(v, RoundNearest; base=2, sigdigits=mantissa + 1)
    bias = 2^(exponent - 1) - 1
    Base.exponent(significant) > bias && return copysign(T(Inf), v)
    return Base.exponent(significant) < 1 - bias ? copysign(zero(T), v) : significant
end
