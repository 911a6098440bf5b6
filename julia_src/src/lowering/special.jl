# Special functions, from Julia's own libm or from series; each says its source.

const libm = Base.Math.libm

for (name, double, single) in ((:erf, :erf, :erff), (:erfc, :erfc, :erfcf),
    (:lgamma, :lgamma_r, :lgammaf_r))
    value = Symbol(name, :_value)
    extra = name === :lgamma ? (:(Ref{Int32}(0)),) : ()
    types = name === :lgamma ? (:(Ptr{Int32}),) : ()
    @eval begin
        $value(x::Float64) = ccall(
            ($(QuoteNode(double)), libm), Float64, (Float64, $(types...)), x, $(extra...))
        $value(x::Float32) = ccall(
            ($(QuoteNode(single)), libm), Float32, (Float32, $(types...)), x, $(extra...))
        $value(x::Float16) = Float16($value(Float32(x)))
    end
end

const two_over_root_pi = 1.1283791670955126

@elementwise erf(x) = erf_value(x) (oftype(Ω, two_over_root_pi) * Base.exp(-x * x),)
@elementwise erfc(x) = erfc_value(x) (oftype(Ω, -two_over_root_pi) * Base.exp(-x * x),)
@elementwise erf_inv(x) = bounded(PyBridge.erfinv, x, -1, 1) (
    Base.exp(Ω * Ω) / oftype(Ω, two_over_root_pi),)
@elementwise lgamma(x) = lgamma_value(x) (applied(Scalar{:digamma}(), x),)
@elementwise digamma(x) = digamma_value(x) (
    applied(Scalar{:polygamma}(), one(primal(x)), x),)

"A function of numbers inside a partial derivative, where they can be dual ones themselves."
@inline applied(scalar::Scalar, xs...) = lifted(modes(xs), scalar)(xs...)

# Abramowitz and Stegun, 6.3.6 (recurrence), 6.3.7 (reflection) and 6.3.18 (series).
function digamma_value(x::Float64)
    isnan(x) && return x
    isinf(x) && return x > 0 ? x : NaN
    x <= 0 && isinteger(x) && return x == 0 ? -Inf : NaN
    x < 0 && return digamma_value(1 - x) - pi / tan(pi * x)
    shift = 0.0
    while x < 10
        shift -= 1 / x
        x += 1
    end
    z = 1 / (x * x)
    series = z *
        evalpoly(z, (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12))
    return shift + log(x) - 1 / (2x) - series
end

digamma_value(x::T) where {T<:Union{Float16,Float32}} = T(digamma_value(Float64(x)))
