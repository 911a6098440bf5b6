"""
    Embedding(in => out; init=normal_init)

A table that gives each of the numbers `1:in` a vector of length `out`.

The parameter is `weight` of size `(out, in)`. The input is an integer or an array of
integers from 1, the output has size `(out, size(x)...)`. An integer out of range is a
`BoundsError`. Arrays of `Bool` of size `(in, batch...)`, one-hot, multiply the weight. The
twin in Python is `pybridge.nn.Embedding`, which counts from 0; the source is
`Flux.Embedding`.

# Arguments
- `in => out`: how many numbers there are, and how long the vectors.
- `init`: makes the weight, as in `init(key, T, dims)`.

# Examples
```jldoctest
julia> using PyBridge

julia> y, _ = PyBridge.apply(PyBridge.Embedding(3 => 2), (weight=[1 2 3; 4 5 6],), (;), [3, 1]);

julia> y
2×2 Matrix{Int64}:
 3  1
 6  4
```
"""
struct Embedding{I} <: StatelessLayer
    channels::Pair{Int,Int}
    init::I
end
function Embedding(channels::Channels; init=normal_init)
    channels = positive(:Embedding, channels)
    return Embedding(channels, init)
end

function init(key, layer::Embedding; T=Float32)
    return (; weight=layer.init(key, T, reverse(Tuple(layer.channels)))), (;)
end

output(layer::Embedding, params, x) = embedded(params.weight, x)

embedded(weight, ids) = ruled(columns, weight, ids)
embedded(weight, hot::AbstractArray{Bool}) = dense(identity, weight, false, hot)

columns(weight, ids::Integer) = weight[:, ids]
function columns(weight, ids::AbstractArray{<:Integer})
    return reshape(NNlib.gather(weight, vec(ids)), size(weight, 1), size(ids)...)
end
function columns(weight, ids)
    throw(ArgumentError("Embedding: expected an integer or an array of integers from 1 to " *
                        "$(size(weight, 2)), got a $(typeof(ids))."))
end

function ChainRulesCore.rrule(::typeof(columns), weight, ids)
    function columns_pullback(ȳ)
        w̄ = fill!(similar(weight, float(eltype(weight)), size(weight)), 0)
        scatter_columns!(w̄, unthunk(ȳ), ids)
        return NoTangent(), w̄, NoTangent()
    end
    return columns(weight, ids), columns_pullback
end

scatter_columns!(w̄, ȳ, id::Integer) = w̄[:, id] .+= ȳ
function scatter_columns!(w̄, ȳ, ids)
    return NNlib.scatter!(+, w̄, reshape(ȳ, size(w̄, 1), length(ids)), vec(ids))
end
