# Initialisers, with Flux's formulas on JAX's random numbers: the same key gives the same
# weights in both languages. Each is called as `init(key, T, dims)`, and without positional
# arguments it returns such a function, as in `glorot_uniform(gain=2)`.

"""
    nfan(dims) -> (fan_in, fan_out)

How many numbers go into one output of a weight of size `dims`, and how many outputs one
number goes into. `dims` is `(out, in)`, or `(kernel..., in, out)` of a convolution.
"""
nfan(::Tuple{}) = (1, 1)
nfan((n,)::Dims{1}) = (1, n)
nfan((out, in)::Dims{2}) = (in, out)
nfan(dims::Dims) = prod(dims[1:end-2]) .* (dims[end-1], dims[end])

"""
    glorot_uniform(key, T, dims; gain=1)
    glorot_uniform(; gain=1)

Draw weights between `-x` and `x`, where `x = gain * sqrt(6 / (fan_in + fan_out))`.

`jax.nn.initializers.glorot_uniform` has the same formula; its fans are those of JAX's axis
order. The twin in Python is `pybridge.nn.glorot_uniform`, the source
`Flux.glorot_uniform` (Glorot and Bengio, 2010).

# Arguments
- `key`: two `UInt32` words, a JAX key.
- `T`: the number type.
- `dims`: the size as a tuple.

# Returns
An `Array{T}` of size `dims`.

# Examples
```jldoctest
julia> using PyBridge

julia> size(PyBridge.glorot_uniform((0x00000000, 0x0000002a), Float32, (8, 4)))
(8, 4)
```
"""
function glorot_uniform(key, T, dims; gain=1)
    return centred(key, T, dims, gain * sqrt(24 / sum(nfan(dims))))
end

"""
    glorot_normal(key, T, dims; gain=1)
    glorot_normal(; gain=1)

Draw normal weights of standard deviation `gain * sqrt(2 / (fan_in + fan_out))`. Unlike
`jax.nn.initializers.glorot_normal` it does not truncate them. Arguments as in
[`glorot_uniform`](@ref); the source is `Flux.glorot_normal`.
"""
function glorot_normal(key, T, dims; gain=1)
    return gaussian(key, T, dims, gain * sqrt(2 / sum(nfan(dims))))
end

"""
    kaiming_uniform(key, T, dims; gain=sqrt(2))
    kaiming_uniform(; gain=sqrt(2))

Draw weights between `-x` and `x`, where `x = gain * sqrt(3 / fan_in)`. Arguments as in
[`glorot_uniform`](@ref); the source is `Flux.kaiming_uniform` (He et al., 2015).
"""
function kaiming_uniform(key, T, dims; gain=sqrt(2))
    return centred(key, T, dims, 2 * gain * sqrt(3 / first(nfan(dims))))
end

"""
    kaiming_normal(key, T, dims; gain=sqrt(2))
    kaiming_normal(; gain=sqrt(2))

Draw normal weights of standard deviation `gain / sqrt(fan_in)`. Unlike
`jax.nn.initializers.kaiming_normal` it does not truncate them. Arguments as in
[`glorot_uniform`](@ref); the source is `Flux.kaiming_normal`.
"""
function kaiming_normal(key, T, dims; gain=sqrt(2))
    return gaussian(key, T, dims, gain / sqrt(first(nfan(dims))))
end

"""
    truncated_normal(key, T, dims; mean=0, std=1, lo=-2, hi=2)
    truncated_normal(; mean=0, std=1, lo=-2, hi=2)

Draw normal weights that lie between `lo` and `hi`, by the inverse of the distribution
function. The limits are those of the weights; `jax.random.truncated_normal` has limits of
the standardised ones. Arguments as in [`glorot_uniform`](@ref); the source is
`Flux.truncated_normal`.
"""
function truncated_normal(key, T, dims; mean=0, std=1, lo=-2, hi=2)
    below, above = erf((lo - mean) / (std * sqrt(2))), erf((hi - mean) / (std * sqrt(2)))
    below < above || throw(ArgumentError(
        "truncated_normal: expected lo < hi with some of the distribution between them, got " *
        "lo=$lo, hi=$hi, mean=$mean, std=$std. The limits are values, not multiples of std."))
    W = at_least_single(T)
    return map(uniform(key, W, dims)) do u
        # A quantile of -1 would be the lowest value of all, -Inf.
        quantile = max(u * W(above - below) + W(below), nextfloat(-one(W)))
        T(clamp(erfinv(quantile) * W(std * sqrt(2)) + W(mean), W(lo), W(hi)))
    end
end

"""
    lecun_normal(key, T, dims; gain=1)
    lecun_normal(; gain=1)

Draw normal weights of standard deviation `gain / sqrt(fan_in)`, truncated at -2 and 2.
Unlike `jax.nn.initializers.lecun_normal` it truncates there and not at two standard
deviations. Arguments as in [`glorot_uniform`](@ref); the source is `Flux.lecun_normal`.
"""
function lecun_normal(key, T, dims; gain=1)
    return truncated_normal(key, T, dims; std=gain / sqrt(first(nfan(dims))))
end

"""
    orthogonal(key, T, dims; gain=1)
    orthogonal(; gain=1)

Make a matrix whose rows or columns, the fewer of them, are orthonormal and times `gain`;
with more than two axes, `(prod(dims[1:end-1]), dims[end])` is the matrix. Arguments as in
[`glorot_uniform`](@ref); the source is `Flux.orthogonal` (Saxe et al., 2014).
"""
function orthogonal(key, T, dims; gain=1)
    length(dims) > 1 || throw(ArgumentError(
        "orthogonal: expected a size of two axes or more, got $dims. Use another initialiser " *
        "for vectors."))
    rows, columns = prod(dims[1:end-1]), dims[end]
    # Drawn in JAX's order of axes.
    draws = gaussian(key, at_least_single(T), minmax(rows, columns), 1)
    Q, R = LinearAlgebra.qr(permutedims(draws))
    # The signs make the matrix uniformly distributed, and independent of the algorithm's.
    matrix = T.(Matrix(Q) .* (sign.(LinearAlgebra.diag(R))' .* gain))
    return reshape(rows < columns ? permutedims(matrix) : matrix, dims)
end

"""
    identity_init(key, T, dims; gain=1, shift=0)
    identity_init(; gain=1, shift=0)

Make the weight of a layer that returns its input times `gain`: zeros of a vector, the
identity matrix, or kernels with a one in the middle. `shift` is `circshift`'s. The key is not
used. Other arguments as in [`glorot_uniform`](@ref); the source is `Flux.identity_init`.
"""
function identity_init(key, T, dims; gain=1, shift=0)
    weight = zeros(T, dims)
    length(dims) == 1 && return weight
    middle = cld.(dims[1:end-2], 2)
    foreach(i -> weight[middle..., i, i] = gain, 1:min(dims[end-1], dims[end]))
    return circshift(weight, shift)
end

"""
    normal_init(key, T, dims)

Draw weights of the standard normal distribution; the source is `Flux.randn32`.
"""
normal_init(key, T, dims) = gaussian(key, T, dims, 1)

"""
    zeros_init(key, T, dims)

Make weights of zero; the source is `Flux.zeros32`.
"""
zeros_init(key, T, dims) = zeros(T, dims)

"""
    ones_init(key, T, dims)

Make weights of one; the source is `Flux.ones32`.
"""
ones_init(key, T, dims) = ones(T, dims)

# Half precision is drawn in Float32 and rounded.
at_least_single(T) = promote_type(T, Float32)

"Uniform numbers around zero, in an interval of the given width."
function centred(key, T, dims, width)
    W = at_least_single(T)
    return T.((uniform(key, W, dims) .- W(0.5)) .* W(width))
end

"Normal numbers of the given standard deviation."
function gaussian(key, T, dims, std)
    W = at_least_single(T)
    return T.(normal(key, W, dims) .* W(std))
end

for name in (:glorot_uniform, :glorot_normal, :kaiming_uniform, :kaiming_normal,
    :truncated_normal, :lecun_normal, :orthogonal, :identity_init)
    @eval $name(; settings...) = (key, T, dims) -> $name(key, T, dims; settings...)
end

# The C library that Julia brings has it.
erf(x) = ccall((:erf, Base.Math.libm), Float64, (Float64,), x)
