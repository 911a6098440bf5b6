# Convolutions, by NNlib: JAX's order (N, C, H, W) is (W, H, C, N) here, which is NNlib's.

"""
    conv_general_dilated(x, w, Val(g), Val(T))

Convolve without flipping the kernel. `g` holds `stride`, `low` and `high` padding, `base`
(the dilation of `x`), `dilation` (of `w`), `groups`, `batches`, and the orders of axes that
bring `x` and `w` to (space..., channels, batch) and (space..., in, out) and the result
back: `x_order`, `w_order`, `y_order`.
"""
@primitive conv_general_dilated(x, w, ::Val{g}, ::Val{T}) where {g,T} =
    convolved(modes((x, w)), wide(x, Val(T)), wide(w, Val(T)), Val(g))

function convolved(::Mode, x, w, ::Val{g}) where {g}
    X, W = permuted(x, Val(g.x_order)), permuted(w, Val(g.w_order))
    return permuted(canonical_conv(X, W, g), Val(g.y_order))
end

# --- in NNlib's order -------------------------------------------------------------------

# NNlib has no dilation of the input and no negative padding: `pad` does both. It knows up
# to three axes of space, and here at least one.
function canonical_conv(X, W, g)
    g.batches == 1 || return batch_groups(X, W, g)
    prepared, padding = prepare(X, g)
    return conv_arrays(prepared, W, conv_geometry(size(prepared), size(W), g, padding))
end

function prepare(X, g)
    simple = all(==(1), g.base) && all(>=(0), g.low) && all(>=(0), g.high)
    simple && return X, pairs_of(g.low, g.high)
    low, high, interior = (g.low..., 0, 0), (g.high..., 0, 0), (g.base .- 1..., 0, 0)
    return padded(X, zero(eltype(X)), low, high, interior),
        pairs_of(map(zero, g.low), map(zero, g.high))
end
pairs_of(low, high) = Tuple(Iterators.flatten(zip(low, high)))

conv_geometry(x_size, w_size, g, padding) = NNlib.DenseConvDims(x_size, w_size;
    stride=g.stride, padding, dilation=g.dilation, groups=g.groups, flipkernel=true)

# One group of the batch for each group of the kernels; the results are channels.
function batch_groups(X, W, g)
    one = merge(g, (; batches=1))
    n, outs = Base.div(size(X, ndims(X)), g.batches), Base.div(size(W, ndims(W)), g.batches)
    parts = map(1:g.batches) do b
        canonical_conv(last_axis(X, (b-1)*n+1:b*n), last_axis(W, (b-1)*outs+1:b*outs), one)
    end
    return cat(parts...; dims=ndims(X) - 1)
end
last_axis(x, range) = collect(selectdim(x, ndims(x), range))

conv_arrays(X, W, dims) = NNlib.conv(X, W, dims)
conv_arrays(X::AbstractArray{<:Integer}, W::AbstractArray{<:Integer}, dims) =
    round.(promote_type(eltype(X), eltype(W)), NNlib.conv(Float64.(X), Float64.(W), dims))

function pull(
    ::Primitive{:conv_general_dilated}, ::Val{i}, ȳ, y, x, w, ::Val{g}, T
) where {i,g}
    X, W = permuted(x, Val(g.x_order)), permuted(w, Val(g.w_order))
    Ȳ = permuted(ȳ, Val(invperm(g.y_order)))
    X̄W̄ = pull_conv(Val(i), Ȳ, X, W, g)
    return permuted(X̄W̄, Val(invperm(i == 1 ? g.x_order : g.w_order)))
end

function pull_conv(::Val{i}, Ȳ, X, W, g) where {i}
    g.batches == 1 || return pull_groups(Val(i), Ȳ, X, W, g)
    prepared, padding = prepare(X, g)
    dims = conv_geometry(size(prepared), size(W), g, padding)
    i == 2 && return conv_filter(prepared, Ȳ, dims)
    X̄ = conv_data(Ȳ, W, dims)
    prepared === X && return X̄
    low, interior = (g.low..., 0, 0), (g.base .- 1..., 0, 0)
    from, to = padded_places(size(X), size(prepared), low, interior)
    out = zeros_for(X, X̄)
    out[from...] = X̄[to...]
    return out
end
conv_filter(X, Ȳ, dims) = NNlib.∇conv_filter(X, Ȳ, dims)
conv_data(Ȳ, W, dims) = NNlib.∇conv_data(Ȳ, W, dims)

function pull_groups(::Val{i}, Ȳ, X, W, g) where {i}
    one = merge(g, (; batches=1))
    n, outs = Base.div(size(X, ndims(X)), g.batches), Base.div(size(W, ndims(W)), g.batches)
    parts = map(1:g.batches) do b
        ȳ = collect(selectdim(Ȳ, ndims(Ȳ) - 1, (b-1)*outs+1:b*outs))
        x, w = last_axis(X, (b-1)*n+1:b*n), last_axis(W, (b-1)*outs+1:b*outs)
        pull_conv(Val(i), ȳ, x, w, one)
    end
    return cat(parts...; dims=ndims(X))
end
