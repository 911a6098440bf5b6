# Julia has the first axis of an array fastest in memory, JAX and NumPy the last.

# A square of so many elements a side fits the processor's first cache, whatever their type, and each of
# its rows and columns of numbers of 4 bytes or more fills a line of it or more.
const TILE = 16
const CACHE_LINE = 64

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
    rows, columns, registers = m - m % TILE, n - n % TILE, registers_of(eltype(x))
    for j in 0:TILE:columns-1, i in 0:TILE:rows-1
        if registers === nothing
            @inline transpose_tile!(i, j, TILE, TILE)  # of a size that the compiler knows
        else
            transpose_in!(registers, y, y₀ + j + i * y_step, y_step, x, x₀ + i + j * x_step, x_step)
        end
    end
    rows < m && transpose_tile!(rows, 0, m - rows, columns)
    columns < n && transpose_tile!(0, columns, m, n - columns)
    return nothing
end

# --- squares in the processor's registers ---------------------------------------------------

"`W` numbers in a register, of which nothing counts but the bits."
const Lanes{W,U} = NTuple{W,VecElement{U}}

"Registers for a line of numbers of a type; `nothing` where they would hold few, or very many."
function registers_of(::Type{T}) where {T}
    isbitstype(T) && sizeof(T) in (4, 8) || return nothing
    return Val(Lanes{CACHE_LINE ÷ sizeof(T),sizeof(T) == 4 ? UInt32 : UInt64})
end

"Transpose `TILE` by `TILE` elements, as `transpose_tiles!` does, in squares of a line a side."
function transpose_in!(::Val{V}, y, y₀, y_step, x, x₀, x_step) where {W,V<:Lanes{W}}
    to(i, j) = Ptr{V}(pointer(y, y₀ + j + i * y_step))
    from(i, j) = Ptr{V}(pointer(x, x₀ + i + j * x_step))
    GC.@preserve x y for j in 0:W:TILE-1, i in 0:W:TILE-1
        rows = transpose_lanes(ntuple(k -> unsafe_load(from(i, j + k - 1)), Val(W)))
        ntuple(k -> (unsafe_store!(to(i + k - 1, j), rows[k]); nothing), Val(W))
    end
    return nothing
end

# A matrix is transposed where the blocks of its diagonal are, and the two beside it change places: of
# 2 by 2 numbers, then of 2 by 2 of those. All blocks of one size change places at once.
@generated function transpose_lanes(columns::Tuple{V,Vararg{V}}) where {V<:Lanes}
    W = fieldcount(V)
    lanes = [Symbol(:lanes, i) for i in 0:W-1]
    pairs = [(i, i + k, k) for k in (2^n for n in 0:trailing_zeros(W)-1) for i in 0:W-1 if i & k == 0]
    steps = map(pairs) do (i, j, k)
        a, b = lanes[i+1], lanes[j+1]
        :(($a, $b) = exchange_blocks($a, $b, Val($k)))
    end
    all = Expr(:tuple, lanes...)
    return Expr(:block, Expr(:meta, :inline), :($all = columns), steps..., all)
end

# LLVM counts the numbers of `b` on from those of `a`. It stands before the generated function that
# calls it, which knows nothing that is defined later.
function choose_lanes(V, places)
    W, bits = fieldcount(V), 8 * sizeof(eltype(V))
    vector, numbers = "<$W x i$bits>", join(("i32 $(places(p))" for p in 0:W-1), ", ")
    code = "%r = shufflevector $vector %0, $vector %1, <$W x i32> <$numbers>\nret $vector %r"
    return :(Base.llvmcall($code, $V, Tuple{$V,$V}, a, b))
end

"Exchange every second block of `k` numbers of `a`, from the second on, with that before it in `b`."
@generated function exchange_blocks(a::V, b::V, ::Val{k}) where {V<:Lanes,k}
    W = fieldcount(V)
    stays(p) = iseven(p ÷ k)
    return :(
        $(choose_lanes(V, p -> stays(p) ? p : W + p - k)),
        $(choose_lanes(V, p -> stays(p) ? p + k : W + p)),
    )
end
