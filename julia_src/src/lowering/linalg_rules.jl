# Derivatives of linear algebra. The formulas are those of JAX's rules, so what is infinite
# or NaN there (equal eigenvalues) is so here; the cotangents are their transposes. They run
# on dual matrices, too, for second derivatives.

lane_push(p::Factor{name}, ẋs, ys, xs, static...) where {name} = no_derivative(name)
lane_pull(p::Factor{name}, i, ȳs, ys, xs, static...) where {name} = no_derivative(name)
no_derivative(name, what="") = throw(ArgumentError(
    "the derivative of '$name'$what is not defined, neither here nor in JAX. Take the " *
    "derivative of another decomposition, or pass the value through stop_gradient."))

"The values of a primitive for one matrix, whatever its numbers."
function again(p::Factor, x, static...)
    y = forward(p, to_jax(x), static...)
    return map(y -> from_jax(y, ndims(y)), y isa Tuple ? y : (y,))
end

# --- triangles ----------------------------------------------------------------------------

"The lower triangle, with half of the diagonal."
halved(X) = tril(X, -1) + diagm(diag(X) / 2)

# The lower triangle is read alone, and stands for both. (JAX before 0.11 has the derivative
# of a function of both; of a matrix made symmetric before, the two are the same.)
function lane_push(::Factor{:cholesky}, (Ȧ,), (L,), xs)
    Ȧ = tril(Ȧ) + tril(Ȧ, -1)' - imaginary(diagm(diag(Ȧ)))
    inside = triangular(L, triangular(L, Ȧ, adjoint_how(right(LOWER))), LOWER)
    return (L * halved(inside),)
end
function lane_pull(::Factor{:cholesky}, i, (L̄,), (L,), xs)
    inside = halved(L' * L̄)
    Ā = triangular(L, triangular(L, inside, adjoint_how(LOWER)), right(LOWER))
    return tril(Ā) + tril(Ā', -1) - imaginary(diagm(diag(Ā)))
end
imaginary(A) = (A - conj(A)) / 2

# The triangle that is read.
seen(A, how) = how.lower ? tril(A, -Int(how.unit)) : triu(A, Int(how.unit))

function lane_push(
    ::Factor{:triangular_solve}, (Ȧ, Ḃ), (X,), (A, B), ::Val{how}
) where {how}
    Ṁ = operated(seen(Ȧ, how), how)
    return (triangular(A, Ḃ - (how.left ? Ṁ * X : X * Ṁ), how),)
end
lane_pull(
    ::Factor{:triangular_solve}, ::Val{2}, (X̄,), ys, (A, B), ::Val{how}
) where {how} =
    triangular(A, X̄, adjoint_how(how))
function lane_pull(
    ::Factor{:triangular_solve}, ::Val{1}, (X̄,), (X,), (A, B), ::Val{how}
) where {how}
    B̄ = triangular(A, X̄, adjoint_how(how))
    return seen(operated(how.left ? -B̄ * X' : -X' * B̄, how), how)
end

lane_push(
    ::Factor{:symmetric_product}, (Ȧ, Ċ), ys, (A, C), ::Val{weights}
) where {weights} =
    (weights.alpha * (Ȧ * A' + A * Ȧ') + weights.beta * Ċ,)
lane_pull(::Factor{:symmetric_product}, ::Val{1}, (Ȳ,), ys, (A, C), ::Val{w}) where {w} =
    w.alpha * ((Ȳ + Ȳ') * A)
lane_pull(::Factor{:symmetric_product}, ::Val{2}, (Ȳ,), ys, (A, C), ::Val{w}) where {w} =
    w.beta * Ȳ

function tridiagonal_product(lower, middle, upper, X)
    Y = middle .* X
    n = size(X, 1)
    Y[2:n, :] += lower[2:n] .* X[1:n-1, :]
    Y[1:n-1, :] += upper[1:n-1] .* X[2:n, :]
    return Y
end
tridiagonal(lower, middle, upper, B) = only(map(permutedims,
    (forward(Factor{:tridiagonal_solve}(), lower, middle, upper, permutedims(B)),)))
adjoint_solve(X̄, (lower, middle, upper)) = tridiagonal(
    [zero(eltype(upper)); conj(upper[1:end-1])], conj(middle),
    [conj(lower[2:end]); zero(eltype(lower))], X̄)

function lane_push(::Factor{:tridiagonal_solve}, ẋs, (X,), xs)
    return (tridiagonal(xs[1:3]..., ẋs[4] - tridiagonal_product(ẋs[1:3]..., X)),)
end
function lane_pull(::Factor{:tridiagonal_solve}, ::Val{i}, (X̄,), (X,), xs) where {i}
    B̄ = adjoint_solve(X̄, xs)
    i == 4 && return B̄
    n, products = size(X, 1), (B̄, shift) -> -vec(sum(B̄ .* conj(shift); dims=2))
    i == 2 && return products(B̄, X)
    none = zeros(eltype(X), 1, size(X, 2))
    return products(B̄, i == 1 ? [none; X[1:n-1, :]] : [X[2:n, :]; none])
end

# --- LU and QR ----------------------------------------------------------------------------

# Square factors of the packed form of a matrix of any size.
function lu_factors(F)
    m, n = size(F)
    k = min(m, n)
    L = Matrix{eltype(F)}(LinearAlgebra.I, m, m)
    U = Matrix{eltype(F)}(LinearAlgebra.I, n, n)
    L[:, 1:k] += tril(F[:, 1:k], -1)
    U[1:k, :] = triu(F[1:k, :])
    return L, U
end
function lane_push(::Factor{:lu}, (Ȧ,), (F, _, order), xs)
    L, U = lu_factors(F)
    inside = triangular(U, triangular(L, Ȧ[order.+1, :], unit(LOWER)), right(UPPER))
    return (L * tril(inside, -1) + triu(inside) * U,)
end
function lane_pull(::Factor{:lu}, i, (F̄, _...), (F, _, order), xs)
    L, U = lu_factors(F)
    inside = tril(L' * F̄, -1) + triu(F̄ * U')
    rows = triangular(U, inside, adjoint_how(right(UPPER)))
    return triangular(L, rows, adjoint_how(unit(LOWER)))[invperm(order .+ 1), :]
end

# Q and R of a matrix with at least as many rows as columns; J. Townsend, "Differentiating
# the QR decomposition". For complex numbers, the diagonal of R stays real.
function push_thin(Q, R, Ẋ)
    Y = triangular(R, Ẋ, right(UPPER))
    M = Q' * Y
    N = triu(M, 1) + tril(M, -1)' + diagm(real(diag(M)))
    return Y - Q * N, N * R
end
function pull_thin(Q, R, Q̄, R̄)
    N̄ = R̄ * R' - Q' * Q̄
    M̄ = triu(N̄, 1) + triu(N̄, 1)' + diagm(real(diag(N̄)))
    return triangular(R, Q̄ + Q * M̄, adjoint_how(right(UPPER)))
end

# The columns that complete Q turn with the others: Q₂' = Q₁' Zᴴ - K Gᴴ with G = [-Z I] Q₁',
# where Z = Q₂₁ (Q₁₁ - I)⁻¹ (arXiv 2409.13374, equations 32 and 33).
function completion(Q, n)
    Z = Q[n+1:end, 1:n] / (Q[1:n, 1:n] - LinearAlgebra.I)
    return Z, Q[:, 1:n] + Q[:, n+1:end] * Z
end

function lane_push(::Factor{:qr}, (Ẋ,), (Q, R, order...), (X,), ::Val{how}) where {how}
    m, n = size(X)
    isempty(X) && return zero(Q), zero(R)
    how.pivoting && (Ẋ = Ẋ[:, order[1].+1])
    if m < n
        # The columns that are too many: R₂ = Qᴴ X₂.
        X₂ = how.pivoting ? X[:, order[1].+1][:, m+1:n] : X[:, m+1:n]
        Q̇, Ṙ = push_thin(Q, R[:, 1:m], Ẋ[:, 1:m])
        return Q̇, [Ṙ Q̇' * X₂ + Q' * Ẋ[:, m+1:n]]
    end
    Q̇, Ṙ = push_thin(Q[:, 1:n], R[1:n, :], Ẋ)
    size(Q, 2) == n && return Q̇, Ṙ
    Z, K = completion(Q, n)
    G = Q̇[n+1:end, :] - Z * Q̇[1:n, :]
    return [Q̇ Q̇ * Z' - K * G'], [Ṙ; zeros(eltype(Ṙ), m - n, n)]
end
function lane_pull(
    ::Factor{:qr}, i, (Q̄, R̄, _...), (Q, R, order...), (X,), ::Val{how}
) where {how}
    m, n = size(X)
    isempty(X) && return zero(X)
    columns = how.pivoting ? order[1] .+ 1 : 1:n
    back(X̄) = how.pivoting ? X̄[:, invperm(columns)] : X̄
    if m < n
        X₂, R̄₂ = X[:, columns[m+1:n]], R̄[:, m+1:n]
        return back([pull_thin(Q, R[:, 1:m], Q̄ + X₂ * R̄₂', R̄[:, 1:m]) Q * R̄₂])
    end
    Q̄₁ = Q̄[:, 1:n]
    if size(Q, 2) > n && !iszero(Q̄[:, n+1:end])
        Z, K = completion(Q, n)
        Q̄₂ = Q̄[:, n+1:end]
        Ḡ = -Q̄₂' * K
        Q̄₁ = Q̄₁ + Q̄₂ * Z + [-Z' * Ḡ; Ḡ]
    end
    return back(pull_thin(Q[:, 1:n], R[1:n, :], Q̄₁, R̄[1:n, :]))
end

# --- eigenvalues and singular values ------------------------------------------------------

# The inverse of the gap from w[i] to w[j], and 0 on the diagonal.
inverse_gaps(w, gap=-) = [inv((i == j) + gap(w[j], w[i])) - (i == j)
                          for i in eachindex(w), j in eachindex(w)]
gap_of_squares(s, r) = (s + r) * (s - r)

# Where nobody asks for the vectors, equal values do no harm.
weighed(F, X) = iszero(X) ? zero(X) : F .* X

function lane_push(::Factor{:eigh}, (Ȧ,), (V, w), xs, static...)
    inside = V' * Ȧ * V
    return V * (inverse_gaps(w) .* inside), real(diag(inside))
end
lane_pull(::Factor{:eigh}, i, (V̄, w̄), (V, w), xs, static...) =
    V * (weighed(inverse_gaps(w), V' * V̄) + diagm(w̄)) * V'

const THIN = (; full=false, vectors=true, qr=false)

# The thin decomposition that belongs to the one that was made.
function thin_svd(ys, (A,), how)
    how.vectors || return again(Factor{:svd}(), A, Val(THIN))
    k = length(ys[1])
    return ys[1], ys[2][:, 1:k], ys[3][1:k, :]
end
vectors_of(how, (m, n)) = how.vectors && how.full && m != n && no_derivative(:svd,
    " with full_matrices=True for the vectors of a matrix that is not square")

function lane_push(::Factor{:svd}, (Ȧ,), ys, xs, ::Val{how}) where {how}
    vectors_of(how, size(Ȧ))
    s, U, Vᴴ = thin_svd(ys, xs, how)
    V = Matrix(Vᴴ')
    inside = U' * Ȧ * V
    how.vectors || return (real(diag(inside)),)
    F = inverse_gaps(s, gap_of_squares)
    right, left = inside .* Base.transpose(s), s .* inside
    turn = diagm(diag(inside - inside') .* safe_inverse(s) / 2)
    U̇ = U * (F .* (right + right') + turn)
    V̇ = V * (F .* (left + left'))
    m, n = size(Ȧ)
    m > n && (U̇ += (Ȧ * V - U * inside) ./ Base.transpose(s))
    n > m && (V̇ += (Ȧ' * U - V * inside') ./ Base.transpose(s))
    return real(diag(inside)), U̇, Matrix(V̇')
end
function lane_pull(::Factor{:svd}, i, ȳs, ys, xs, ::Val{how}) where {how}
    s, U, Vᴴ = thin_svd(ys, xs, how)
    how.vectors || return U * (ȳs[1] .* Vᴴ)
    turned = !(iszero(ȳs[2]) && iszero(ȳs[3]))
    turned || return U * (ȳs[1] .* Vᴴ)
    m, n = size(xs[1])
    vectors_of(how, (m, n))
    V, Ū, V̄ = Matrix(Vᴴ'), ȳs[2], Matrix(ȳs[3]')
    F, UŪ, VV̄ = inverse_gaps(s, gap_of_squares), U' * Ū, V' * V̄
    right, left = weighed(F, UŪ), weighed(F, VV̄)
    turn = (diag(UŪ) - conj(diag(UŪ))) .* safe_inverse(s) / 2
    inside = (right + right') .* Base.transpose(s) + s .* (left + left') +
        diagm(ȳs[1] + turn)
    Ā = U * inside * Vᴴ
    m > n && (Ā += ((Ū - U * UŪ) ./ Base.transpose(s)) * Vᴴ)
    n > m && (Ā += U * ((V̄ - V * VV̄) ./ Base.transpose(s))')
    return Ā
end
safe_inverse(s) = map(x -> iszero(x) ? zero(x) : inv(x), s)

# LAPACK's vectors have length one and a largest element that is real.
function largest_of(V)
    return [argmax(Base.abs.(column)) for column in eachcol(V)]
end
function push_eig(w, V, Ȧ)
    inside = V \ (Ȧ * V)
    U̇ = V * (inverse_gaps(w) .* inside)
    for (j, k) in enumerate(largest_of(V))
        u, v = U̇[:, j], V[:, j]
        U̇[:, j] = u + complex(-real(v' * u), -imag(u[k]) / real(v[k])) * v
    end
    return diag(inside), U̇
end
function pull_eig(w, V, w̄, V̄)
    Ū = copy(V̄)
    for (j, k) in enumerate(largest_of(V))
        v, c̄ = V[:, j], V[:, j]' * V̄[:, j]
        Ū[:, j] -= real(c̄) * v
        Ū[k, j] -= im * imag(c̄) / real(v[k])
    end
    inside = diagm(w̄) + weighed(conj(inverse_gaps(w)), V' * Ū)
    return (V' \ inside) * V'
end

eig_derivatives(how) = (how.left || how.right) && !how.derivatives && throw(ArgumentError(
    "derivatives of eigenvectors of matrices that are not symmetric hold under " *
    "conditions that nobody checks. To have them, as in JAX: jax.lax.linalg.eig(..., " *
    "enable_eigvec_derivs=True)."))

function lane_push(::Factor{:eig}, (Ȧ,), ys, (A,), ::Val{how}) where {how}
    eig_derivatives(how)
    right = how.right ? ys[end] : last(again(Factor{:eig}(), A, Val(RIGHT)))
    ẇ, V̇ = push_eig(ys[1], right, complex(Ȧ))
    left = how.left ? (last(push_eig(conj(ys[1]), ys[2], complex(Matrix(Ȧ')))),) : ()
    return (ẇ, left..., (how.right ? (V̇,) : ())...)
end
function lane_pull(::Factor{:eig}, i, ȳs, ys, (A,), ::Val{how}) where {how}
    asked = any(!iszero, ȳs[2:end])
    asked && eig_derivatives(how)
    right = how.right ? ys[end] : last(again(Factor{:eig}(), A, Val(RIGHT)))
    of_right = how.right ? ȳs[end] : zero(right)
    Ā = pull_eig(ys[1], right, ȳs[1], of_right)
    how.left || return Ā
    return Ā + pull_eig(conj(ys[1]), ys[2], zero(ȳs[1]), ȳs[2])'
end
const RIGHT = (; left=false, right=true, derivatives=false)
