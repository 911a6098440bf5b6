"""
    SamePad()

Given as `pad`: as much padding as makes the output as large as the input divided by the
stride. Where the padding is odd, the greater half comes first.
"""
struct SamePad end

"A layer that convolves: `convolution(layer)(x, weight, dims)`, a bias for each channel, an activation."
abstract type Convolution <: StatelessLayer end

"""
    Conv(kernel, in => out, activation=identity; stride=1, pad=0, dilation=1, groups=1,
         bias=true, init=glorot_uniform)

A convolution over `length(kernel)` axes: the kernel is flipped, unlike in most other
frameworks.

Parameters are `weight` of size `(kernel..., in ÷ groups, out)` and `bias` of size `(out,)`.
The input has size `(space..., in, batch)`; it is converted to the weight's number type. The
twin in Python is `pybridge.nn.Conv`, whose arrays and tuples have the axes reversed; the
source is `Flux.Conv`.

# Arguments
- `kernel`: a tuple of sizes.
- `in => out`: how many channels come in and go out; `groups` divides both.
- `activation`: a function of a number.
- `stride`, `dilation`: a number, or one for each axis.
- `pad`: a number, one for each axis, two for each axis (before and after), or `SamePad()`.
- `bias`: whether there is one.
- `init`: makes the weight, as in `init(key, T, dims)`.

# Examples
```jldoctest
julia> using PyBridge

julia> layer = PyBridge.Conv((3, 3), 1 => 4; pad=PyBridge.SamePad());

julia> params = (weight=ones(3, 3, 1, 4), bias=zeros(4));

julia> y, state = PyBridge.apply(layer, params, (;), ones(8, 8, 1, 2));

julia> size(y)
(8, 8, 4, 2)
```
"""
struct Conv{N,M,F,I} <: Convolution
    kernel::NTuple{N,Int}
    channels::Pair{Int,Int}
    activation::F
    stride::NTuple{N,Int}
    pad::NTuple{M,Int}
    dilation::NTuple{N,Int}
    groups::Int
    bias::Bool
    init::I
end
function Conv(
    kernel::Dims{N}, channels::Channels, activation=identity; stride=1, pad=0, dilation=1,
    groups=1, bias=true, init=glorot_uniform
) where {N}
    kernel = positive(:Conv, kernel)
    channels = positive(:Conv, channels)
    groups = checked_groups(:Conv, channels, groups)
    dilation = each_axis(Val(N), dilation)
    pads = padding(pad, kernel, dilation)
    return Conv(kernel, channels, activation, each_axis(Val(N), stride), pads, dilation,
        groups, bias, init)
end

function init(key, layer::Conv; T=Float32)
    in, out = layer.channels
    return weights(key, layer, T, (layer.kernel..., in ÷ layer.groups, out), out), (;)
end

convolution(::Conv) = NNlib.conv

function conv_dims(layer::Conv, x_size, w_size)
    check_window(layer, x_size, layer.kernel, layer.stride, layer.pad, layer.dilation)
    return NNlib.DenseConvDims(x_size, w_size; stride=layer.stride, padding=layer.pad,
        dilation=layer.dilation, groups=layer.groups)
end

"""
    ConvTranspose(kernel, in => out, activation=identity; stride=1, pad=0, outpad=0,
                  dilation=1, groups=1, bias=true, init=glorot_uniform)

The transpose of a convolution, which makes images larger where `Conv` makes them smaller.

The weight has size `(kernel..., out ÷ groups, in)`. `pad` is taken off the output, and
`outpad` is added to it at the end; with `SamePad()` the output is as large as the input times the
stride. All else is as in [`Conv`](@ref). The twin in Python is `pybridge.nn.ConvTranspose`,
the source `Flux.ConvTranspose`.

# Examples
```jldoctest
julia> using PyBridge

julia> layer = PyBridge.ConvTranspose((2, 2), 4 => 1; stride=2);

julia> params = (weight=ones(2, 2, 1, 4), bias=zeros(1));

julia> y, state = PyBridge.apply(layer, params, (;), ones(8, 8, 4, 2));

julia> size(y)
(16, 16, 1, 2)
```
"""
struct ConvTranspose{N,M,F,I} <: Convolution
    kernel::NTuple{N,Int}
    channels::Pair{Int,Int}
    activation::F
    stride::NTuple{N,Int}
    pad::NTuple{M,Int}
    outpad::NTuple{N,Int}
    dilation::NTuple{N,Int}
    groups::Int
    bias::Bool
    init::I
end
function ConvTranspose(
    kernel::Dims{N}, channels::Channels, activation=identity; stride=1, pad=0, outpad=0,
    dilation=1, groups=1, bias=true, init=glorot_uniform
) where {N}
    kernel = positive(:ConvTranspose, kernel)
    channels = positive(:ConvTranspose, channels)
    groups = checked_groups(:ConvTranspose, channels, groups)
    stride, dilation = each_axis(Val(N), stride), each_axis(Val(N), dilation)
    outpad = each_axis(Val(N), outpad, 0)
    check_outpad(outpad, stride)
    # The stride's gaps are room that the kernel has already.
    pads = padding(pad, pad isa SamePad ? kernel .- stride .+ 1 : kernel, dilation)
    return ConvTranspose(
        kernel, channels, activation, stride, pads, outpad, dilation, groups, bias, init)
end

function init(key, layer::ConvTranspose; T=Float32)
    in, out = layer.channels
    return weights(key, layer, T, (layer.kernel..., out ÷ layer.groups, in), out), (;)
end

convolution(::ConvTranspose) = transposed_convolution

# NNlib's result has the number type of x, be the weight of dual numbers or not.
function transposed_convolution(x, weight, dims)
    T = promote_type(eltype(x), eltype(weight))
    return NNlib.∇conv_data(convert(AbstractArray{T}, x), weight, dims)
end
ChainRulesCore.rrule(::typeof(transposed_convolution), x, weight, dims) =
    ChainRulesCore.rrule(NNlib.∇conv_data, x, weight, dims)

# The convolution whose gradient with respect to its input this is.
function conv_dims(layer::ConvTranspose, x_size, w_size)
    space = ntuple(length(layer.kernel)) do i
        (x_size[i] - 1) * layer.stride[i] + 1 + (layer.kernel[i] - 1) * layer.dilation[i] -
        layer.pad[2i-1] - layer.pad[2i] + layer.outpad[i]
    end
    check_space(layer, x_size, space)
    output = (space..., last(layer.channels), x_size[end])
    return NNlib.DenseConvDims(output, w_size; stride=layer.stride, padding=layer.pad,
        dilation=layer.dilation, groups=layer.groups)
end

# --- what convolutions share ----------------------------------------------------------------

"The layer that has the sizes and the activation."
setting(layer::Convolution) = layer

function output(layer::Convolution, params, x)
    dims = checked_dims(layer, params, x)
    y = ruled(convolution(layer), as_eltype(params.weight, x), params.weight, dims)
    return activated(setting(layer).activation, y, channel_bias(params, Val(ndims(x))))
end

function ChainRulesCore.rrule(config::RuleConfig{>:HasReverseMode}, ::typeof(output),
    layer::Convolution, params::NamedTuple, x)
    dims = checked_dims(layer, params, x)
    function product_rrule(weight, x)
        y, back = ChainRulesCore.rrule(convolution(layer), x, weight, dims)
        return y, ȳ -> ((_, x̄, weight̄) = back(ȳ); (weight̄, x̄))
    end
    return affine_rrule(config, layer, params, x, setting(layer).activation,
        channel_bias(params, Val(ndims(x))), product_rrule)
end

function checked_dims(layer, params, x)
    (; kernel, channels) = setting(layer)
    check_rank(layer, size(x), length(kernel))
    check_axis(layer, x, ndims(x) - 1, first(channels))
    size(x, ndims(x)) > 0 || throw(DimensionMismatch(
        "$(title(layer)): expected one example or more, got size $(size(x)). NNlib has no " *
        "convolution of none."))
    return conv_dims(layer, size(x), size(params.weight))
end
ChainRulesCore.@non_differentiable checked_dims(::Any, ::Any, ::Any)

"The bias along the last axis but one of an array with `N` axes."
function channel_bias(params, ::Val{N}) where {N}
    bias = optional_bias(params)
    return bias isa Bool ? bias : reshape(bias, ntuple(Returns(1), N - 2)..., :, 1)
end

# --- what convolutions and pools share ------------------------------------------------------

"An option of each of `N` axes of space, none below `least`."
function each_axis(::Val{N}, x, least=1) where {N}
    sizes = x isa Integer ? ntuple(Returns(Int(x)), N) : x
    sizes isa Dims{N} && all(>=(least), sizes) && return sizes
    throw(ArgumentError(
        "stride, dilation, outpad: expected an integer of at least $least or a tuple of $N of " *
        "them, got $x."))
end
ChainRulesCore.@non_differentiable each_axis(::Any...)

"Padding before and after each axis, in one tuple."
function padding(pad, ::Dims{N}, dilation) where {N}
    sides = pad isa Dims{N} ? ntuple(i -> pad[cld(i, 2)], 2N) :
        pad isa Integer ? ntuple(Returns(Int(pad)), 2N) : pad
    sides isa Dims{2N} && all(>=(0), sides) && return sides
    throw(ArgumentError(
        "pad: expected an integer of at least 0, a tuple of $N or $(2N) of them, or SamePad(), " *
        "got $pad."))
end
function padding(::SamePad, kernel::Dims{N}, dilation) where {N}
    amount = @. kernel + (kernel - 1) * (dilation - 1) - 1
    return ntuple(i -> isodd(i) ? cld(amount[cld(i, 2)], 2) : fld(amount[cld(i, 2)], 2), 2N)
end
ChainRulesCore.@non_differentiable padding(::Any, ::Any, ::Any)
