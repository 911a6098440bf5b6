"""
    groupnorm(params, state, x; groups, eps=1e-5, mask=nothing)

Normalise each group of neighbouring channels of each instance, in both modes alike.
Otherwise as [`batchnorm`](@ref); `state` is `(;)`. The twin in Python is
`pybridge.nn.GroupNorm`, the source `Flux.GroupNorm`.

# Examples
```jldoctest
julia> using PyBridge

julia> y, _ = PyBridge.groupnorm((;), (;), [1.0; 3.0;;]; groups=1, eps=0.0);

julia> vec(y)
2-element Vector{Float64}:
 -1.0
  1.0
```
"""
function groupnorm(params, state, x; groups, eps=1e-5, mask=nothing)
    how = ChannelNorm(:GroupNorm, Sharing(false, groups), eps, 0.0)
    return channel_norm(how, params, state, x, false, mask)
end

"""
    GroupNorm(channels, groups, activation=identity; affine=true, eps=1e-5)

The layer around [`groupnorm`](@ref), with an activation. Parameters are `scale` and `bias`
of size `(channels,)` where `affine`.

# Examples
```jldoctest
julia> using PyBridge

julia> params, state = PyBridge.init((0x00000000, 0x0000002a), PyBridge.GroupNorm(4, 2));

julia> size(params.scale)
(4,)
```
"""
struct GroupNorm{F} <: Layer
    channels::Int
    groups::Int
    activation::F
    affine::Bool
    eps::Float64
end
function GroupNorm(
    channels::Integer, groups::Integer, activation=identity; affine=true, eps=1e-5
)
    channels = positive(:GroupNorm, channels)
    groups = checked_groups(:GroupNorm, channels, groups)
    eps = checked_eps(:GroupNorm, eps)
    return GroupNorm(channels, groups, activation, affine, eps)
end

init(key, layer::GroupNorm; T=Float32) =
    norm_variables(T, (layer.channels,), layer.affine, false)

function apply(layer::GroupNorm, params, state, x; key=nothing, training=:auto, mask=nothing)
    check_norm(:GroupNorm, x, layer.channels, 2)
    y, state = groupnorm(params, state, x; layer.groups, layer.eps, mask)
    return activated(layer.activation, y), state
end
