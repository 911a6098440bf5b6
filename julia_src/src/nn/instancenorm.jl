"""
    instancenorm(params, state, x; momentum=0.1, eps=1e-5, training=:auto, mask=nothing)

Normalise each channel of each instance over the axes in front of them. Otherwise as
[`batchnorm`](@ref): running statistics, which `(;)` has not, are means over the instances. The
twin in Python is `pybridge.nn.InstanceNorm`, the source `Flux.InstanceNorm`.

# Examples
```jldoctest
julia> using PyBridge

julia> y, _ = PyBridge.instancenorm((;), (;), reshape([1.0, 3.0], 2, 1, 1); eps=0.0);

julia> vec(y)
2-element Vector{Float64}:
 -1.0
  1.0
```
"""
function instancenorm(params, state, x; momentum=0.1, eps=1e-5, training=:auto, mask=nothing)
    channels = size(x, ndims(x) - 1)
    how = ChannelNorm(:InstanceNorm, Sharing(false, channels), eps, momentum)
    return channel_norm(how, params, state, x, training, mask)
end

"""
    InstanceNorm(channels, activation=identity; affine=false, track_stats=false, eps=1e-5,
                 momentum=0.1)

The layer around [`instancenorm`](@ref), with an activation. Parameters are `scale` and
`bias` where `affine`, the state is `mean` and `var` where `track_stats`.

# Examples
```jldoctest
julia> using PyBridge

julia> PyBridge.init((0x00000000, 0x0000002a), PyBridge.InstanceNorm(3))
(NamedTuple(), NamedTuple())
```
"""
struct InstanceNorm{F} <: Layer
    channels::Int
    activation::F
    affine::Bool
    track_stats::Bool
    eps::Float64
    momentum::Float64
end
function InstanceNorm(
    channels::Integer, activation=identity; affine=false, track_stats=false, eps=1e-5,
    momentum=0.1
)
    channels = positive(:InstanceNorm, channels)
    eps = checked_eps(:InstanceNorm, eps)
    momentum = checked_momentum(:InstanceNorm, momentum)
    return InstanceNorm(channels, activation, affine, track_stats, eps, momentum)
end

function init(key, layer::InstanceNorm; T=Float32)
    return norm_variables(T, (layer.channels,), layer.affine, layer.track_stats)
end

function apply(
    layer::InstanceNorm, params, state, x; key=nothing, training=:auto, mask=nothing
)
    check_norm(:InstanceNorm, x, layer.channels, 3)
    y, state = instancenorm(params, state, x; layer.momentum, layer.eps, training, mask)
    return activated(layer.activation, y), state
end
