# Dropout with masks from a JAX key. The twin in Python is `pybridge/nn/_dropout.py`.

"""
    dropout(key, x, p; dims=:, training=:auto)

Set elements of `x` to zero with probability `p` and divide the others by `1 - p`, in training;
otherwise return `x`.

Which elements those are depends on `key`, `p` and the size alone: the mask is
[`keep_mask`](@ref)`(key, p, size(x))`, the same in JAX, forwards, backwards and when it is
computed again. A dropped element is 0 even where `x` is NaN or infinite (Flux multiplies by 0,
which gives NaN), and its derivative is 0. `p` is a constant: it has no derivative.

The twin in Python is `pybridge.nn.Dropout`.

# Arguments
- `key`: the two words of a JAX key, a tuple or a vector of `UInt32`. Not needed, and may be
  `nothing`, where nothing is drawn: outside of training, and for `p == 0`.
- `x`: an array of floating-point numbers, real or complex, with any number of dimensions; where
  nothing is drawn, of any numbers.
- `p`: a number from 0 to 1.
- `dims`: the dimensions along which the mask varies; along the others it is shared. `:` for all.
- `training`: `true`, `false`, or `:auto` to train exactly where a derivative is being taken.

# Returns
An array with the size and the element type of `x`; `x` itself where nothing is drawn. Throws
an `ArgumentError` for a `p`, `key`, `dims` or `x` that is none.

# Examples
```jldoctest
julia> using PyBridge

julia> key = (0x00000000, 0x0000002a);

julia> PyBridge.dropout(key, [1.0, 2.0, 3.0, 4.0], 0.5; training=true)
4-element Vector{Float64}:
 2.0
 0.0
 0.0
 0.0

julia> PyBridge.dropout(key, ones(2, 3), 0.5; dims=2, training=true)
2×3 Matrix{Float64}:
 2.0  0.0  0.0
 2.0  0.0  0.0
```
"""
function dropout(key, x, p; dims=:, training=:auto)
    dropping = plan_dropout(key, x, p, dims)
    return cond(resolve_training(training, x), dropping, identity, x)
end

"""
    alphadropout(key, x, p; training=:auto)

Set elements of `x` to the limit of `selu` at minus infinity with probability `p`, and scale and
shift all of them such that mean and variance stay, in training; otherwise return `x`. For
`p == 1` all elements are zero. See Klambauer et al., "Self-normalizing neural networks" (2017).

The twin in Python is `pybridge.nn.AlphaDropout`. Arguments, mask and errors are those of
[`dropout`](@ref).

# Examples
```jldoctest
julia> using PyBridge

julia> key = (0x00000000, 0x0000002a);

julia> PyBridge.alphadropout(key, zeros(Float32, 2), 0.5; training=true)
2-element Vector{Float32}:
  0.77919394
 -0.77919394
```
"""
function alphadropout(key, x, p; training=:auto)
    dropping = plan_alphadropout(key, x, p)
    return cond(resolve_training(training, x), dropping, identity, x)
end

# --- what is done in training --------------------------------------------------------------

"""
    Dropping(name, key, p, dims, coefficients)

What dropout does in training, to be called with the array: `scale * x + shift` where an element
is kept, and `fill` elsewhere; `coefficients` are these three. The mask has the size `dims`.
"""
struct Dropping{K,N}
    name::Symbol
    key::K
    p::Float64
    dims::Dims{N}
    coefficients::NTuple{3,Float64}
end

# To the largest number rather than to infinity, as in Python: with p close to 1 a scale overflows
# half precision, and infinity times a zero cotangent would be NaN.
representable(T, number) = T(min(number, floatmax(T)))

# Adding -0.0 changes no number, not even 0.0.
function plan_dropout(key, x, p, dims)
    p = check_probability("dropout", p)
    return Dropping(:dropout, checked_key(key), p, mask_size("dropout", x, dims),
        (1 / (1 - p), -0.0, 0.0))
end

function plan_alphadropout(key, x, p)
    p = check_probability("alphadropout", p)
    α′ = -1.7580993408473766  # selu(-Inf)
    A = 1 / sqrt((1 - p) * (1 + p * α′^2))
    B = -A * α′ * p
    coefficients = p == 1 ? (1.0, -0.0, 0.0) : (A, B, A * α′ + B)
    return Dropping(:alphadropout, checked_key(key), p, mask_size("alphadropout", x, :),
        coefficients)
end

ChainRulesCore.@non_differentiable plan_dropout(::Any, ::Any, ::Any, ::Any)
ChainRulesCore.@non_differentiable plan_alphadropout(::Any, ::Any, ::Any)

# That there is no key is an error only where one is needed.
checked_key(key) = key === nothing ? nothing : key_words(key)

# Likewise that the numbers are integers, which cannot be scaled.
function check_floats(name, x)
    T = eltype(x) <: Number ? primal_type(real(eltype(x))) : eltype(x)
    T <: AbstractFloat && isconcretetype(T) && return T
    throw(not_floats(name, x))
end
not_floats(name, x) = ArgumentError(
    "PyBridge.$name: expected an array of floating-point numbers, got a $(typeof(x)). " *
    "Convert it first, as in `float.(x)`.")

mask_size(name, x, dims) = throw(not_floats(name, x))
mask_size(name, x::AbstractArray, ::Colon) = size(x)
function mask_size(name, x::AbstractArray, dims)
    check_dims(name, dims)
    all(<=(ndims(x)), dims) || throw(ArgumentError(
        "PyBridge.$name: expected dims among the $(ndims(x)) dimensions of the array, got " *
        "$dims."))
    return ntuple(d -> d in dims ? size(x, d) : 1, ndims(x))
end

check_dims(name, ::Colon) = nothing
function check_dims(name, dims)
    dims isa Union{Integer,Tuple,AbstractVector} && all(d -> d isa Integer && d >= 1, dims) &&
        allunique(dims) || throw(ArgumentError(
        "PyBridge.$name: expected dims to be different integers from 1 on, or `:`, got $dims."))
    return nothing
end

(d::Dropping)(x) = d.p == 0 ? x : keeping(d, x)(x)

function ChainRulesCore.rrule(d::Dropping, x::AbstractArray)
    d.p == 0 && return x, x̄ -> (NoTangent(), x̄)
    return ChainRulesCore.rrule(keeping(d, x), x)
end

"""
    Keeping(keep, scale, shift, fill)

A [`Dropping`](@ref) whose mask has been drawn.
"""
struct Keeping{M,T}
    keep::M
    scale::T
    shift::T
    fill::T
end

function keeping(d::Dropping, x)
    T = check_floats(d.name, x)
    return Keeping(keep_mask(d.key, d.p, d.dims), representable.(T, d.coefficients)...)
end

function (k::Keeping)(x)
    # With its size: no `Diagonal` is like another one, since `fill` may go anywhere.
    y = similar(x, promote_type(eltype(x), typeof(k.scale)), size(x))
    (; keep, scale, shift) = k
    fill = convert(eltype(y), k.fill)
    # The compiler makes vector instructions of this loop, and none of the broadcast.
    if size(keep) == size(x)
        @inbounds @simd for i in eachindex(y, x, keep)
            y[i] = ifelse(keep[i], x[i] * scale + shift, fill)
        end
    else
        y .= ifelse.(keep, x .* scale .+ shift, fill)
    end
    return y
end

# Derivatives pass through the elements that were kept; it is dropout again, with the same mask.
linear_part(k::Keeping{M,T}) where {M,T} = Keeping(k.keep, k.scale, -zero(T), zero(T))

function ChainRulesCore.rrule(k::Keeping, x::AbstractArray)
    project = ProjectTo(x)
    function keeping_pullback(ȳ)
        ȳ = unthunk(ȳ)
        return (NoTangent(), ȳ isa AbstractZero ? ȳ : project(linear_part(k)(ȳ)))
    end
    return k(x), keeping_pullback
end

# --- layers ----------------------------------------------------------------------------------

"""
    Dropout(p; dims=:)

[`dropout`](@ref) as a layer, without parameters and without state.

The twin in Python is `pybridge.nn.Dropout`; Flux's layer of the same name has the same
arguments, and draws from a generator in place of a key.

# Examples
```jldoctest
julia> using PyBridge

julia> PyBridge.Dropout(0.3; dims=2)
Dropout(0.3, dims=2)
```
"""
struct Dropout{D} <: Layer
    p::Float64
    dims::D
    function Dropout(p; dims=:)
        check_dims("Dropout", dims)
        return new{typeof(dims)}(check_probability("Dropout", p), dims)
    end
end

init(key, ::Dropout; T=Float32) = (;), (;)

function apply(layer::Dropout, params, state, x; key=nothing, training=:auto)
    return dropout(key, x, layer.p; layer.dims, training), state
end

"""
    AlphaDropout(p)

[`alphadropout`](@ref) as a layer, without parameters and without state.

The twin in Python is `pybridge.nn.AlphaDropout`.

# Examples
```jldoctest
julia> using PyBridge

julia> PyBridge.AlphaDropout(0.3)
AlphaDropout(0.3)
```
"""
struct AlphaDropout <: Layer
    p::Float64
    AlphaDropout(p) = new(check_probability("AlphaDropout", p))
end

init(key, ::AlphaDropout; T=Float32) = (;), (;)

function apply(layer::AlphaDropout, params, state, x; key=nothing, training=:auto)
    return alphadropout(key, x, layer.p; training), state
end
