# JAX's random numbers, bit for bit: the cipher Threefry-2x32 with 20 rounds turns a key and the
# number of an element into the element's bits. No element needs another one, so that the order
# of the draws, the number of threads and the layout of the array do not matter: element i in
# Julia's order is element i, counted from the last axis, of the JAX array with reversed axes.

"A key of JAX: the two words that `jax.random.key_data(key)` shows in Python."
const Key = NTuple{2,UInt32}

"""
    key_words(key) -> NTuple{2,UInt32}

Take the two words of a key, given as a tuple or a vector of two `UInt32`.
"""
key_words(key::Key) = key
function key_words(key)
    key isa AbstractVector{UInt32} && length(key) == 2 && return (first(key), last(key))
    got = key === nothing ? "none" : key isa AbstractArray ? "a $(summary(key))" :
          "a $(typeof(key))"
    throw(ArgumentError(
        "PyBridge: expected a key, two words of UInt32, got $got. Write a key as " *
        "`(0x00000000, 0x0000002a)`; in Python `jax.random.key_data(key)` has the words."))
end

high_word(counter::UInt64) = (counter >> 32) % UInt32
low_word(counter::UInt64) = counter % UInt32

# Inlined, or the loops that call it cannot become vector instructions.
@inline threefry(key::Key, high, low) = Random123.threefry(key, (high, low), Val(20))
threefry(key::Key, counter::UInt64) = threefry(key, high_word(counter), low_word(counter))

"""
    fold_in(key, data) -> NTuple{2,UInt32}

Make another key from a key and a number, as `jax.random.fold_in` does.

# Arguments
- `key`: two words of `UInt32`, a tuple or a vector.
- `data`: an integer from 0 to 2^32 - 1.

# Examples
```jldoctest
julia> using PyBridge

julia> PyBridge.fold_in((0x00000000, 0x0000002a), 7)
(0x97d0552f, 0x51bf719f)
```
"""
function fold_in(key, data::Integer)
    0 <= data <= typemax(UInt32) || throw(ArgumentError(
        "PyBridge.fold_in: expected an integer from 0 to 2^32 - 1, got $data."))
    return threefry(key_words(key), UInt64(data))
end

"""
    split(key, n=2) -> Vector{NTuple{2,UInt32}}

Make `n` keys from one, as `jax.random.split` does.

# Examples
```jldoctest
julia> using PyBridge

julia> PyBridge.split((0x00000000, 0x0000002a))
2-element Vector{Tuple{UInt32, UInt32}}:
 (0x6d3e048f, 0x1022172d)
 (0x03d7b32d, 0xadd083f4)
```
"""
function split(key, n::Integer=2)
    n >= 0 || throw(ArgumentError(
        "PyBridge.split: expected a number of keys of 0 or more, got $n."))
    words = key_words(key)
    return [threefry(words, UInt64(i)) for i in 0:n-1]
end

# --- filling arrays ------------------------------------------------------------------------

# Fewer elements are drawn before a second thread has begun.
const THREADED_LENGTH = 2^16

"""
    draw!(f, out, key)

Fill `out` with `f(a, b)`, where `a` and `b` are the cipher's words for the element's number.
Large arrays are filled by all of Julia's threads.
"""
function draw!(f, out::Array, key::Key)
    n = length(out)
    parts = n < THREADED_LENGTH ? 1 : Threads.nthreads()
    parts == 1 && return draw_range!(f, out, key, 1:n)
    Threads.@threads for part in 1:parts
        draw_range!(f, out, key, div((part - 1) * n, parts)+1:div(part * n, parts))
    end
    return out
end

"""
    draw_range!(f, out, key, range, start=0)

Fill the elements `range` of `out`, whose first element has the number `start`.
"""
function draw_range!(f, out, key, range, start::UInt64=UInt64(0))
    checkbounds(out, range)
    i = first(range)
    while i <= last(range)
        counter = start + (i - 1)
        high, low = high_word(counter), low_word(counter)
        # The counter's high word is constant in a run, and the loop has no branch: the compiler
        # makes vector instructions of it.
        run = min(last(range) - i, Int64(typemax(UInt32) - low))
        @inbounds @simd for j in 0:run
            a, b = threefry(key, high, low + j % UInt32)
            out[i+j] = f(a, b)
        end
        i += run + 1
    end
    return out
end

"""
    bits(key, T, dims) -> Array{T}

Draw random bits, as `jax.random.bits` does.

# Arguments
- `key`: two words of `UInt32`, a tuple or a vector.
- `T`: `UInt8`, `UInt16`, `UInt32` or `UInt64`.
- `dims`: the size, a tuple; JAX's shape reversed.

# Examples
```jldoctest
julia> using PyBridge

julia> PyBridge.bits((0x00000000, 0x0000002a), UInt16, (3,))
3-element Vector{UInt16}:
 0x13a2
 0x30d9
 0xf9f9
```
"""
function bits(key, ::Type{T}, dims::Dims) where {T<:Union{UInt8,UInt16,UInt32,UInt64}}
    return draw!((a, b) -> bits_of(T, a, b), Array{T}(undef, dims), key_words(key))
end

bits_of(T, a, b) = (a ⊻ b) % T
bits_of(::Type{UInt64}, a, b) = (UInt64(a) << 32) | b

"""
    uniform(key, T, dims; minval=0, maxval=1) -> Array{T}

Draw numbers from `minval` up to and without `maxval`, as `jax.random.uniform` does. With the
default bounds the bits are JAX's; with others they may differ in the last one, since XLA and
Julia may round a product and a sum once or twice, whatever the processor offers.

# Arguments
- `key`: two words of `UInt32`, a tuple or a vector.
- `T`: `Float16`, `Float32` or `Float64`.
- `dims`: the size, a tuple; JAX's shape reversed.

# Examples
```jldoctest
julia> using PyBridge

julia> PyBridge.uniform((0x00000000, 0x0000002a), Float32, (2,))
2-element Vector{Float32}:
 0.48870957
 0.6797972
```
"""
function uniform(
    key, ::Type{T}, dims::Dims; minval::Real=0, maxval::Real=1
) where {T<:Union{Float16,Float32,Float64}}
    return draw!(between(T, minval, maxval), Array{T}(undef, dims), key_words(key))
end

function between(::Type{T}, minval, maxval) where {T}
    low, span = T(minval), T(maxval) - T(minval)
    return (a, b) -> max(low, muladd(unit(T, a, b), span, low))
end

# The mantissa of a number from 1 to 2 is random, and 1 is taken away.
function unit(::Type{T}, a, b) where {T}
    U = bits_type(T)
    mantissa = bits_of(U, a, b) >> (8sizeof(T) - precision(T) + 1)
    return reinterpret(T, mantissa | reinterpret(U, one(T))) - one(T)
end

bits_type(::Type{Float16}) = UInt16
bits_type(::Type{Float32}) = UInt32
bits_type(::Type{Float64}) = UInt64

"""
    normal(key, T, dims) -> Array{T}

Draw numbers of the standard normal distribution as `jax.random.normal` does: from the same
bits by the same polynomials, so that they differ by rounding alone.

# Arguments
- `key`: two words of `UInt32`, a tuple or a vector.
- `T`: `Float16`, `Float32` or `Float64`.
- `dims`: the size, a tuple; JAX's shape reversed.

# Examples
```jldoctest
julia> using PyBridge

julia> PyBridge.normal((0x00000000, 0x0000002a), Float32, (2,))
2-element Vector{Float32}:
 -0.028304616
  0.46713185
```
"""
function normal(key, ::Type{T}, dims::Dims) where {T<:Union{Float16,Float32,Float64}}
    open_interval = between(T, nextfloat(-one(T)), one(T))
    f(a, b) = T(sqrt(2)) * erfinv(open_interval(a, b))
    return draw!(f, Array{T}(undef, dims), key_words(key))
end

"""
    keep_mask(key, p, dims) -> Array{Bool}

Draw the mask of a dropout that drops elements with probability `p`: `true` where an element is
kept. It equals `jax.random.bernoulli(key, numpy.float32(1 - p), shape)` element for element,
whatever the dtype of the values that it will be used on.

# Arguments
- `key`: two words of `UInt32`, a tuple or a vector.
- `p`: a number from 0 to 1.
- `dims`: the size, a tuple; JAX's shape reversed.

# Examples
```jldoctest
julia> using PyBridge

julia> PyBridge.keep_mask((0x00000000, 0x0000002a), 0.5, (2, 2))
2×2 Matrix{Bool}:
 1  0
 0  0
```
"""
keep_mask(key, p, dims::Dims) = keep_mask!(Array{Bool}(undef, dims), key, p)

"""
    keep_mask!(out, key, p)

Write what `keep_mask(key, p, size(out))` returns into the `Array{Bool}` `out`.
"""
function keep_mask!(out::Array{Bool}, key, p)
    words = key_words(key)
    # JAX compares k / 2^23 with the probability, where k is the upper 23 bits. The least k that
    # is dropped, moved back to its place, is a bound for all 32 bits.
    dropped = ceil(UInt64, ldexp(Float64(Float32(1 - check_probability("keep_mask", p))), 23))
    dropped == 2^23 && return fill!(out, true)
    bound = (dropped << 9) % UInt32
    return draw!((a, b) -> (a ⊻ b) < bound, out, words)
end

function check_probability(name, p)
    value = primal(p)
    value isa Real && 0 <= value <= 1 || throw(ArgumentError(
        "PyBridge.$name: expected a probability p from 0 to 1, got $p."))
    return Float64(value)
end

ChainRulesCore.@non_differentiable key_words(::Any)
ChainRulesCore.@non_differentiable fold_in(::Any, ::Any)
ChainRulesCore.@non_differentiable split(::Any...)
ChainRulesCore.@non_differentiable bits(::Any, ::Any, ::Any)
ChainRulesCore.@non_differentiable uniform(::Any, ::Any, ::Any)
ChainRulesCore.@non_differentiable normal(::Any, ::Any, ::Any)
ChainRulesCore.@non_differentiable keep_mask(::Any, ::Any, ::Any)
