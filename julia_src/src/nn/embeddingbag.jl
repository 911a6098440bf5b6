"""
    EmbeddingBag(in => out, reduction=mean_along; init=normal_init)

A table that gives each bag of the numbers `1:in` one vector of length `out`: the mean of theirs.

The parameter is `weight` of size `(out, in)`. The input is an array of integers whose first axis is a
bag, or of `Bool` of size `(in, bag, batch...)`, one-hot. Bags of several lengths are a tuple
`(indices, at)` of two vectors: one begins at each of `at`. The twin in Python is
`pybridge.nn.EmbeddingBag`, which counts from 0; the source is `Flux.EmbeddingBag`.

# Arguments
- `in => out`: how many numbers there are, and how long the vectors.
- `reduction`: called as `reduction(vectors; dims=2)`, for example `sum` or `Statistics.mean`.
- `init`: makes the weight, as in `init(key, T, dims)`.

# Examples
```jldoctest
julia> using PyBridge

julia> layer = PyBridge.EmbeddingBag(3 => 1);

julia> first(PyBridge.apply(layer, (weight=[1.0 2.0 6.0],), (;), [1 2; 3 2]))
1×2 Matrix{Float64}:
 3.5  2.0
```
"""
struct EmbeddingBag{R,I} <: Layer
    channels::Pair{Int,Int}
    reduction::R
    init::I
end
EmbeddingBag(channels::Channels, reduction=mean_along; init=normal_init) =
    EmbeddingBag(channels, reduction, init)

"""
    mean_along(x; dims)

The mean along some axes, which become 1: `Statistics.mean`.

# Examples
```jldoctest
julia> using PyBridge

julia> PyBridge.mean_along([1.0 2.0]; dims=2)
1×1 Matrix{Float64}:
 1.5
```
"""
mean_along(x; dims) = sum(x; dims) ./ size(x, dims)

function init(key, layer::EmbeddingBag; T=Float32)
    return init(key, Embedding(layer.channels; layer.init); T)
end

function apply(layer::EmbeddingBag, params, state, x; key=nothing, training=:auto)
    return bagged(layer, params.weight, x), state
end

function bagged(layer, weight, x)
    check_bag(layer, x)
    vectors = embedded(weight, x)
    reduced = layer.reduction(vectors; dims=2)
    return reshape(reduced, size(vectors, 1), size(vectors)[3:end]...)
end

function bagged(layer, weight, (indices, at)::Tuple{AbstractVector,AbstractVector})
    vectors = embedded(weight, indices)
    bags = map(bag -> layer.reduction(vectors[:, bag]; dims=2), bag_ranges(at, length(indices)))
    return reduce(hcat, bags)
end

function bag_ranges(at, count)
    bounds = [at; count + 1]
    !isempty(at) && first(at) == 1 && all(>(0), diff(bounds)) && return range.(
        bounds[1:end-1], bounds[2:end] .- 1)
    throw(ArgumentError("EmbeddingBag: expected starts that begin with 1, grow, and are at most " *
                        "$count, got $at."))
end
ChainRulesCore.@non_differentiable bag_ranges(::Any, ::Any)

function check_bag(layer, x)
    axes = eltype(x) === Bool ? 2 : 1
    x isa AbstractArray && ndims(x) >= axes && !any(d -> size(x, d) == 0, 1:axes) && return nothing
    throw(ArgumentError(
        "EmbeddingBag: expected bags of one index or more along the first axis, got " *
        "$(x isa AbstractArray ? "size $(size(x))" : x)."))
end
ChainRulesCore.@non_differentiable check_bag(::Any, ::Any)
