# Mean and variance for the normalisations: two passes, at least in Float32, of the places where
# the mask is true.

"The number type that statistics of `x` are taken in."
working_type(x) = promote_type(eltype(x), Float32)

"""
    result_type(x, others...)

The number type of a result: that of `x`, unless one of the others carries a derivative.
"""
function result_type(x, others...)
    T = promote_type(working_type(x), map(number_type_of, others)...)
    return T <: AbstractFloat ? float(eltype(x)) : T
end
number_type_of(x) = eltype(x)
number_type_of(::Nothing) = Bool

# Where the mask is false nothing is computed with, be it NaN.
@inline kept(::Nothing, x) = x
@inline kept(m::Bool, x) = ifelse(m, x, zero(x))

@inline times(::Nothing, x) = x
@inline times(scale, x) = scale * x
@inline plus(x, ::Nothing) = x
@inline plus(x, bias) = x + bias

"Which cells have statistics in common: all of the batch, and groups of neighbouring channels."
struct Sharing
    across_batch::Bool
    groups::Int
end

"Add up the sums of the cells that have statistics in common; each gets the total."
function pool_groups(how::Sharing, sums)
    channels, batch = size(sums)
    how.groups == channels && return sums
    totals = sum(reshape(sums, :, how.groups, batch); dims=1)
    return reshape(repeat(totals, channels ÷ how.groups), channels, batch)
end

"""
    moments(how::Sharing, x, mask) -> (mean, var, count)

Mean, biased variance and number of values for each cell of `x`, of size (space, channels, batch).
"""
function moments(how::Sharing, x, mask)
    start = zero(working_type(x))
    total(f::F, arrays, cells) where {F} =
        pool_groups(how, sum_cells(f, start, size(x), how.across_batch, arrays, cells))
    count = mask === nothing ? start + values_per_cell(how, x) : total(identity, (mask,), ())
    # A cell without any value has mean and variance 0.
    divisor = max.(count, 1)
    mean = total(kept, (mask, x), ()) ./ divisor
    var = total((m, x, mean) -> kept(m, abs2(x - mean)), (mask, x), (mean,)) ./ divisor
    return mean, var, count
end

function values_per_cell(how::Sharing, x)
    space, channels, batch = size(x)
    return space * (channels ÷ how.groups) * (how.across_batch ? batch : 1)
end

"""
    updated(running, fresh, count, momentum)

Move running statistics towards those of a batch, which are plain numbers (channels, batch or
1). Cells that have less than two values are left out.
"""
function updated(running, fresh, count, momentum)
    m = convert(eltype(running), momentum)
    counts = count isa Number ? fill(count, size(fresh)) : count
    usable = sum(counts .> 1; dims=2)
    new = vec(sum(ifelse.(counts .> 1, fresh, zero(eltype(fresh))); dims=2) ./ max.(usable, 1))
    return map(running, new, vec(usable)) do old, new, usable
        usable > 0 ? convert(eltype(running), (1 - m) * old + m * new) : old
    end
end

"""
    inverse_deviation(var, eps)

Compute `1 / sqrt(var + eps)`, and NaN for a variance that the number type could not hold. An
infinite variance is an overflow: dividing by it would turn all values into zeros.
"""
function inverse_deviation(var, eps)
    root = inv(sqrt(var + eps))
    return ifelse(isinf(primal(var)), oftype(root, NaN), root)
end

unbiased(var, count) = var .* (count ./ max.(count .- 1, 1))

"A mask as an array of the size of `x`."
full_mask(::Nothing, x) = nothing
function full_mask(mask::AbstractArray{Bool}, x)
    fits = ndims(mask) <= ndims(x) &&
        all(d -> size(mask, d) in (1, size(x, d)), 1:ndims(x))
    fits || throw(DimensionMismatch(
        "mask: expected a size that broadcasts to the input's $(size(x)), got $(size(mask))."))
    return Array{Bool}(mask .| falses(size(x)))
end
function full_mask(mask, x)
    throw(ArgumentError("mask: expected an array of Bool or nothing, got a $(typeof(mask))."))
end
ChainRulesCore.@non_differentiable full_mask(::Any, ::Any)
