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

# Sums are taken in a wider type than their numbers have: rounded to that at each step, they
# are as far off as there are numbers.
summing_type(::Type{T}) where {T} = T
summing_type(::Type{Float16}) = Float32
summing_type(::Type{Float32}) = Float64
real_type(x) = PyBridge.primal_type(real(eltype(x)))

"Convert the parts of a number: of a complex one both, of a dual one all."
struct PartsIn{R} <: Function end
@inline (::PartsIn{R})(v) where {R} = as_type(R, v)
@inline (f::PartsIn)(v::Complex) = Base.complex(f(Base.real(v)), f(Base.imag(v)))
in_type(::Type{R}, x) where {R} = real_type(x) === R ? x : broadcast(PartsIn{R}(), x)

"Call a product with numbers of single precision in place of half precision."
function in_single(f, a, b)
    R = promote_type(real_type(a), real_type(b))
    real_type(a) === Float16 || real_type(b) === Float16 || return f(a, b)
    return in_type(R, f(in_type(promote_type(R, Float32), a),
        in_type(promote_type(R, Float32), b)))
end

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
# On the bits: numbers below the normal ones stay while the exponent is the type's own.
function rounded(v::T, exponent, mantissa) where {T<:Union{Float16,Float32,Float64}}
    isnan(v) && return v
    bits = reinterpret(Unsigned, v)
    dropped = Base.significand_bits(T) - mantissa
    if dropped > 0
        half, unit = one(bits) << (dropped - 1), one(bits) << dropped
        to_even = (bits >> dropped) & one(bits)
        bits = (bits + (half - one(bits)) + to_even) & ~(unit - one(bits))
    end
    significant = reinterpret(T, bits)
    exponent >= Base.exponent_bits(T) && return significant
    raw = (bits & Base.exponent_mask(T)) >> Base.significand_bits(T)
    place, bias = Int(raw) - Base.exponent_bias(T), 2^(exponent - 1) - 1
    place > bias && return copysign(T(Inf), v)
    return place < 1 - bias ? copysign(zero(T), v) : significant
end
