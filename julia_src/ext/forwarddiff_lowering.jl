# Lowered programs on dual numbers: the partial derivatives of the elementwise primitives, and
# products that are taken on plain arrays.

using PyBridge.Lowering: Lowering

Lowering.mode(::Dual) = Lowering.Duals()
Lowering.mode(::AbstractArray{<:Union{Dual,Complex{<:Dual}}}) = Lowering.Duals()
Lowering.mode(::Complex{<:Dual}) = Lowering.Duals()

"A function of numbers on dual ones, by its partial derivatives."
struct Lifted{S} <: Function
    scalar::S
end
Lowering.lifted(::Lowering.Duals, scalar) = Lifted(scalar)

@inline (l::Lifted)(xs...) = l.scalar(xs...)
@inline (l::Lifted)(xs::Real...) = on_duals(promote_type(map(typeof, xs)...), l, xs)
@inline on_duals(::Type, l, xs) = l.scalar(xs...)
@inline function on_duals(::Type{Dual{T,V,N}}, l, xs) where {T,V,N}
    values = map(x -> inner_value(T, x), xs)
    y = l(values...)
    terms = ntuple(i -> term(T, l.scalar, Val(i), y, values, xs[i]), length(xs))
    return dual_of(T, y, add_terms(terms...))
end
@inline dual_of(::Type{T}, y, partials) where {T} = Dual{T}(y, partials)
# There are complex numbers of dual ones, and not the other way round.
@inline dual_of(::Type{T}, y::Complex, partials) where {T} = complex(
    Dual{T}(real(y), ForwardDiff.Partials(map(real, partials.values))),
    Dual{T}(imag(y), ForwardDiff.Partials(map(imag, partials.values))))
@inline inner_value(::Type{T}, x) where {T} = x
@inline inner_value(::Type{T}, x::Dual{T}) where {T} = ForwardDiff.value(x)
@inline term(::Type, scalar, i, y, values, x) = nothing
@inline term(::Type{T}, scalar, i, y, values, x::Dual{T}) where {T} =
    times(Lowering.partial(scalar, i, y, values...), ForwardDiff.partials(x))
@inline times(derivative, partials) = derivative * partials
@inline times(derivative::Complex, partials) =
    ForwardDiff.Partials(map(v -> derivative * v, partials.values))
@inline add_terms(term) = term
@inline add_terms(::Nothing, terms...) = add_terms(terms...)
@inline add_terms(::Nothing, ::Nothing, terms...) = add_terms(nothing, terms...)
@inline add_terms(term, ::Nothing, terms...) = add_terms(term, terms...)
@inline add_terms(a, b, terms...) = add_terms(a + b, terms...)

Lowering.float_like(::Type{F}, x::Dual{T}) where {F<:Real,T} = Dual{T}(
    Lowering.as_type(F, ForwardDiff.value(x)),
    map(p -> Lowering.as_type(F, p), ForwardDiff.partials(x).values))
Lowering.float_like(::Type{F}, x::Dual) where {F<:Complex} =
    complex(Lowering.float_like(real(F), x))

Lowering.rounded(x::Dual{T}, bits...) where {T} = Dual{T}(
    Lowering.rounded(ForwardDiff.value(x), bits...),
    map(p -> Lowering.rounded(p, bits...), ForwardDiff.partials(x).values))

Lowering.invoke_as(::Lowering.Duals, ::Lowering.ClosedOver, xs...) =
    Lowering.no_rule_by_closed_over()

# A function with its own rule: one tangent for each of the dual numbers' parts.
function Lowering.invoke_as(::Lowering.Duals, r::Lowering.Ruled, xs...)
    r.push === nothing && throw(ArgumentError(
        "ForwardDiff: expected a function with a rule for forward mode, got a custom_vjp " *
        "function, which has one for reverse mode only. Use backend=\"zygote\" or " *
        "pybridge.lower(..., custom_rules=\"inline\")."))
    args = map(Lowering.settled, xs)
    return pushed(dual_type(args), r, args)
end
function pushed(::Type{Dual{T,V,N}}, r, xs) where {T,V,N}
    values = map(x -> inner_values(T, x), xs)
    inexact = Tuple(i for i in eachindex(xs) if Lowering.is_inexact(xs[i]))
    runs = ntuple(N) do k
        r.push(values, map(i -> part(T, xs[i], k), inexact))
    end
    y = first(first(runs))
    tangents = map(last, runs)
    y isa Tuple || return with_parts(T, y, map(first, tangents))
    place = 0
    return map(y) do y
        Lowering.is_inexact(y) || return y
        place += 1
        with_parts(T, y, map(t -> t[place], tangents))
    end
end
inner_values(::Type{T}, x) where {T} = x
inner_values(::Type{T}, x::Dual{T}) where {T} = ForwardDiff.value(x)
inner_values(::Type{T}, x::AbstractArray{<:Dual{T}}) where {T} = map(ForwardDiff.value, x)
inner_values(::Type{T}, x::Complex{<:Dual{T}}) where {T} =
    complex(inner_values(T, real(x)), inner_values(T, imag(x)))
inner_values(::Type{T}, x::AbstractArray{<:Complex{<:Dual{T}}}) where {T} =
    map(x -> inner_values(T, x), x)
part(::Type{T}, x, k) where {T} = zero(x)
part(::Type{T}, x::Dual{T}, k) where {T} = ForwardDiff.partials(x, k)
part(::Type{T}, x::AbstractArray{<:Dual{T}}, k) where {T} = map(x -> ForwardDiff.partials(x, k), x)
part(::Type{T}, x::Complex{<:Dual{T}}, k) where {T} =
    complex(part(T, real(x), k), part(T, imag(x), k))
part(::Type{T}, x::AbstractArray{<:Complex{<:Dual{T}}}, k) where {T} =
    map(x -> part(T, x, k), x)
with_parts(::Type{T}, y::Real, parts) where {T} = Dual{T}(y, parts...)
with_parts(::Type{T}, y::Complex, parts) where {T} =
    complex(Dual{T}(real(y), map(real, parts)...), Dual{T}(imag(y), map(imag, parts)...))
with_parts(::Type{T}, y::AbstractArray, parts) where {T} =
    map((y, ps...) -> with_parts(T, y, ps), y, parts...)

# Convolutions are linear in both factors: NNlib sees plain arrays.
function Lowering.conv_arrays(
    X::AbstractArray{D}, W::AbstractArray, dims
) where {T,V,N,D<:Dual{T,V,N}}
    return by_parts(T, N, (X, W) -> Lowering.conv_arrays(X, W, dims), X, W)
end
function Lowering.conv_arrays(
    X::AbstractArray{<:Real}, W::AbstractArray{D}, dims
) where {T,V,N,D<:Dual{T,V,N}}
    return by_parts(T, N, (X, W) -> Lowering.conv_arrays(X, W, dims), X, W)
end
function Lowering.conv_arrays(
    X::AbstractArray{D}, W::AbstractArray{D}, dims
) where {T,V,N,D<:Dual{T,V,N}}
    return by_parts(T, N, (X, W) -> Lowering.conv_arrays(X, W, dims), X, W)
end
for name in (:conv_filter, :conv_data)
    @eval begin
        Lowering.$name(
            a::AbstractArray{D}, b::AbstractArray, dims
        ) where {T,V,N,D<:Dual{T,V,N}} =
            by_parts(T, N, (a, b) -> Lowering.$name(a, b, dims), a, b)
        Lowering.$name(
            a::AbstractArray{<:Real}, b::AbstractArray{D}, dims
        ) where {T,V,N,D<:Dual{T,V,N}} =
            by_parts(T, N, (a, b) -> Lowering.$name(a, b, dims), a, b)
        Lowering.$name(
            a::AbstractArray{D}, b::AbstractArray{D}, dims
        ) where {T,V,N,D<:Dual{T,V,N}} =
            by_parts(T, N, (a, b) -> Lowering.$name(a, b, dims), a, b)
    end
end

# Value and tangents of a bilinear function of real arrays.
function by_parts(::Type{T}, N, f, a, b) where {T}
    a0, b0 = inner_values(T, a), inner_values(T, b)
    y = f(a0, b0)
    parts = ntuple(N) do k
        moves_a, moves_b = eltype(a) <: Dual{T}, eltype(b) <: Dual{T}
        moves_a && moves_b && return f(part(T, a, k), b0) + f(a0, part(T, b, k))
        moves_a ? f(part(T, a, k), b0) : f(a0, part(T, b, k))
    end
    return with_parts(T, y, parts)
end

# Linear algebra: the values of plain matrices, and one tangent for each of the parts.
Lowering.factored(::Lowering.Duals, p::Lowering.Factor, xs...) =
    factored_duals(dual_type(xs), p, xs)
function factored_duals(::Type{Dual{T,V,N}}, p, xs) where {T,V,N}
    values = map(x -> inner_values(T, x), xs)
    arrays, _ = Lowering.arrays_and_static(p, xs)
    y = Lowering.forward(p, values...)
    runs = ntuple(k -> Lowering.push(p, map(x -> part(T, x, k), arrays), y, values...), N)
    y isa Tuple || return with_parts(T, y, map(only, runs))
    return ntuple(length(y)) do i
        Lowering.is_inexact(y[i]) ? with_parts(T, y[i], map(run -> run[i], runs)) : y[i]
    end
end

function Lowering.linear_solve_as(
    ::Lowering.Duals, programs, matvec, vecmat, solve, transposed, b
)
    return solved_duals(dual_type((matvec..., b...)), programs,
        (matvec, vecmat, solve, transposed), b)
end
# Of A x = b: the tangent of x solves A ẋ = ḃ - Ȧ x.
function solved_duals(::Type{Dual{T,V,N}}, programs, of, b) where {T,V,N}
    plain = map(xs -> map(x -> inner_values(T, x), xs), of)
    solved(b) = Lowering.as_tuple(Lowering.linear_solve(programs, plain..., b))
    y = solved(map(x -> inner_values(T, x), b))
    x, n = y[1:length(b)], length(b)
    product = Lowering.as_tuple(programs[1](of[1]..., x...))
    runs = ntuple(N) do k
        solved(map((b, Ax) -> part(T, b, k) - part(T, Ax, k), b, product))
    end
    parts = ntuple(i -> with_parts(T, x[i], map(run -> run[i], runs)), n)
    return Lowering.only_or_all((parts..., y[n+1:end]...))
end
