"""
    Bilinear((in1, in2) => out, activation=identity; bias=true, init=glorot_uniform)

Combine two inputs: `z[o] = activation(sum(x[i] * W[o, i, j] * y[j]) + bias[o])`.

The input is a tuple of two arrays, of sizes `(in1, batch...)` and `(in2, batch...)`, or one array for
both. Parameters are `weight` of size `(out, in1, in2)` and `bias` of size `(out,)`. `in => out` is
short for `(in, in) => out`. The twin in Python is `pybridge.nn.Bilinear`, the source
`Flux.Bilinear`.

# Arguments
- `(in1, in2) => out`: how many features come in and go out.
- `activation`: a function of a number.
- `bias`: whether there is one.
- `init`: makes the weight, as in `init(key, T, dims)`.

# Examples
```jldoctest
julia> using PyBridge

julia> layer = PyBridge.Bilinear((2, 1) => 1; bias=false);

julia> params = (weight=reshape([1.0, 10.0], 1, 2, 1),);

julia> first(PyBridge.apply(layer, params, (;), ([1.0, 2.0], [3.0])))
1-element Vector{Float64}:
 63.0
```
"""
struct Bilinear{F,I} <: StatelessLayer
    channels::Pair{Tuple{Int,Int},Int}
    activation::F
    bias::Bool
    init::I
end
function Bilinear(
    (in, out)::Pair, activation=identity; bias=true, init=glorot_uniform
)
    both = in isa Integer ? (in, in) : in
    in1, in2, out = positive(:Bilinear, (both..., out))
    return Bilinear((in1, in2) => out, activation, bias, init)
end

function init(key, layer::Bilinear; T=Float32)
    in, out = layer.channels
    return weights(key, layer, T, (out, in...), out), (;)
end

function output(layer::Bilinear, params, x)
    one, other = x isa Tuple ? x : (x, x)
    check_pair(layer, size(one), size(other))
    (; weight) = params
    batch = size(one)[2:end]
    # All products of the two, one column for each example.
    products = reshape(as_eltype(weight, one), size(one, 1), 1, :) .*
               reshape(as_eltype(weight, other), 1, size(other, 1), :)
    y = dense(layer.activation, reshape(weight, size(weight, 1), :), optional_bias(params),
        reshape(products, size(one, 1) * size(other, 1), :))
    return reshape(y, size(y, 1), batch...)
end

function check_pair(layer, one, other)
    (in1, in2), _ = layer.channels
    !isempty(one) && !isempty(other) && (first(one), first(other)) == (in1, in2) &&
        one[2:end] == other[2:end] && return nothing
    throw(DimensionMismatch("Bilinear: expected two inputs of sizes ($in1, batch...) and " *
                            "($in2, batch...), or one for both, got $one and $other."))
end
ChainRulesCore.@non_differentiable check_pair(::Any...)

"""
    Scale(size..., activation=identity; bias=true, init=ones_init)

Scale and shift each feature: `activation.(scale .* x .+ bias)`, both of the given size, which is
that of the input's first axes. The twin in Python is `pybridge.nn.Scale`, the source `Flux.Scale`.

# Arguments
- `size`: integers.
- `activation`: a function of a number.
- `bias`: whether there is one.
- `init`: makes the scale, as in `init(key, T, dims)`.

# Examples
```jldoctest
julia> using PyBridge

julia> params = (scale=[2.0, 3.0], bias=[0.0, 1.0]);

julia> first(PyBridge.apply(PyBridge.Scale(2), params, (;), [1.0 10.0; 1.0 10.0]))
2×2 Matrix{Float64}:
 2.0  20.0
 4.0  31.0
```
"""
struct Scale{N,F,I} <: StatelessLayer
    size::NTuple{N,Int}
    activation::F
    bias::Bool
    init::I
end
function Scale(n::Integer, rest...; bias=true, init=ones_init)
    plain = isempty(rest) || last(rest) isa Integer
    sizes = plain ? (n, rest...) : (n, rest[1:end-1]...)
    return Scale(positive(:Scale, sizes), plain ? identity : last(rest), bias, init)
end

function init(key, layer::Scale; T=Float32)
    scale = layer.init(key, T, layer.size)
    size(scale) == layer.size || throw(DimensionMismatch(
        "Scale: expected init(key, T, dims) to return an array of size $(layer.size), got " *
        "$(size(scale))."))
    return layer.bias ? (; scale, bias=zeros(T, layer.size)) : (; scale), (;)
end

function output(layer::Scale, params, x)
    check_leading(layer, size(x))
    y = params.scale .* as_eltype(params.scale, x)
    return activated(layer.activation, y, optional_bias(params))
end

function check_leading(layer, x_size)
    rank = length(layer.size)
    length(x_size) >= rank &&
        all(d -> x_size[d] == layer.size[d] || 1 in (x_size[d], layer.size[d]), 1:rank) &&
        return nothing
    throw(DimensionMismatch(
        "Scale: expected an input whose first axes are $(layer.size), got size $x_size."))
end
ChainRulesCore.@non_differentiable check_leading(::Any, ::Any)
