# Linear algebra: functions of matrices, by LAPACK. An array with more axes is a stack of
# matrices, taken one by one. JAX's matrices lie transposed here; each one is copied into
# Julia's order, so that LAPACK sees what JAX's own calls of it see, and its choices (signs,
# pivots, order) are the same. What fails is NaN, as in JAX, and no exception.

using LinearAlgebra: BLAS, BlasFloat, LAPACK, LAPACKException, SingularException, diag,
    diagm, tril, tril!, triu, triu!

"""
    Factor{name}

A primitive of linear algebra. For each, there are methods of

  - `ranks(p)`: the number of axes of each array that it takes, without those of a stack;
  - `lane(p, matrices..., static...)`: the tuple of its values for one of the stack; the
    matrices are its own to write to;
  - `lane_push(p, tangents, values, matrices, static...)`: the tangents of the values;
  - `lane_pull(p, Val(i), cotangents, values, matrices, static...)`: the cotangent of matrix
    `i`.

Integers among the values come last, and have no tangents.
"""
struct Factor{name} <: AbstractPrimitive end

const FACTORS = (cholesky=(2,), triangular_solve=(2, 2), lu=(2,), qr=(2,), geqrf=(2,),
    geqp3=(2, 1), householder_product=(2, 1), ormqr=(2, 1, 2), eigh=(2,), svd=(2,),
    eig=(2,), hessenberg=(2,), schur=(2,), tridiagonal=(2,), tridiagonal_solve=(1, 1, 1, 2),
    symmetric_product=(2, 2), cholesky_update=(2, 1))

for (name, axes) in pairs(FACTORS)
    @eval ranks(::Factor{$(QuoteNode(name))}) = $axes
    register(name, Factor{name}())
end

forward(p::Factor, xs...) = factored(modes(xs), p, xs...)

"The value of a primitive of linear algebra; dual numbers have a method in the extension."
function factored(::Mode, p::Factor, xs...)
    arrays, static = arrays_and_static(p, xs)
    return only_or_all(lanes((ms...) -> lane(p, ms..., static...), arrays, ranks(p)))
end

arrays_and_static(p, xs) = xs[1:length(ranks(p))], xs[length(ranks(p))+1:end]

# A matrix in the order that mathematics has, and back. Both are copies.
from_jax(x, rank) = rank == 1 ? collect(x) : permutedims(x)
to_jax(y::AbstractVector) = y
to_jax(y::AbstractMatrix) = permutedims(y)

"Apply `f` to each of the stack; it takes matrices and vectors, and returns a tuple."
function lanes(f, xs, ranks)
    batch = size(xs[1])[ranks[1]+1:end]
    isempty(batch) && return map(to_jax, f(map(from_jax, xs, ranks)...))
    if any(iszero, batch)
        # One of zeros tells the sizes.
        ys = f(map((x, r) -> zeros(eltype(x), reverse(size(x)[1:r])), xs, ranks)...)
        return map(y -> similar(y, reverse(size(y))..., batch...), ys)
    end
    at(x, r, k) = from_jax(view(x, ntuple(_ -> :, r)..., k), r)
    results = [map(to_jax, f(map((x, r) -> at(x, r, k), xs, ranks)...))
               for k in CartesianIndices(batch)]
    return ntuple(length(first(results))) do j
        ys = map(result -> result[j], results)
        Base.reshape(stacked(vec(ys)), size(first(ys))..., batch...)
    end
end

function pull(p::Factor, ::Val{i}, ȳ, y, xs...) where {i}
    arrays, static = arrays_and_static(p, xs)
    ys = y isa Tuple ? y : (y,)
    given = y isa Tuple ? parts_of(ȳ, length(y)) : (ȳ,)
    # Integers have no cotangent; they stand in for it.
    ȳs = map((y, ȳ) -> is_inexact(y) ? filled(y, ȳ) : y, ys, given)
    m, n = length(arrays), length(ys)
    function one_lane(all...)
        now, of, at = all[1:m], all[m+1:m+n], all[m+n+1:end]
        return (real_like(now[i], lane_pull(p, Val(i), at, of, now, static...)),)
    end
    return only(lanes(one_lane, (arrays..., ys..., ȳs...), all_ranks(p, arrays, ys, ȳs)))
end

"Tangents of the values that are no integers, from those of the arrays."
function push(p::Factor, ẋs::Tuple, y, xs...)
    arrays, static = arrays_and_static(p, xs)
    ys = y isa Tuple ? y : (y,)
    m, n = length(arrays), length(ys)
    one_lane(all...) =
        lane_push(p, all[m+n+1:end], all[m+1:m+n], all[1:m], static...)
    return lanes(one_lane, (arrays..., ys..., ẋs...), (all_ranks(p, arrays, ys, ())...,
        ranks(p)...))
end

function all_ranks(p, arrays, ys, more)
    stack = ndims(arrays[1]) - ranks(p)[1]
    of = map(y -> ndims(y) - stack, ys)
    return (ranks(p)..., of..., of[1:length(more)]...)
end

"""
    attempted(f, results...)

`f()`, a tuple. Where LAPACK fails, NaN of the types and sizes in `results`.
"""
function attempted(f, results...)
    try
        return f()
    catch failure
        failure isa Union{LAPACKException,SingularException,ArgumentError} || rethrow()
        return map(((T, dims),) -> fill(T(NaN), dims), results)
    end
end

# --- triangles ----------------------------------------------------------------------------

function lane(::Factor{:cholesky}, A)
    L, info = LAPACK.potrf!('L', A)
    return (info == 0 ? tril!(L) : fill!(L, NaN),)
end

lane(::Factor{:triangular_solve}, A, B, ::Val{how}) where {how} = (triangular(A, B, how),)

# How a triangle is meant; see `triangular`.
const LOWER = (; left=true, lower=true, transpose=false, conjugate=false, unit=false)
const UPPER = merge(LOWER, (; lower=false))
unit(how) = merge(how, (; unit=true))
right(how) = merge(how, (; left=false))
adjoint_how(how) =
    merge(how, (; transpose=!how.transpose, conjugate=!how.conjugate))

"""
    triangular(A, B, how)

Solve `op(A) * X = B`, or `X * op(A) = B` unless `how.left`, where `A` is the lower or upper
triangle of a matrix. A zero on the diagonal gives Inf or NaN.
"""
function triangular(A::Matrix{T}, B::Matrix{T}, how) where {T<:BlasFloat}
    conjugate = how.conjugate && T <: Complex
    matrix = conjugate && !how.transpose ? conj(A) : A
    op = how.transpose ? (conjugate ? 'C' : 'T') : 'N'
    return BLAS.trsm!(how.left ? 'L' : 'R', how.lower ? 'L' : 'U', op, how.unit ? 'U' : 'N',
        one(T), matrix, copy(B))
end
function triangular(A, B, how)
    matrix, lower = operated(A, how), how.lower != how.transpose
    how.left && return substituted(matrix, B, lower, how.unit)
    return permutedims(substituted(permutedims(matrix), permutedims(B), !lower, how.unit))
end

function operated(A, how)
    moved = how.transpose ? permutedims(A) : A
    return how.conjugate ? conj(moved) : moved
end

# For numbers that BLAS does not know: dual ones.
function substituted(A, B, lower, unit)
    X = Matrix{typeof(oneunit(eltype(B)) / oneunit(eltype(A)))}(B)
    order = lower ? axes(A, 1) : reverse(axes(A, 1))
    for (count, i) in enumerate(order), c in axes(B, 2)
        for j in order[1:count-1]
            X[i, c] -= A[i, j] * X[j, c]
        end
        unit || (X[i, c] /= A[i, i])
    end
    return X
end

# R' * R + w * w', by rotations from the left.
function lane(::Factor{:cholesky_update}, R, w)
    for k in eachindex(w)
        iszero(w[k]) && continue
        high = Base.max(Base.abs(R[k, k]), Base.abs(w[k]))
        x, y = R[k, k] / high, w[k] / high
        scale = 1 / Base.sqrt(x^2 + y^2)
        c, s = x * scale, -y * scale
        R[k, :], w = c * R[k, :] - s * w, c * w + s * R[k, :]
    end
    return (R,)
end

lane(::Factor{:symmetric_product}, A, C, ::Val{weights}) where {weights} =
    (eltype(A)(weights.alpha) * (A * Base.transpose(A)) + eltype(A)(weights.beta) * C,)

# The first number of `lower` and the last one of `upper` mean nothing.
lane(::Factor{:tridiagonal_solve}, lower, middle, upper, B) =
    attempted(eltype(B) => size(B)) do
        (LAPACK.gtsv!(lower[2:end], middle, upper[1:end-1], B),)
    end

# --- LU and QR ----------------------------------------------------------------------------

function lane(::Factor{:lu}, A)
    isempty(A) && return A, Int32[], Int32.(axes(A, 1) .- 1)
    F, pivots, _ = LAPACK.getrf!(A; check=false)
    swaps = Int32.(pivots .- 1)
    return F, swaps, permutation_of(swaps, size(A, 1))
end

function permutation_of(swaps, n)
    order = Int32.(0:n-1)
    for (i, swap) in enumerate(swaps)
        order[i], order[swap+1] = order[swap+1], order[i]
    end
    return order
end

"""
    lu_pivots_to_permutation(swaps, Val(n))

The order of `n` rows (from 0) after the swaps of row `i` with row `swaps[i]`.
"""
@discrete lu_pivots_to_permutation(swaps, ::Val{n}) where {n} =
    only(lanes(line -> (permutation_of(line, n),), (swaps,), (1,)))

function lane(::Factor{:qr}, A, ::Val{how}) where {how}
    m, n = size(A)
    k = how.full ? m : min(m, n)
    columns = zeros(Int32, n)
    if isempty(A)
        Q, R = Matrix{eltype(A)}(LinearAlgebra.I, m, k), zeros(eltype(A), k, n)
        return how.pivoting ? (Q, R, columns) : (Q, R)
    end
    tau = similar(A, min(m, n))
    if how.pivoting
        pivots = zeros(LinearAlgebra.BlasInt, n)
        LAPACK.geqp3!(A, pivots, tau)
        columns .= pivots .- 1
    else
        LAPACK.geqrf!(A, tau)
    end
    wide = zeros(eltype(A), m, k)
    kept = min(n, k)
    wide[:, 1:kept] = A[:, 1:kept]
    Q, R = LAPACK.orgqr!(wide, tau), triu(A[1:k, :])
    return how.pivoting ? (Q, R, columns) : (Q, R)
end

function lane(::Factor{:geqrf}, A)
    tau = similar(A, min(size(A)...))
    isempty(A) || LAPACK.geqrf!(A, tau)
    return A, tau
end

function lane(::Factor{:geqp3}, A, columns)
    tau, pivots = similar(A, min(size(A)...)), LinearAlgebra.BlasInt.(columns)
    isempty(A) || LAPACK.geqp3!(A, pivots, tau)
    return A, eltype(columns).(pivots), tau
end

lane(::Factor{:householder_product}, A, tau) =
    (isempty(A) ? A : LAPACK.orgqr!(A, tau),)

function lane(::Factor{:ormqr}, A, tau, C, ::Val{how}) where {how}
    op = !how.transpose ? 'N' : eltype(A) <: Complex ? 'C' : 'T'
    (isempty(C) || isempty(tau)) && return (C,)
    return (LAPACK.ormqr!(how.left ? 'L' : 'R', op, A[:, 1:length(tau)], tau, C),)
end

# --- eigenvalues and singular values ------------------------------------------------------

function lane(::Factor{:eigh}, A, ::Val{lower}) where {lower}
    n, T = size(A, 1), real(eltype(A))
    n == 0 && return A, T[]
    return attempted(eltype(A) => (n, n), T => (n,)) do
        values, vectors = LAPACK.syevd!('V', lower ? 'L' : 'U', A)
        vectors, values
    end
end

function lane(::Factor{:svd}, A, ::Val{how}) where {how}
    m, n = size(A)
    T, k = real(eltype(A)), min(m, n)
    rows, columns = how.full ? (m, n) : (k, k)
    if k == 0
        U = Matrix{eltype(A)}(LinearAlgebra.I, m, rows)
        V = Matrix{eltype(A)}(LinearAlgebra.I, columns, n)
        return how.vectors ? (T[], U, V) : (T[],)
    end
    job = !how.vectors ? 'N' : how.full ? 'A' : 'S'
    sizes = (T => (k,), eltype(A) => (m, rows), eltype(A) => (columns, n))
    return attempted(sizes[1:(how.vectors ? 3 : 1)]...) do
        U, s, V = how.qr ? LAPACK.gesvd!(job, job, A) : LAPACK.gesdd!(job, A)
        how.vectors ? (s, U, V) : (s,)
    end
end

function lane(::Factor{:eig}, A, ::Val{how}) where {how}
    n, T = size(A, 1), complex(eltype(A))
    sizes = (T => (n,), ntuple(_ -> T => (n, n), how.left + how.right)...)
    n == 0 && return map(((T, dims),) -> zeros(T, dims), sizes)
    return attempted(sizes...) do
        found = LAPACK.geev!(how.left ? 'V' : 'N', how.right ? 'V' : 'N', A)
        values = eltype(A) <: Complex ? found[1] : complex.(found[1], found[2])
        unpacked(V) = eltype(A) <: Complex ? V : in_pairs(V, values)
        left, right = map(unpacked, found[end-1:end])
        (values, (how.left ? (left,) : ())..., (how.right ? (right,) : ())...)
    end
end

# LAPACK's real form of complex vectors: of a conjugate pair, both parts.
function in_pairs(V, values)
    vectors = complex(V)
    for j in axes(V, 2)
        imag(values[j]) > 0 || continue
        vectors[:, j] = complex.(V[:, j], V[:, j+1])
        vectors[:, j+1] = conj(vectors[:, j])
    end
    return vectors
end

function lane(::Factor{:hessenberg}, A)
    n, T = size(A, 1), eltype(A)
    n == 0 && return A, T[]
    return attempted(() -> LAPACK.gehrd!(1, n, A), T => (n, n), T => (n - 1,))
end

function lane(::Factor{:schur}, A, ::Val{vectors}) where {vectors}
    n, T = size(A, 1), eltype(A)
    n == 0 && return vectors ? (A, copy(A)) : (A,)
    count = vectors ? 2 : 1
    return attempted(ntuple(_ -> T => (n, n), count)...) do
        LAPACK.gees!(vectors ? 'V' : 'N', A)[1:count]
    end
end

function lane(::Factor{:tridiagonal}, A, ::Val{lower}) where {lower}
    n, T = size(A, 1), eltype(A)
    sizes = (T => (n, n), real(T) => (n,), real(T) => (n - 1,), T => (n - 1,))
    return attempted(sizes...) do
        F, tau, middle, side = LAPACK.hetrd!(lower ? 'L' : 'U', A)
        F, middle, side, tau
    end
end
