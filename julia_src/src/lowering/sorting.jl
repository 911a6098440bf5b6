# Sorting: the order is found by the keys' values, and all operands are put in it.

"""
    sort(Val(dim), Val(keys), xs...)

Sort arrays along an axis by the first `keys` of them; equal elements keep their order, NaN
comes last. Returns a tuple, for a single array the array.
"""
@primitive sort(::Val{dim}, ::Val{keys}, xs...) where {dim,keys} =
    only_or_all(map(x -> x[sorted_places(map(primal, xs[1:keys]), dim)], xs))
only_or_all(ys) = length(ys) == 1 ? ys[1] : ys

before(a, b) = a < b
before(a::AbstractFloat, b::AbstractFloat) = a < b || (!isnan(a) && isnan(b))
before(a::Complex, b::Complex) = before((real(a), imag(a)), (real(b), imag(b)))
function before(a::Tuple, b::Tuple)
    for (x, y) in zip(a, b)
        before(x, y) && return true
        before(y, x) && return false
    end
    return false
end

function sorted_places(keys, dim)
    numbers = LinearIndices(first(keys))
    places = similar(numbers, Int)
    for lane in CartesianIndices(Base.setindex(size(numbers), 1, dim))
        line = [numbers[Base.setindex(lane, k, dim)] for k in axes(numbers, dim)]
        by(i) = map(key -> key[i], keys)
        Base.sort!(line; by, lt=before, alg=Base.Sort.MergeSort)
        for (k, place) in enumerate(line)
            places[Base.setindex(lane, k, dim)] = place
        end
    end
    return places
end

function pull(
    ::Primitive{:sort}, ::Val{i}, ȳ, y, ::Val{dim}, ::Val{keys}, xs...
) where {i,dim,keys}
    given = length(xs) == 1 ? ȳ : unthunk(ȳ[i-2])
    given isa Union{Nothing,AbstractZero} && return NoTangent()
    x̄ = zeros_for(xs[i-2], given)
    x̄[sorted_places(xs[1:keys], dim)] = given
    return x̄
end

"""
    top_k(x, Val(k), Val(dim), Val(T))

The `k` largest elements and their places, from 0. As in `lax.top_k` the order is IEEE 754's
total order: -NaN, -Inf, ..., -0.0, 0.0, ..., Inf, NaN.
"""
@primitive top_k(x, ::Val{k}, ::Val{dim}, ::Val{T}) where {k,dim,T} =
    top_places(x, k, dim, T)
function top_places(x, k, dim, ::Type{T}) where {T}
    places = top_linear(x, k, dim)
    numbers = map(i -> T(CartesianIndices(x)[i][dim] - 1), places)
    return x[places], numbers
end
function top_linear(x, k, dim)
    places = sorted_places((descending.(primal(x)),), dim)
    return selectdim(places, dim, 1:k) |> collect
end
struct Descending{T}
    value::T
end
descending(x) = Descending(x)
before(a::Descending, b::Descending) = totally_less(b.value, a.value)
totally_less(a, b) = a < b
function totally_less(a::AbstractFloat, b::AbstractFloat)
    isnan(a) || isnan(b) || return isless(a, b)
    return end_of_order(a) < end_of_order(b)
end
end_of_order(x) = isnan(x) ? (signbit(x) ? -1 : 1) : 0
function pull(
    ::Primitive{:top_k}, ::Val{1}, ȳ, y, x, ::Val{k}, ::Val{dim}, ::Val{T}
) where {k,dim,T}
    given = unthunk(ȳ[1])
    given isa Union{Nothing,AbstractZero} && return NoTangent()
    x̄ = zeros_for(x, given)
    x̄[top_linear(x, k, dim)] = given
    return x̄
end
