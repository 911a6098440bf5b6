"""
    MaxPool(window; stride=window, pad=0)

The maximum of each window of the axes in front of channels and batch. Padding never wins.

At a tie the derivative is that of the first of the equal values in memory order, exactly, as in
Python and under every AD system. NNlib's gradient, and so Flux's, goes to the first value that is
approximately the maximum (`≈`).

There are no parameters. The input has size `(space..., channels, batch)`. The twin in Python
is `pybridge.nn.MaxPool`, whose tuples are reversed; the source is `Flux.MaxPool`.

# Arguments
- `window`: a tuple of sizes.
- `stride`: a number, or one for each axis.
- `pad`: a number, one for each axis, two for each axis (before and after), or `SamePad()`.

# Examples
```jldoctest
julia> using PyBridge

julia> y, _ = PyBridge.apply(PyBridge.MaxPool((2,)), (;), (;), reshape([1.0, 4, 2, 3], 4, 1, 1));

julia> vec(y)
2-element Vector{Float64}:
 4.0
 3.0
```
"""
struct MaxPool{N,M} <: StatelessLayer
    window::NTuple{N,Int}
    stride::NTuple{N,Int}
    pad::NTuple{M,Int}
end
function MaxPool(window::Dims{N}; stride=window, pad=0) where {N}
    window = positive(:MaxPool, window)
    pads = padding(pad, window, 1)
    check_less_padding(window, pads)
    return MaxPool(window, each_axis(Val(N), stride), pads)
end

"""
    MeanPool(window; stride=window, pad=0)

The mean of each window of the axes in front of channels and batch. Padding counts as zeros.
Arguments as in [`MaxPool`](@ref). The twin in Python is `pybridge.nn.MeanPool`, the source
`Flux.MeanPool`.

# Examples
```jldoctest
julia> using PyBridge

julia> x = reshape([1.0, 4, 2, 3], 4, 1, 1);

julia> vec(first(PyBridge.apply(PyBridge.MeanPool((2,)), (;), (;), x)))
2-element Vector{Float64}:
 2.5
 2.5
```
"""
struct MeanPool{N,M} <: StatelessLayer
    window::NTuple{N,Int}
    stride::NTuple{N,Int}
    pad::NTuple{M,Int}
end
function MeanPool(window::Dims{N}; stride=window, pad=0) where {N}
    window = positive(:MeanPool, window)
    return MeanPool(window, each_axis(Val(N), stride), padding(pad, window, 1))
end

"""
    GlobalMeanPool()

The mean of each channel over all axes in front of it, which become 1. The twin in Python is
`pybridge.nn.GlobalMeanPool`, the source `Flux.GlobalMeanPool`.

# Examples
```jldoctest
julia> using PyBridge

julia> y, _ = PyBridge.apply(PyBridge.GlobalMeanPool(), (;), (;), ones(4, 5, 3, 2));

julia> size(y)
(1, 1, 3, 2)
```
"""
struct GlobalMeanPool <: StatelessLayer end

"""
    GlobalMaxPool()

The largest value of each channel over all axes in front of it, which become 1; at a tie as in
[`MaxPool`](@ref). The twin in Python is `pybridge.nn.GlobalMaxPool`, the source
`Flux.GlobalMaxPool`.

# Examples
```jldoctest
julia> using PyBridge

julia> y, _ = PyBridge.apply(PyBridge.GlobalMaxPool(), (;), (;), ones(4, 5, 3, 2));

julia> size(y)
(1, 1, 3, 2)
```
"""
struct GlobalMaxPool <: StatelessLayer end

"""
    AdaptiveMaxPool(size)

The maximum of each window, with windows that give an output of that size: of n elements m, with the
stride `n ÷ m` and windows of `n - (m - 1) * stride`. All else is as in [`MaxPool`](@ref). The twin in
Python is `pybridge.nn.AdaptiveMaxPool`, the source `Flux.AdaptiveMaxPool`.

# Examples
```jldoctest
julia> using PyBridge

julia> x = reshape(collect(0.0:4.0), 5, 1, 1);

julia> vec(first(PyBridge.apply(PyBridge.AdaptiveMaxPool((2,)), (;), (;), x)))
2-element Vector{Float64}:
 2.0
 4.0
```
"""
struct AdaptiveMaxPool{N} <: StatelessLayer
    size::NTuple{N,Int}
    function AdaptiveMaxPool(size::Dims{N}) where {N}
        return new{N}(positive(:AdaptiveMaxPool, size))
    end
end

"""
    AdaptiveMeanPool(size)

The mean of each window, with the windows of [`AdaptiveMaxPool`](@ref). The twin in Python is
`pybridge.nn.AdaptiveMeanPool`, the source `Flux.AdaptiveMeanPool`.

# Examples
```jldoctest
julia> using PyBridge

julia> x = reshape(collect(0.0:4.0), 5, 1, 1);

julia> vec(first(PyBridge.apply(PyBridge.AdaptiveMeanPool((2,)), (;), (;), x)))
2-element Vector{Float64}:
 1.0
 3.0
```
"""
struct AdaptiveMeanPool{N} <: StatelessLayer
    size::NTuple{N,Int}
    function AdaptiveMeanPool(size::Dims{N}) where {N}
        return new{N}(positive(:AdaptiveMeanPool, size))
    end
end

const AdaptivePool = Union{AdaptiveMaxPool,AdaptiveMeanPool}
const GlobalPool = Union{GlobalMaxPool,GlobalMeanPool}
const Pool = Union{MaxPool,MeanPool,GlobalPool,AdaptivePool}

init(key, ::Pool; T=Float32) = ((;), (;))

output(layer::Pool, params, x) = ruled(pooling(layer), x, pool_dims(layer, size(x)))

pooling(::Union{MaxPool,GlobalMaxPool,AdaptiveMaxPool}) = maxima
pooling(::Pool) = NNlib.meanpool

function ChainRulesCore.rrule(::typeof(output), layer::Pool, params, x)
    y, back = ChainRulesCore.rrule(ruled, pooling(layer), x, pool_dims(layer, size(x)))
    return y, ȳ -> (NoTangent(), NoTangent(), NoTangent(), back(ȳ)[3])
end

function pool_dims(layer::Union{MaxPool,MeanPool}, x_size)
    check_rank(layer, x_size, length(layer.window))
    check_window(layer, x_size, layer.window, layer.stride, layer.pad, map(one, layer.window))
    return NNlib.PoolDims(x_size, layer.window; stride=layer.stride, padding=layer.pad)
end
function pool_dims(layer::AdaptivePool, x_size)
    check_rank(layer, x_size, length(layer.size))
    space = x_size[1:end-2]
    all(space .>= layer.size) || throw(DimensionMismatch(
        "$(title(layer)): expected at least $(layer.size) elements, got size $x_size."))
    stride = space .÷ layer.size
    return NNlib.PoolDims(x_size, space .- (layer.size .- 1) .* stride; stride)
end
function pool_dims(layer::GlobalPool, x_size)
    space = x_size[1:end-2]
    !isempty(space) && all(>(0), space) || throw(DimensionMismatch(
        "$(title(layer)): expected an input (space..., channels, batch) with elements in space, " *
        "got size $x_size."))
    return NNlib.PoolDims(x_size, space)
end
ChainRulesCore.@non_differentiable pool_dims(::Any, ::Any)

# Two faults of NNlib's: its gradient goes to the first value of a window that is approximately
# the maximum, and of dual numbers that tie it takes the one with the larger derivative. Here
# plain numbers decide.
function maxima(x, dims)
    values = primal(x)
    largest = NNlib.maxpool(values, dims)
    values === x && return largest
    y = convert(Array{eltype(x)}, largest)
    each_winner((window, place) -> y[window] = x[place], values, largest, dims)
    return y
end

function ChainRulesCore.rrule(::typeof(maxima), x, dims)
    y = maxima(x, dims)
    function maxima_pullback(ȳ)
        ȳ = unthunk(ȳ)
        # Arrays on GPUs have methods of their own.
        y isa Array || return NoTangent(), NNlib.∇maxpool(ȳ, y, x, dims), NoTangent()
        x̄ = fill!(similar(x, promote_type(eltype(x), eltype(ȳ))), 0)
        each_winner((window, place) -> x̄[place] += ȳ[window], primal(x), primal(y), dims)
        return NoTangent(), ProjectTo(x)(x̄), NoTangent()
    end
    return y, maxima_pullback
end

"""
    each_winner(f, x, y, dims)

Call `f(window, place)` for each window, an index of `y`, with the place in `x`, a linear index, of
the first value that equals the window's in `y`. A window without one, as of NaN only, is left out.
"""
function each_winner(f::F, x::AbstractArray{<:Any,N}, y, dims) where {F,N}
    kernel, stride, pad = NNlib.kernel_size(dims), NNlib.stride(dims), NNlib.padding(dims)
    numbers = LinearIndices(x)
    for window in CartesianIndices(y)
        places = CartesianIndices(ntuple(Val(N)) do d
            d > N - 2 && return window[d]:window[d]
            before = (window[d] - 1) * stride[d] - pad[2d-1]
            max(before + 1, 1):min(before + kernel[d], size(x, d))
        end)
        winner = 0
        @inbounds largest = y[window]
        # To the end of the window: leaving early would be a branch that nobody can predict.
        for place in places
            @inbounds wins = (winner == 0) & (x[place] == largest)
            winner = ifelse(wins, numbers[place], winner)
        end
        winner == 0 || f(window, winner)
    end
    return nothing
end
