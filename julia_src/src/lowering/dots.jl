# Products of arrays. JAX's order of the result's axes (batch, left, right) is (right, left,
# batch) here, so the product of the matrices goes the other way round.

"""
    dot_general(a, b, Val(contract), Val(batch), Val(T))

Contract axes of two arrays. `contract` and `batch` are pairs of tuples of axes, those of
`a` and those of `b`. The result's axes are the free ones of `b`, those of `a`, and the
batch's.
"""
@primitive dot_general(a, b, contract, batch, ::Val{T}) where {T} =
    contracted(wide(a, Val(T)), wide(b, Val(T)), contract, batch)

# Integers are multiplied in the type that the result has.
wide(x, T) = x
wide(x::Union{Integer,AbstractArray{<:Integer}}, ::Val{T}) where {T} =
    broadcast(v -> as_type(T, v), x)
wide(x::Union{Float16,AbstractArray{Float16}}, ::Val{Float32}) = Float32.(x)
wide(x::Union{Float32,AbstractArray{Float32}}, ::Val{Float64}) = Float64.(x)

"The axes of one factor that are neither contracted nor of the batch."
filter_free(::Val{n}, contract, batch) where {n} =
    Tuple(filter(d -> !(d in contract) && !(d in batch), ntuple(identity, n)))

sizes(x, axes) = map(d -> size(x, d), axes)

"The factor as a matrix (or a stack), with the axes in the order `first`, `second`, batch."
function as_matrices(x, first, second, batch)
    order = (first..., second..., batch...)
    rows, columns = prod(sizes(x, first)), prod(sizes(x, second))
    straight = order === ntuple(identity, length(order))
    turned = (second..., first...) === ntuple(identity, length(order))
    if !straight && isempty(batch) && turned
        return LinearAlgebra.transpose(Base.reshape(x, columns, rows))
    end
    moved = straight ? x : permutedims(x, order)
    return isempty(batch) ? Base.reshape(moved, rows, columns) :
        Base.reshape(moved, rows, columns, prod(sizes(x, batch)))
end

product(b, a) = in_single(plain_product, b, a)
plain_product(b, a) = ndims(b) == 2 ? b * a : batched(b, a)
batched(b, a) = NNlib.batched_mul(b, a)
function batched(b::AbstractArray{S,3}, a::AbstractArray{T,3}) where {S<:Integer,T<:Integer}
    y = Array{promote_type(S, T)}(undef, size(b, 1), size(a, 2), size(b, 3))
    for k in axes(b, 3)
        y[:, :, k] = b[:, :, k] * a[:, :, k]
    end
    return y
end

function contracted(a, b, contract, batch)
    (a isa Number || b isa Number) && return a .* b
    return contracted_arrays(a, b, contract, batch)
end
function contracted_arrays(a, b, ::Val{contract}, ::Val{batch}) where {contract,batch}
    free_a = filter_free(Val(ndims(a)), contract[1], batch[1])
    free_b = filter_free(Val(ndims(b)), contract[2], batch[2])
    dims = (sizes(b, free_b)..., sizes(a, free_a)..., sizes(a, batch[1])...)
    A = as_matrices(a, contract[1], free_a, batch[1])
    B = as_matrices(b, free_b, contract[2], batch[2])
    return as_value(Base.reshape(product(B, A), dims))
end

adjoint_of(x) = ndims(x) == 2 ? LinearAlgebra.adjoint(x) : NNlib.batched_adjoint(x)

"Undo `as_matrices`."
function from_matrices(X, x, first, second, batch)
    order = (first..., second..., batch...)
    moved = Base.reshape(dense(X), sizes(x, order))
    straight = order === ntuple(identity, length(order))
    return straight ? moved : permutedims(moved, invperm(order))
end

function pull(::Primitive{:dot_general}, ::Val{i}, ȳ, y, a, b, contract, batch, T) where {i}
    a isa Number && b isa Number && return ȳ * conj(i == 1 ? b : a)
    if a isa Number || b isa Number
        x, other = i == 1 ? (a, b) : (b, a)
        return unbroadcast(x, broadcast((ȳ, v) -> ȳ * conj(v), ȳ, other))
    end
    x̄ = pull_contracted(Val(i), ȳ, a, b, contract, batch)
    return real_like(i == 1 ? a : b, x̄)
end
function pull_contracted(
    ::Val{i}, ȳ, a, b, ::Val{contract}, ::Val{batch}
) where {i,contract,batch}
    free_a = filter_free(Val(ndims(a)), contract[1], batch[1])
    free_b = filter_free(Val(ndims(b)), contract[2], batch[2])
    rows, columns = prod(sizes(b, free_b)), prod(sizes(a, free_a))
    Ȳ = isempty(batch[1]) ? Base.reshape(as_array(ȳ), rows, columns) :
        Base.reshape(as_array(ȳ), rows, columns, prod(sizes(a, batch[1])))
    if i == 1
        B = as_matrices(b, free_b, contract[2], batch[2])
        return from_matrices(product(adjoint_of(B), Ȳ), a, contract[1], free_a, batch[1])
    end
    A = as_matrices(a, contract[1], free_a, batch[1])
    return from_matrices(product(Ȳ, adjoint_of(A)), b, free_b, contract[2], batch[2])
end
