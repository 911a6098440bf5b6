# Elementwise primitives: one function of numbers each, with its partial derivatives.

"An elementwise primitive; the function of numbers is `Scalar{name}`."
struct Elementwise{name} <: AbstractPrimitive end

"The function of numbers of an elementwise primitive."
struct Scalar{name} <: Function end

"""
    partial(scalar, ::Val{i}, y, xs...)

The derivative of a function of numbers by its argument number `i`, where its value is `y`.
"""
function partial end

"""
    @elementwise name(x, y) = value  (derivative by x, derivative by y)

Define an elementwise primitive. In the partial derivatives, `Ω` is the value. One that is
`0` means that no derivative passes.
"""
macro elementwise(definition, partials)
    call, value = definition.args
    name, arguments = call.args[1], call.args[2:end]
    scalar = :(Scalar{$(QuoteNode(name))})
    names = map(a -> a isa Symbol ? a : a.args[1], arguments)
    methods = map(enumerate(partials.args)) do (i, formula)
        :(partial(::$scalar, ::Val{$i}, Ω, $(names...)) = $formula)
    end
    return esc(quote
        @inline (::$scalar)($(arguments...)) = $value
        $(methods...)
        register($(QuoteNode(name)), Elementwise{$(QuoteNode(name))}())
    end)
end

"""
    @piecewise name(x, y) = value

Define an elementwise primitive that no derivative passes.
"""
macro piecewise(definition)
    call, value = definition.args
    name, arguments = call.args[1], call.args[2:end]
    scalar = :(Scalar{$(QuoteNode(name))})
    return esc(quote
        @inline (::$scalar)($(arguments...)) = $value
        forward(::Discrete{$(QuoteNode(name))}, xs...) = broadcast($scalar(), xs...)
        register($(QuoteNode(name)), Discrete{$(QuoteNode(name))}())
    end)
end

forward(::Elementwise{name}, xs...) where {name} =
    broadcast(lifted(modes(xs), Scalar{name}()), xs...)

"The function of numbers in a form that takes dual ones, where there are any."
lifted(::Mode, scalar) = scalar

function pull(::Elementwise{name}, ::Val{i}, ȳ, y, xs...) where {name,i}
    x̄ = broadcast(Steeper{name,i}(), ȳ, y, xs...)
    return unbroadcast(xs[i], x̄)
end

"The cotangent of an argument from that of the value, for numbers."
struct Steeper{name,i} <: Function end
@inline function (::Steeper{name,i})(ȳ, y, xs...) where {name,i}
    return ȳ * conj(partial(Scalar{name}(), Val(i), y, xs...))
end

"Sum a cotangent over the axes along which its argument was repeated."
unbroadcast(x::Number, x̄) = real_like(x, add_up(x̄))
function unbroadcast(x::AbstractArray, x̄)
    size(x) == size(x̄) && return real_like(x, x̄)
    repeated = Tuple(filter(d -> size(x, d) != size(x̄, d), 1:ndims(x̄)))
    return real_like(x, added(x̄, repeated))
end

real_like(x, x̄) = eltype(x) <: Real && eltype(x̄) <: Complex ? real.(x̄) : x̄

# --- arithmetic ---------------------------------------------------------------------------

@elementwise add(x, y) = x + y (1, 1)
@elementwise sub(x, y) = x - y (1, -1)
@elementwise mul(x, y) = x * y (y, x)
@elementwise div(x, y) = quotient(x, y) (inv(y), -x * inv(y * y))
@elementwise rem(x, y) = remainder(x, y) (1, -trunc(x / y))
@elementwise neg(x) = -x (-1,)
@elementwise abs(x) = magnitude(x) (sign_of(x),)
@elementwise square(x) = x * x (2 * x,)
@elementwise one_minus_square(x) = (1 + x) * (1 - x) (-2 * x,)
@elementwise max(x, y) = larger(x, y) (share(x, y, Ω), share(y, x, Ω))
@elementwise min(x, y) = smaller(x, y) (share(x, y, Ω), share(y, x, Ω))
@elementwise pow(x, y) = power(x, y) (power_partial(x, y), power_log(x, y, Ω))
@elementwise real(x) = Base.real(x) (1,)
@elementwise conj(x) = Base.conj(x) (1,)

# XLA divides by zero: -1, and the smallest integer by -1 is itself.
@inline quotient(x, y) = x / y
@inline quotient(x::T, y::T) where {T<:Signed} =
    y == 0 ? T(-1) : y == -1 ? -x : Base.div(x, y)
@inline quotient(x::T, y::T) where {T<:Unsigned} = y == 0 ? typemax(T) : Base.div(x, y)
@inline remainder(x, y) = Base.rem(x, y)
@inline remainder(x::T, y::T) where {T<:AbstractFloat} =
    isinf(y) && isfinite(x) ? x : Base.rem(x, y)
@inline remainder(x::T, y::T) where {T<:Integer} =
    y == 0 ? x : T <: Signed && y == -1 ? zero(T) : Base.rem(x, y)

@inline magnitude(x) = Base.abs(x)
@inline sign_of(x::Real) = Base.sign(primal(x))
@inline sign_of(x::Complex) = iszero(x) ? zero(x) : x / Base.abs(x)

# NaN wins; of two equal values each gets half of the derivative.
@inline larger(x, y) = Base.max(x, y)
@inline larger(x::Bool, y::Bool) = x | y
@inline larger(x::Complex, y::Complex) = ifelse(ordered(>, primal(x), primal(y)), x, y)
@inline smaller(x, y) = Base.min(x, y)
@inline smaller(x::Complex, y::Complex) = ifelse(ordered(<, primal(x), primal(y)), x, y)
# Complex numbers are ordered by their real parts, and equal ones by their imaginary parts.
@inline ordered(order::F, x, y) where {F} = Base.real(x) == Base.real(y) ?
    order(Base.imag(x), Base.imag(y)) : order(Base.real(x), Base.real(y))
@inline function share(x, y, Ω)
    a, b, c = primal(x), primal(y), primal(Ω)
    return a == b ? oftype(c, 0.5) : a == c ? one(c) : zero(c)
end

@inline power(x, y) = x^y
@inline power(x::T, y::T) where {T<:AbstractFloat} =
    x < 0 && isfinite(y) && !isinteger(y) ? root_of_negative(x, y) : x^y
@inline root_of_negative(x::T, y) where {T} =
    isfinite(x) ? T(NaN) : y > 0 ? T(Inf) : zero(T)
@inline power(x::T, y::Integer) where {T<:AbstractFloat} = x^y
@inline power(x::T, y::Integer) where {T<:Integer} =
    y < 0 ? (x == 1 ? x : x == -1 ? (isodd(y) ? x : -x) : zero(T)) : x^y
@inline power_partial(x, y) =
    ifelse(y == 0, zero(x * y), y * power(x, ifelse(y == 0, one(y), y - one(y))))
@inline power_log(x, y, Ω) =
    iszero(x) && Base.real(y) > 0 ? zero(Ω) :
    Ω * Base.log(iszero(x) ? one(x) : safe_log_base(x))
@inline safe_log_base(x) = x
@inline safe_log_base(x::Real) = x < 0 ? oftype(x, NaN) : x

@primitive integer_pow(x, ::Val{n}) where {n} =
    broadcast(v -> integer_power(v, Val(n)), x)
pull(::Primitive{:integer_pow}, ::Val{1}, ȳ, y, x, ::Val{n}) where {n} =
    n == 0 ? zero(x) : broadcast((ȳ, v) -> ȳ * conj(n * integer_power(v, Val(n - 1))), ȳ, x)

# By repeated squaring, in XLA's order.
@inline function integer_power(x, ::Val{n}) where {n}
    n == 0 && return one(x)
    m = Base.abs(n)
    acc, base = nothing, x
    while m > 0
        isodd(m) && (acc = acc === nothing ? base : acc * base)
        m >>= 1
        m > 0 && (base *= base)
    end
    return n < 0 ? one(x) / acc : acc
end

# --- exponentials and logarithms ----------------------------------------------------------

@elementwise exp(x) = Base.exp(x) (Ω,)
@elementwise exp2(x) = Base.exp2(x) (oftype(Ω, ln2) * Ω,)
@elementwise expm1(x) = Base.expm1(x) (Ω + 1,)
@elementwise log(x) = guarded(Base.log, x, 0) (inv(x),)
@elementwise log1p(x) = guarded(Base.log1p, x, -1) (inv(x + 1),)
@elementwise log2(x) = guarded(Base.log2, x, 0) (inv(oftype(x, ln2) * x),)
@elementwise sqrt(x) = guarded(Base.sqrt, x, 0) (oftype(Ω, 0.5) / Ω,)
@elementwise rsqrt(x) = inv(guarded(Base.sqrt, x, 0)) (oftype(Ω, -0.5) * (Ω / x),)
@elementwise cbrt(x) = Base.cbrt(x) (inv(3 * Ω * Ω),)
@elementwise logistic(x) = sigmoid(x) (Ω * (1 - Ω),)

const ln2 = 0.6931471805599453

# NaN where Julia throws.
@inline guarded(f::F, x, lowest) where {F} = f(x)
@inline guarded(f::F, x::AbstractFloat, lowest) where {F} =
    x < lowest ? oftype(x, NaN) : f(x)
@inline bounded(f::F, x, low, high) where {F} = f(x)
@inline bounded(f::F, x::AbstractFloat, low, high) where {F} =
    (x < low) | (x > high) ? oftype(x, NaN) : f(x)
@inline finite(f::F, x) where {F} = f(x)
@inline finite(f::F, x::AbstractFloat) where {F} = isinf(x) ? oftype(x, NaN) : f(x)
# For partial derivatives, which are asked for outside of the domain, and of dual numbers.
@inline inverse_root(x) = applied(Scalar{:rsqrt}(), x)
@inline sigmoid(x) = inv(one(x) + Base.exp(-x))

# --- trigonometric and hyperbolic ---------------------------------------------------------

@elementwise sin(x) = finite(Base.sin, x) (applied(Scalar{:cos}(), x),)
@elementwise cos(x) = finite(Base.cos, x) (-applied(Scalar{:sin}(), x),)
@elementwise tan(x) = finite(Base.tan, x) (1 + Ω * Ω,)
@elementwise asin(x) = bounded(Base.asin, x, -1, 1) (inverse_root(1 - x * x),)
@elementwise acos(x) = bounded(Base.acos, x, -1, 1) (-inverse_root(1 - x * x),)
@elementwise atan(x) = Base.atan(x) (inv(1 + x * x),)
@elementwise atan2(x, y) = Base.atan(x, y) (y / (x * x + y * y), -x / (x * x + y * y))
@elementwise sinh(x) = Base.sinh(x) (Base.cosh(x),)
@elementwise cosh(x) = Base.cosh(x) (Base.sinh(x),)
@elementwise tanh(x) = Base.tanh(x) ((1 - Ω) * (1 + Ω),)
@elementwise asinh(x) = Base.asinh(x) (inv(Base.sqrt(x * x + 1)),)
@elementwise acosh(x) = guarded(Base.acosh, x, 1) (
    inverse_root(x - 1) * inverse_root(x + 1),)
@elementwise atanh(x) = bounded(Base.atanh, x, -1, 1) (inv((1 - x) * (1 + x)),)

# --- piecewise constant -------------------------------------------------------------------

@piecewise sign(x) = signum(x)
@piecewise floor(x) = Base.floor(x)
@piecewise ceil(x) = Base.ceil(x)
@piecewise is_finite(x) = isfinite(x)
@piecewise eq(x, y) = x == y
@piecewise ne(x, y) = x != y
@piecewise lt(x, y) = x < y
@piecewise le(x, y) = x <= y
@piecewise gt(x, y) = x > y
@piecewise ge(x, y) = x >= y
# The order in which NaN comes last and -0 before 0.
@piecewise eq_to(x, y) = isequal(x, y)
@piecewise lt_to(x, y) = isless(x, y)
@piecewise le_to(x, y) = !isless(y, x)
@piecewise nextafter(x, y) = next_float(x, y)

@inline signum(x) = Base.sign(x)
@inline signum(x::Complex) = iszero(x) ? x : x / Base.abs(x)

@inline function next_float(x, y)
    (isnan(x) | isnan(y)) && return oftype(x, NaN)
    x == y && return y
    return x < y ? nextfloat(x) : prevfloat(x)
end

@discrete round_away(x) = broadcast(v -> Base.round(v, RoundNearestTiesAway), x)
@discrete round_even(x) = broadcast(v -> Base.round(v, RoundNearest), x)

# --- bits ---------------------------------------------------------------------------------

@piecewise and(x, y) = x & y
@piecewise or(x, y) = x | y
@piecewise xor(x, y) = Base.xor(x, y)
@piecewise not(x) = ~x
@piecewise shift_left(x, y) = in_range(x, y) ? x << unsigned(y) : zero(x)
@piecewise shift_right_logical(x, y) = in_range(x, y) ? x >>> unsigned(y) : zero(x)
# By the sign bit, which unsigned numbers have as well.
@piecewise shift_right_arithmetic(x, y) = shifted(signed(x), y) % typeof(x)
@piecewise population_count(x) = oftype(x, count_ones(x))
@piecewise clz(x) = oftype(x, leading_zeros(x))

# The upper half of the product.
@piecewise mulhi(x, y) = (widemul(x, y) >> (8 * sizeof(x))) % typeof(x)

@inline shifted(x, y) = in_range(x, y) ? x >> unsigned(y) : x < 0 ? -one(x) : zero(x)
@inline in_range(x, y) = (y >= 0) & (y < 8 * sizeof(x))

# --- complex numbers ----------------------------------------------------------------------

@elementwise complex(x, y) = Base.complex(x, y) (1, im)
@elementwise imag(x) = Base.imag(x) (1,)
pull(::Elementwise{:imag}, ::Val{1}, ȳ, y, x) = broadcast(ȳ -> Base.complex(zero(ȳ), ȳ), ȳ)
# The absolute value of a complex number has no complex derivative.
pull(::Elementwise{:abs}, ::Val{1}, ȳ, y, x) = broadcast((ȳ, x) -> ȳ * sign_of(x), ȳ, x)
pull(::Elementwise{:conj}, ::Val{1}, ȳ, y, x) = real_like(x, broadcast(Base.conj, ȳ))

# --- choices ------------------------------------------------------------------------------

# By `ifelse`, since a branch for each element is slow where they alternate.
@primitive select(which, x, y) = broadcast(chooser(x, y), which, x, y)

"Choose between two numbers of one type."
struct Chooser{T} <: Function end
@inline (::Chooser{T})(which, x, y) where {T} =
    ifelse(which, convert(T, x), convert(T, y))
chooser(x, y) = Chooser{promote_type(eltype(x), eltype(y))}()

pull(::Primitive{:select}, ::Val{2}, ȳ, y, which, a, b) =
    unbroadcast(a, broadcast((w, ȳ) -> ifelse(w, ȳ, zero(ȳ)), which, ȳ))
pull(::Primitive{:select}, ::Val{3}, ȳ, y, which, a, b) =
    unbroadcast(b, broadcast((w, ȳ) -> ifelse(w, zero(ȳ), ȳ), which, ȳ))

# One of several by an integer that counts from 0.
@primitive select_n(which, xs...) =
    broadcast((w, vs...) -> promote(vs...)[w+1], which, xs...)
function pull(::Primitive{:select_n}, ::Val{i}, ȳ, y, which, xs...) where {i}
    return unbroadcast(xs[i-1], broadcast((w, ȳ) -> w == i - 2 ? ȳ : zero(ȳ), which, ȳ))
end

@elementwise clamp(low, x, high) = smaller(larger(x, low), high) (
    (primal(low) > primal(x)) & (primal(low) < primal(high)),
    (primal(x) > primal(low)) & (primal(x) < primal(high)),
    primal(x) > primal(high),
)
