"""
    layernorm(params, state, x; size, eps=1e-5, mask=nothing)

Normalise over the first axes, which are `size`: `(x - mean) * (scale / sqrt(var + eps)) +
bias`, in both modes alike.

`Flux.LayerNorm` (0.16) computes `sqrt(var + eps^2)`, against its own documentation. The twin
in Python is `pybridge.nn.LayerNorm`.

# Arguments
- `params`: `(scale, bias)`, arrays of size `size`, or `(;)`.
- `state`: `(;)`, which is returned.
- `x`: size `(size..., batch...)`. The result has its size and number type; statistics of
  half precision are taken in Float32.
- `size`: a tuple.
- `eps`: added to the variance.
- `mask`: as in [`batchnorm`](@ref).

# Returns
`(y, state)`.

# Examples
```jldoctest
julia> using PyBridge

julia> first(PyBridge.layernorm((;), (;), [1.0, 3.0]; size=(2,), eps=0.0))
2-element Vector{Float64}:
 -1.0
  1.0
```
"""
function layernorm(params, state, x; size, eps=1e-5, mask=nothing)
    rows = (prod(size), 1, length(x) ÷ prod(size))
    full = full_mask(mask, x)
    y = ruled(normalise_features, eps, reshape(x, rows),
        flat(optional(params, Val(:scale))), flat(optional(params, Val(:bias))),
        full === nothing ? nothing : reshape(full, rows))
    return reshape(y, Base.size(x)), state
end

flat(::Nothing) = nothing
flat(x) = reshape(x, length(x))

"""
    LayerNorm(size, activation=identity; affine=true, eps=1e-5)
    LayerNorm(size::Integer..., activation=identity; affine=true, eps=1e-5)

The layer around [`layernorm`](@ref), with an activation. Parameters are `scale` and `bias`
of size `size` where `affine`.

# Examples
```jldoctest
julia> using PyBridge

julia> params, state = PyBridge.init((0x00000000, 0x0000002a), PyBridge.LayerNorm(2, 3));

julia> size(params.scale)
(2, 3)
```
"""
struct LayerNorm{N,F} <: Layer
    size::NTuple{N,Int}
    activation::F
    affine::Bool
    eps::Float64
end
function LayerNorm(size::Dims, activation=identity; affine=true, eps=1e-5)
    size = positive(:LayerNorm, size)
    eps = checked_eps(:LayerNorm, eps)
    return LayerNorm(size, activation, affine, eps)
end
LayerNorm(first::Integer, rest...; settings...) =
    LayerNorm(leading((Int(first),), rest...)...; settings...)

leading(size::Dims) = (size,)
leading(size::Dims, activation) = (size, activation)
leading(size::Dims, next::Integer, rest...) = leading((size..., Int(next)), rest...)

init(key, layer::LayerNorm; T=Float32) = norm_variables(T, layer.size, layer.affine, false)

function apply(layer::LayerNorm, params, state, x; key=nothing, training=:auto, mask=nothing)
    check_first_axes(layer, x)
    y, state = layernorm(params, state, x; layer.size, layer.eps, mask)
    return activated(layer.activation, y), state
end

check_first_axes(layer, x) =
    foreach(axis -> check_axis(layer, x, axis, layer.size[axis]), eachindex(layer.size))
ChainRulesCore.@non_differentiable check_first_axes(::Any, ::Any)

# Each instance is one cell; scale and bias run along it.
const EACH_INSTANCE = Sharing(false, 1)

normalise_features(eps, x, scale, bias, mask) =
    first(standardise_features(eps, x, scale, bias, mask))

function standardise_features(eps, x, scale, bias, mask)
    mean, var, count = moments(EACH_INSTANCE, x, mask)
    root = inverse_deviation.(var, convert(real_type(var), eps))
    y = similar(x, result_type(x, scale, bias))
    map_cells!(y, (mask, x, scale, bias), (mean, root)) do m, x, scale, bias, mean, root
        kept(m, plus((x - mean) * times(scale, root), bias))
    end
    return y, mean, root, count
end

function ChainRulesCore.rrule(::typeof(normalise_features), eps, x, scale, bias, mask)
    y, mean, root, count = standardise_features(eps, x, scale, bias, mask)
    function normalise_features_pullback(ȳ)
        ȳ = unthunk(ȳ)
        start = zero(promote_type(eltype(ȳ), working_type(x), number_type_of(scale)))
        of_cells(f::F, arrays, cells) where {F} =
            sum_cells(f, start, size(x), false, arrays, cells)
        divisor = max.(count, 1)
        slopes = of_cells((m, ȳ, scale) -> kept(m, times(scale, ȳ)), (mask, ȳ, scale), ())
        tilts = of_cells((mask, ȳ, x, scale), (mean,)) do m, ȳ, x, scale, mean
            kept(m, times(scale, ȳ * (x - mean)))
        end
        shift, tilt = root .* slopes ./ divisor, root .^ 3 .* tilts ./ divisor
        x̄ = similar(x, result_type(x, ȳ, scale))
        map_cells!(x̄, (mask, ȳ, x, scale), (mean, root, shift, tilt)) do m, ȳ, x, scale,
            mean, root, shift, tilt
            kept(m, ȳ * times(scale, root) - shift - (x - mean) * tilt)
        end
        scale̅ = along_space(scale, start, (mask, ȳ, x), (mean, root)) do m, ȳ, x, mean, root
            kept(m, ȳ * ((x - mean) * root))
        end
        bias̅ = along_space(kept, bias, start, (mask, ȳ), ())
        return (NoTangent(), NoTangent(), x̄, scale̅, bias̅, NoTangent())
    end
    return y, normalise_features_pullback
end

along_space(f, ::Nothing, start, arrays, cells) = NoTangent()
along_space(f::F, parameter, start, arrays, cells) where {F} =
    ProjectTo(parameter)(sum_space(f, start, size(arrays[2]), arrays, cells))
