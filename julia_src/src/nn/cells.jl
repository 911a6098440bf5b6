# Loops over arrays of size (space, channels, batch), which all normalisations come down to.
# A *cell* is what has one number of channels and batch. Values that belong to cells come as a
# matrix (channels, batch), or (channels, 1) where all of the batch share them, or as a vector of the
# channels.
#
# Broadcasts and reductions over axes say the same, and take several times as long.

@inline column(a::AbstractMatrix, n) = view(a, :, size(a, 2) == 1 ? 1 : n)
@inline column(a, n) = a

@inline of_cell(a::AbstractVector, c) = @inbounds a[c]
@inline of_cell(a, c) = a

@inline element(a::AbstractArray{<:Any,3}, s, c, n) = @inbounds a[s, c, n]
@inline element(a::AbstractVector, s, c, n) = @inbounds a[s]
@inline element(a, s, c, n) = a

# Where space is 1: the i-th number. With an axis whose length it does not know, Julia would not
# use vector instructions.
@inline nth(a::AbstractArray{<:Any,3}, i) = @inbounds a[i]
@inline nth(a::AbstractVector, i) = @inbounds a[1]
@inline nth(a, i) = a

"""
    map_cells!(f, y, arrays, cells)

Set each element of `y` to `f(elements..., values...)`, of `arrays` there (vectors run along
space) and of the `cells` that it lies in.
"""
function map_cells!(f::F, y, arrays::Tuple, cells::Tuple) where {F}
    S, C, N = size(y)
    for n in 1:N
        columns = map(a -> column(a, n), cells)
        if S == 1
            @simd for c in 1:C
                values = map(a -> of_cell(a, c), columns)
                i = C * (n - 1) + c
                @inbounds y[i] = f(map(a -> nth(a, i), arrays)..., values...)
            end
        else
            for c in 1:C
                values = map(a -> of_cell(a, c), columns)
                @simd for s in 1:S
                    @inbounds y[s, c, n] = f(map(a -> element(a, s, c, n), arrays)..., values...)
                end
            end
        end
    end
    return y
end

"""
    sum_cells(f, start, size, across_batch, arrays, cells)

Sum `f(elements..., values...)` over each cell, or over those that share a channel: a matrix of
numbers like `start`. (A type that closures capture would make them slow.)
"""
function sum_cells(
    f::F, start, (S, C, N)::Dims{3}, across_batch, arrays::Tuple, cells::Tuple
) where {F}
    sums = fill(start, C, across_batch ? 1 : N)
    for n in 1:N
        columns = map(a -> column(a, n), cells)
        totals = column(sums, n)
        if S == 1
            @simd for c in 1:C
                values = map(a -> of_cell(a, c), columns)
                i = C * (n - 1) + c
                @inbounds totals[c] += f(map(a -> nth(a, i), arrays)..., values...)
            end
        else
            for c in 1:C
                values = map(a -> of_cell(a, c), columns)
                total = start
                @simd for s in 1:S
                    total += f(map(a -> element(a, s, c, n), arrays)..., values...)
                end
                @inbounds totals[c] += total
            end
        end
    end
    return sums
end

"""
    sum_space(f, start, size, arrays, cells)

Sum `f(elements..., values...)` over all cells: a vector along space.
"""
function sum_space(f::F, start, (S, C, N)::Dims{3}, arrays::Tuple, cells::Tuple) where {F}
    sums = fill(start, S)
    for n in 1:N
        columns = map(a -> column(a, n), cells)
        for c in 1:C
            values = map(a -> of_cell(a, c), columns)
            @simd for s in 1:S
                @inbounds sums[s] += f(map(a -> element(a, s, c, n), arrays)..., values...)
            end
        end
    end
    return sums
end
