"""
    Dense(in => out, activation=identity; bias=true, init=glorot_uniform)

A fully connected layer: `activation.(weight * x .+ bias)`.

Parameters are `weight` of size `(out, in)` and `bias` of size `(out,)`. The input has the
features first, `(in,)` or `(in, batch...)`; it is converted to the weight's number type. The
twin in Python is `pybridge.nn.Dense`, whose arrays have the axes reversed; the source is
`Flux.Dense`.

# Arguments
- `in => out`: how many features come in and go out.
- `activation`: a function of a number.
- `bias`: whether there is one.
- `init`: makes the weight, as in `init(key, T, dims)`.

# Examples
```jldoctest
julia> using PyBridge

julia> layer = PyBridge.Dense(2 => 1, abs);

julia> params = (weight=[1.0 -2.0], bias=[0.5]);

julia> y, state = PyBridge.apply(layer, params, (;), [1.0, 3.0]);

julia> y
1-element Vector{Float64}:
 4.5
```
"""
struct Dense{F,I} <: StatelessLayer
    channels::Pair{Int,Int}
    activation::F
    bias::Bool
    init::I
end
function Dense(channels::Channels, activation=identity; bias=true, init=glorot_uniform)
    channels = positive(:Dense, channels)
    return Dense(channels, activation, bias, init)
end

function init(key, layer::Dense; T=Float32)
    in, out = layer.channels
    return weights(key, layer, T, (out, in), out), (;)
end

function output(layer::Dense, params, x)
    check_axis(layer, x, 1, first(layer.channels))
    return dense(layer.activation, params.weight, optional_bias(params), x)
end

function ChainRulesCore.rrule(config::RuleConfig{>:HasReverseMode}, ::typeof(output),
    layer::Dense, params::NamedTuple, x::AbstractVecOrMat)
    check_axis(layer, x, 1, first(layer.channels))
    product_rrule(weight, x) = weight * x, ȳ -> (ȳ * x', weight' * ȳ)
    return affine_rrule(
        config, layer, params, x, layer.activation, optional_bias(params), product_rrule)
end

function dense(activation, weight, bias, x::AbstractVecOrMat)
    return activated(activation, weight * as_eltype(weight, x), bias)
end
function dense(activation, weight, bias, x::AbstractArray)
    y = dense(activation, weight, bias, reshape(x, size(x, 1), :))
    return reshape(y, size(y, 1), Base.tail(size(x))...)
end

# --- what layers with a weight and a bias share ---------------------------------------------

"Draw the weight of a layer, and a bias of zeros where it has one."
function weights(key, layer, T, dims, channels)
    weight = layer.init(key, T, dims)
    size(weight) == dims || throw(DimensionMismatch(
        "$(title(layer)): expected init(key, T, dims) to return an array of size $dims, got " *
        "$(size(weight))."))
    return layer.bias ? (; weight, bias=zeros(T, channels)) : (; weight)
end

"""
    affine_rrule(config, layer, params, x, activation, bias, product_rrule) -> (y, pullback)

The rule of a layer whose output is `activation.(product .+ bias)`, in one piece: what a small layer
costs is the number of steps that Zygote sees. `product_rrule(weight, x)` is the product and its
pullback, to the cotangents of weight and x.
"""
function affine_rrule(
    config, layer, params::P, x, activation, bias, product_rrule
) where {P<:NamedTuple}
    (; weight) = params
    product, product_pullback = product_rrule(weight, as_eltype(weight, x))
    y, back = ChainRulesCore.rrule(config, activated, activation, product, bias)
    project_weight, project_x = ProjectTo(weight), ProjectTo(x)
    function output_pullback(ȳ)
        _, activation̄, z̄, bias̄ = back(ȳ)
        weight̄, x̄ = map(unthunk, product_pullback(unthunk(z̄)))
        moved = haskey(params, :bias) ?
            (; weight=project_weight(weight̄), bias=reshape(unthunk(bias̄), size(params.bias))) :
            (; weight=project_weight(weight̄))
        return NoTangent(), activation_tangent(layer, activation̄), Tangent{P}(; moved...),
            project_x(x̄)
    end
    return y, output_pullback
end
activation_tangent(layer, activation̄) = Tangent{typeof(layer)}(; activation=activation̄)

"""
    activated(activation, y, bias)

`activation.(y .+ bias)`. Functions without fields may write into `y`. NNlib's `bias_act!`, and with it
Flux, gives no derivative by what other functions hold.
"""
activated(activation::F, y, bias) where {F} =
    Base.issingletontype(F) ? NNlib.bias_act!(activation, y, bias) : activation.(y .+ bias)

function ChainRulesCore.rrule(config::RuleConfig{>:HasReverseMode}, ::typeof(activated),
    activation::F, y, bias) where {F}
    Base.issingletontype(F) &&
        return ChainRulesCore.rrule(config, NNlib.bias_act!, activation, y, bias)
    shifted = y .+ bias
    z, back = inner_rrule(config, broadcast, activation, shifted)
    function activated_pullback(z̄)
        _, activation̄, ȳ = map(unthunk, back(z̄))
        shared = filter(d -> size(bias, d) == 1, ntuple(identity, ndims(y)))
        bias̄ = bias isa Bool ? NoTangent() : reshape(sum(ȳ; dims=shared), size(bias))
        return NoTangent(), activation̄, ȳ, bias̄
    end
    return z, activated_pullback
end

# `false` is what NNlib.bias_act! takes for no bias.
optional_bias(params) = haskey(params, :bias) ? params.bias : false

"""
    as_eltype(weight, x)

Convert `x` to the number type of `weight`, unless one of them carries a derivative.
"""
as_eltype(weight, x) = x
function as_eltype(
    ::AbstractArray{T}, x::AbstractArray{<:Union{AbstractFloat,Integer}}
) where {T<:AbstractFloat}
    return convert(AbstractArray{T}, x)
end

function ChainRulesCore.rrule(::typeof(as_eltype), weight, x)
    project = ProjectTo(x)
    return as_eltype(weight, x), x̄ -> (NoTangent(), NoTangent(), project(unthunk(x̄)))
end

