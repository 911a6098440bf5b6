"""
    IndexOutOfBoundsError(index, size, dimension)

Thrown by [`take`](@ref) for an index that is out of range on a dimension; `dimension` is
`nothing` where the array is read in its linear order.
"""
struct IndexOutOfBoundsError <: Exception
    index::Any
    size::Int
    dimension::Union{Nothing,Int}
end

function Base.showerror(io::IO, e::IndexOutOfBoundsError)
    place = e.dimension === nothing ? "the array in its linear order" :
            "dimension $(e.dimension)"
    if e.size == 0
        print(io, "PyBridge.take: expected an element to read on $place, got a size of 0. There ",
            "only mode=:fill has a value for an index.")
    else
        print(io, "PyBridge.take: expected indices from 1 to $(e.size) on $place, got index ",
            "$(e.index). Where such indices are meant, say what they read: mode=:clip, :wrap or ",
            ":fill.")
    end
end

"""
    take(x, indices; dims=nothing, mode=:error, fill=nothing)

Return elements of an array along a dimension. What an index means is decided before anything is
read, so every AD system takes the same derivative, in any order: an index that is given twice
counts twice, and one that is filled does not count.

| `mode` | an index out of range |
| --- | --- |
| `:error` | throws |
| `:clip` | reads the first or the last element, as `clamp` |
| `:wrap` | counts on from the other end, as `mod1` |
| `:fill` | reads nothing and gives `fill` |

The twin in Python is `pybridge.take`. It counts from 0, flattens row by row, and has indices from
the end, which in Julia are out of range.

# Arguments
- `x`: an array.
- `indices`: an integer or an array of integers, from 1.
- `dims`: the dimension to read along; `nothing` reads the array in its linear order.
- `mode`: `:error`, `:clip`, `:fill` or `:wrap`.
- `fill`: for `:fill`, a number that the element type of `x` holds. By default NaN, for integers
  the least number, for unsigned ones the largest, for `Bool` `true`.

# Returns
An array where the dimensions of `indices` take the place of dimension `dims`. An integer drops the
dimension, and gives a number where none is left. Throws [`IndexOutOfBoundsError`](@ref) for an
index out of range, and for any index into a dimension of size 0 unless it is filled.

# Examples
```jldoctest
julia> using PyBridge

julia> PyBridge.take([1.0, 2.0, 3.0], [1, 6]; mode=:clip)
2-element Vector{Float64}:
 1.0
 3.0

julia> PyBridge.take([1 2; 3 4], 2; dims=1)
2-element Vector{Int64}:
 3
 4
```
"""
function take(x::AbstractArray, indices; dims=nothing, mode=:error, fill=nothing)
    plan = plan_take(size(x), indices, dims, mode, fill)
    filler = plan.fills ? filling(x, fill) : nothing
    return ruled(read_at, x, plan.at, plan.dimension, filler)
end

filling(x, ::Nothing) = default_fill(primal_type(eltype(x)))
filling(x, fill) = fill
ChainRulesCore.@non_differentiable filling(::Any, ::Nothing)

default_fill(::Type{T}) where {T<:Union{AbstractFloat,Complex{<:AbstractFloat}}} = T(NaN)
default_fill(::Type{T}) where {T<:Signed} = typemin(T)
default_fill(::Type{T}) where {T<:Unsigned} = typemax(T)
default_fill(::Type{Bool}) = true
function default_fill(T::Type)
    throw(ArgumentError("PyBridge.take: expected a value in fill= for elements of type $T, got " *
                        "none. Nothing stands for a missing one of them."))
end

"""
    plan_take(dims_of_x, indices, dims, mode, fill)

Check a call of `take`, and find the positions to read: from 1, or 0 for one that is filled.
"""
function plan_take(shape, indices, dims, mode, fill)
    dimension = dims === nothing || dims isa Colon ? nothing : dimension_number(shape, dims)
    modes = (:error, :clip, :fill, :wrap)
    mode in modes || throw(ArgumentError(
        "PyBridge.take: expected a mode of $(join(repr.(modes), ", ")), got $(repr(mode)). Use " *
        ":error if every index should be in range."))
    fill === nothing || mode === :fill || throw(ArgumentError(
        "PyBridge.take: expected mode=:fill next to fill=, got mode=$(repr(mode)). Add " *
        "mode=:fill, or leave fill out."))
    size = dimension === nothing ? prod(shape) : shape[dimension]
    at = positions(indices, size, mode, dimension)
    return (; at, dimension, fills=mode === :fill)
end
ChainRulesCore.@non_differentiable plan_take(::Any...)

function dimension_number(shape, dims)
    dims isa Integer && !(dims isa Bool) && 1 <= dims <= length(shape) && return Int(dims)
    throw(ArgumentError("PyBridge.take: expected dims from 1 to $(length(shape)), or nothing, " *
                        "got $(repr(dims)). nothing reads the array in its linear order."))
end

positions(i::Integer, size, mode, dimension) = place_of(i, size, Val(mode), dimension)
function positions(indices::AbstractArray{<:Integer}, size, mode, dimension)
    m = Val(mode)
    return collect(Int, map(i -> place_of(i, size, m, dimension), indices))
end
positions(i::Bool, size, mode, dimension) = refuse_indices(i)
positions(mask::AbstractArray{Bool}, size, mode, dimension) = refuse_indices(mask)
positions(indices, size, mode, dimension) = refuse_indices(indices)

function refuse_indices(indices)
    throw(ArgumentError("PyBridge.take: expected an integer or an array of integers as indices, " *
                        "got a $(typeof(indices)). A mask selects with `x[mask]`."))
end

place_of(i, size, ::Val{:fill}, dimension) = 1 <= i <= size ? Int(i) : 0
function place_of(i, size, mode, dimension)
    size == 0 && throw(IndexOutOfBoundsError(i, size, dimension))
    return inside(i, size, mode, dimension)
end
inside(i, size, ::Val{:clip}, dimension) = Int(clamp(i, 1, size))
inside(i, size, ::Val{:wrap}, dimension) = Int(mod1(i, size))
function inside(i, size, ::Val{:error}, dimension)
    1 <= i <= size || throw(IndexOutOfBoundsError(i, size, dimension))
    return Int(i)
end

# --- reading, and its transpose -----------------------------------------------------------------

"The sizes before, along and after a dimension."
function around(shape::Tuple, dimension)
    dimension === nothing && return 1, prod(shape), 1
    return prod(shape[1:dimension-1]), shape[dimension], prod(shape[dimension+1:end])
end

"The size of what is read."
function read_size(shape::Tuple, at, dimension)
    dimension === nothing && return size(at)
    return (shape[1:dimension-1]..., size(at)..., shape[dimension+1:end]...)
end

"""
    read_at(x, at, dimension, filler)

Read the positions `at`, which are in range; `filler`, if any, stands where the position is 0.
"""
function read_at(x, at, dimension, filler)
    before, along, after = around(size(x), dimension)
    y = if along == 0
        Base.fill(filled_type(x, filler), before, length(at), after)
    else
        reshape(x, before, along, after)[:, max.(vec_of(at), 1), :]
    end
    if filler !== nothing
        y = ifelse.(reshape(vec_of(at) .== 0, 1, :, 1), filled_type(x, filler), y)
    end
    shape = read_size(size(x), at, dimension)
    return at isa Integer && shape === () ? only(y) : reshape(y, shape)
end

filled_type(x, filler) = convert(eltype(x), filler)
filled_type(x, ::Nothing) = zero(eltype(x))  # of which there are none
vec_of(at::Integer) = [at]
vec_of(at) = vec(at)

"""
    add_at(ȳ, at, dimension, shape)

Add what stands at each position to an array of zeros: the transpose of `read_at`.
"""
function add_at(ȳ, at, dimension, shape)
    before, along, after = around(shape, dimension)
    rows = ȳ isa Number ? Base.fill(ȳ, 1, 1, 1) : reshape(ȳ, before, length(at), after)
    x̄ = fill!(similar(rows, before, along, after), 0)
    add_rows!(x̄, rows, vec_of(at))
    return reshape(x̄, shape)
end

function add_rows!(x̄::Array, rows, at)
    for k in axes(rows, 3), (j, i) in enumerate(at)
        i == 0 && continue
        for h in axes(rows, 1)
            x̄[h, i, k] += rows[h, j, k]
        end
    end
end
function add_rows!(x̄, rows, at)  # arrays of a device, which are not read one by one
    for (j, i) in enumerate(at)
        i == 0 || (view(x̄, :, i, :) .+= view(rows, :, j, :))
    end
end

function ChainRulesCore.rrule(::typeof(read_at), x, at, dimension, filler)
    project = ProjectTo(x)
    shape = size(x)
    function read_at_pullback(ȳ)
        ȳ = unthunk(ȳ)
        ȳ isa AbstractZero && return ntuple(_ -> NoTangent(), 5)
        x̄ = @thunk project(add_at(ȳ, at, dimension, shape))
        filled = filler === nothing ? NoTangent() : @thunk filler_cotangent(ȳ, at, shape, dimension)
        return NoTangent(), x̄, NoTangent(), NoTangent(), filled
    end
    return read_at(x, at, dimension, filler), read_at_pullback
end

function filler_cotangent(ȳ, at, shape, dimension)
    before, _, after = around(shape, dimension)
    rows = ȳ isa Number ? Base.fill(ȳ, 1, 1, 1) : reshape(ȳ, before, length(at), after)
    return sum(rows .* reshape(vec_of(at) .== 0, 1, :, 1))
end

function ChainRulesCore.rrule(::typeof(add_at), ȳ, at, dimension, shape)
    function add_at_pullback(x̿)
        x̿ = unthunk(x̿)
        x̿ isa AbstractZero && return ntuple(_ -> NoTangent(), 5)
        y̿ = read_at(x̿, at, dimension, zero(eltype(x̿)))
        return NoTangent(), y̿, NoTangent(), NoTangent(), NoTangent()
    end
    return add_at(ȳ, at, dimension, shape), add_at_pullback
end

function ChainRulesCore.frule(
    tangents::Tuple, ::typeof(read_at), x, at, dimension, filler
)
    _, ẋ, _, _, ḟ = tangents
    ẏ = ẋ isa AbstractZero ? ZeroTangent() : read_at(unthunk(ẋ), at, dimension,
        filler === nothing ? nothing : zero(eltype(x)))
    if filler !== nothing && !(ḟ isa AbstractZero)
        ẏ = ẏ + read_at(Base.fill(zero(ḟ), size(x)), at, dimension, ḟ)
    end
    return read_at(x, at, dimension, filler), ẏ
end
