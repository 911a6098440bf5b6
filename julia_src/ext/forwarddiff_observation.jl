# Dual numbers that tell what is done to them, see `PyBridge.Sighting`. They compare as the
# values alone do, as outside of a derivative.

struct Observed end
const Watched = Dual{<:Tag{Observed}}
const WatchedArray = AbstractArray{<:Watched}

function PyBridge.observe(::ForwardDiffBackend, f, args)
    watch_arrays()
    T = Tag{Observed,float(number_type(args))}
    Base.invokelatest(f, PyBridge.maptree(x -> dual(T, x, one.(x)), args)...)
    return nothing
end

has_finite_partials(x::Dual) = all(isfinite, ForwardDiff.partials(x))

NNlib.within_gradient(::Watched) = (PyBridge.sight!(:asks, "within_gradient"); true)
NNlib.within_gradient(::WatchedArray) = (PyBridge.sight!(:asks, "within_gradient"); true)

# --- step functions -----------------------------------------------------------------------

rounding_name(::RoundingMode) = "round"
rounding_name(::RoundingMode{:Down}) = "floor"
rounding_name(::RoundingMode{:Up}) = "ceil"
rounding_name(::RoundingMode{:ToZero}) = "trunc"

function Base.round(x::Watched, r::RoundingMode)
    PyBridge.sight!(:flat, rounding_name(r))
    return round(ForwardDiff.value(x), r)
end

for f in (:floor, :ceil, :trunc, :round)
    @eval function Base.$f(::Type{R}, x::Watched) where {R<:Real}
        PyBridge.sight!(:flat, $(string(f)))
        return $f(R, ForwardDiff.value(x))
    end
end

for T in (:Int, :Integer)
    @eval function Base.$T(x::Watched)
        PyBridge.sight!(:flat, "Int")
        return $T(ForwardDiff.value(x))
    end
end

function Base.sign(x::Watched)
    PyBridge.sight!(:flat, "sign")
    return sign(ForwardDiff.value(x))
end

# --- casts, and arrays that are written into ----------------------------------------------

# Where an array of plain numbers is written into, the cast is its.
for T in (Float16, Float32, Float64)
    @eval function Base.$(nameof(T))(x::Watched)
        is_narrow = eps($T) > eps(ForwardDiff.valtype(x))
        PyBridge.sight!(is_narrow ? :narrow : nothing, $(string(T)); writing=:writes)
        return $T(ForwardDiff.value(x))
    end
end

# With a method for Julia's own arrays, Julia compiles anew whatever writes into arrays of which it
# does not know the type, Zygote's and its own compiler among it: seconds of the first gradient of
# a process. So these come where something is first observed.
const WATCHES_ARRAYS = Ref(false)

function watch_arrays()
    WATCHES_ARRAYS[] && return nothing
    WATCHES_ARRAYS[] = true
    @eval begin
        function Base.setindex!(a::Array{<:Watched}, x, i::Int)
            PyBridge.sight!(nothing, "setindex!"; writing=:writes)
            return invoke(setindex!, Tuple{Array,Any,Int}, a, x, i)
        end
        function Base.setindex!(a::Array{<:Watched}, x, i::Int, j::Int, more::Int...)
            PyBridge.sight!(nothing, "setindex!"; writing=:writes)
            types = Tuple{Array,Any,Int,Int,map(typeof, more)...}
            return invoke(setindex!, types, a, x, i, j, more...)
        end

        function Base.push!(a::Vector{<:Watched}, x)
            PyBridge.sight!(nothing, "push!"; writing=:writes)
            return invoke(push!, Tuple{Vector,Any}, a, x)
        end
    end
    return nothing
end

# --- points without a derivative ----------------------------------------------------------

function told(is_equal, answer)
    is_equal && PyBridge.sight!(:tie, "==")
    return answer
end

for op in (:(==), :<, :<=, :isless)
    @eval Base.$op(x::Dual{T}, y::Dual{T}) where {T<:Tag{Observed}} =
        $op(x, ForwardDiff.value(y))
    for R in (AbstractFloat, Irrational, Integer, Rational, Real)
        @eval function Base.$op(x::Watched, y::$R)
            value = ForwardDiff.value(x)
            return told(value == y, $op(value, y))
        end
        @eval function Base.$op(x::$R, y::Watched)
            value = ForwardDiff.value(y)
            return told(x == value, $op(x, value))
        end
    end
end
Base.iszero(x::Watched) = x == 0
Base.isone(x::Watched) = x == 1

for f in (:sqrt, :cbrt, :log, :log2, :log10, :log1p, :asin, :acos, :acosh, :atanh, :inv)
    @eval function Base.$f(x::Watched)
        y = invoke($f, Tuple{Dual}, x)
        has_finite_partials(x) && !has_finite_partials(y) &&
            PyBridge.sight!(:singular, $(string(f)))
        return y
    end
end

function LinearAlgebra.norm(x::WatchedArray, p::Real=2)
    all(v -> iszero(ForwardDiff.value(v)), x) && PyBridge.sight!(:singular, "norm")
    return invoke(LinearAlgebra.norm, Tuple{Any,Real}, x, p)
end
