# The zeta function of Hurwitz, what is made of it, and Bessel functions. Numbers of narrow
# types are computed in Float64.

@elementwise zeta(s, q) = zeta_value(s, q) (
    zeta_partial(s, q), -s * applied(Scalar{:zeta}(), s + 1, q))
# A function of whole `n`: it has no partial derivative by it, and JAX refuses one.
@elementwise polygamma(n, x) = polygamma_value(n, x) (
    oftype(Ω, NaN), applied(Scalar{:polygamma}(), n + 1, x))
@elementwise bessel_i0e(x) = i0e_value(x) (
    applied(Scalar{:bessel_i1e}(), x) - sign_of(x) * Ω,)
@elementwise bessel_i1e(x) = i1e_value(x) (i1e_partial(x, Ω),)

i1e_partial(x, Ω) = Base.abs(primal(x)) <= eps(typeof(primal(x))) ? oftype(Ω, 0.5) :
    applied(Scalar{:bessel_i0e}(), x) - Ω * (sign_of(x) + inv(x))

for value in (:zeta_value, :zeta_partial, :polygamma_value, :i0e_value, :i1e_value)
    @eval $value(x::T, xs::Vararg{T}) where {T<:Union{Float16,Float32}} =
        T($value(Float64(x), map(Float64, xs)...))
end

function zeta_value(s::Float64, q::Float64)
    isnan(s) | isnan(q) && return NaN
    s == 1 && return Inf
    # XLA's choice at the poles, where the signs of the two sides agree or not.
    q <= 0 && (isinteger(q) | isinf(q)) && return iseven_number(s) ? Inf : NaN
    (s < 1) | ((q < 0) & !isinteger(s)) && return NaN
    isinf(q) && return 0.0
    return zeta_sum(s, q)
end

iseven_number(s) = isinteger(s) && iszero(Base.rem(s, 2))

"The partial derivative by `s`; the imaginary part carries it."
function zeta_partial(s::Float64, q::Float64)
    (s > 1) & (q > 0) || return NaN
    return last(with_derivative(s -> zeta_sum(s, q), s))
end
zeta_partial(s, q) = oftype(s + q, NaN)

# Twice the Bernoulli numbers over factorials: B(2j) / (2j)!.
const BERNOULLI = (1 / 12, -1 / 720, 1 / 30240, -1 / 1209600, 1 / 47900160,
    -691 / 1307674368000, 1 / 74724249600, -3617 / 10670622842880000,
    43867 / 5109094217170944000)

# Euler and Maclaurin's formula (DLMF 25.11.5), from where it is accurate on.
function zeta_sum(s, q)
    total = zero(s)
    while q < 10 + real(s)
        term = inverse_power(q, s)
        total += term
        q += 1
        q > 0 && negligible(term * q, total) && return total
    end
    power = inverse_power(q, s)
    total += power * q / (s - 1) + power / 2
    factor = s * power / q
    for (j, number) in enumerate(BERNOULLI)
        total += number * factor
        factor *= (s + (2j - 1)) * (s + 2j) / (q * q)
    end
    return total
end
inverse_power(q, s) = q^-s
inverse_power(q, s::Complex) = exp(-s * log(q))

function polygamma_value(n::Float64, x::Float64)
    (isnan(n) | isnan(x) | (n < 0) | !isinteger(n)) && return NaN
    n == 0 && return digamma_value(x)
    factorial = n <= 170 ? prod(2.0:n; init=1.0) : Inf
    return (isodd(n) ? 1 : -1) * factorial * zeta_value(n + 1, x)
end

# Abramowitz and Stegun, 9.6.10 and 9.7.1.
i0e_value(x::Float64) = isinf(x) ? 0.0 : scaled_bessel(0, Base.abs(x))
i1e_value(x::Float64) =
    isinf(x) ? copysign(0.0, x) : copysign(scaled_bessel(1, Base.abs(x)), x)
function scaled_bessel(order, x)
    isnan(x) && return x
    x < 30 || return asymptotic_bessel(order, x)
    total = term = order == 0 ? 1.0 : x / 2
    k = 0
    while term > 1e-17 * total
        k += 1
        term *= x * x / 4 / (k * (k + order))
        total += term
    end
    return total * exp(-x)
end
function asymptotic_bessel(order, x)
    total = term = 1.0
    for k in 1:40
        term *= -(4 * order^2 - (2k - 1)^2) / (k * 8 * x)
        total += term
        Base.abs(term) < 1e-17 && break
    end
    return total / sqrt(2pi * x)
end
