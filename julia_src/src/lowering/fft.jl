# The discrete Fourier transform, for any length and any kind of number, dual ones included.

"""
    fft(x, Val(kind), Val(dims))

Transform along the first `length(dims)` axes, which are JAX's last. `kind` is `:fft`,
`:ifft`, `:rfft` (half of a real array's spectrum) or `:irfft` (back from it, to the size
`dims`).
"""
@primitive fft(x, ::Val{kind}, ::Val{dims}) where {kind,dims} =
    transformed(x, Val(kind), dims)

function transformed(x, ::Val{:fft}, dims)
    isempty(x) && return x
    return foldl((y, d) -> along(dft, y, d), 1:length(dims); init=x)
end
transformed(x, ::Val{:ifft}, dims) =
    conj.(transformed(conj.(x), Val(:fft), dims)) ./ count_of(x, dims)
function transformed(x, ::Val{:rfft}, dims)
    full = transformed(complex.(x), Val(:fft), dims)
    return dense(selectdim(full, 1, 1:dims[1]÷2+1))
end
function transformed(x, ::Val{:irfft}, dims)
    isempty(x) && return zeros_of(real.(x), (dims..., size(x)[length(dims)+1:end]...))
    # The other axes first: then each line is half of a Hermitian one.
    rest = foldl((y, d) -> along(back_dft, y, d), 2:length(dims); init=x)
    return real.(along(line -> back_dft(mirrored(line, dims[1])), rest, 1))
end
back_dft(x) = conj.(dft(conj.(x))) ./ length(x)
count_of(x, dims) = oftype(real(one(eltype(x))), prod(dims))
mirrored(line, n) = [k <= length(line) ? line[k] : conj(line[n-k+2]) for k in 1:n]

# All of it is linear; the cotangent goes back through the conjugate of the transposed
# matrix.
pull(::Primitive{:fft}, ::Val{1}, ȳ, y, x, ::Val{:fft}, ::Val{dims}) where {dims} =
    conj.(transformed(conj.(ȳ), Val(:fft), dims))
pull(::Primitive{:fft}, ::Val{1}, ȳ, y, x, ::Val{:ifft}, ::Val{dims}) where {dims} =
    transformed(complex.(ȳ), Val(:fft), dims) ./ count_of(ȳ, dims)
function pull(::Primitive{:fft}, ::Val{1}, ȳ, y, x, ::Val{:rfft}, ::Val{dims}) where {dims}
    full = zeros_of(complex.(ȳ), size(x))
    selectdim(full, 1, axes(ȳ, 1)) .= ȳ
    return real.(transformed(conj.(full), Val(:fft), dims))
end
# All but the first of a line and the middle stand for two elements.
function pull(::Primitive{:fft}, ::Val{1}, ȳ, y, x, ::Val{:irfft}, ::Val{dims}) where {dims}
    n = dims[1]
    half = transformed(ȳ, Val(:rfft), dims)
    weights = [k == 1 || 2 * (k - 1) == n ? 1 : 2 for k in axes(half, 1)]
    return half .* (weights ./ count_of(ȳ, dims))
end
zeros_of(x, dims) = fill!(similar(x, dims), 0)

"Apply a function of vectors along an axis."
function along(f::F, x, d) where {F}
    before, after = size(x)[1:d-1], size(x)[d+1:end]
    columns = Base.reshape(x, prod(before), size(x, d), prod(after))
    lines = [f(columns[i, :, j]) for i in axes(columns, 1), j in axes(columns, 3)]
    n = length(first(lines))
    y = similar(first(lines), size(columns, 1), n, size(columns, 3))
    for j in axes(y, 3), i in axes(y, 1)
        y[i, :, j] = lines[i, j]
    end
    return Base.reshape(y, before..., n, after...)
end

"The powers of the `n`-th root of one, `exp(-2πi k / n)`, in the precision of `x`."
function roots_of_one(x, n)
    T = Complex{PyBridge.primal_type(real(eltype(x)))}
    return T[T(cispi(-2 * k / n)) for k in 0:n-1]
end

# Cooley and Tukey, "An algorithm for the machine calculation of complex Fourier series",
# 1965.
dft(x) = split_dft(x, roots_of_one(x, length(x)))
function split_dft(x, roots)
    n = length(x)
    p = smallest_factor(n)
    n == 1 && return x
    p == n && return n > 64 ? long_prime_dft(x) : plain_dft(x, roots)
    parts = [split_dft(x[r:p:end], roots[1:p:end]) for r in 1:p]
    m = n ÷ p
    return [sum(roots[(r-1)*k%n+1] * parts[r][k%m+1] for r in 1:p) for k in 0:n-1]
end
plain_dft(x, roots) =
    [sum(roots[j*k%length(x)+1] * x[j+1] for j in 0:length(x)-1) for k in 0:length(x)-1]
function smallest_factor(n)
    p = 2
    while p * p <= n
        n % p == 0 && return p
        p += 1
    end
    return n
end

# Bluestein, "A linear filtering approach to the computation of discrete Fourier transform",
# 1970: a convolution, whose length may be a power of two.
function long_prime_dft(x)
    n = length(x)
    m = nextpow(2, 2n - 1)
    doubled = roots_of_one(x, 2n)
    chirp = [doubled[k*k%2n+1] for k in 0:n-1]
    a, b = zeros_of(x, m), zeros_of(chirp, m)
    a[1:n] = x .* chirp
    b[1:n] = conj.(chirp)
    b[m-n+2:m] = reverse(conj.(chirp[2:n]))
    product = dft(a) .* dft(b)
    return back_dft(product)[1:n] .* chirp
end
