# Running sums, products, extremes: y[i] = f(y[i-1], x[i]), with partial derivatives.

for (name, step) in ((:cumsum, :add), (:cumprod, :mul), (:cummax, :max), (:cummin, :min),
    (:cumlogsumexp, :logaddexp))
    @eval begin
        forward(
            ::Primitive{$(QuoteNode(name))}, x, ::Val{dim}, ::Val{back}
        ) where {dim,back} =
            accumulated(Scalar{$(QuoteNode(step))}(), x, dim, back)
        pull(
            ::Primitive{$(QuoteNode(name))}, ::Val{1}, ȳ, y, x, ::Val{dim}, ::Val{back}
        ) where {dim,back} =
            pull_widely(Scalar{$(QuoteNode(step))}(), ȳ, y, x, dim, back)
        register($(QuoteNode(name)), Primitive{$(QuoteNode(name))}())
    end
end

# Each step rounds, but for extremes.
const Extremum = Union{Scalar{:max},Scalar{:min}}
running_type(::Extremum, x) = real_type(x)
running_type(f, x) = summing_type(real_type(x))

accumulated(f, x, dim, back) = in_type(real_type(x), accumulated_widely(f, x, dim, back))
accumulated_widely(f, x, dim, back) =
    running(lifted(modes((x,)), f), begun(f, in_type(running_type(f, x), x)), dim, back)

# JAX adds the first number to nothing, which makes 0 of -0.
begun(f, x) = x
begun(::Scalar{:logaddexp}, x) = x .+ zero(eltype(x))

pull_widely(f::Extremum, ȳ, y, x, dim, back) = pull_running(f, ȳ, y, x, dim, back)
pull_widely(f::Scalar{:add}, ȳ, y, x, dim, back) =
    accumulated(f, ȳ, dim, !back)
function pull_widely(f, ȳ, y, x, dim, back)
    S = running_type(f, x)
    wide = accumulated_widely(f, x, dim, back)
    x̄ = pull_running(f, in_type(S, ȳ), wide, in_type(S, x), dim, back)
    return in_type(real_type(ȳ), x̄)
end

@elementwise logaddexp(x, y) = log_of_sum(x, y) (Base.exp(x - Ω), Base.exp(y - Ω))
@inline function log_of_sum(x, y)
    high = larger(x, y)
    isfinite(high) || return high
    return high + Base.log1p(Base.exp(-Base.abs(x - y)))
end

function running(f, x, dim, back)
    y = Base.copy(x)
    order = back ? reverse(axes(x, dim)) : axes(x, dim)
    for (previous, here) in zip(order, Iterators.drop(order, 1))
        selectdim(y, dim, here) .= f.(selectdim(y, dim, previous), selectdim(x, dim, here))
    end
    return y
end

function pull_running(f, ȳ, y, x, dim, back)
    x̄ = zeros_for(x, ȳ)
    isempty(x) && return x̄
    order = collect(back ? reverse(axes(x, dim)) : axes(x, dim))
    at(a, i) = selectdim(a, dim, i)
    carried = collect(at(ȳ, last(order)))
    for k in length(order):-1:2
        here, previous = order[k], order[k-1]
        a, b, c = at(y, previous), at(x, here), at(y, here)
        by(i) = conj.(partial.(Ref(f), Ref(i), c, a, b))
        at(x̄, here) .= carried .* by(Val(2))
        carried = at(ȳ, previous) .+ carried .* by(Val(1))
    end
    at(x̄, first(order)) .= carried
    return x̄
end
