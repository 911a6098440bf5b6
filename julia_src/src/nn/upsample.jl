# Larger images. The twin in Python is `pybridge/nn/_upsample.py`.

"""
    Upsample(mode=:nearest; scale=nothing, size=nothing)
    Upsample(scale, mode=:nearest)

Enlarge images, of size `(space..., channels, batch)`. `:nearest` repeats each value; `:bilinear` (two
axes) and `:trilinear` (three) interpolate such that the corners stay what they are. There are no
parameters. The twin in Python is `pybridge.nn.Upsample`, whose tuples are reversed; the source is
`Flux.Upsample`.

# Arguments
- `mode`: `:nearest`, `:bilinear` or `:trilinear`.
- `scale`: the factor of each axis, one or a tuple; integers for `:nearest`. Otherwise sizes are
  rounded down.
- `size`: of the output, in place of `scale`; for `:nearest` multiples of the input's. A tuple for
  `:nearest`, of either, may leave out the last axes, which then stay as they are.

# Examples
```jldoctest
julia> using PyBridge

julia> x = reshape([0.0, 1.0], 2, 1, 1, 1);

julia> vec(first(PyBridge.apply(PyBridge.Upsample(:bilinear; size=(3, 1)), (;), (;), x)))
3-element Vector{Float64}:
 0.0
 0.5
 1.0
```
"""
struct Upsample{S,T} <: StatelessLayer
    mode::Symbol
    scale::S
    size::T
end
function Upsample(mode::Symbol=:nearest; scale=nothing, size=nothing)
    mode in (:nearest, :bilinear, :trilinear) || throw(ArgumentError(
        "Upsample: expected :nearest, :bilinear or :trilinear as mode, got $(repr(mode))."))
    (scale === nothing) != (size === nothing) || throw(ArgumentError(
        "Upsample: expected either scale or size, got scale=$scale, size=$size."))
    factors = scale === nothing ? () : Tuple(scale)
    all(f -> f > 0 && (mode !== :nearest || f isa Integer), factors) || throw(ArgumentError(
        "Upsample: expected positive " * (mode === :nearest ? "integers" : "numbers") *
        " as scale, got $scale."))
    return Upsample(mode, scale, size)
end
Upsample(scale, mode::Symbol=:nearest) = Upsample(mode; scale)

init(key, ::Upsample; T=Float32) = ((;), (;))

function output(layer::Upsample, params, x)
    wanted = upsampled_size(layer, size(x))
    layer.mode === :nearest && return ruled(repeated, x, wanted .÷ size(x)[1:end-2])
    return stretched(x, wanted)
end

function upsampled_size(layer, x_size)
    given = layer.scale === nothing ? layer.size : layer.scale
    count = given isa Tuple ? length(given) : 1
    nearest = layer.mode === :nearest
    axes = nearest ? max(count, length(x_size) - 2) : layer.mode === :bilinear ? 2 : 3
    length(x_size) == axes + 2 && (nearest || !(given isa Tuple) || count == axes) ||
        throw(DimensionMismatch("Upsample: expected an input with $(axes + 2) axes, (space..., " *
                                "channels, batch), got size $x_size."))
    space = x_size[1:axes]
    parts = given isa Tuple ? space[1:count] : space
    wanted = layer.scale === nothing ? Tuple(layer.size) : floor.(Int, parts .* layer.scale)
    wanted = (wanted..., space[length(wanted)+1:end]...)
    all(>(0), (space..., wanted...)) && (!nearest || all(iszero, wanted .% space)) && return wanted
    throw(DimensionMismatch("Upsample: expected at least one element on each axis, and for " *
                            ":nearest multiples of the input's, got $wanted for $space."))
end
ChainRulesCore.@non_differentiable upsampled_size(::Any, ::Any)

repeated(x, factors) = repeat(x; inner=(factors..., 1, 1))
function ChainRulesCore.rrule(::typeof(repeated), x, factors)
    function repeated_pullback(ȳ)
        blocks = ntuple(2 * length(factors)) do i
            isodd(i) ? factors[cld(i, 2)] : size(x, cld(i, 2))
        end
        ȳ = reshape(unthunk(ȳ), blocks..., size(x)[end-1:end]...)
        x̄ = reshape(sum(ȳ; dims=1:2:2length(factors)), size(x))
        return NoTangent(), ProjectTo(x)(x̄), NoTangent()
    end
    return repeated(x, factors), repeated_pullback
end

# One axis after the other; those that stay are left out.
stretched(x, wanted::Tuple{}) = x
function stretched(x, wanted::Tuple)
    axis = length(wanted)
    y = size(x, axis) == last(wanted) ? x : ruled(interpolated, x, axis, last(wanted))
    return stretched(y, Base.front(wanted))
end

"The element below each of `count` places along an axis of `n`, and the weight of the one above."
function neighbours(n, count)
    last = max(count - 1, 1)
    # In whole numbers, so that elements of x come out as they are.
    return [(1 + i * (n - 1) ÷ last, (i * (n - 1) % last) / last) for i in 0:count-1]
end

function interpolated(x, axis, count)
    T = float(eltype(x))
    y = similar(x, T, ntuple(d -> d == axis ? count : size(x, d), ndims(x)))
    n = size(x, axis)
    for (i, (below, weight)) in enumerate(neighbours(n, count))
        w = primal_type(T)(weight)
        selectdim(y, axis, i) .= selectdim(x, axis, below) .* (1 - w) .+
                                 selectdim(x, axis, min(below + 1, n)) .* w
    end
    return y
end

function ChainRulesCore.rrule(::typeof(interpolated), x, axis, count)
    n = size(x, axis)
    function interpolated_pullback(ȳ)
        ȳ = unthunk(ȳ)
        x̄ = fill!(similar(ȳ, size(x)), 0)
        for (i, (below, weight)) in enumerate(neighbours(n, count))
            w, part = primal_type(eltype(ȳ))(weight), selectdim(ȳ, axis, i)
            selectdim(x̄, axis, below) .+= part .* (1 - w)
            selectdim(x̄, axis, min(below + 1, n)) .+= part .* w
        end
        return NoTangent(), ProjectTo(x)(x̄), NoTangent(), NoTangent()
    end
    return interpolated(x, axis, count), interpolated_pullback
end

"""
    PixelShuffle(r)

Make channels into pixels: `(W, H, C * r^2, N)` into `(W * r, H * r, C, N)`, for any number of axes.
There are no parameters. The twin in Python is `pybridge.nn.PixelShuffle`, the source
`Flux.PixelShuffle` (Shi et al., 2016).

# Examples
```jldoctest
julia> using PyBridge

julia> x = reshape(collect(1.0:4.0), 1, 1, 4, 1);

julia> reshape(first(PyBridge.apply(PyBridge.PixelShuffle(2), (;), (;), x)), 2, 2)
2×2 Matrix{Float64}:
 1.0  3.0
 2.0  4.0
```
"""
struct PixelShuffle <: StatelessLayer
    factor::Int
    function PixelShuffle(factor)
        factor > 0 || throw(ArgumentError(
            "PixelShuffle: expected a positive integer, got $factor."))
        return new(factor)
    end
end

init(key, ::PixelShuffle; T=Float32) = ((;), (;))

function output(layer::PixelShuffle, params, x)
    r, axes = layer.factor, ndims(x) - 2
    check_channels(layer, size(x))
    space, channels, batch = size(x)[1:axes], size(x, axes + 1) ÷ r^axes, size(x, axes + 2)
    parts = reshape(x, space..., ntuple(Returns(r), axes)..., channels, batch)
    return reshape(permutedims(parts, interleaved(axes)), (space .* r)..., channels, batch)
end

# Each r in front of its axis.
interleaved(axes) = (ntuple(i -> isodd(i) ? axes + cld(i, 2) : i ÷ 2, 2axes)..., 2axes + 1, 2axes + 2)
ChainRulesCore.@non_differentiable interleaved(::Any)

function check_channels(layer, x_size)
    axes = length(x_size) - 2
    axes > 0 && x_size[end-1] % layer.factor^axes == 0 && return nothing
    throw(DimensionMismatch("PixelShuffle: expected (space..., channels, batch) with channels " *
        "that $(layer.factor^max(axes, 1)) divides, got size $x_size."))
end
ChainRulesCore.@non_differentiable check_channels(::Any, ::Any)
