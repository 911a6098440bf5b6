# Julia has the first axis of an array fastest in memory, JAX and NumPy the last.

# A square of so many elements a side fits the processor's first cache, whatever their type, and each of
# its rows and columns fills a line of it or more.
const TILE = 16

# Below so many elements `permutedims!` is quicker; `benchmarks/axes.jl` shows from where on it is not.
const SMALLEST_PLANE = 64

"""
    reverse_axes!(y, x)

Copy `x` to `y`, with the axes in reverse order: `y[k, j, i] = x[i, j, k]`.

Of the planes in which one axis is fastest in `x` and the other in `y`, it copies square by square, so
that each line of the cache that it loads is used whole. `permutedims!` goes along one of the two,
and loads a line for each element of the other. What that takes is in `benchmarks/axes.jl`.
"""
function reverse_axes!(y::Array{T,N}, x::Array{T,N}) where {T,N}
    size(y) == reverse(size(x)) || throw(DimensionMismatch(
        "reverse_axes!: expected an array of size $(reverse(size(x))), got $(size(y))."))
    a, z = findfirst(!=(1), size(x)), findlast(!=(1), size(x))
    # The elements lie side by side, in the same order in both.
    a == z && return copyto!(y, x)
    m, n = size(x, a), size(x, z)
    m * n < SMALLEST_PLANE && return permutedims!(y, x, N:-1:1)
    from, to = vec(x), vec(y)
    x_steps, y_steps = strides(x), reverse(strides(y))
    for place in CartesianIndices(ntuple(d -> d == a || d == z ? 1 : size(x, d), Val(N)))
        before = Tuple(place) .- 1
        x₀, y₀ = 1 + sum(before .* x_steps), 1 + sum(before .* y_steps)
        transpose_tiles!(to, y₀, y_steps[a], from, x₀, x_steps[z], m, n)
    end
    return y
end
reverse_axes!(y, x::AbstractArray{<:Any,N}) where {N} = permutedims!(y, x, N:-1:1)

"The same in memory of its own."
reverse_axes(x) = reverse_axes!(similar(x, reverse(size(x))), x)

"""
    transpose_tiles!(y, y₀, y_step, x, x₀, x_step, m, n)

Transpose `m` by `n` elements of the vector `x`, from place `x₀`, with columns `x_step` apart, to `y`,
from place `y₀`, with rows `y_step` apart.
"""
function transpose_tiles!(y, y₀, y_step, x, x₀, x_step, m, n)
    function transpose_tile!(i, j, m, n)
        to, from = y₀ + j + i * y_step, x₀ + i + j * x_step
        @inbounds for i in 0:m-1
            @simd ivdep for j in 0:n-1
                y[to + j + i * y_step] = x[from + i + j * x_step]
            end
        end
    end
    rows, columns = m - m % TILE, n - n % TILE
    for j in 0:TILE:columns-1, i in 0:TILE:rows-1
        @inline transpose_tile!(i, j, TILE, TILE)  # of a size that the compiler knows
    end
    rows < m && transpose_tile!(rows, 0, m - rows, columns)
    columns < n && transpose_tile!(0, columns, m, n - columns)
    return nothing
end
