"""
    WeightNorm(layer, which=:weight; dims=-1)

Split a parameter `v` of a layer into direction and magnitude: the layer gets
`g * v / sqrt(sum(abs2, v; dims) + ε)`, with the machine epsilon of `g`.

Parameters are `layer`, those of the layer, and `g`. The twin in Python is
`pybridge.nn.WeightNorm`, the source `Flux.WeightNorm` (Salimans and Kingma, 2016).

# Arguments
- `layer`: a layer.
- `which`: the name of one of its parameters.
- `dims`: the axes that the norm runs over: a number, a tuple, `:` for all, -1 for the last.

# Examples
```jldoctest
julia> using PyBridge

julia> layer = PyBridge.WeightNorm(PyBridge.Dense(2 => 1; bias=false); dims=:);

julia> params = (layer=(weight=[3.0 4.0],), g=[10.0;;]);

julia> first(PyBridge.apply(layer, params, (;), [1.0, 1.0]))
1-element Vector{Float64}:
 14.0
```
"""
struct WeightNorm{L<:Layer,D} <: Layer
    layer::L
    which::Symbol
    dims::D
end
WeightNorm(layer::Layer, which::Symbol=:weight; dims=-1) = WeightNorm(layer, which, dims)

function init(key, layer::WeightNorm; T=Float32)
    params, state = init(key, layer.layer; T)
    haskey(params, layer.which) || throw(ArgumentError(
        "WeightNorm: expected the name of a parameter of the layer, one of " *
        "$(join(keys(params), ", ")), got $(layer.which)."))
    v = params[layer.which]
    iszero(v) && throw(ArgumentError(
        "WeightNorm: expected a $(layer.which) with a direction, got zeros. Give the layer " *
        "another init."))
    g = sqrt.(sum(abs2, v; dims=norm_axes(layer.dims, v)) .+ eps(eltype(v)))
    return (; layer=params, g), state
end

function apply(layer::WeightNorm, params, state, x; key=nothing, training=:auto)
    v = params.layer[layer.which]
    weight = ruled(rescaled, params.g, v, norm_axes(layer.dims, v))
    inner = with_parameter(params.layer, Val(layer.which), weight)
    return apply(layer.layer, inner, state, x; key, training)
end

norm_axes(::Colon, v) = ntuple(identity, ndims(v))
norm_axes(dims::Integer, v) = (dims == -1 ? ndims(v) : Int(dims),)
norm_axes(dims::Tuple, v) = dims

with_parameter(params, ::Val{name}, x) where {name} = merge(params, NamedTuple{(name,)}((x,)))

rescaled(g, v, dims) = g .* v .* inverse_norm(g, v, dims)

function inverse_norm(g, v, dims)
    ε = eps(typeof(float(primal(zero(eltype(g))))))
    return inv.(sqrt.(sum(abs2, v; dims) .+ ε))
end

function ChainRulesCore.rrule(::typeof(rescaled), g, v, dims)
    inverse = inverse_norm(g, v, dims)
    function rescaled_pullback(w̄)
        w̄ = unthunk(w̄)
        ḡ = sum(w̄ .* v; dims) .* inverse
        v̄ = (w̄ .- v .* (ḡ .* inverse)) .* (g .* inverse)
        return NoTangent(), ProjectTo(g)(ḡ), ProjectTo(v)(v̄), NoTangent()
    end
    return g .* v .* inverse, rescaled_pullback
end
