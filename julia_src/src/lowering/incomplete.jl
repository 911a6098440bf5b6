# The incomplete gamma and beta functions. Numbers of narrow types are computed in Float64.

@elementwise igamma(a, x) = igamma_value(a, x) (
    applied(Scalar{:igamma_grad_a}(), a, x), applied(Scalar{:gamma_density}(), a, x))
@elementwise igammac(a, x) = igammac_value(a, x) (
    -applied(Scalar{:igamma_grad_a}(), a, x), -applied(Scalar{:gamma_density}(), a, x))
# The second partial derivative by `a` has no formula; JAX refuses it.
@elementwise igamma_grad_a(a, x) = igamma_grad_a_value(a, x) (
    oftype(Ω, NaN), applied(Scalar{:gamma_density}(), a, x) * log_partial(a, x))
@elementwise random_gamma_grad(a, x) = random_gamma_grad_value(a, x) (
    oftype(Ω, NaN), oftype(Ω, NaN))
@elementwise gamma_density(a, x) = gamma_density_value(a, x) (
    Ω * log_partial(a, x), Ω * ((a - 1) / x - 1))

# A random number of the gamma distribution as a function of its shape: where the
# distribution function stays the same. `gamma_log_sample` is its logarithm.
@elementwise gamma_sample(y, a) = y (1, applied(Scalar{:random_gamma_grad}(), a, y))
@elementwise gamma_log_sample(y, a) = y (1, log_sample_partial(y, a))
@inline function log_sample_partial(y, a)
    sample = Base.exp(y)
    sample = iszero(primal(sample)) ? oftype(sample, floatmin(primal(sample))) : sample
    return applied(Scalar{:random_gamma_grad}(), a, sample) / sample
end

@inline log_partial(a, x) = applied(Scalar{:log}(), x) - applied(Scalar{:digamma}(), a)

# JAX has the partial derivative by `x` alone; the other two are the truth.
@elementwise regularized_incomplete_beta(a, b, x) = beta_value(a, b, x) (
    beta_partial(a, b, x, 1), beta_partial(a, b, x, 2),
    applied(Scalar{:beta_density}(), a, b, x))
@elementwise beta_density(a, b, x) = beta_density_value(a, b, x) (
    Ω * (applied(Scalar{:log}(), x) + sum_partial(a, b, a)),
    Ω * (applied(Scalar{:log1p}(), -x) + sum_partial(a, b, b)),
    Ω * ((a - 1) / x - (b - 1) / (1 - x)))
@inline sum_partial(a, b, c) =
    applied(Scalar{:digamma}(), a + b) - applied(Scalar{:digamma}(), c)

for value in (:igamma_value, :igammac_value, :igamma_grad_a_value, :random_gamma_grad_value,
    :gamma_density_value, :beta_value, :beta_density_value)
    @eval $value(x::T, xs::Vararg{T}) where {T<:Union{Float16,Float32}} =
        T($value(Float64(x), map(Float64, xs)...))
end
beta_partial(a::T, b::T, x::T, i) where {T<:Union{Float16,Float32}} =
    T(beta_partial(Float64(a), Float64(b), Float64(x), i))

# --- weights without cancellation: Loader, "Fast and accurate computation of binomial
# probabilities", 2000 ---------------------------------------------------------------------

"`x^a exp(-x) / Γ(a + 1)`."
function gamma_weight(a, x)
    a < 10 && return exp(a * log(x) - x - lgamma_value(a + 1))
    return exp(-stirling_error(a) - deviance(a, x)) / sqrt(2pi * a)
end

"`x^a y^b / B(a, b)` where `x + y = 1`."
function beta_weight(a, b, x, y)
    log_x, log_y = x < 0.5 ? (log(x), log1p(-x)) : (log1p(-y), log(y))
    n = a + b
    if Base.min(a, b) < 10
        beta = lgamma_value(a) + lgamma_value(b) - lgamma_value(n)
        return exp(a * log_x + b * log_y - beta)
    end
    errors = stirling_error(n) - stirling_error(a) - stirling_error(b)
    return sqrt(a / n * (b / 2pi)) * exp(errors - deviance(a, n * x) - deviance(b, n * y))
end

"What Stirling's formula for `log(n!)` leaves, for `n >= 10`."
stirling_error(n) = evalpoly(1 / (n * n),
    (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156)) / n

"`a * log(a / m) + m - a`."
function deviance(a, m)
    Base.abs(a - m) < 0.1 * (a + m) || return a * log(a / m) + m - a
    v = (a - m) / (a + m)
    total, term, k = (a - m) * v, 2 * a * v, 1
    while true
        term *= v * v
        k += 2
        next = total + term / k
        next == total && return total
        total = next
    end
end

# --- the gamma function -------------------------------------------------------------------

# From here on the normal distribution is near enough, and the series would be long.
const LARGE_SHAPE = 1e8

in_upper_tail(a, x) = (x >= 1) & (x > a)
gamma_outside(a, x) = isnan(a) | isnan(x) | (x < 0) | (a < 0) | ((a == 0) & (x == 0))

function igamma_value(a::Float64, x::Float64)
    gamma_outside(a, x) && return NaN
    x == 0 && return 0.0
    (isinf(x) | (a == 0)) && return 1.0
    isinf(a) && return 0.0
    in_upper_tail(a, x) && return 1 - upper_gamma(a, x)
    return lower_gamma(a, x)
end

function igammac_value(a::Float64, x::Float64)
    gamma_outside(a, x) && return NaN
    (isinf(x) | (a == 0)) && return 0.0
    ((x == 0) | isinf(a)) && return 1.0
    in_upper_tail(a, x) && return upper_gamma(a, x)
    return Base.max(0.0, 1 - lower_gamma(a, x))
end

lower_gamma(a, x) = a > LARGE_SHAPE ? nearly_normal(a, x, -1) :
    gamma_weight(a, x) * gamma_series(a, x)
upper_gamma(a, x) = a > LARGE_SHAPE ? nearly_normal(a, x, 1) :
    gamma_weight(a, x) * a * gamma_fraction(a, x)

# Temme, "The asymptotic expansion of the incomplete gamma functions", 1979: the first two
# terms.
function nearly_normal(a, x, side)
    distance = copysign(sqrt(deviance(a, x)), x - a)
    return erfc_value(side * distance) / 2 - side * gamma_weight(a, x) / 3
end

# Abramowitz and Stegun, 6.5.29 and 6.5.31. `a` can have a small imaginary part, which
# carries the partial derivative by `a` (Squire and Trapp, "Using complex variables to
# estimate derivatives", 1998).
function gamma_series(a, x)
    total = term = one(a)
    for k in 1:10^6
        term *= x / (a + k)
        total += term
        negligible(term, total) && break
    end
    return total
end

function gamma_fraction(a, x)
    return continued_fraction(x + 1 - a, k -> (-k * (k - a), x + 2k + 1 - a))
end

"One over `b + c_1 / (d_1 + c_2 / (d_2 + ...))`, by Lentz's method."
function continued_fraction(b, terms::F) where {F}
    tiny = 1e-300
    d = inv(b)
    c, h = one(d) / tiny, d
    for k in 1:10^6
        numerator, denominator = terms(k)
        d = inv(nonzero(numerator * d + denominator, tiny))
        c = nonzero(denominator + numerator / c, tiny)
        change = c * d
        negligible(h * change - h, h) && return h * change
        h *= change
    end
    return h
end
nonzero(x, tiny) = iszero(real(x)) ? oftype(x, tiny) : x

negligible(change, total) = !(Base.abs(change) > 1e-16 * Base.abs(total))
negligible(change::Complex, total) = negligible(real(change), real(total)) &&
    negligible(imag(change), imag(total))

const STEP = 1e-100
"The value and the derivative of an analytic function of one number."
function with_derivative(f, a)
    y = f(complex(a, STEP))
    return real(y), imag(y) / STEP
end

# The partial derivative of the lower function by `a`, over its partial derivative by `x`.
function gamma_partial_ratio(a, x)
    a > LARGE_SHAPE && return -1 - (x - a) / (2a)
    if in_upper_tail(a, x)
        value, derivative = with_derivative(a -> gamma_fraction(a, x), a)
        return -x * (value * (log(x) - digamma_value(a)) + derivative)
    end
    value, derivative = with_derivative(a -> gamma_series(a, x), a)
    return x / a * (value * (log(x) - digamma_value(a + 1)) + derivative)
end

outside_of_domain(a, x) = isnan(a) | isnan(x) | (x < 0) | (a <= 0)
function igamma_grad_a_value(a::Float64, x::Float64)
    outside_of_domain(a, x) && return NaN
    (x == 0) | isinf(x) | isinf(a) && return 0.0
    weight = gamma_weight(a, x)
    return weight == 0 ? 0.0 : gamma_partial_ratio(a, x) * (weight * a / x)
end
function random_gamma_grad_value(a::Float64, x::Float64)
    outside_of_domain(a, x) && return NaN
    x == 0 && return 0.0
    return -gamma_partial_ratio(a, x)
end

function gamma_density_value(a::Float64, x::Float64)
    x < 0 && return NaN
    (a < 10) | (x == 0) | isinf(x) &&
        return exp((a - 1) * log(x) - x - lgamma_value(a))
    return gamma_weight(a, x) * (a / x)
end

# --- the beta function --------------------------------------------------------------------

function beta_value(a::Float64, b::Float64, x::Float64)
    (isnan(a) | isnan(b) | !(0 <= x <= 1) | (a < 0) | (b < 0)) && return NaN
    no_a, no_b = (a == 0) | isinf(b), (b == 0) | isinf(a)
    no_a & no_b && return NaN
    no_a && return x == 0 ? 0.0 : 1.0
    no_b && return x == 1 ? 1.0 : 0.0
    (x == 0) | (x == 1) && return x
    near_zero(a, b, x) && return beta_part(a, b, x, 1 - x)
    return Base.max(0.0, 1 - beta_part(b, a, 1 - x, x))
end
near_zero(a, b, x) = x < (a + 1) / (a + b + 2)
beta_part(a, b, x, y) = beta_weight(a, b, x, y) / a * beta_fraction(a, b, x)

# The fraction of DLMF 8.17.22, written by even and odd terms.
function beta_fraction(a, b, x)
    return continued_fraction(one(a * b * x), k -> (beta_term(a, b, x, k), 1))
end
function beta_term(a, b, x, k)
    m = k ÷ 2
    iseven(k) && return m * (b - m) * x / ((a + 2m - 1) * (a + 2m))
    return -(a + m) * (a + b + m) * x / ((a + 2m) * (a + 2m + 1))
end

# The partial derivative by `a` (`i == 1`) or `b`.
function beta_partial(a::Float64, b::Float64, x::Float64, i)
    y = 1 - x
    isnan(beta_value(a, b, x)) && return NaN
    (x == 0) | (y == 0) | (a == 0) | (b == 0) | isinf(a) | isinf(b) && return 0.0
    near_zero(a, b, x) && return beta_part_derivative(a, b, x, y, i)
    return -beta_part_derivative(b, a, y, x, 3 - i)
end
function beta_part_derivative(a, b, x, y, i)
    weight = beta_weight(a, b, x, y) / a
    if i == 1
        value, derivative = with_derivative(a -> beta_fraction(a, b, x), a)
        direct = log(x) - digamma_value(a + 1) + digamma_value(a + b)
        return weight * (value * direct + derivative)
    end
    value, derivative = with_derivative(b -> beta_fraction(a, b, x), b)
    direct = log(y) - digamma_value(b) + digamma_value(a + b)
    return weight * (value * direct + derivative)
end
# A second derivative has no formula here.
beta_partial(a, b, x, i) = oftype(a + b + x, NaN)

function beta_density_value(a::Float64, b::Float64, x::Float64)
    0 <= x <= 1 || return NaN
    inside = (0 < x < 1) & (Base.min(a, b) >= 10)
    inside && return beta_weight(a, b, x, 1 - x) / x / (1 - x)
    beta = lgamma_value(a) + lgamma_value(b) - lgamma_value(a + b)
    return exp((b - 1) * log1p(-x) + (a - 1) * log(x) - beta)
end
