"""
    CrossCor(kernel, in => out, activation=identity; stride=1, pad=0, dilation=1, bias=true,
             init=glorot_uniform)

A cross-correlation: a convolution whose kernel is not flipped. Parameters, sizes and arguments are
those of [`Conv`](@ref), without `groups`. The twin in Python is `pybridge.nn.CrossCor`, the source
`Flux.CrossCor`.

# Examples
```jldoctest
julia> using PyBridge

julia> layer = PyBridge.CrossCor((2,), 1 => 1; bias=false);

julia> params = (weight=reshape([1.0, -1.0], 2, 1, 1),);

julia> vec(first(PyBridge.apply(layer, params, (;), reshape([1.0, 2.0, 4.0], 3, 1, 1))))
2-element Vector{Float64}:
 -1.0
 -2.0
```
"""
struct CrossCor{C<:Conv} <: Convolution
    conv::C
end
function CrossCor(
    kernel::Dims, channels::Channels, activation=identity; stride=1, pad=0, dilation=1, bias=true,
    init=glorot_uniform
)
    return CrossCor(Conv(kernel, channels, activation; stride, pad, dilation, bias, init))
end

init(key, layer::CrossCor; T=Float32) = init(key, layer.conv; T)

convolution(::CrossCor) = NNlib.conv
setting(layer::CrossCor) = layer.conv
activation_tangent(layer::CrossCor, activation̄) =
    Tangent{typeof(layer)}(; conv=activation_tangent(layer.conv, activation̄))

function conv_dims(layer::CrossCor, x_size, w_size)
    (; kernel, stride, pad, dilation) = layer.conv
    check_window(layer, x_size, kernel, stride, pad, dilation)
    return NNlib.DenseConvDims(
        x_size, w_size; stride, padding=pad, dilation, flipkernel=true)
end

"""
    DepthwiseConv(kernel, in => out, activation=identity; stride=1, pad=0, dilation=1, bias=true,
                  init=glorot_uniform)

The [`Conv`](@ref) with as many groups as input channels. The twin in Python is
`pybridge.nn.DepthwiseConv`, the source `Flux.DepthwiseConv`.

# Examples
```jldoctest
julia> using PyBridge

julia> PyBridge.DepthwiseConv((3,), 2 => 4).groups
2
```
"""
function DepthwiseConv(kernel::Dims, channels::Channels, activation=identity; options...)
    return Conv(kernel, channels, activation; groups=first(channels), options...)
end
