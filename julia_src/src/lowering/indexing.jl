# Indexing by values: gather, scatter and their relatives. The index arithmetic is done
# once, as a table of places in memory; JAX's row-major order there is Julia's own, since
# axes are reversed.

"""
    windows_of(shape, indices, spec, clip) -> Array of Int

For each element of the windows the place in an array of JAX's shape `shape`, from 1; 0 if
its window reaches out of the array and `clip` is false. `spec` holds the dimension numbers
of `jax.lax.GatherDimensionNumbers`, counted from 0, and the slice sizes.
"""
function windows_of(shape, indices, spec, clip)
    n, steps = length(shape), row_major_steps(shape)
    inner = [d for d in 0:n-1 if !(d in spec.collapsed) && !(d in spec.operand_batching)]
    batch = size(as_array(indices))[2:end]      # reversed, as everything
    starts = Base.reshape(as_array(indices), size(as_array(indices), 1), :)
    bases = Vector{Int}(undef, size(starts, 2))
    for (j, lane) in enumerate(CartesianIndices(batch))
        bases[j] = first_place(shape, steps, spec, clip, starts, j, lane)
    end
    window = Tuple(reverse([spec.slice_sizes[d+1] for d in inner]))
    offset(o, k, d) = (o[length(inner)+1-k] - 1) * steps[d+1]
    inside = [sum(offset(o, k, d) for (k, d) in enumerate(inner); init=0)
              for o in CartesianIndices(window)]
    places = [b == 0 ? 0 : b + o for o in vec(inside), b in bases]
    wide = Base.reshape(places, window..., batch...)
    return arranged(wide, spec.offset_dims, length(batch))
end

row_major_steps(shape) = ntuple(d -> prod(shape[d+1:end]; init=1), length(shape))

function first_place(shape, steps, spec, clip, starts, j, lane)
    place = 1
    for (k, d) in enumerate(spec.start_map)
        highest = shape[d+1] - spec.slice_sizes[d+1]
        start = clamped_int(starts[k, j])
        clip || 0 <= start <= highest || return 0
        place += Base.clamp(start, 0, Base.max(highest, 0)) * steps[d+1]
    end
    for (d, axis) in zip(spec.operand_batching, spec.indices_batching)
        place += (lane[length(lane)-axis] - 1) * steps[d+1]
    end
    return place
end
clamped_int(i::Integer) = i > typemax(Int) ? typemax(Int) : Int(i)

# From the order (batch, window) of JAX's axes to that of the result.
function arranged(places, offset_dims, batches)
    n = ndims(places)
    sources, b, o = Int[], 0, batches
    for k in 0:n-1
        k in offset_dims ? (push!(sources, o); o += 1) : (push!(sources, b); b += 1)
    end
    order = ntuple(d -> n - sources[n-d+1], n)
    return order == ntuple(identity, n) ? places : permutedims(places, order)
end

jax_shape(x) = reverse(size(x))

# --- pybridge.take in the mode "error" --------------------------------------------------

"An index that is out of bounds, and the text before and after it."
struct OutOfBoundsError <: Exception
    index::Integer
    before::String
    after::String
end
Base.showerror(io::IO, e::OutOfBoundsError) = print(io, e.before, e.index, e.after)

"""
    in_bounds(indices, Val(size), before, after)

The indices, each of which counts from 0 or back from the end; throws an
[`OutOfBoundsError`](@ref) with the first that has no place among `size`.
"""
@discrete in_bounds(indices, ::Val{size}, before, after) where {size} =
    checked_indices(indices, size, before, after)

function checked_indices(indices, size, before, after)
    for i in indices
        -size <= i < size || throw(OutOfBoundsError(i, before, after))
    end
    return indices
end

# --- gather -------------------------------------------------------------------------------

"""
    gather(x, indices, Val(spec), Val(clip), fill)

Cut windows out of `x`; see [`windows_of`](@ref).
"""
@primitive gather(x, indices, ::Val{spec}, ::Val{clip}, fill) where {spec,clip} =
    picked(x, windows_of(jax_shape(x), indices, spec, clip), fill)

picked(x, places::AbstractArray, fill) =
    as_value(map(i -> i == 0 ? convert(eltype(x), fill) : @inbounds(x[i]), places))

function pull(
    ::Primitive{:gather}, ::Val{1}, ȳ, y, x, indices, ::Val{spec}, ::Val{clip}, fill
) where {spec,clip}
    return put_back(x, windows_of(jax_shape(x), indices, spec, clip), ȳ)
end
pull(::Primitive{:gather}, ::Val, ȳ, y, x, indices, spec, clip, fill) = NoTangent()

function put_back(x, places, ȳ)
    x̄ = zeros_for(as_array(x), ȳ)
    for (i, v) in zip(places, as_array(ȳ))
        i == 0 || (x̄[i] += v)
    end
    return as_value(x̄)
end

# --- scatter ------------------------------------------------------------------------------

"""
    scatter_add(x, indices, updates, Val(spec), Val(clip))

Add windows to `x`. Also `scatter` (the last one stays), `scatter_sub`, `scatter_mul`,
`scatter_min` and `scatter_max`.
"""
@primitive scatter_add(x, indices, updates, ::Val{spec}, ::Val{clip}) where {spec,clip} =
    combined(wrapping_add, x, indices, updates, spec, clip)
@primitive scatter_sub(x, indices, updates, ::Val{spec}, ::Val{clip}) where {spec,clip} =
    combined(-, x, indices, updates, spec, clip)
@primitive scatter_mul(x, indices, updates, ::Val{spec}, ::Val{clip}) where {spec,clip} =
    combined(wrapping_mul, x, indices, updates, spec, clip)
@primitive scatter_min(x, indices, updates, ::Val{spec}, ::Val{clip}) where {spec,clip} =
    combined(lifted(modes((x, updates)), Scalar{:min}()), x, indices, updates, spec, clip)
@primitive scatter_max(x, indices, updates, ::Val{spec}, ::Val{clip}) where {spec,clip} =
    combined(lifted(modes((x, updates)), Scalar{:max}()), x, indices, updates, spec, clip)
@primitive scatter(x, indices, updates, ::Val{spec}, ::Val{clip}) where {spec,clip} =
    combined((old, new) -> new, x, indices, updates, spec, clip)

wrapping_add(a, b) = a + b
wrapping_add(a::Bool, b::Bool) = a | b
wrapping_mul(a, b) = a * b

function combined(f, x, indices, updates, spec, clip)
    y = Array{promote_type(eltype(x), eltype(updates))}(undef, size(x))
    copyto!(y, as_array(x))
    places = windows_of(jax_shape(x), indices, spec, clip)
    for (i, u) in zip(places, as_array(updates))
        i == 0 || (y[i] = f(y[i], u))
    end
    return as_value(y)
end

taken(ȳ, places, T=eltype(ȳ)) =
    as_value(map(i -> i == 0 ? zero(T) : as_array(ȳ)[i], places))

pull(::Primitive{:scatter_add}, ::Val{1}, ȳ, y, x, rest...) = ȳ
pull(::Primitive{:scatter_sub}, ::Val{1}, ȳ, y, x, rest...) = ȳ
pull(
    ::Primitive{:scatter_add}, ::Val{3}, ȳ, y, x, i, u, ::Val{spec}, ::Val{clip}
) where {spec,clip} =
    taken(ȳ, windows_of(jax_shape(x), i, spec, clip))
pull(
    ::Primitive{:scatter_sub}, ::Val{3}, ȳ, y, x, i, u, ::Val{spec}, ::Val{clip}
) where {spec,clip} =
    -taken(ȳ, windows_of(jax_shape(x), i, spec, clip))

# Of several windows at one place the last one counts.
function pull(
    ::Primitive{:scatter}, ::Val{1}, ȳ, y, x, i, u, ::Val{spec}, ::Val{clip}
) where {spec,clip}
    x̄ = Base.copy(as_array(ȳ))
    foreach(place -> place == 0 || (x̄[place] = 0), windows_of(jax_shape(x), i, spec, clip))
    return as_value(x̄)
end
function pull(
    ::Primitive{:scatter}, ::Val{3}, ȳ, y, x, i, u, ::Val{spec}, ::Val{clip}
) where {spec,clip}
    places = windows_of(jax_shape(x), i, spec, clip)
    last_one = Dict{Int,Int}(place => k for (k, place) in enumerate(places))
    return as_value(map(places, Base.reshape(1:length(places), size(places))) do place, k
        place == 0 || last_one[place] != k ? zero(eltype(ȳ)) : as_array(ȳ)[place]
    end)
end

# A place may be written to several times: the derivative by a factor is the product of all
# others there, without a division, so that zeros do no harm.
function pull(
    ::Primitive{:scatter_mul}, ::Val{1}, ȳ, y, x, i, u, ::Val{spec}, ::Val{clip}
) where {spec,clip}
    return combined((a, b) -> a * conj(b), ȳ, i, u, spec, clip)
end
function pull(
    ::Primitive{:scatter_mul}, ::Val{3}, ȳ, y, x, i, u, ::Val{spec}, ::Val{clip}
) where {spec,clip}
    places, factors = windows_of(jax_shape(x), i, spec, clip), as_array(u)
    others = zeros_for(factors, y)
    running = Dict{Int,eltype(others)}()
    for (k, place) in pairs(vec(places))
        place == 0 && continue
        others[k] = get(running, place, as_array(x)[place])
        running[place] = others[k] * factors[k]
    end
    empty!(running)
    for (k, place) in Iterators.reverse(pairs(vec(places)))
        place == 0 && continue
        after = get(running, place, one(eltype(others)))
        others[k] *= after
        running[place] = after * factors[k]
    end
    return as_value(conj.(others) .* as_array(taken(ȳ, places)))
end

# Those that tie share the derivative.
const ScatterExtreme = Union{Primitive{:scatter_min},Primitive{:scatter_max}}
function shares(y, x, places, u)
    counts = convert(Array{Int}, as_array(x) .== as_array(y))
    for (place, v) in zip(places, as_array(u))
        place != 0 && v == as_array(y)[place] && (counts[place] += 1)
    end
    return counts
end
function pull(
    ::ScatterExtreme, ::Val{1}, ȳ, y, x, i, u, ::Val{spec}, ::Val{clip}
) where {spec,clip}
    counts = shares(y, x, windows_of(jax_shape(x), i, spec, clip), u)
    return as_value(map((ȳ, a, b, n) -> a == b ? ȳ / n : zero(ȳ), as_array(ȳ), as_array(x),
        as_array(y), counts))
end
function pull(
    ::ScatterExtreme, ::Val{3}, ȳ, y, x, i, u, ::Val{spec}, ::Val{clip}
) where {spec,clip}
    places = windows_of(jax_shape(x), i, spec, clip)
    counts = shares(y, x, places, u)
    return as_value(map(places, as_array(u)) do place, v
        place != 0 && v == as_array(y)[place] ? as_array(ȳ)[place] / counts[place] :
            zero(eltype(ȳ))
    end)
end

# --- slices at positions that are values --------------------------------------------------

"""
    dynamic_slice(x, Val(dims), starts...)

Cut out `dims` elements from `starts`, one number for each of Julia's axes, from 0. The
slice is moved into the array where it would reach out.
"""
@primitive dynamic_slice(x, ::Val{dims}, starts...) where {dims} =
    dense(as_array(x)[places_at(size(x), dims, starts)...])
places_at(dims, window, starts) = map(dims, window, map(clamped_int, starts)) do n, w, s
    first = Base.clamp(s, 0, Base.max(n - w, 0))
    first+1:first+w
end
function pull(
    ::Primitive{:dynamic_slice}, ::Val{1}, ȳ, y, x, ::Val{dims}, starts...
) where {dims}
    x̄ = zeros_for(x, ȳ)
    x̄[places_at(size(x), dims, starts)...] = ȳ
    return x̄
end

"""
    dynamic_update_slice(x, update, starts...)

Replace a part of `x`; positions as in `dynamic_slice`.
"""
@primitive dynamic_update_slice(x, update, starts...) = updated(x, update, starts)
updated(x::Number, update, starts) = update
function updated(x, update, starts)
    y = Array{promote_type(eltype(x), eltype(update))}(undef, size(x))
    copyto!(y, x)
    y[places_at(size(x), size(update), starts)...] = update
    return y
end
function pull(::Primitive{:dynamic_update_slice}, ::Val{1}, ȳ, y, x, update, starts...)
    x̄ = Base.copy(as_array(ȳ))
    x̄[places_at(size(x), size(update), starts)...] .= 0
    return as_value(x̄)
end
pull(::Primitive{:dynamic_update_slice}, ::Val{2}, ȳ, y, x, update, starts...) =
    as_value(dense(as_array(ȳ)[places_at(size(x), size(update), starts)...]))
