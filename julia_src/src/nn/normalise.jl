# The one computation behind BatchNorm, InstanceNorm and GroupNorm, with its rule. The mode
# arrives as an argument: Yota knows it only inside of rules.

"""
    ChannelNorm(name, sharing, eps, momentum)

How to normalise arrays of size (space, channels, batch): which cells have statistics in
common, and what is added to the variance.
"""
struct ChannelNorm
    name::Symbol
    sharing::Sharing
    eps::Float64
    momentum::Float64
end

"""
    normalise(how, training, x, scale, bias, mean, var, mask) -> (y, mean, var)

Compute `(x - mean) * (scale / sqrt(var + eps)) + bias`. In training, or without running
statistics, mean and variance are those of `x`; otherwise the given ones. What is returned
are the running statistics after this call, plain numbers.
"""
function normalise(how::ChannelNorm, training, x, scale, bias, mean, var, mask)
    y, _, statistics = standardise(how, training, x, scale, bias, mean, var, mask)
    return (y, statistics...)
end

function standardise(how, training, x, scale, bias, running_mean, running_var, mask)
    fixed = !training && running_mean !== nothing
    count = working_type(x)(1)
    if fixed
        mean, var = column_of(x, running_mean), column_of(x, running_var)
    else
        training && check_count(how, x)
        mean, var, count = moments(how.sharing, x, mask)
    end
    root = inverse_deviation.(var, convert(real_type(var), how.eps))
    slope = scale === nothing ? root : scale .* root
    y = similar(x, result_type(x, slope, bias))
    map_cells!(y, (mask, x), (mean, slope, bias)) do m, x, mean, slope, bias
        kept(m, plus((x - mean) * slope, bias))
    end
    statistics = running_mean === nothing || fixed ? (running_mean, running_var) : (
        updated(running_mean, primal(mean), primal(count), how.momentum),
        updated(running_var, unbiased(primal(var), primal(count)), primal(count), how.momentum))
    return y, (; fixed, mean, root, slope, count), statistics
end

column_of(x, v) = reshape(convert.(promote_type(working_type(x), eltype(v)), v), :, 1)
real_type(x) = primal_type(eltype(x))

function ChainRulesCore.rrule(
    ::typeof(normalise), how::ChannelNorm, training, x, scale, bias, running_mean,
    running_var, mask
)
    y, (; fixed, mean, root, slope, count), statistics = standardise(
        how, training, x, scale, bias, running_mean, running_var, mask)
    function normalise_pullback(cotangents)
        ȳ = unthunk(first(cotangents))
        ȳ isa AbstractZero && return ntuple(Returns(NoTangent()), 9)
        start = zero(promote_type(eltype(ȳ), eltype(slope), working_type(x)))
        of_cells(f::F, arrays, cells) where {F} =
            sum_cells(f, start, size(x), size(mean, 2) == 1, arrays, cells)
        # The two sums that every other cotangent is made of.
        ȳs = of_cells(kept, (mask, ȳ), ())
        ȳxs = of_cells((m, ȳ, x, mean) -> kept(m, ȳ * (x - mean)), (mask, ȳ, x), (mean,))
        x̄ = similar(x, result_type(x, ȳ, slope))
        if fixed
            map_cells!((m, ȳ, slope) -> kept(m, ȳ * slope), x̄, (mask, ȳ), (slope,))
        else
            divisor = max.(count, 1)
            shift = root .* pool_groups(how.sharing, times_cells(scale, ȳs)) ./ divisor
            tilt = root .^ 3 .* pool_groups(how.sharing, times_cells(scale, ȳxs)) ./ divisor
            map_cells!(x̄, (mask, ȳ, x), (mean, slope, shift, tilt)) do m, ȳ, x, mean, slope,
                shift, tilt
                kept(m, ȳ * slope - shift - (x - mean) * tilt)
            end
        end
        scale̅ = along_channels(scale, ȳxs .* root)
        bias̅ = along_channels(bias, ȳs)
        mean̅ = fixed ? @thunk(along_channels(running_mean, -slope .* ȳs)) : NoTangent()
        var̅ = fixed ? @thunk(along_channels(running_var, slope .* root .^ 2 .* ȳxs ./ -2)) :
              NoTangent()
        return (NoTangent(), NoTangent(), NoTangent(), x̄, scale̅, bias̅, mean̅, var̅, NoTangent())
    end
    return (y, statistics...), normalise_pullback
end

times_cells(::Nothing, sums) = sums
times_cells(scale, sums) = scale .* sums

along_channels(::Nothing, sums) = NoTangent()
along_channels(parameter, sums) = ProjectTo(parameter)(vec(sum(sums; dims=2)))

# Channels of which a mask leaves less than two values keep their running statistics.
function check_count(how, x)
    values = values_per_cell(how.sharing, x)
    (how.name === :GroupNorm || values > 1) && return nothing
    throw(ArgumentError(
        "$(how.name): expected more than one value per channel in training, got $values, which " *
        "has no variance. Give a larger batch, or training=false."))
end

# --- what the layers share ------------------------------------------------------------------

"Normalise an array whose last axes are channels and batch."
function channel_norm(how, params, state, x, training, mask)
    scale, bias = optional(params, Val(:scale)), optional(params, Val(:bias))
    cells = (prod(size(x)[1:end-2]), size(x)[end-1:end]...)
    full = full_mask(mask, x)
    y, mean, var = ruled(normalise, how, resolve_training(training, params, x),
        reshape(x, cells), scale, bias, optional(state, Val(:mean)), optional(state, Val(:var)),
        full === nothing ? nothing : reshape(full, cells))
    return reshape(y, size(x)), isempty(state) ? state : (; mean, var)
end

optional(tree, ::Val{name}) where {name} = haskey(tree, name) ? tree[name] : nothing

"Parameters and state of a norm: ones and zeros, as far as the layer has them."
function norm_variables(T, size, affine, track_stats)
    # Running statistics of half precision would not move: they are kept in Float32.
    S = promote_type(T, Float32)
    return affine ? (scale=ones(T, size), bias=zeros(T, size)) : (;),
        track_stats ? (mean=zeros(S, size), var=ones(S, size)) : (;)
end

activated(::typeof(identity), y) = y
activated(activation, y) = activated(activation, y, false)

function check_norm(name, x, channels, axes)
    ndims(x) >= axes && size(x, ndims(x) - 1) == channels && return nothing
    throw(DimensionMismatch(
        "$name: expected an input with $axes axes or more and $channels channels along the last " *
        "but one, got size $(size(x))."))
end
ChainRulesCore.@non_differentiable check_norm(::Any...)
