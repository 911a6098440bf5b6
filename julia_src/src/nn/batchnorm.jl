"""
    batchnorm(params, state, x; momentum=0.1, eps=1e-5, training=:auto, mask=nothing)

Normalise each channel over all other axes: `(x - mean) * (scale / sqrt(var + eps)) + bias`.

In training mean and variance (biased) are the batch's, and the running ones move towards
them (the variance unbiased) by `momentum`; otherwise they are the running ones. They are plain
numbers whatever differentiates the call. One value per channel in training is an
`ArgumentError`. The twin in Python is `pybridge.nn.BatchNorm`, the source
`Flux.BatchNorm`.

# Arguments
- `params`: `(scale, bias)`, one number for each channel, or `(;)`.
- `state`: `(mean, var)`, the running statistics, or `(;)`: then the batch's are taken in
  both modes.
- `x`: size `(space..., channels, batch)`. The result has its size and number type;
  statistics of half precision are taken in Float32.
- `momentum`: the weight of the new statistics.
- `eps`: added to the variance.
- `training`: `true`, `false` or `:auto`, that is within a gradient.
- `mask`: an array of `Bool` that broadcasts to `x`. Where it is false the input does not
  count, the result is 0 and so is the gradient.

# Returns
`(y, state)`.

# Examples
```jldoctest
julia> using PyBridge

julia> params, state = (scale=[1.0], bias=[0.0]), (mean=[0.0], var=[1.0]);

julia> y, state = PyBridge.batchnorm(params, state, [1.0 2.0 3.0 4.0]; training=true);

julia> state.mean
1-element Vector{Float64}:
 0.25
```
"""
function batchnorm(params, state, x; momentum=0.1, eps=1e-5, training=:auto, mask=nothing)
    channels = size(x, ndims(x) - 1)
    how = ChannelNorm(:BatchNorm, Sharing(true, channels), eps, momentum)
    return channel_norm(how, params, state, x, training, mask)
end

"""
    BatchNorm(channels, activation=identity; affine=true, track_stats=true, eps=1e-5,
              momentum=0.1)

The layer around [`batchnorm`](@ref), with an activation. Parameters are `scale` and `bias`
where `affine`, the state is `mean` and `var` where `track_stats`.

# Examples
```jldoctest
julia> using PyBridge

julia> params, state = PyBridge.init((0x00000000, 0x0000002a), PyBridge.BatchNorm(3));

julia> params.scale
3-element Vector{Float32}:
 1.0
 1.0
 1.0
```
"""
struct BatchNorm{F} <: Layer
    channels::Int
    activation::F
    affine::Bool
    track_stats::Bool
    eps::Float64
    momentum::Float64
end
function BatchNorm(
    channels::Integer, activation=identity; affine=true, track_stats=true, eps=1e-5,
    momentum=0.1
)
    channels = positive(:BatchNorm, channels)
    eps = checked_eps(:BatchNorm, eps)
    momentum = checked_momentum(:BatchNorm, momentum)
    return BatchNorm(channels, activation, affine, track_stats, eps, momentum)
end

function init(key, layer::BatchNorm; T=Float32)
    return norm_variables(T, (layer.channels,), layer.affine, layer.track_stats)
end

function apply(layer::BatchNorm, params, state, x; key=nothing, training=:auto, mask=nothing)
    check_norm(:BatchNorm, x, layer.channels, 2)
    y, state = batchnorm(params, state, x; layer.momentum, layer.eps, training, mask)
    return activated(layer.activation, y), state
end
