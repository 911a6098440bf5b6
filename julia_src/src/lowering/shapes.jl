# Shapes: what moves, repeats, cuts and joins elements.

# Copies of wrapped arrays would be slow to read; a transposed matrix is made at once.
dense(x::Array) = x
dense(x::AbstractArray) = collect(x)
dense(x::Number) = x

@primitive reshape(x, ::Val{dims}) where {dims} = reshaped(x, dims)
pull(::Primitive{:reshape}, ::Val{1}, ȳ, y, x, dims) = reshaped(ȳ, size(x))

reshaped(x, dims) = as_value(Base.reshape(as_array(x), dims))
reshaped(x::Number, ::Tuple{}) = x

@primitive squeeze(x, ::Val{dims}) where {dims} = reshaped(x, dims)
pull(::Primitive{:squeeze}, ::Val{1}, ȳ, y, x, dims) = reshaped(ȳ, size(x))

"""
    broadcast_in_dim(x, Val(dims), Val(places))

Repeat `x` to the size `dims`; axis `k` of `x` becomes axis `places[k]`.
"""
@primitive broadcast_in_dim(x, ::Val{dims}, ::Val{places}) where {dims,places} =
    repeated(spread(x, Val(dims), Val(places)), Val(dims))

function pull(
    ::Primitive{:broadcast_in_dim}, ::Val{1}, ȳ, y, x, ::Val{dims}, ::Val{places}
) where {dims,places}
    x isa Number && return sum(ȳ)
    wide = spread_size(size(x), Val(dims), Val(places))
    wide == dims && return reshaped(ȳ, size(x))
    axes = Tuple(filter(d -> wide[d] != dims[d], 1:length(dims)))
    return reshaped(sum(ȳ; dims=axes), size(x))
end

spread_size(from, ::Val{dims}, ::Val{places}) where {dims,places} =
    ntuple(Val(length(dims))) do d
        k = findfirst(==(d), places)
        k === nothing ? 1 : from[k]
    end

spread(x::Number, dims, places) = x
spread(x::AbstractArray, dims::Val, places::Val) =
    Base.reshape(x, spread_size(size(x), dims, places))

function repeated(x, ::Val{dims}) where {dims}
    isempty(dims) && return as_value(x)
    x isa AbstractArray && size(x) == dims && return x
    y = Array{eltype(x)}(undef, dims)
    return y .= x
end

@primitive transpose(x, ::Val{order}) where {order} = permuted(x, Val(order))
pull(::Primitive{:transpose}, ::Val{1}, ȳ, y, x, ::Val{order}) where {order} =
    permuted(ȳ, Val(invperm(order)))

permuted(x::Number, ::Val{order}) where {order} = x
permuted(x, ::Val{order}) where {order} =
    order === ntuple(identity, length(order)) ? x : permutedims(x, order)

@primitive rev(x, ::Val{dims}) where {dims} = reversed(x, dims)
pull(::Primitive{:rev}, ::Val{1}, ȳ, y, x, ::Val{dims}) where {dims} = reversed(ȳ, dims)
reversed(x, dims) = isempty(dims) ? x : Base.reverse(x; dims)

"""
    concatenate(Val(dim), xs...)

Join arrays along an axis.
"""
@primitive concatenate(::Val{dim}, xs...) where {dim} = joined(Val(dim), xs...)
joined(::Val{dim}, x) where {dim} = x
function joined(::Val{dim}, xs...) where {dim}
    lengths = map(x -> size(x, dim), xs)
    T = promote_type(map(eltype, xs)...)
    n = ndims(first(xs))
    y = Array{T}(undef, ntuple(d -> d == dim ? sum(lengths) : size(first(xs), d), n))
    start = 0
    for (x, count) in zip(xs, lengths)
        y[part(Val(n), dim, start, count)...] = x
        start += count
    end
    return y
end
part(::Val{n}, dim, start, count) where {n} =
    ntuple(d -> d == dim ? (start+1:start+count) : Colon(), Val(n))
function pull(::Primitive{:concatenate}, ::Val{i}, ȳ, y, ::Val{dim}, xs...) where {i,dim}
    start = sum(k -> size(xs[k], dim), 1:i-2; init=0)
    return ȳ[part(Val(ndims(y)), dim, start, size(xs[i-1], dim))...]
end

"""
    slice(x, Val(first), Val(step), Val(dims))

Cut out `dims` elements from `first` (from 1) in steps.
"""
@primitive slice(x, first, step, dims) = x[ranges(first, step, dims)...]
ranges(::Val{first}, ::Val{step}, ::Val{dims}) where {first,step,dims} =
    map((f, s, n) -> f:s:f+s*(n-1), first, step, dims)
function pull(::Primitive{:slice}, ::Val{1}, ȳ, y, x, first, step, dims)
    x̄ = zeros_for(x, ȳ)
    x̄[ranges(first, step, dims)...] = ȳ
    return x̄
end

"""
    pad(x, value, Val(low), Val(high), Val(interior))

Put `value` around and between the elements; negative widths cut off.
"""
@primitive pad(
    x, value, ::Val{low}, ::Val{high}, ::Val{interior}
) where {low,high,interior} =
    padded(x, value, low, high, interior)

padded(x::Number, value, low, high, interior) = x
function padded(x, value, low, high, interior)
    dims = padded_size(size(x), low, high, interior)
    y = fill!(Array{promote_type(eltype(x), typeof(value))}(undef, dims), value)
    from, to = padded_places(size(x), dims, low, interior)
    y[to...] = x[from...]
    return y
end
padded_size(dims, low, high, interior) =
    map(dims, low, high, interior) do n, l, h, i
        Base.max(n + Base.max(n - 1, 0) * i + l + h, 0)
    end

# Which elements stay, and where they go.
function padded_places(from_size, to_size, low, interior)
    pairs = map(from_size, to_size, low, interior) do n, m, l, i
        step = i + 1
        first_kept = Base.max(0, cld(-l, step))
        last_kept = Base.min(n - 1, fld(m - 1 - l, step))
        (first_kept+1:last_kept+1, (first_kept*step+l+1):step:(last_kept*step+l+1))
    end
    return map(first, pairs), map(last, pairs)
end
function pull(
    ::Primitive{:pad}, ::Val{1}, ȳ, y, x, value, ::Val{low}, high, ::Val{interior}
) where {low,interior}
    x isa Number && return ȳ
    x̄ = zeros_for(x, ȳ)
    from, to = padded_places(size(x), size(y), low, interior)
    x̄[from...] = ȳ[to...]
    return x̄
end
function pull(
    ::Primitive{:pad}, ::Val{2}, ȳ, y, x, value, ::Val{low}, high, ::Val{interior}
) where {low,interior}
    x isa Number && return zero(ȳ)
    _, to = padded_places(size(x), size(y), low, interior)
    outside = copy(ȳ)
    outside[to...] .= 0
    return add_up(outside)
end

"""
    iota(Val(T), Val(dims), Val(dim))

Count from 0 along an axis.
"""
@discrete iota(::Val{T}, ::Val{dims}, ::Val{dim}) where {T,dims,dim} =
    [as_type(T, i[dim] - 1) for i in CartesianIndices(dims)]

@primitive copy(x) = x
pull(::Primitive{:copy}, ::Val{1}, ȳ, y, x) = ȳ

@primitive stack(xs...) = stacked(xs)
pull(::Primitive{:stack}, ::Val{i}, ȳ, y, xs...) where {i} = as_value(selectdim_copy(ȳ, i))

# The new axis is the last, which is JAX's first.
function stacked(xs)
    T = promote_type(map(eltype, xs)...)
    y = Array{T}(undef, size(first(xs))..., length(xs))
    for (i, x) in enumerate(xs)
        selectdim(y, ndims(y), i) .= x
    end
    return y
end
selectdim_copy(x, i) = collect(selectdim(x, ndims(x), i))

@primitive row(x, i) = as_value(selectdim_copy(x, i))
function pull(::Primitive{:row}, ::Val{1}, ȳ, y, x, i)
    x̄ = zeros_for(x, ȳ)
    selectdim(x̄, ndims(x), i) .= ȳ
    return x̄
end
