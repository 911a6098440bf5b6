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
struct Dense{F,I} <: Layer
    channels::Pair{Int,Int}
    activation::F
    bias::Bool
    init::I
end
function Dense(channels::Channels, activation=identity; bias=true, init=glorot_uniform)
    return Dense(channels, activation, bias, init)
end

function init(key, layer::Dense; T=Float32)
    in, out = layer.channels
    return weights(key, layer, T, (out, in), out), (;)
end

function apply(layer::Dense, params, state, x; key=nothing, training=:auto)
    check_axis(layer, x, 1, first(layer.channels))
    return connected(layer, params, x), state
end

connected(layer, params, x) = dense(layer.activation, params.weight, optional_bias(params), x)

# One rule for all of it: the cost of a small layer is the number of steps that Zygote sees.
function ChainRulesCore.rrule(config::RuleConfig{>:HasReverseMode}, ::typeof(connected), layer,
    params::P, x::AbstractVecOrMat) where {P<:NamedTuple}
    (; weight) = params
    x̂ = as_eltype(weight, x)
    y, back = ChainRulesCore.rrule(
        config, NNlib.bias_act!, layer.activation, weight * x̂, optional_bias(params))
    project_weight, project_x = ProjectTo(weight), ProjectTo(x)
    function connected_pullback(ȳ)
        _, activation, z̄, bias = back(ȳ)
        z̄ = unthunk(z̄)
        weight̄ = project_weight(z̄ * x̂')
        moved = haskey(params, :bias) ? (; weight=weight̄, bias) : (; weight=weight̄)
        return NoTangent(), Tangent{typeof(layer)}(; activation), Tangent{P}(; moved...),
            project_x(weight' * z̄)
    end
    return y, connected_pullback
end

# The keywords of a call are several such steps.
function ChainRulesCore.rrule(config::RuleConfig{>:HasReverseMode}, ::typeof(apply),
    layer::Dense, params::NamedTuple, state, x::AbstractVecOrMat; key=nothing, training=:auto)
    check_axis(layer, x, 1, first(layer.channels))
    y, back = ChainRulesCore.rrule(config, connected, layer, params, x)
    function apply_pullback(cotangents)
        ȳ = first(cotangents)
        ȳ isa AbstractZero && return ntuple(Returns(NoTangent()), 5)
        _, layer̄, params̄, x̄ = back(ȳ)
        return NoTangent(), layer̄, params̄, NoTangent(), x̄
    end
    return (y, state), apply_pullback
end

function dense(activation, weight, bias, x::AbstractVecOrMat)
    return NNlib.bias_act!(activation, weight * as_eltype(weight, x), bias)
end
function dense(activation, weight, bias, x::AbstractArray)
    y = dense(activation, weight, bias, reshape(x, size(x, 1), :))
    return reshape(y, :, Base.tail(size(x))...)
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

title(layer) = nameof(typeof(layer))

function check_axis(layer, x, axis, expected)
    0 < axis <= ndims(x) && size(x, axis) == expected && return nothing
    throw(DimensionMismatch(
        "$(title(layer)): expected an input with size $expected along axis $axis, got size " *
        "$(size(x)). Channels are the last axis but one, and features of a Dense layer the " *
        "first."))
end
ChainRulesCore.@non_differentiable check_axis(::Any...)
