# Reductions. `dims` are Julia's axes; those that are reduced go away.

"The size with ones where axes were reduced."
ones_size(x, ::Val{dims}) where {dims} =
    ntuple(d -> d in dims ? 1 : size(x, d), Val(ndims(x)))

"Take away the axes that were reduced to one."
function dropped(y, x, ::Val{dims}) where {dims}
    rest = other_axes(dims, ndims(x))
    isempty(rest) && return only(y)
    return Base.reshape(y, ntuple(k -> size(x, rest[k]), Val(length(rest))))
end
"Put them back."
undropped(y::Number, x, dims) = y
undropped(y::AbstractArray, x, dims::Val) = Base.reshape(y, ones_size(x, dims))

all_axes(x, ::Val{dims}) where {dims} = length(dims) == ndims(x)

@primitive reduce_sum(x, ::Val{dims}) where {dims} = summed(x, Val(dims))
function summed(x, ::Val{dims}) where {dims}
    isempty(dims) && return x
    all_axes(x, Val(dims)) && return add_up(x)
    return dropped(added(x, dims), x, Val(dims))
end
# Julia's sums of small integers and Booleans are Ints; JAX keeps the type.
add_up(x::AbstractArray{T}) where {T<:Integer} = reduce(wrapping, x; init=zero(T))
added(x::AbstractArray{T}, dims) where {T<:Integer} =
    reduce(wrapping, x; dims, init=zero(T))
# Floats are added in a wider type.
add_up(x) = isempty(x) ? zero(eltype(x)) : summed_in(summing_type(real_type(x)), x)
added(x, dims) = summed_in(summing_type(real_type(x)), x; dims)
summed_in(::Type{S}, x; dims...) where {S} =
    in_type(real_type(x), sum(PartsIn{S}(), x; dims...))
wrapping(a::T, b::T) where {T} = a + b
wrapping(a::Bool, b::Bool) = a | b

pull(::Primitive{:reduce_sum}, ::Val{1}, ȳ, y, x, dims) =
    repeated(undropped(ȳ, x, dims), Val(size(x)))
repeated(x, dims::Tuple) = repeated(x, Val(dims))

for (name, better, init) in
    ((:reduce_max, :larger, :lowest), (:reduce_min, :smaller, :highest))
    @eval begin
        forward(p::Primitive{$(QuoteNode(name))}, x, dims) =
            extreme(modes((x,)), p, x, dims)
        register($(QuoteNode(name)), Primitive{$(QuoteNode(name))}())
        function plain_extreme(::Primitive{$(QuoteNode(name))}, x, dims::Val{d}) where {d}
            isempty(d) && return x
            all_axes(x, dims) && return reduce($better, x; init=$init(eltype(x)))
            return dropped(reduce($better, x; dims=d, init=$init(eltype(x))), x, dims)
        end
    end
end
extreme(::Mode, p, x, dims) = plain_extreme(p, x, dims)

lowest(::Type{T}) where {T<:AbstractFloat} = T(-Inf)
lowest(::Type{T}) where {T} = typemin(T)
highest(::Type{T}) where {T<:AbstractFloat} = T(Inf)
highest(::Type{T}) where {T} = typemax(T)
lowest(::Type{Bool}) = false
highest(::Type{Bool}) = true

const Extreme = Union{Primitive{:reduce_max},Primitive{:reduce_min}}

# All elements that tie share the derivative, as in JAX.
function winners(y, x, dims)
    hits = primal(x) .== undropped(primal(y), x, dims)
    counts = undropped(summed(convert(Array{Int}, hits), dims), x, dims)
    return hits, counts
end
function pull(::Extreme, ::Val{1}, ȳ, y, x, dims)
    hits, counts = winners(y, x, dims)
    T = float(real(PyBridge.primal_type(eltype(x))))
    return hits .* (undropped(ȳ, x, dims) ./ T.(counts))
end
# Dual numbers: the value is that of the plain ones, the derivative the mean of the
# winners'.
function extreme(::Duals, p, x, dims)
    values = primal(x)
    y = extreme(modes((values,)), p, values, dims)
    hits, counts = winners(y, values, dims)
    deviations = summed(ifelse.(hits, x .- primal_part.(x), zero(eltype(x))), dims)
    return y .+ deviations ./ eltype(y).(as_value(reshaped_like(counts, y)))
end
reshaped_like(counts, y) =
    y isa Number ? as_array(counts) : Base.reshape(as_array(counts), size(y))
primal_part(x) = primal(x)

@primitive reduce_prod(x, ::Val{dims}) where {dims} = multiplied(x, Val(dims))
function multiplied(x, ::Val{dims}) where {dims}
    isempty(dims) && return x
    all_axes(x, Val(dims)) && return reduce(*, x; init=one(eltype(x)))
    return dropped(reduce(*, x; dims, init=one(eltype(x))), x, Val(dims))
end
# The product of all others, without a division: zeros do no harm.
function pull(::Primitive{:reduce_prod}, ::Val{1}, ȳ, y, x, ::Val{dims}) where {dims}
    isempty(dims) && return ȳ
    rest = other_axes(dims, ndims(x))
    order = (dims..., rest...)
    count(axes) = prod(d -> size(x, d), axes; init=1)
    columns = Base.reshape(permutedims(x, order), count(dims), count(rest))
    others = similar(columns)
    for column in axes(columns, 2)
        before = one(eltype(x))
        for i in axes(columns, 1)
            others[i, column] = before
            before *= columns[i, column]
        end
        after = one(eltype(x))
        for i in reverse(axes(columns, 1))
            others[i, column] *= after
            after *= columns[i, column]
        end
    end
    back = permutedims(Base.reshape(others, map(d -> size(x, d), order)), invperm(order))
    return conj.(back) .* undropped(ȳ, x, Val(dims))
end

for (name, op, init) in
    ((:reduce_and, :&, :ones_of), (:reduce_or, :|, :zero), (:reduce_xor, :xor_of, :zero))
    @eval begin
        function forward(::Discrete{$(QuoteNode(name))}, x, dims::Val{d}) where {d}
            isempty(d) && return x
            all_axes(x, dims) && return reduce($op, x; init=$init(eltype(x)))
            return dropped(reduce($op, x; dims=d, init=$init(eltype(x))), x, dims)
        end
        register($(QuoteNode(name)), Discrete{$(QuoteNode(name))}())
    end
end
ones_of(::Type{T}) where {T} = ~zero(T)
xor_of(a, b) = Base.xor(a, b)

# The first of the largest; a NaN is larger than all. Counted from 0.
@discrete argmax(x, ::Val{dim}, ::Val{T}) where {dim,T} = place_of(>, x, Val(dim), T)
@discrete argmin(x, ::Val{dim}, ::Val{T}) where {dim,T} = place_of(<, x, Val(dim), T)
function place_of(better, x, ::Val{dim}, ::Type{T}) where {dim,T}
    dims = Val((dim,))
    y = mapslices(v -> T(first_best(better, v) - 1), as_array(x); dims=dim)
    return dropped(y, x, dims)
end
function first_best(better, v)
    best = firstindex(v)
    for i in eachindex(v)
        isnan_of(v[best]) && break
        (better(v[i], v[best]) || isnan_of(v[i])) && (best = i)
    end
    return best
end
isnan_of(x) = false
isnan_of(x::AbstractFloat) = isnan(x)
