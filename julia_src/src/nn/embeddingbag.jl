"""
    EmbeddingBag(in => out, reduction=mean_along; init=normal_init)

A table that gives each bag of the numbers `1:in` one vector of length `out`: the mean of theirs.

The parameter is `weight` of size `(out, in)`. The input is an array of integers whose first axis is a
bag, or of `Bool` of size `(in, bag, batch...)`, one-hot. Bags of several lengths are an array of
such arrays, one for each bag, or a tuple `(indices, at)` of two vectors: one begins at each of `at`.
The twin in Python is `pybridge.nn.EmbeddingBag`, which counts from 0; the source is
`Flux.EmbeddingBag`.

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
struct EmbeddingBag{R,I} <: StatelessLayer
    channels::Pair{Int,Int}
    reduction::R
    init::I
end
function EmbeddingBag(channels::Channels, reduction=mean_along; init=normal_init)
    channels = positive(:EmbeddingBag, channels)
    return EmbeddingBag(channels, reduction, init)
end

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

output(layer::EmbeddingBag, params, x) = bagged(layer, params.weight, x)

function bagged(layer, weight, x)
    check_bag(layer, x)
    vectors = embedded(weight, x)
    reduced = layer.reduction(vectors; dims=2)
    return reshape(reduced, size(vectors, 1), size(vectors)[3:end]...)
end

function bagged(layer, weight, (indices, at)::Tuple{AbstractVector,AbstractVector})
    return each_reduced(layer, embedded(weight, indices), bag_ranges(at, length(indices)))
end

function bagged(layer, weight, bags::AbstractArray{<:AbstractArray})
    indices, at = one_after_the_other(bags)
    vectors = embedded(weight, indices)
    y = each_reduced(layer, vectors, bag_ranges(at, size(vectors, 2)))
    return reshape(y, size(y, 1), size(bags)...)
end

# By halves: Yota has no rule for `map`, and one column after the other would copy too often.
function each_reduced(layer, vectors, ranges)
    length(ranges) == 1 && return layer.reduction(vectors[:, only(ranges)]; dims=2)
    half = length(ranges) ÷ 2
    return hcat(each_reduced(layer, vectors, ranges[1:half]),
        each_reduced(layer, vectors, ranges[half+1:end]))
end

"The indices of all bags, or their one-hot columns, and where each bag begins."
function one_after_the_other(bags)
    hot = !isempty(bags) && eltype(first(bags)) === Bool
    fits(bag) = (eltype(bag) === Bool) == hot && ndims(bag) == 1 + hot && !isempty(bag)
    !isempty(bags) && all(fits, bags) || throw(ArgumentError(
        "EmbeddingBag: expected for each bag a vector of one index or more, or for each a one-hot " *
        "matrix, got $(isempty(bags) ? "no bag" : "sizes $(map(size, bags))")."))
    at = cumsum([1; [last(size(bag)) for bag in vec(bags)[1:end-1]]])
    return (hot ? reduce(hcat, vec(bags)) : reduce(vcat, vec(bags))), at
end
ChainRulesCore.@non_differentiable one_after_the_other(::Any)

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
